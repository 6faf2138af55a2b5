"""A step's inputs in two launches, and its tokens back into the table in one more.

Owns the device's side of packet and request table. Does not know how either is laid out beyond the offsets that it is
given. Everything is read on the device, the number of requests too: so the launches can be captured once for a padded
batch and replayed for any batch that fits.

    apply_edits     table[index] = value                                    a few programs share the pairs
    fill            positions, ids, slots, lengths, draw parameters         a program a request, padding included
    remember        table[row, length] = drawn token; result for the host   one program

The plain version is ``stage2.inputs.PlainInputs``. vLLM: ``v1/worker/gpu_model_runner.py`` (``_prepare_inputs``, on the
host).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage2.inputs import SlotMapping, StepBatch
from stage2.packet import HEADER, Packet
from stage2.slots import slot_mapping
from stage2.state import BLOCKS, MIN_P, NUM_PROMPT, SEED, TEMPERATURE, TOP_K, TOP_P, RequestTable

_EDIT_PROGRAMS = 32
_BLOCK = 256
_HEADER: tl.constexpr = tl.constexpr(HEADER)
_TEMPERATURE: tl.constexpr = tl.constexpr(TEMPERATURE)  # columns of the table
_TOP_P: tl.constexpr = tl.constexpr(TOP_P)
_MIN_P: tl.constexpr = tl.constexpr(MIN_P)
_TOP_K: tl.constexpr = tl.constexpr(TOP_K)
_SEED: tl.constexpr = tl.constexpr(SEED)
_NUM_PROMPT: tl.constexpr = tl.constexpr(NUM_PROMPT)
_BLOCKS: tl.constexpr = tl.constexpr(BLOCKS)


class TritonInputs:
    """``InputFiller`` with kernels; may be captured."""

    def __init__(self, packet: Packet, table: RequestTable, block_size: int, slots: SlotMapping = slot_mapping) -> None:
        if slots is not slot_mapping:
            raise ValueError("the kernel maps slots itself: your own mapping needs stage2.inputs.PlainInputs")
        self._packet, self._table = packet, table
        self._block_size = block_size

    def fill(self, batch: StepBatch) -> None:
        """See ``InputFiller``."""
        packet, table = self._packet, self._table
        _edit_kernel[(_EDIT_PROGRAMS,)](packet.data, table.memory, packet.edits_at, block=_BLOCK)
        _fill_kernel[(batch.num_reqs + 1,)](
            packet.data, table.memory,
            batch.rows, batch.query_start, batch.seq_lens, batch.few_lens,
            batch.logits_rows, batch.draws, batch.draw_positions,
            batch.block_table, batch.input_ids, batch.positions, batch.slot_mapping,
            batch.temperature, batch.top_p, batch.min_p, batch.top_k, batch.seeds,
            packet.max_reqs, batch.num_tokens, batch.max_few, table.width, table.tokens_at, batch.block_table.stride(0),
            block_size=self._block_size, block=_BLOCK, num_warps=4,
        )  # fmt: skip

    def remember(self, batch: StepBatch, ids: torch.Tensor, bad: torch.Tensor, result: torch.Tensor) -> None:
        """See ``InputFiller``."""
        table = self._table
        _remember_kernel[(triton.cdiv(batch.num_reqs, _BLOCK),)](
            batch.rows, batch.seq_lens, batch.draws, ids, bad, table.memory, result,
            batch.num_reqs, table.width, table.tokens_at, result.stride(0), block=_BLOCK,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _edit_kernel(packet: tl.tensor, memory: tl.tensor, edits_at: int, block: tl.constexpr) -> None:
    """Each program takes every so-manyth block of pairs."""
    num_edits = tl.load(packet + 2)
    for first in range(tl.program_id(0) * block, num_edits, tl.num_programs(0) * block):
        edit = first + tl.arange(0, block)
        real = edit < num_edits
        index = tl.load(packet + edits_at + 2 * edit, real, 0).to(tl.int64)
        tl.store(memory + index, tl.load(packet + edits_at + 2 * edit + 1, real, 0), real)


@triton.jit(do_not_specialize=["num_slots"])  # type: ignore[untyped-decorator]
def _fill_kernel(
    packet: tl.tensor,  # int32, see ``stage2.packet``
    memory: tl.tensor,  # [rows, width] int32, see ``stage2.state``
    rows_out: tl.tensor, query_start_out: tl.tensor, seq_lens_out: tl.tensor, few_lens_out: tl.tensor,
    logits_rows_out: tl.tensor, draws_out: tl.tensor, draw_positions_out: tl.tensor,  # [R], as in ``stage2.inputs``
    table_out: tl.tensor,  # [R, B]
    ids_out: tl.tensor, positions_out: tl.tensor, slots_out: tl.tensor,  # [T]
    temperature_out: tl.tensor, top_p_out: tl.tensor, min_p_out: tl.tensor,  # [R]
    top_k_out: tl.tensor, seeds_out: tl.tensor,  # [R]
    max_reqs: int,
    num_slots: int,  # T, padding included
    few: int,  # tokens
    width: int, tokens_at: int, table_stride: int,
    block_size: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Grid (R + 1): a program a request; the last one fills the tokens that nobody has."""
    request = tl.program_id(0)
    num_reqs, num_tokens = tl.load(packet), tl.load(packet + 1)
    real = request < num_reqs
    at = packet + _HEADER + request
    row = tl.load(at, real, 0)
    start = tl.load(at + max_reqs, real, 0)
    begin = tl.load(at + 2 * max_reqs, real, num_tokens)
    end = tl.load(at + 2 * max_reqs + 1, real, num_tokens)
    seq_len = start + end - begin
    draws = tl.load(at + 3 * max_reqs + 1, real, 0)
    tl.store(query_start_out + request, begin.to(tl.int64))
    if request == tl.num_programs(0) - 1:
        _fill_padding(ids_out, positions_out, slots_out, num_tokens, num_slots, block)
        return
    record = memory + row.to(tl.int64) * width
    tl.store(rows_out + request, row.to(tl.int64))
    tl.store(seq_lens_out + request, seq_len.to(tl.int64))
    tl.store(few_lens_out + request, tl.where(end - begin <= few, seq_len, 0).to(tl.int64))
    tl.store(logits_rows_out + request, tl.maximum(end - 1, 0).to(tl.int64))
    tl.store(draws_out + request, draws.to(tl.int64))
    tl.store(draw_positions_out + request, (seq_len - tl.load(record + _NUM_PROMPT)).to(tl.int64))
    _copy_draw(record, request, temperature_out, top_p_out, min_p_out, top_k_out, seeds_out)
    blocks = record + _BLOCKS
    _copy_blocks(blocks, table_out + request.to(tl.int64) * table_stride, tl.cdiv(seq_len, block_size), block)
    _fill_tokens(
        blocks, record + tokens_at, ids_out, positions_out, slots_out, begin, end - begin, start, block_size, block
    )


@triton.jit  # type: ignore[untyped-decorator]
def _fill_tokens(
    blocks: tl.tensor,  # of the request
    tokens: tl.tensor,  # its token ids
    ids_out: tl.tensor,
    positions_out: tl.tensor,
    slots_out: tl.tensor,
    begin: tl.tensor,  # where it starts in the batch
    count: tl.tensor,
    start: tl.tensor,  # position of its first token in this step
    block_size: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Ids, positions and slots of a request's tokens."""
    for first in range(0, count, block):
        token = first + tl.arange(0, block)
        inside = token < count
        position = start + token
        page = tl.load(blocks + position // block_size, inside, 0).to(tl.int64)
        target = begin + token
        tl.store(positions_out + target, position.to(tl.int64), inside)
        tl.store(ids_out + target, tl.load(tokens + position, inside, 0).to(tl.int64), inside)
        tl.store(slots_out + target, page * block_size + position % block_size, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _copy_draw(
    record: tl.tensor,
    request: tl.tensor,
    temperature_out: tl.tensor,
    top_p_out: tl.tensor,
    min_p_out: tl.tensor,
    top_k_out: tl.tensor,
    seeds_out: tl.tensor,
) -> None:
    """The parameters of a request's draw, from the columns of its row."""
    tl.store(temperature_out + request, tl.load(record + _TEMPERATURE).to(tl.float32, bitcast=True))
    tl.store(top_p_out + request, tl.load(record + _TOP_P).to(tl.float32, bitcast=True))
    tl.store(min_p_out + request, tl.load(record + _MIN_P).to(tl.float32, bitcast=True))
    tl.store(top_k_out + request, tl.load(record + _TOP_K).to(tl.int64))
    low = tl.load(record + _SEED).to(tl.int64) & 0xFFFFFFFF
    tl.store(seeds_out + request, low | (tl.load(record + _SEED + 1).to(tl.int64) << 32))


@triton.jit  # type: ignore[untyped-decorator]
def _copy_blocks(source: tl.tensor, target: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    """The first ``count`` entries of a block table."""
    for first in range(0, count, block):
        entry = first + tl.arange(0, block)
        tl.store(target + entry, tl.load(source + entry, entry < count, 0), entry < count)


@triton.jit  # type: ignore[untyped-decorator]
def _fill_padding(
    ids_out: tl.tensor, positions_out: tl.tensor, slots_out: tl.tensor, first: tl.tensor, end: int, block: tl.constexpr
) -> None:
    """Tokens [first, end) belong to nobody."""
    for start in range(first, end, block):
        token = start + tl.arange(0, block)
        nothing = tl.zeros([block], tl.int64)
        tl.store(ids_out + token, nothing, token < end)
        tl.store(positions_out + token, nothing, token < end)
        tl.store(slots_out + token, nothing - 1, token < end)


@triton.jit(do_not_specialize=["num_reqs"])  # type: ignore[untyped-decorator]
def _remember_kernel(
    rows: tl.tensor,  # [R]
    seq_lens: tl.tensor,  # [R]
    draws: tl.tensor,  # [R]
    ids: tl.tensor,  # [R]
    bad: tl.tensor,  # [R]
    memory: tl.tensor,
    result: tl.tensor,  # [2, max_reqs]
    num_reqs: int,
    width: int,
    tokens_at: int,
    result_stride: int,
    block: tl.constexpr,
) -> None:
    request = tl.program_id(0) * block + tl.arange(0, block)
    real = request < num_reqs
    drawn = tl.load(draws + request, real, 0)
    token = tl.load(ids + request, real, 0).to(tl.int32)
    is_bad = tl.load(bad + request, real, 0).to(tl.int64)
    tl.store(result + request, token, real)
    tl.store(result + result_stride + request, (drawn * (1 + is_bad)).to(tl.int32), real)
    at = tl.load(rows + request, real, 0) * width + tokens_at + tl.load(seq_lens + request, real, 0)
    tl.store(memory + at, token, real & (drawn > 0))
