"""The learner's scheduler at work: six requests, three seats, eight tokens a step."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage1.trace import palette
from stage1.trace.draw import draw_steps
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.waiting import FcfsQueue

REQUESTS = {"a": (4, 9), "b": (3, 3), "c": (15, 5), "d": (5, 8), "e": (3, 2), "f": (6, 4)}  # prompt, output tokens
SEATS, BUDGET, BLOCK_SIZE, NUM_BLOCKS = 3, 8, 4, 40
MOST_STEPS = 60  # a scheduler that never ends gets no further


def show(subject: Any) -> Figure:
    """A lane a request, a cell a step."""
    sink = MemorySink()
    tracer = Tracer((sink,))
    tracer.start(start_event(2, "your scheduler", BLOCK_SIZE, NUM_BLOCKS, SEATS))
    kv = TracedKV(PagedKVManager(BlockPool(NUM_BLOCKS), BLOCK_SIZE), tracer)
    scheduler = subject(Lifecycle(kv, 100, (tracer,)), kv, BatchConfig(SEATS, BUDGET), FcfsQueue())
    known = {}
    for req_id, (num_prompt, num_output) in REQUESTS.items():
        known[req_id] = num_prompt
        scheduler.add(EngineCoreRequest(req_id, list(range(num_prompt)), SamplingParams(max_tokens=num_output)))
    computed = dict.fromkeys(known, 0)
    for _ in range(MOST_STEPS):
        if not scheduler.has_work:
            break
        plan = scheduler.schedule()
        out = ModelRunnerOutput([], [])
        for req_id, num_tokens in plan.num_scheduled.items():
            computed[req_id] += num_tokens
            out.req_ids.append(req_id)
            out.sampled.append([1] if computed[req_id] >= known[req_id] else [])
            known[req_id] += len(out.sampled[-1])
        scheduler.update(plan, out)
    trace = Trace(sink.events)
    figure = draw_steps(trace)
    rows = sum(len(step.tokens) for step in trace.steps.values()) / len(trace.steps)
    words = f"{len(trace.steps)} steps, {rows:.1f} of {SEATS} seats busy on average"
    figure.supxlabel(words, x=0.99, ha="right", fontsize=palette.NORMAL)
    return figure
