"""Positions, slots and ends of a chain in one launch: a program a request.

Owns the kernel; ``chain.plan_chain`` is the plain version, of some twenty launches.

vLLM: ``v1/spec_decode/utils.py`` (its Triton kernels in later versions).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.chain import Chain, ChainLimits
from stage3.spec.steps import Known


def plan_chain(step: StepBatch, known: Known, limits: ChainLimits, table: RequestTable) -> Chain:
    """``chain.plan_chain``: the same arguments; of ``blocks`` only what the passes read is written."""
    num_reqs, device = step.num_reqs, step.rows.device
    positions, slots, seq_lens = torch.empty(
        3, limits.num_passes, num_reqs, dtype=torch.int64, device=device
    ).unbind()  # fmt: skip
    counts, starts = (torch.empty(n, dtype=torch.int64, device=device) for n in (num_reqs, num_reqs + 1))
    blocks = torch.empty(num_reqs, table.block_table.shape[1], dtype=torch.int32, device=device)
    _chain_kernel[(num_reqs,)](
        step.rows, known.lengths, table.block_table, positions, slots, seq_lens, starts, counts, blocks,
        table.block_table.stride(0), blocks.shape[1], limits.max_model_len,
        block_size=limits.block_size, num_passes=limits.num_passes, num_drafts=limits.num_drafts,
        copied=128, num_warps=1,
    )  # fmt: skip
    return Chain(positions, slots, seq_lens, blocks, starts, counts)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["lengths", "positions_out", "slots_out", "seq_lens_out"]
)
def _chain_kernel(
    rows: tl.tensor,  # [R]
    lengths: tl.tensor,  # [R]
    table: tl.tensor,  # [table rows, B] int32
    positions_out: tl.tensor,  # [passes, R]
    slots_out: tl.tensor,
    seq_lens_out: tl.tensor,
    starts_out: tl.tensor,  # [R + 1]
    counts_out: tl.tensor,  # [R]
    blocks_out: tl.tensor,  # [R, B]
    table_stride: int,
    num_blocks: int,
    max_model_len: int,
    block_size: tl.constexpr,
    num_passes: tl.constexpr,
    num_drafts: tl.constexpr,
    copied: tl.constexpr,
) -> None:
    req, num_reqs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    tl.store(starts_out + req + 1, req + 1)
    tl.store(starts_out, tl.zeros([], tl.int64))  # by every program
    length = tl.load(lengths + req)
    source = table + tl.load(rows + req) * table_stride
    fits = length > 0
    num_fitting = length * 0
    for number in range(num_passes):
        wanted = length - 1 + number
        position = tl.minimum(tl.maximum(wanted, 0), max_model_len - 1)
        block = tl.load(source + position // block_size).to(tl.int64)
        fits = fits & (block >= 0) & (wanted < max_model_len)
        at = number * num_reqs + req
        tl.store(positions_out + at, position)
        tl.store(slots_out + at, tl.where(fits, block * block_size + position % block_size, -1))
        tl.store(seq_lens_out + at, tl.where(fits, position + 1, 1))
        num_fitting += fits.to(tl.int64)
    room = tl.maximum(max_model_len - 1 - length, 0)
    count = tl.minimum(num_drafts - num_passes + num_fitting, room)
    tl.store(counts_out + req, tl.where(length > 0, count, 0))
    used = tl.minimum((length + num_passes) // block_size + 1, num_blocks)
    for first in range(0, used, copied):
        entry = first + tl.arange(0, copied)
        inside = entry < used
        value = tl.load(source + entry, mask=inside, other=0)
        tl.store(blocks_out + req * num_blocks + entry, tl.maximum(value, 0), mask=inside)
