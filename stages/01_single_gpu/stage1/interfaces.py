"""The sockets: what a part of the engine must offer to be plugged in.

Each has a plain object in this stage and faster or richer ones later; the table is in the README. A wrapper
around a part (tracing, remote KV) offers the same socket as what it wraps. The signatures are final: where this
stage needs less, it passes the trivial value.

vLLM: ``v1/core/kv_cache_manager.py``, ``attention/backends/abstract.py``, ``v1/executor/abstract.py``,
``v1/sample/logits_processor/interface.py``, ``v1/engine/core_client.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from stage1.batch import ForwardBatch, Sampled
from stage1.records import EngineCoreOutputs, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput, StepStats
from stage1.request import Request

if TYPE_CHECKING:
    from stage1.model.layers import Attention


@dataclass(frozen=True, slots=True)
class Hit:
    """What of a request is in the cache already, counted in tokens: a remote prefix need not end at a block."""

    block_ids: tuple[int, ...] = ()
    num_tokens: int = 0


class KVCacheManager(Protocol):
    """Which request owns which blocks. Blocks are numbers here; the memory is the runner's."""

    num_blocks: int
    block_size: int

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""

    def lookup(self, req: Request) -> Hit | None:
        """What ``req`` could reuse, without taking it; ``None`` = not known yet, ask in a later step."""

    def adopt(self, req: Request, hit: Hit) -> None:
        """Give the blocks of ``hit`` to ``req`` too."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Make room for tokens ``[0, upto + lookahead)``; the new block ids, or ``None`` and nothing is taken.

        Not called where they fit in the last block that ``[0, num_computed_tokens)`` reaches into.
        """

    def commit(self, req: Request) -> None:
        """The tokens ``[0, num_computed_tokens)`` of ``req`` are in the cache for every plan made from now on.

        Called when a step's result is read, if the step computed a piece of the prompt or filled a block.
        """

    def free(self, req: Request) -> None:
        """Take back every block of ``req``; without one, do nothing."""


class AttentionBackend(Protocol):
    """Everything between the qkv projection and the output projection."""

    def plan(self, batch: ForwardBatch) -> None:
        """Once a step, before the model: leave in ``batch.attn`` what all layers share."""

    def store(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Split ``qkv`` [T, (q + 2 kv heads) * dim], normalise, rotate, store KV: the queries [T, heads, dim]."""

    def attend(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """``store``, then attention to all keys of each request up to its query: [T, q heads * dim]."""

    def capture_buffers(self, max_reqs: int) -> Any:
        """Static metadata for a graph of up to ``max_reqs`` requests (``None`` where nothing is captured)."""

    def refresh(self, batch: ForwardBatch) -> None:
        """Write the metadata of ``batch`` into the static buffers before a replay."""


class Ops(Protocol):
    """The pointwise and matrix operations of the model."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``residual += x`` (or ``x`` itself when ``None``); returns (norm of it, it), both [T, hidden]."""

    def activation(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[T, 2 * inner] → silu(first half) * second half, [T, inner]."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """[T, in] × [out, in]ᵀ → [T, out]."""


class LogitsProcessor(Protocol):
    """A rule that changes logits before a token is drawn."""

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """On the host, before the model runs: follow the requests that came, grew or left."""

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """On the device: ``logits`` [L, vocab] float32, changed in place or replaced."""


class Sampler(Protocol):
    """From logits to tokens. A speculative verifier is just another one."""

    def sample(self, logits: torch.Tensor, batch: ForwardBatch) -> Sampled:
        """``logits`` [L, vocab] → one or more tokens a request, on the device, without waiting for it."""


@dataclass(slots=True, eq=False)
class Drafts:
    """Speculated continuations, on the device."""

    ids: torch.Tensor  # [R, k]
    counts: torch.Tensor  # [R]


class SchedulerHook(Protocol):
    """Sees every request and plan in the core's process."""

    def admit(self, req: Request) -> bool:
        """Once a request, before it may wait; ``False`` parks it until ``released`` names it."""

    def released(self) -> Sequence[str]:
        """Ids of parked requests that may wait now. Called every step: cheap when there are none."""

    def annotate(self, plan: SchedulerOutput) -> None:
        """The plan is made; leave in ``plan.extras`` what the runner's side needs."""

    def on_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """Before the scheduler reads ``out``; may shorten its drafts."""

    def on_finish(self, req: Request) -> bool:
        """``req`` has ended; ``True`` keeps its blocks until the hook has them freed."""


class RunnerHook(Protocol):
    """Sees every forward pass in the worker's process."""

    def before_forward(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """The inputs are ready, the model has not run."""

    def after_forward(self, plan: SchedulerOutput, batch: ForwardBatch, out: ModelRunnerOutput) -> None:
        """The step is computed; may add to ``out.extras``."""


class Runner(Protocol):
    """Executes plans on one device."""

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Compute one step."""


class Executor(Protocol):
    """Carries plans to one or more runners."""

    max_in_flight: int

    def submit(self, plan: SchedulerOutput) -> Future[ModelRunnerOutput]:
        """Start a step; the future holds its result or the error that ended it."""

    def call(self, method: str, *args: Any) -> list[Any]:
        """Run a method of every runner and wait: one answer a runner."""

    def shutdown(self) -> None:
        """Let the runners go; a second call does nothing."""


class Scheduler(Protocol):
    """Decides what each step computes, and reads what it gave."""

    def add(self, request: EngineCoreRequest) -> None:
        """Queue a request."""

    def abort(self, req_ids: Sequence[str]) -> None:
        """End requests now and free what they hold; unknown ids are ignored."""

    def schedule(self) -> SchedulerOutput:
        """The plan of the next step."""

    def update(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> EngineCoreOutputs:
        """Append tokens, stop, free."""

    def fail(self, plan: SchedulerOutput, reason: str) -> EngineCoreOutputs:
        """The step raised: end its requests with an error, keep all others."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""

    def stats(self) -> StepStats:
        """Queues, usage and counters."""


class EngineClient(Protocol):
    """The way to a core, wherever it runs: in this process, another one, or several."""

    async def add_request(self, request: EngineCoreRequest) -> None:
        """Hand a request over."""

    async def abort(self, req_ids: Sequence[str]) -> None:
        """End requests; unknown ids are ignored."""

    def outputs(self) -> AsyncIterator[EngineCoreOutputs]:
        """Every step's outputs, in order; one consumer. Raises ``EngineDeadError`` when the core has died."""

    async def stats(self) -> StepStats:
        """The latest statistics."""

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method of the core between two steps and wait for its answer."""

    def shutdown(self) -> None:
        """Stop the core; a second call does nothing."""


class EngineDeadError(RuntimeError):
    """The core has stopped after an error that it cannot survive; the message says which."""
