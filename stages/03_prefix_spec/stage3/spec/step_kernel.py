"""What ``steps`` does, in a launch each: a program a request.

Owns where the draws of a step are, the write of the drawn tokens, and what is known then. In a graph of small kernels
every launch counts: in torch's operations the three take fifty. ``steps`` has the plain versions.

vLLM: ``v1/worker/gpu_model_runner.py`` (``_calc_spec_decode_metadata``, ``_bookkeeping_sync``), where the host does it.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage2.inputs import StepBatch
from stage2.kernels.sampling import sample
from stage2.state import RequestTable
from stage3.spec import steps
from stage3.spec.rejection import DrawRules
from stage3.spec.steps import Known, Places, StepOperations

_FLAGS: tl.constexpr = tl.constexpr(steps.FLAGS)
_COUNTS: tl.constexpr = tl.constexpr(steps.COUNTS)
_FURTHER: tl.constexpr = tl.constexpr(steps.FURTHER)


def place(batch: StepBatch) -> Places:
    """``steps.Places.of``."""
    num_reqs, width, device = batch.num_reqs, batch.max_draws, batch.rows.device
    rows, seeds, positions, top_k = torch.empty(4, num_reqs * width, dtype=torch.int64, device=device).unbind()
    temperature, top_p, min_p = torch.empty(3, num_reqs * width, device=device).unbind()
    ids = torch.empty(num_reqs, width - 1, dtype=torch.int64, device=device)
    counts = torch.empty(num_reqs, dtype=torch.int64, device=device)
    _place_kernel[(num_reqs,)](
        batch.query_start, batch.draws, batch.input_ids, batch.draw_positions, batch.seeds, batch.temperature,
        batch.top_k, batch.top_p, batch.min_p, rows, ids, counts, positions, seeds, temperature, top_k, top_p, min_p,
        width, block=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return Places(rows, Drafts(ids, counts), DrawRules(temperature, top_k, top_p, min_p, seeds, positions))


def know(batch: StepBatch, result: torch.Tensor) -> Known:
    """``steps.know``."""
    num_reqs = batch.num_reqs
    lengths, last_rows = torch.empty(2, num_reqs, dtype=torch.int64, device=batch.rows.device).unbind()
    counts = result[steps.FLAGS if batch.max_draws == 1 else steps.COUNTS]
    if num_reqs:
        _know_kernel[(triton.cdiv(num_reqs, 128),)](
            batch.query_start, batch.draws, batch.seq_lens, counts, lengths, last_rows, num_reqs,
            is_flag=batch.max_draws == 1, block=128, num_warps=1,
        )  # fmt: skip
    return Known(lengths, last_rows)


def remember(batch: StepBatch, sampled: Sampled, table: RequestTable, result: torch.Tensor) -> None:
    """``steps.remember``: the same arguments, contiguous, without waiting for the device."""
    num_reqs, width = sampled.ids.shape
    _remember_kernel[(num_reqs,)](
        batch.rows, batch.seq_lens, batch.draws, sampled.ids, sampled.counts, sampled.bad, table.memory, result,
        table.width, table.tokens_at, result.stride(0), width, block=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """``choose.best_tokens`` by the kernel that draws: [N, vocab] → [N] int64."""
    zeros = _zeros(logits.device)
    count = len(logits)
    if count > len(zeros):
        zeros = torch.zeros(count, dtype=torch.int64, device=logits.device)
    ids, _ = sample(logits, zeros.view(torch.float32)[:count], zeros[:count], zeros[:count])
    return ids


@cache
def _zeros(device: torch.device) -> torch.Tensor:
    """What every greedy draw has for temperature, seed and position, made once: a graph need not clear it."""
    return torch.zeros(4096, dtype=torch.int64, device=device)


OPERATIONS = StepOperations(place, remember, know)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=[
        "query_start",
        "draws",
        "draw_positions",
        "seeds",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "rows_out",
        "ids_out",
        "positions_out",
        "seeds_out",
        "temperature_out",
        "top_k_out",
        "top_p_out",
        "min_p_out",
    ]
)
def _place_kernel(
    query_start: tl.tensor,  # [R + 1]
    draws: tl.tensor,  # [R]
    input_ids: tl.tensor,  # [T]
    draw_positions: tl.tensor,  # [R]
    seeds: tl.tensor,
    temperature: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    rows_out: tl.tensor,  # [R, width]
    ids_out: tl.tensor,  # [R, width - 1]
    counts_out: tl.tensor,  # [R]
    positions_out: tl.tensor,  # [R, width], as are the rest
    seeds_out: tl.tensor,
    temperature_out: tl.tensor,
    top_k_out: tl.tensor,
    top_p_out: tl.tensor,
    min_p_out: tl.tensor,
    width: int,
    block: tl.constexpr,
) -> None:
    req = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, block)
    inside = number < width
    last = tl.maximum(tl.load(query_start + req + 1) - 1, 0)
    num_drafts = tl.maximum(tl.load(draws + req) - 1, 0)
    row = tl.minimum(last - num_drafts + number, last)
    at = req * width + number
    tl.store(rows_out + at, row, mask=inside)
    is_draft = inside & (number > 0)
    tl.store(ids_out + req * (width - 1) + number - 1, tl.load(input_ids + row, mask=is_draft, other=0), mask=is_draft)
    tl.store(counts_out + req, num_drafts)
    tl.store(positions_out + at, tl.load(draw_positions + req) - num_drafts + number, mask=inside)
    zero = number * 0
    tl.store(seeds_out + at, tl.load(seeds + req) + zero, mask=inside)
    tl.store(temperature_out + at, tl.load(temperature + req) + zero, mask=inside)
    tl.store(top_k_out + at, tl.load(top_k + req) + zero, mask=inside)
    tl.store(top_p_out + at, tl.load(top_p + req) + zero, mask=inside)
    tl.store(min_p_out + at, tl.load(min_p + req) + zero, mask=inside)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_reqs"],
    do_not_specialize_on_alignment=["query_start", "draws", "seq_lens", "lengths_out", "last_rows_out"],
)
def _know_kernel(
    query_start: tl.tensor,
    draws: tl.tensor,
    seq_lens: tl.tensor,
    counts: tl.tensor,  # [R] int32: tokens that were drawn, or flags
    lengths_out: tl.tensor,
    last_rows_out: tl.tensor,
    num_reqs: int,
    is_flag: tl.constexpr,
    block: tl.constexpr,
) -> None:
    req = tl.program_id(0) * block + tl.arange(0, block)
    real = req < num_reqs
    count = tl.load(counts + req, mask=real, other=0).to(tl.int64)
    if is_flag:
        count = tl.minimum(count, 1)
    drawn = tl.load(draws + req, mask=real, other=0)
    count = tl.where(drawn > 0, count, 0)  # of padding the lines are older
    num_drafts = tl.maximum(drawn - 1, 0)
    length = tl.load(seq_lens + req, mask=real, other=0) - num_drafts + count
    row = tl.load(query_start + req + 1, mask=real, other=0) - 1
    row = tl.where(count > 0, row - (num_drafts + 1 - count), row)
    tl.store(lengths_out + req, tl.where(count > 0, length, 0), mask=real)
    tl.store(last_rows_out + req, tl.maximum(row, 0), mask=real)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["rows", "seq_lens", "draws"]
)
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
    count = tl.where(tl.load(draws + req) > 0, tl.load(counts + req), 0)
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
