"""Looking into a running engine: what the pictures are drawn from.

Owns three observers: of batches, of attention, of time. Each hands out ``Parts`` in which it sits beside the parts that
it was given, so a learner's parts can be watched too. Changes nothing that the engine computes.

vLLM: ``v1/worker/gpu_model_runner.py`` offers no such hooks; its profiler is ``torch.profiler``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stage1.batch import ForwardBatch
from stage1.build import Parts
from stage1.records import ModelRunnerOutput, SchedulerOutput


@dataclass
class BatchWatch:
    """A ``RunnerHook`` that keeps the plan and the flattened batch of each step."""

    plans: list[SchedulerOutput] = field(default_factory=list)
    batches: list[ForwardBatch] = field(default_factory=list)

    def before_forward(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Keep both."""
        self.plans.append(plan)
        self.batches.append(batch)

    def after_forward(self, plan: SchedulerOutput, batch: ForwardBatch, out: ModelRunnerOutput) -> None:
        """Nothing to add."""

    def beside(self, parts: Parts) -> Parts:
        """``parts`` with this hook in the runner."""
        return replace(parts, runner=lambda *args: parts.runner(*args, hooks=(self,)))


@dataclass
class AttentionWatch:
    """Keeps the attention weights of every layer and call: [R, heads, Q, S] each."""

    weights: list[torch.Tensor] = field(default_factory=list)

    def beside(self, parts: Parts) -> Parts:
        """``parts`` with an attention that also hands its weights over."""
        watch, attention = self, parts.attention

        class Watched(attention):  # type: ignore[misc, valid-type]
            """Computes twice: with the values, and with one-hot values, which gives the weights."""

            def grouped(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Any:
                """As before."""
                num_keys, heads = k.shape[2], q.shape[2]
                one_hot = torch.eye(num_keys, dtype=v.dtype, device=v.device).expand(*k.shape[:2], -1, -1)
                flat = attention.grouped(q, k, one_hot, mask)  # type: ignore[attr-defined]  # [R, Q, heads * S]
                watch.weights.append(flat.unflatten(-1, (heads, num_keys)).transpose(1, 2))
                return attention.grouped(q, k, v, mask)  # type: ignore[attr-defined]

        return replace(parts, attention=Watched)


@dataclass
class Stopwatch:
    """Seconds that the engine spent in each kind of work."""

    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, function: Any) -> Any:
        """``function``, with its time added to ``name``."""

        def call(*args: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **keywords)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

        return call

    def beside(self, parts: Parts) -> Parts:
        """``parts`` whose ops, attention and sampler are timed. On a GPU this times the launches, not the kernels."""

        def ops() -> Any:
            made = parts.ops()
            for name, label in (
                ("linear", "matrix products"),
                ("add_rms_norm", "norms"),
                ("activation", "activations"),
            ):
                setattr(made, name, self.timed(label, getattr(made, name)))
            return made

        def attention(*args: Any) -> Any:
            made = parts.attention(*args)
            for name in ("plan", "attend"):
                setattr(made, name, self.timed("attention, rotation, cache", getattr(made, name)))
            return made

        def sampler(*args: Any) -> Any:
            made = parts.sampler(*args)
            setattr(made, "sample", self.timed("sampling", made.sample))  # noqa: B010
            return made

        return replace(parts, ops=ops, attention=attention, sampler=sampler)

    def shares(self) -> dict[str, float]:
        """The part that each kind of work has in the whole, largest first."""
        total = sum(self.seconds.values())
        return {name: s / total for name, s in sorted(self.seconds.items(), key=lambda item: -item[1])}
