"""How far drafted distributions are from the target's, and the gradient of that, over a large vocabulary.

Owns the arithmetic of one loss. Does not know which head a state came from or which positions count: a weight says so.

The loss of one row is the Kullback-Leibler divergence Σ p log(p / q), with p the target's distribution of the next
token and q the draft's. The chance that a draft drawn from q stays is Σ min(p, q), so near is what is wanted, not only
the same best token. With ``hard_share`` s, p becomes (1 - s) p + s (the token that came).

Logits of a batch would not fit into memory at once: 16,000 rows of 49,152 tokens are 3 GB in float32, and a plain
autograd graph keeps several such tensors for every head. The projection is frozen, so the gradient of a row,
(q - p) @ lm_head, is known when its loss is: both are computed a chunk of rows at a time, and the logits are dropped.

vLLM: none (it does not train). The fused linear loss of Liger-Kernel (arXiv:2410.10989) works the same way.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

CHUNK_BYTES = {"cuda": 1 << 30, "cpu": 1 << 26}  # of one [rows, vocab] float32 tensor


def soft_loss(
    students: torch.Tensor,
    teacher: torch.Tensor,
    weights: torch.Tensor,
    lm_head: torch.Tensor,
    tokens: torch.Tensor,
    hard_share: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum of all rows' losses, and each head's own, which carries no gradient.

    Args:
        students: [J, N, hidden], the states of J heads that predict N tokens.
        teacher: [N, hidden], the target's states that predict the same tokens.
        weights: [J, N] float32, 0 where a row does not count.
        lm_head: [vocab, hidden], frozen.
        tokens: [N] int64, what came.
        hard_share: 0..1, how much of p is the token that came.

    Returns:
        A float32 scalar, and [J] float32: the weighted sums of the heads. Less the entropy of p, so 0 is perfect
        where ``hard_share`` is 0.
    """
    result: tuple[torch.Tensor, torch.Tensor] = _SoftLoss.apply(  # type: ignore[no-untyped-call]
        students, teacher, weights, lm_head, tokens, hard_share
    )
    return result


class _SoftLoss(torch.autograd.Function):
    """Computes the gradient in the forward pass and hands it out in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        students: torch.Tensor,
        teacher: torch.Tensor,
        weights: torch.Tensor,
        lm_head: torch.Tensor,
        tokens: torch.Tensor,
        hard_share: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        grads = torch.empty_like(students)
        sums = torch.zeros(len(students), device=students.device)  # [J]
        rows = max(1, CHUNK_BYTES[students.device.type] // (4 * lm_head.shape[0]))
        with torch.autocast(students.device.type, enabled=False):
            for start in range(0, students.shape[1], rows):
                part = slice(start, start + rows)
                p, entropy = _distribution(teacher[part], lm_head, tokens[part], hard_share)
                for j, student in enumerate(students):
                    log_q = torch.log_softmax(_scores(student[part], lm_head), dim=-1, dtype=torch.float32)
                    row_loss = -torch.linalg.vecdot(p, log_q) - entropy  # [rows]
                    sums[j] += torch.dot(row_loss, weights[j, part])
                    pull = log_q.exp_().sub_(p).mul_(weights[j, part, None])  # [rows, vocab]
                    grads[j, part] = (pull.to(lm_head.dtype) @ lm_head).to(grads.dtype)
        ctx.save_for_backward(grads)
        ctx.mark_non_differentiable(sums)
        return sums.sum(), sums

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> tuple[Any, ...]:
        (grads,) = ctx.saved_tensors
        return grads * outer[0].to(grads.dtype), None, None, None, None, None


def _scores(states: torch.Tensor, lm_head: torch.Tensor) -> torch.Tensor:
    """[rows, hidden] → [rows, vocab] in the dtype of ``lm_head``."""
    return F.linear(states.to(lm_head.dtype), lm_head)


def _distribution(
    teacher: torch.Tensor, lm_head: torch.Tensor, tokens: torch.Tensor, hard_share: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """p [rows, vocab] float32, and the target's own entropy [rows]."""
    log_p = torch.log_softmax(_scores(teacher, lm_head), dim=-1, dtype=torch.float32)
    p = log_p.exp()
    entropy = -torch.linalg.vecdot(p, log_p)
    if hard_share > 0:
        p.mul_(1 - hard_share)
        p.scatter_add_(1, tokens[:, None], torch.full_like(p[:, :1], hard_share))
    return p, entropy
