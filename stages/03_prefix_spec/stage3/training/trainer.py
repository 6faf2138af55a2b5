"""The training of one kind of head: steps of AdamW until the time or the number of steps is used up.

Owns the schedule and the loop. Does not know what kind of head it trains.

The learning rate rises over the first ``WARM_UP`` of the way and then falls along a cosine to zero. The way is the
larger of two shares: of the time limit, and of the number of steps where one is set. So it always ends at zero, on a
fast machine and on a slow one.

vLLM: none (it does not train).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import nn

from stage3.training.batches import Batch, endless, make_batch
from stage3.training.corpus import Corpus
from stage3.training.heads import DraftHeads
from stage3.training.loss import soft_loss
from stage3.training.states import HiddenStates
from stage3.training.target import Target

WARM_UP = 0.04
BETAS = (0.9, 0.95)

Report = Callable[[str], None]


@dataclass(frozen=True)
class TrainSettings:
    """How one kind of head is trained."""

    lr: float  # at its highest
    seconds: float  # time limit
    decay: float  # a step further ahead counts that much less
    clip: float  # largest norm of the gradient
    max_steps: int | None = None  # None = the time alone decides
    batch_tokens: int = 8192  # places in a batch, padding too
    hard_share: float = 0.0  # 0..1, how much of the label is the token that came
    log_every: int = 50  # steps
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.lr > 0 and self.seconds > 0 and self.batch_tokens > 0):
            raise ValueError(
                f"lr is {self.lr}, seconds {self.seconds} and batch_tokens {self.batch_tokens}: choose above 0"
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps is {self.max_steps}: choose at least 1, or none for the time alone")
        if not 0 <= self.hard_share <= 1:
            raise ValueError(f"hard_share is {self.hard_share}: choose 0 to 1")


@dataclass
class TrainLog:
    """What happened."""

    steps: int = 0
    seconds: float = 0.0
    sequences: int = 0  # that were trained on, repeated ones anew
    curve: list[dict[str, object]] = field(default_factory=list)  # step, seconds, lr, loss of each step ahead


def train(
    heads: DraftHeads, target: Target, corpus: Corpus, states: HiddenStates, settings: TrainSettings, report: Report
) -> TrainLog:
    """Train ``heads``, which lie on the target's device; ``report`` gets a line now and then.

    Raises:
        ValueError: the corpus is empty, or the loss is no number any more.
    """
    module = cast(nn.Module, heads)
    optimizer = torch.optim.AdamW(module.parameters(), lr=settings.lr, betas=BETAS, weight_decay=0.0)
    generator = torch.Generator().manual_seed(settings.seed)
    decays = settings.decay ** torch.arange(heads.num_steps, dtype=torch.float32)
    log, start = TrainLog(), time.perf_counter()
    recent: list[torch.Tensor] = []  # losses since the last line
    for rows in endless(corpus, settings.batch_tokens, generator):
        way = (time.perf_counter() - start) / settings.seconds
        if settings.max_steps is not None:
            way = max(way, log.steps / settings.max_steps)
        if way >= 1:
            break
        lr = settings.lr * lr_share(way)
        optimizer.param_groups[0]["lr"] = lr
        batch = make_batch(corpus, rows, target.device)
        recent.append(_step(heads, target, states.of(batch), batch, decays, settings.hard_share))
        nn.utils.clip_grad_norm_(module.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        log.steps += 1
        log.sequences += len(rows)
        log.seconds = time.perf_counter() - start
        if log.steps == 1 or log.steps % settings.log_every == 0:
            _write_down(log, heads.method, recent, lr, report)
            recent.clear()
    if recent:
        _write_down(log, heads.method, recent, lr, report)
    return log


def lr_share(way: float) -> float:
    """The share of the highest learning rate at ``way`` in [0, 1): 1 at the end of the warm-up, near 0 at the end."""
    rise = min(1.0, (way + 1e-3) / WARM_UP)
    return rise * 0.5 * (1 + math.cos(math.pi * max(0.0, way - WARM_UP) / (1 - WARM_UP)))


def mean_losses(
    heads: DraftHeads, target: Target, hidden: torch.Tensor, batch: Batch, decays: torch.Tensor, hard_share: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of a batch, a float32 scalar with a gradient, and [J] float32: each step's mean divergence in nats.

    Args:
        hidden: [B, S, H], the target's.
        decays: [J] float32, what each step counts.
        hard_share: as in ``soft_loss``.
    """
    on_gpu = target.device.type == "cuda"
    with torch.autocast(target.device.type, dtype=torch.bfloat16, enabled=on_gpu):
        aligned = heads.states(target, hidden, batch)  # [J, B, S, H]
    weights = batch.chain_weights(decays)  # [J, B, S]
    total = weights.sum(dim=(1, 2))  # [J], of decay times rows
    # Rows that no step counts are left out: those of the prompt, and the padding.
    used = (weights.sum(dim=0) > 0).flatten().nonzero()[:, 0]
    students = aligned.flatten(1, 2).index_select(1, used)
    following = torch.cat((batch.tokens[:, 1:], batch.tokens[:, :1]), dim=1)
    rows = weights.flatten(1).index_select(1, used) / total.sum().clamp(min=1e-6)
    loss, each = soft_loss(
        students, hidden.flatten(0, 1)[used], rows, target.lm_head, following.flatten()[used], hard_share
    )
    return loss, each * total.sum() / total.clamp(min=1e-6)


def _step(
    heads: DraftHeads, target: Target, hidden: torch.Tensor, batch: Batch, decays: torch.Tensor, hard_share: float
) -> torch.Tensor:
    """Gradients of one batch; the mean loss of each step ahead, [J] on the device."""
    loss, each = mean_losses(heads, target, hidden, batch, decays, hard_share)
    loss.backward()
    return each


def _write_down(log: TrainLog, method: str, recent: list[torch.Tensor], lr: float, report: Report) -> None:
    """An entry of the curve: the mean of the losses since the last one."""
    losses = torch.stack(recent).mean(dim=0).tolist()
    if not all(map(math.isfinite, losses)):
        raise ValueError(f"the loss of {method} is {losses} after {log.steps} steps: lower its learning rate")
    rounded = [round(loss, 4) for loss in losses]
    log.curve.append({"step": log.steps, "seconds": round(log.seconds, 2), "lr": lr, "loss": rounded})
    shown = " ".join(f"{loss:.3f}" for loss in losses)
    report(f"{method}: step {log.steps:,}, {log.seconds:.0f} s, lr {lr:.1e}, loss {shown}")
