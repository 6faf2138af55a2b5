"""The tracer: a scheduler hook that writes down what the scheduler decides and what comes back.

Owns the trace's clock and the little bookkeeping that the events need: who waits and who runs. Does not know where
the events go (``sinks``), and changes nothing: it admits every request and adds nothing to a plan.

vLLM: ``v1/metrics/stats.py`` follows requests in the same places.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage1.request import Request
from stage1.trace.events import (
    Event,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
    TraceStart,
)
from stage1.trace.sinks import Sink, open_sinks


def start_event(stage: int, model: str, block_size: int, num_blocks: int, max_num_seqs: int) -> TraceStart:
    """The header of a trace that begins now, with the versions of what runs it."""
    versions = {"python": platform.python_version()}
    for library in ("torch", "triton", "transformers"):
        with contextlib.suppress(PackageNotFoundError):
            versions[library] = version(library)
    return TraceStart(0.0, time.time(), stage, model, block_size, num_blocks, max_num_seqs, versions)


def open_tracer(path: str | None, sinks: Sequence[Sink], start: TraceStart) -> Tracer:
    """A tracer that has written ``start`` to ``sinks`` and, unless ``path`` is ``None``, to a file there.

    Raises:
        ValueError: ``path`` cannot be written.
    """
    tracer = Tracer(open_sinks(path, sinks))
    tracer.start(start)
    return tracer


class Tracer:
    """Writes the events of one engine to every sink. A ``SchedulerHook``; used by the core's thread alone.

    Without a sink it costs a step nothing.

    Args:
        sinks: where events go, in order.
        clock: seconds from any origin, never going back.
    """

    def __init__(self, sinks: Sequence[Sink], clock: Callable[[], float] = time.perf_counter) -> None:
        self._sinks = tuple(sinks)
        self._clock = clock
        self._origin = clock()
        # Derived from the hook calls, so that the scheduler need not be asked: a request is in at most one of them.
        self._waiting: set[str] = set()
        self._running: set[str] = set()

    def start(self, event: TraceStart) -> None:
        """Write ``event`` and make this moment t = 0. Once, before any other event."""
        self._origin = self._clock()
        self.emit(event)

    def now(self) -> float:
        """Seconds since the trace began."""
        return self._clock() - self._origin

    def emit(self, event: Event) -> None:
        """Write ``event`` to every sink. Nothing that it holds may change afterwards: sinks keep it."""
        for sink in self._sinks:
            sink.write(event)

    def close(self) -> None:
        """Close every sink; a second call does nothing."""
        for sink in self._sinks:
            sink.close()

    # --- SchedulerHook ----------------------------------------------------------------------------

    def admit(self, req: Request) -> bool:
        """Note the request; never holds it back."""
        self._waiting.add(req.req_id)
        self.emit(RequestAdded(self.now(), req.req_id, req.num_prompt_tokens, req.params.max_tokens, req.priority))
        return True

    def released(self) -> Sequence[str]:
        """Nothing: the tracer parks no request."""
        return ()

    def annotate(self, plan: SchedulerOutput) -> None:
        """Note who lost its place and what this step computes. An empty plan leaves no event."""
        if not self._sinks:
            return
        now = self.now()
        for req_id in plan.preempted:
            self._running.discard(req_id)
            self._waiting.add(req_id)
            self.emit(RequestPreempted(now, plan.step, req_id))
        if not plan.num_scheduled:
            return
        starts = dict(zip(plan.cached.req_ids, plan.cached.num_computed, strict=True))
        for new in plan.new:
            starts[new.req_id] = new.num_computed
            self._waiting.discard(new.req_id)
            self._running.add(new.req_id)
        tokens = {req_id: (starts[req_id], n) for req_id, n in plan.num_scheduled.items()}
        drafts = {req_id: len(ids) for req_id, ids in plan.drafts.items()}
        self.emit(StepScheduled(now, plan.step, tokens, len(self._running), len(self._waiting), drafts))

    def on_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """Note the sampled tokens of requests that still run.

        A request that ended while this step was in flight has its tokens thrown away, and so has a failed one:
        neither is in the trace.
        """
        if not plan.num_scheduled or not self._sinks:
            return
        ids = {
            req_id: list(sampled)
            for req_id, sampled in zip(out.req_ids, out.sampled, strict=True)
            if sampled and req_id in self._running and req_id not in out.failed
        }
        self.emit(TokensSampled(self.now(), plan.step, ids))

    def on_finish(self, req: Request) -> bool:
        """Note the end; the scheduler may free the blocks at once."""
        self._waiting.discard(req.req_id)
        self._running.discard(req.req_id)
        self.emit(RequestFinished(self.now(), req.req_id, req.status.value, len(req.output_ids)))
        return False
