"""A short chunk behind a long context: its keys cut into splits, so that few tiles of queries still fill the GPU.

Owns how many splits a request gets, which piece of the work a program takes, and the kernel that joins the splits. Does
not know how keys are attended: ``prefill_attention`` does that, and leaves what ``merge_splits`` describes.

    64 queries behind 16,384 keys, group 4, 8 KV heads    4 tiles of rows:    32 programs of 257 tiles of keys
    the same, each tile of rows in 8 splits               32 pieces:         256 programs of 33 tiles of keys

A launch fixes only what the sizes of its tensors tell: the room for partial results, and ``wanted``, the pieces a KV
head that fill the GPU. Each program reads the lengths and comes to the same division, without the host:

    share     = (tiles of keys, summed over all tiles of rows) / wanted     rounded up, at least min_tiles
    splits[r] = (tiles of keys of request r) / share                        rounded down, at least 1
    pieces[r] = (tiles of rows of r) * splits[r]

Rounded down, because a piece too many would find every place taken, and wait as long as the others work. So there are
never more than ``wanted`` pieces beyond one for each tile of rows. Programs count the pieces of all requests through;
a grid with a dimension for the splits would be as large as the largest request might need, most of it empty.

vLLM: ``kernel_unified_attention_3d`` and ``reduce_segments``, in the file that ``prefill_attention`` names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from stage2.kernels.merge_splits import EMPTY

PROGRAMS_PER_SM = 2  # of a small tile with heads of 128, as many as fit
MAX_SPLITS = 16  # all splits of a row are joined at once, in registers
MAX_SPLIT_TOKENS = 512  # where there are more, their tiles fill the GPU
MAX_PARTIALS = 2048  # tokens times splits: with 32 heads of 128, 34 MB
# Where no request can have more keys, the second launch costs a step more than splits could save.
LONG = 2048
MIN_KEYS = 512  # fewest keys of a split: a short context beside a long one is not cut into crumbs


class KeySplits(NamedTuple):
    """How a launch may cut keys; by itself, not at all."""

    num_splits: int = 1  # most splits of a request
    wanted: int = 1  # pieces a KV head that fill the GPU
    min_tiles: int = 1  # fewest tiles of keys of a split, at least 1


WHOLE = KeySplits()


def choose_key_splits(num_tokens: int, kv_heads: int, num_sms: int, max_len: int, num_keys: int) -> KeySplits:
    """The splits for a launch of ``num_tokens`` queries, padding included, by tiles of ``num_keys`` keys.

    Reads static sizes alone: ``max_len`` is what a row of the block table has room for. How many of the tokens belong
    to chunks is not known, so ``num_splits`` is for the fewest; a chunk that fills the GPU is not cut all the same.
    """
    if num_tokens > MAX_SPLIT_TOKENS or max_len <= LONG:
        return WHOLE
    wanted = PROGRAMS_PER_SM * num_sms // kv_heads
    most = min(MAX_SPLITS, MAX_PARTIALS // max(num_tokens, 1), max_len // MIN_KEYS, wanted)
    if most < 2:
        return WHOLE
    return KeySplits(1 << most.bit_length() - 1, wanted, max(1, MIN_KEYS // num_keys))  # a power of two: few variants


@triton.jit  # type: ignore[untyped-decorator]
def find_piece(
    start_ptr: tl.tensor,  # [R + 1]
    lens_ptr: tl.tensor,  # [R]
    num_reqs: tl.tensor,
    reqs_padded: tl.constexpr,
    queries: tl.constexpr,  # of a tile
    min_queries: tl.constexpr,
    num_keys: tl.constexpr,
    num_splits: tl.constexpr, wanted: tl.constexpr, min_tiles: tl.constexpr,
) -> Any:  # fmt: skip
    """This program's piece: what of which request it computes.

    Returns its request (-1: none is left), the first query in it, where the request's queries start, how many it has,
    the split, and of how many. The last piece goes first: it sees the most keys, and work that starts late should be
    short. Pieces with the same keys follow each other, one for each tile of rows.
    """
    r, begin, end, tiles = _query_tiles(start_ptr, num_reqs, reqs_padded, queries, min_queries)
    pieces = tiles
    if num_splits > 1:
        pieces = tiles * _splits_of(tiles, r, lens_ptr, num_reqs, num_keys, num_splits, wanted, min_tiles)
    piece = tl.sum(pieces) - 1 - tl.program_id(0)
    before = tl.cumsum(pieces, 0) <= piece  # requests that end before this piece
    req = tl.where(piece < 0, -1, tl.sum(before.to(tl.int32)))
    own = piece - tl.sum(tl.where(before, pieces, 0))  # counted from the request's first
    start = tl.sum(tl.where(r == req, begin, 0))
    num_queries = tl.sum(tl.where(r == req, end - begin, 0))
    if num_splits > 1:
        own_tiles = tl.maximum((num_queries + queries - 1) // queries, 1)
        number = tl.sum(tl.where(r == req, pieces, 0)) // own_tiles
        return req, own % own_tiles * queries, start, num_queries, own // own_tiles, number
    else:
        return req, own * queries, start, num_queries, 0, 1


@triton.jit  # type: ignore[untyped-decorator]
def _query_tiles(
    start_ptr: tl.tensor,
    num_reqs: tl.tensor,
    reqs_padded: tl.constexpr,
    queries: tl.constexpr,
    min_queries: tl.constexpr,
) -> Any:
    """Each request's number, first token, last token + 1, and tiles of rows; [R, padded] each."""
    r = tl.arange(0, reqs_padded)
    begin = tl.load(start_ptr + r, mask=r < num_reqs, other=0).to(tl.int32)
    end = tl.load(start_ptr + r + 1, mask=r < num_reqs, other=0).to(tl.int32)
    tiles = tl.where(end - begin < min_queries, 0, (end - begin + queries - 1) // queries)
    return r, begin, end, tiles


@triton.jit  # type: ignore[untyped-decorator]
def _splits_of(
    tiles: tl.tensor,  # [R, padded] tiles of rows
    r: tl.tensor,
    lens_ptr: tl.tensor,
    num_reqs: tl.tensor,
    num_keys: tl.constexpr,
    num_splits: tl.constexpr,
    wanted: tl.constexpr,
    min_tiles: tl.constexpr,
) -> tl.tensor:
    """The splits of each request, [R, padded]."""
    key_tiles = (tl.load(lens_ptr + r, mask=r < num_reqs, other=0).to(tl.int32) + num_keys - 1) // num_keys
    share = tl.maximum((tl.sum(tiles * key_tiles) + wanted - 1) // wanted, min_tiles)
    return tl.minimum(tl.maximum(key_tiles // share, 1), num_splits)


def merge_pieces(
    partial: torch.Tensor,
    lse: torch.Tensor,
    out: torch.Tensor,
    query_start: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    group: int,
    **division: int,
) -> None:
    """Join the splits of all requests that have more than one; the other rows of ``out`` stay as they are.

    Args:
        partial: [T, heads, splits, dim] float32, contiguous; read only where a request's splits are.
        lse: [T, heads, splits] float32, contiguous, base 2.
        out: [T, heads, dim], the last dimension dense; written in its own dtype.
        query_start: [R + 1], as for ``paged_prefill``.
        seq_lens: [R], the same.
        group: query heads of a KV head.
        division: the constants of ``find_piece`` in the launch before.
    """
    num_tokens, heads, num_splits, dim = partial.shape
    _merge_kernel[(num_tokens, heads // group)](
        *(partial, lse, out, query_start, seq_lens, seq_lens.shape[0], *out.stride()[:2]),
        group=group,
        head_dim=dim,
        dim_padded=triton.next_power_of_2(dim),
        splits_padded=triton.next_power_of_2(num_splits),
        num_warps=1,  # the programs with nothing to do, often all of them, are gone in one go
        **division,
    )


@triton.jit(do_not_specialize=["num_reqs"])  # type: ignore[untyped-decorator]
def _merge_kernel(
    partial: tl.tensor,  # [T, heads, splits, head_dim] float32
    lse: tl.tensor,  # [T, heads, splits] float32
    out_ptr: tl.tensor,  # [T, heads, head_dim]
    start_ptr: tl.tensor,  # [R + 1]
    lens_ptr: tl.tensor,  # [R]
    num_reqs: tl.tensor,
    out_token_stride: tl.tensor, out_head_stride: tl.tensor,
    group: tl.constexpr, head_dim: tl.constexpr, dim_padded: tl.constexpr, splits_padded: tl.constexpr,
    num_splits: tl.constexpr, wanted: tl.constexpr, min_tiles: tl.constexpr,
    reqs_padded: tl.constexpr, queries: tl.constexpr, min_queries: tl.constexpr, num_keys: tl.constexpr,
) -> None:  # fmt: skip
    """The heads of one KV head of one token a program."""
    token, kv_head = tl.program_id(0), tl.program_id(1)
    r, begin, end, tiles = _query_tiles(start_ptr, num_reqs, reqs_padded, queries, min_queries)
    splits = _splits_of(tiles, r, lens_ptr, num_reqs, num_keys, num_splits, wanted, min_tiles)
    mine = (begin <= token) & (token < end) & (tiles > 0)
    number = tl.sum(tl.where(mine, splits, 0))
    if number <= 1:  # 0: padding, or a request that was left out; an only split has written to `out` itself
        return
    split, dim = tl.arange(0, splits_padded), tl.arange(0, dim_padded)
    used, inside = split < number, dim < head_dim
    for i in tl.static_range(group):
        head = kv_head * group + i
        row = (token.to(tl.int64) * (tl.num_programs(1) * group) + head) * num_splits
        row_lse = tl.load(lse + row + split, mask=used, other=EMPTY)  # [splits]
        weight = tl.where(used, tl.exp2(row_lse - tl.max(row_lse, 0)), 0.0)
        at = partial + row * head_dim + split[:, None] * head_dim + dim[None, :]
        parts = tl.load(at, mask=used[:, None] & inside[None, :], other=0.0)  # [splits, dim]
        joined = tl.sum(parts * weight[:, None], 0) / tl.sum(weight, 0)
        target = out_ptr + token.to(tl.int64) * out_token_stride + head * out_head_stride + dim
        tl.store(target, joined.to(out_ptr.dtype.element_ty), mask=inside)
