"""The learner's preemption at work: three requests whose texts do not fit into the cache together."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage1.trace.draw import draw_steps
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue

REQUESTS = {"a": (9, 12), "b": (6, 8), "c": (4, 6)}  # prompt, output tokens
NUM_BLOCKS, BLOCK_SIZE, MOST_STEPS = 6, 4, 60


def show(subject: Any) -> Figure:
    """A lane a request, a cell a step; a request that was sent back begins anew."""
    sink = MemorySink()
    tracer = Tracer((sink,))
    tracer.start(start_event(2, "your preemption", BLOCK_SIZE, NUM_BLOCKS, 3))
    kv = TracedKV(PagedKVManager(BlockPool(NUM_BLOCKS), BLOCK_SIZE), tracer)
    lifecycle = Lifecycle(kv, 100, (tracer,))
    scheduler = ContinuousScheduler(lifecycle, kv, BatchConfig(3, 24), FcfsQueue(), preemption=subject)
    for req_id, (num_prompt, num_output) in REQUESTS.items():
        scheduler.add(EngineCoreRequest(req_id, [0] * num_prompt, SamplingParams(max_tokens=num_output)))
    for _ in range(MOST_STEPS):
        if not scheduler.has_work:
            break
        plan = scheduler.schedule()
        requests = [lifecycle.requests[req_id] for req_id in plan.num_scheduled]
        sampled = [[1] if req.num_computed_tokens >= req.num_tokens else [] for req in requests]
        scheduler.update(plan, ModelRunnerOutput(list(plan.num_scheduled), sampled))
    return draw_steps(Trace(sink.events))
