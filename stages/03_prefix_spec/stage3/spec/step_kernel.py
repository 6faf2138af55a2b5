"""What ``steps`` does with a step's tokens, in one launch.

Owns the write of the drawn tokens, into the request table and into the result for the host: a program a request.
``steps.remember`` is the plain version.

vLLM: ``v1/worker/gpu_model_runner.py`` (``_bookkeeping_sync``), where the host does it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage1.batch import Sampled
from stage2.inputs import StepBatch
from stage2.kernels.sampling import sample
from stage2.state import RequestTable
from stage3.spec import steps

_FLAGS: tl.constexpr = tl.constexpr(steps.FLAGS)
_COUNTS: tl.constexpr = tl.constexpr(steps.COUNTS)
_FURTHER: tl.constexpr = tl.constexpr(steps.FURTHER)


def remember(batch: StepBatch, sampled: Sampled, table: RequestTable, result: torch.Tensor) -> None:
    """``steps.remember``: the same arguments, contiguous, without waiting for the device."""
    num_reqs, width = sampled.ids.shape
    _remember_kernel[(num_reqs,)](
        batch.rows, batch.seq_lens, batch.draws, sampled.ids, sampled.counts, sampled.bad, table.memory, result,
        table.width, table.tokens_at, result.stride(0), width, block=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _remember_kernel(
    rows: tl.tensor,  # [R]
    seq_lens: tl.tensor,  # [R], drafts included
    draws: tl.tensor,  # [R]
    ids: tl.tensor,  # [R, width]
    counts: tl.tensor,  # [R]
    bad: tl.tensor,  # [R]
    memory: tl.tensor,
    result: tl.tensor,  # [lines, max_reqs]
    table_width: int,
    tokens_at: int,
    result_stride: int,
    width: int,
    block: tl.constexpr,
) -> None:
    """A program is a request; tokens that do not count are 0 and stay out of the table."""
    req = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, block)
    count = tl.load(counts + req)
    token = tl.load(ids + req * width + place, mask=place < width, other=0).to(tl.int32)
    num_drafts = tl.maximum(tl.load(draws + req) - 1, 0)
    known = tl.load(seq_lens + req) - num_drafts
    at = memory + tl.load(rows + req) * table_width + tokens_at + known
    tl.store(at + place, token, mask=place < count)
    line = tl.where(place == 0, 0, _FURTHER - 1 + place)
    tl.store(result + line * result_stride + req, token, mask=place < width)
    is_bad = tl.load(bad + req).to(tl.int32)
    tl.store(result + _FLAGS * result_stride + req, tl.where(count > 0, 1 + is_bad, 0))
    tl.store(result + _COUNTS * result_stride + req, count.to(tl.int32))


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """``best.best_tokens`` by the kernel that draws: [N, vocab] → [N] int64."""
    zeros = torch.zeros(2, len(logits), dtype=torch.int64, device=logits.device)
    ids, _ = sample(logits, zeros[0].view(torch.float32)[: len(logits)], zeros[1], zeros[1])
    return ids
