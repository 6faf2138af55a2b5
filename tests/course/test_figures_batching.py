"""Step sizes in pictures, and the museum's second floor: counts against a run that is known by heart."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from sixfold.figures.batching import draw_step_sizes, longest_wait, mean_rows, steps_to_first_token
from sixfold.museum_admission import SuspectAdmissionKVManager
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue


def serve(
    requests: dict[str, tuple[int, int]], manager: Any = PagedKVManager, budget: int = 8, blocks: int = 40
) -> Trace:
    """Prompt and output tokens of each request → the trace of a scheduler without a model."""
    sink = MemorySink()
    tracer = Tracer((sink,))
    tracer.start(start_event(2, "none", 4, blocks, 3))
    kv = TracedKV(manager(BlockPool(blocks), 4), tracer)
    lifecycle = Lifecycle(kv, 100, (tracer,))
    scheduler = ContinuousScheduler(lifecycle, kv, BatchConfig(3, budget), FcfsQueue())
    for name, (num_prompt, num_output) in requests.items():
        scheduler.add(EngineCoreRequest(name, [0] * num_prompt, SamplingParams(max_tokens=num_output)))
    for _ in range(200):
        if not scheduler.has_work:
            break
        plan = scheduler.schedule()
        known = [lifecycle.requests[name] for name in plan.num_scheduled]
        sampled = [[1] if req.num_computed_tokens == req.num_tokens else [] for req in known]
        scheduler.update(plan, ModelRunnerOutput(list(plan.num_scheduled), sampled))
    return Trace(sink.events)


def test_counts_of_a_prompt_that_comes_in_pieces() -> None:
    trace = serve({"a": (2, 5), "long": (18, 2)})
    assert [step.num_tokens for step in trace.steps.values()] == [8, 8, 6, 2, 1]  # a 2 and long 6, a 1 and long 7, …
    assert mean_rows(trace) == 9 / 5
    assert longest_wait(trace, "a") == 8
    assert longest_wait(trace, "long") == 2
    assert steps_to_first_token(trace, "long") == 3
    assert steps_to_first_token(trace, "a") == 1


def test_a_bar_is_as_high_as_its_step() -> None:
    trace = serve({"a": (2, 5), "long": (18, 2)})
    figure = draw_step_sizes({"one": trace, "two": trace}, first=2, last=4)
    assert isinstance(figure, Figure)
    one, two = figure.axes
    low, high = one.containers
    assert [bar.get_height() for bar in low] == [1, 1, 2]
    assert [bar.get_y() + bar.get_height() for bar in high] == [8, 6, 2]
    assert len(two.patches) == len(one.patches) == 6


def test_the_suspect_is_right_and_wasteful() -> None:
    pair = {"a": (9, 14), "b": (20, 2)}
    right, wasteful = (serve(pair, manager, 12, 7) for manager in (PagedKVManager, Small))
    for trace in (right, wasteful):
        assert check_trace(trace) == []
        assert [len(life.token_ids) for life in trace.requests.values()] == [14, 2]
    assert not right.requests["b"].preempted
    assert len(wasteful.requests["b"].preempted) > 3


class Small(SuspectAdmissionKVManager):
    """For steps of twelve tokens."""

    PIECE = 12
