"""Prefix caching and speculation at once: no rejected draft's keys and values are ever found by anyone."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue, PriorityQueue
from stage3.prefix.scheduler import PrefixScheduler
from stage3.spec.accept import AcceptanceCounter
from stage3.spec.lookahead import LookaheadKV
from stage3.spec.scheduling import DraftLimits, Speculation

prefix_bed = load_file(Path(__file__).with_name("prefix_bed.py"))
spec_bed = load_file(Path(__file__).with_name("spec_bed.py"))
expected_output = spec_bed.expected_output
STEM = [(7 * i) % 23 for i in range(20)]


class BothBed(spec_bed.SpecBed):
    """``SpecBed`` whose blocks come from a ``PrefixKVManager``."""

    def __init__(self, num_blocks, block_size, budget, queue, depth, p, lookahead, kv_type=prefix_bed.RecordingKV):
        seats = 4
        super().__init__(num_blocks, block_size, seats, budget, queue=queue, depth=depth, p=p)
        self.sink = MemorySink()
        tracer = Tracer([self.sink])
        tracer.start(start_event(3, "fake", block_size, num_blocks, seats))
        self.pool = BlockPool(num_blocks)
        self.plain_kv = kv_type(self.pool, block_size)
        self.kv = TracedKV(LookaheadKV(self.plain_kv, lookahead), tracer)
        self.hook = Speculation(self.kv, DraftLimits(3, 100, max(budget - seats, 1)), AcceptanceCounter(3))
        self.lifecycle = Lifecycle(self.kv, prefix_bed.MAX_LEN, (self.hook, tracer))
        scheduler = ContinuousScheduler(self.lifecycle, self.kv, BatchConfig(seats, budget, 0), queue())
        self.scheduler = PrefixScheduler(scheduler, self.plain_kv)


def serve(bed, arrivals) -> None:
    """Run requests that come two steps apart; each must get its lone output."""
    prompts = [
        [*STEM[:shared], *[(5 * i + j) % 23 for j in range(own)]] for i, (shared, own, *_) in enumerate(arrivals)
    ]
    for i, (_, _, max_tokens, priority) in enumerate(arrivals):
        bed.add(str(i), prompts[i], priority, float(i), max_tokens=max_tokens)
        bed.step()
        bed.step()
    bed.run()
    for i, (_, _, max_tokens, _) in enumerate(arrivals):
        assert bed.received[str(i)] == expected_output(prompts[i], SamplingParams(max_tokens=max_tokens))
    bed.assert_clean()


ARRIVALS = st.lists(
    st.tuples(st.integers(1, 20), st.integers(0, 4), st.integers(1, 24), st.integers(-1, 1)), min_size=2, max_size=8
)


@settings(max_examples=200, deadline=None)
@given(
    ARRIVALS,
    st.integers(1, 5),
    st.integers(0, 12),
    st.integers(4, 24),
    st.sampled_from([FcfsQueue, PriorityQueue]),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.integers(0, 3),
)
def test_any_workload_with_drafts(arrivals, block_size, spare, budget, queue, depth, p, lookahead):
    bed = BothBed(-(-46 // block_size) + spare, block_size, budget, queue, depth, p, lookahead)
    serve(bed, arrivals)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_an_output_is_found_up_to_its_last_token(p):
    """That one was never computed; a draft that was rejected may stand in its slot."""
    bed = BothBed(40, 4, 24, FcfsQueue, 1, p, 0)
    bed.add("a", STEM[:9], max_tokens=23, ignore_eos=True)
    bed.run()
    assert bed.num_drafted() > 0
    prompt = [*STEM[:9], *bed.received["a"], 1]
    bed.add("b", prompt, max_tokens=9, ignore_eos=True)
    plan = bed.step()
    assert (len(prompt), plan.new[0].num_computed) == (33, 28)
    bed.run()
    assert bed.received["b"] == expected_output(prompt, SamplingParams(max_tokens=9, ignore_eos=True))
    bed.assert_clean()
