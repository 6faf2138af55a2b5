"""Drafts in pictures, and the museum's verdict: counts against a trace that is known by heart."""

from __future__ import annotations

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sixfold.figures.speculation import (
    acceptance_length,
    acceptance_rate,
    draw_distributions,
    draw_verdicts,
    num_steps,
    verdicts,
)
from sixfold.museum_speculation import suspect_accept_matching
from stage1.interfaces import Drafts
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
from stage3.spec.accept import AcceptanceCounter
from stage3.spec.rejection import accept_matching
from stage3.spec.scheduling import DraftLimits, Speculation


def serve(results: list[tuple[int, int]], num_prompt: int = 3) -> Trace:
    """A request whose steps give (tokens, drafts for the next step): the trace of a scheduler without a model."""
    sink = MemorySink()
    tracer = Tracer((sink,))
    tracer.start(start_event(3, "none", 4, 40, 2))
    kv = TracedKV(PagedKVManager(BlockPool(40), 4), tracer)
    hook = Speculation(kv, DraftLimits(3, 8, 8), AcceptanceCounter(3))
    lifecycle = Lifecycle(kv, 100, (hook, tracer))
    scheduler = ContinuousScheduler(lifecycle, kv, BatchConfig(2, 16), FcfsQueue())
    total = sum(tokens for tokens, _ in results)
    scheduler.add(EngineCoreRequest("a", [0] * num_prompt, SamplingParams(max_tokens=total)))
    for tokens, num_drafts in results:
        plan = scheduler.schedule()
        out = ModelRunnerOutput(["a"], [[1] * tokens])
        if num_drafts:
            out.drafts["a"] = [1] * num_drafts
        scheduler.update(plan, out)
    assert not scheduler.has_work
    return Trace(sink.events)


RESULTS = [(1, 3), (4, 3), (2, 2), (1, 0), (1, 0)]


def test_counts_of_steps_with_and_without_drafts() -> None:
    trace = serve(RESULTS)
    assert check_trace(trace) == []
    found = verdicts(trace)
    assert [(v.place, v.num_drafts, v.num_tokens, v.num_rejected) for v in found] == [
        (0, 0, 1, 0),
        (1, 3, 4, 0),
        (5, 3, 2, 2),
        (7, 1, 1, 1),  # one draft is dropped: the request has room for two tokens more
        (8, 0, 1, 0),
    ]
    assert num_steps(trace) == 5
    assert acceptance_length(trace) == 9 / 5
    assert acceptance_rate(trace) == (3 + 1 + 0) / 7


def test_without_drafts_there_is_no_rate() -> None:
    trace = serve([(1, 0), (1, 0)])
    assert acceptance_rate(trace) is None
    assert acceptance_length(trace) == 1
    assert verdicts(trace, "b") == []


def test_a_trace_without_tokens_has_no_length() -> None:
    with pytest.raises(ValueError, match="no step that gave a token"):
        acceptance_length(Trace(serve([(1, 0)]).events[:1]))


def test_a_box_for_every_position_that_was_computed() -> None:
    trace = serve(RESULTS)
    figure = draw_verdicts({"one": trace, "two": trace})
    assert isinstance(figure, Figure)
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(boxes) == 9 + 3
    assert len(figure.axes) == 2


def test_bars_are_as_high_as_the_shares() -> None:
    figure = draw_distributions(["a", "b"], [0.25, 0.75], {"drawn": [0.5, 0.5]})
    heights = [bar.get_height() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert heights == [0.25, 0.75, 0.5, 0.5]


def test_museums_verdict_gives_right_tokens_and_one_too_few() -> None:
    drawn = torch.tensor([[5, 8, 2], [5, 9, 2], [6, 8, 2], [4, 1, 1]])
    drafts = Drafts(torch.tensor([[5, 8], [5, 8], [5, 8], [0, 0]]), torch.tensor([2, 2, 2, 0]))
    bad = torch.zeros_like(drawn, dtype=torch.bool)
    right, suspect = accept_matching(drawn, bad, drafts), suspect_accept_matching(drawn, bad, drafts)
    assert right.counts.tolist() == [3, 2, 1, 1]
    assert suspect.counts.tolist() == [2, 1, 1, 1]
    assert all(suspect.ids[r, 0] == right.ids[r, 0] for r in range(4))
