"""The learner's scheduler at work: six requests, three seats, and the seats that stood empty."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from stage1.kv_manager import OneBlockKVManager
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage1.trace import palette
from stage1.trace.draw import draw_steps
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.tracer import Tracer, start_event

REQUESTS = {"a": (7, 9), "b": (4, 3), "c": (11, 5), "d": (5, 8), "e": (3, 2), "f": (6, 4)}  # prompt, output tokens
SEATS, BLOCK_SIZE = 3, 400
MOST_STEPS = 60  # a scheduler that never ends gets no further


def show(subject: Any) -> Figure:
    """A lane a request, a cell a step."""
    sink = MemorySink()
    tracer = Tracer((sink,))
    tracer.start(start_event(1, "your scheduler", BLOCK_SIZE, SEATS, SEATS))
    kv = OneBlockKVManager(SEATS, BLOCK_SIZE)
    scheduler = subject(Lifecycle(kv, BLOCK_SIZE, (tracer,)), kv, SEATS, 35)
    for req_id, (num_prompt, num_output) in REQUESTS.items():
        scheduler.add(EngineCoreRequest(req_id, list(range(num_prompt)), SamplingParams(max_tokens=num_output)))
    for _ in range(MOST_STEPS):
        if not scheduler.has_work:
            break
        plan = scheduler.schedule()
        out = ModelRunnerOutput(list(plan.num_scheduled), [[1] for _ in plan.num_scheduled])
        scheduler.update(plan, out)
    trace = Trace(sink.events)
    figure = draw_steps(trace)
    computed = sum(len(step.tokens) for step in trace.steps.values())
    seats = SEATS * len(trace.steps)
    figure.supxlabel(f"{seats - computed} of {seats} seats stood empty", fontsize=palette.NORMAL)
    return figure
