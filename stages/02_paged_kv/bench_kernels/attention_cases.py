"""Cases for the attention kernels: one query a request, and whole prompts or their last chunks.

Owns their inputs, their references and what they must move. ``shape`` is a model's query heads, KV heads and head size.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from bench_kernels.arena import BLOCK, Arena, Case, relative_error
from stage2.kernels import decode_attention
from stage2.kernels.decode_attention import Tiling, paged_decode, workspace_size
from stage2.kernels.decode_splits import Splits, choose_splits, worth_cutting
from stage2.kernels.prefill_attention import paged_prefill
from stage2.kernels.prefill_splits import KeySplits, choose_key_splits
from stage2.kernels.prefill_tiles import PrefillTile, choose_tile

SHAPES = {"8b": (32, 8, 128), "0.6b": (16, 8, 128), "135m": (9, 3, 64)}
SMS_WITHOUT_GPU = 4
MODEL_LEN = 32768  # what an engine's block table has room for, however short the contexts are


def decode(
    arena: Arena,
    batch: int,
    context: int,
    *,
    ragged: bool = False,
    shape: str = "8b",
    splits: tuple[int, int] | None = None,
    tiling: tuple[int, int, int] | None = None,
) -> Case:
    """Decode attention of ``batch`` requests of ``context`` tokens, or of 1 to twice as many where ``ragged``."""
    heads, kv_heads, dim = SHAPES[shape]
    lengths = decode_lengths(batch, context, ragged)
    keys, values = arena.cache(kv_heads, dim)
    num_bytes = int(lengths.sum()) * kv_heads * dim * 2 * keys.itemsize
    tables = arena.tables(lengths, len(keys), arena.sets(num_bytes))
    queries = arena.take(len(tables), batch, heads, dim)
    seq_lens = lengths.int().to(arena.device)
    cut = Splits(*splits) if splits else decode_cut(arena.device, lengths, shape)
    workspace = torch.empty(workspace_size(batch, heads, dim, cut.number), device=arena.device)
    out = torch.full((batch, heads, dim), torch.nan, dtype=arena.dtype, device=arena.device)

    def launch(i: int) -> None:
        if tiling is not None:  # the table is the only way in, and a sweep goes through many
            for table in (decode_attention.TILINGS, decode_attention.SPLIT_TILINGS):
                table[max(64, dim), keys.itemsize] = Tiling(*tiling)
        paged_decode(
            *(queries[i], keys, values, tables[i], seq_lens, out),
            num_splits=cut.number,
            min_tiles=cut.min_tiles,
            scale=dim**-0.5,
            workspace=workspace,
        )

    def check() -> float:
        launch(0)
        rows = sorted({0, batch // 2, batch - 1})
        reference = [
            attend(queries[0][r : r + 1], *gather(keys, values, tables[0][r], int(lengths[r])))[0] for r in rows
        ]
        return relative_error(out[rows], torch.stack(reference))

    return Case([partial(launch, i) for i in range(len(tables))], num_bytes, check)


def decode_lengths(batch: int, context: int, ragged: bool) -> torch.Tensor:
    """Keys of each request, [batch]; the longest first, as the runner orders a batch."""
    if not ragged:
        return torch.full((batch,), context)
    lengths = torch.randint(1, 2 * context + 1, (batch,), generator=torch.Generator().manual_seed(0))
    return lengths.sort(descending=True).values


def decode_cut(device: str, lengths: torch.Tensor, shape: str) -> Splits:
    """How the engine would cut requests of ``lengths`` keys."""
    _, kv_heads, dim = SHAPES[shape]
    cut = worth_cutting(int(lengths.sum()), int(lengths.max()), kv_heads, num_sms(device), dim)
    return choose_splits(len(lengths), kv_heads, num_sms(device), dim, cut)


def prefill(
    arena: Arena,
    batch: int,
    context: int,
    *,
    queries: int | None = None,
    shape: str = "8b",
    tile: tuple[int, int, int, int] | None = None,
    splits: tuple[int, int, int] | None = None,
) -> Case:
    """Prefill attention of the last ``queries`` of ``batch`` prompts of ``context`` tokens (or of all), in one call."""
    heads, kv_heads, dim = SHAPES[shape]
    new = queries or context
    lengths = torch.full((batch,), context)
    keys, values = arena.cache(kv_heads, dim)
    num_bytes = batch * (2 * heads * new + 2 * kv_heads * context) * dim * keys.itemsize
    tables = arena.tables(lengths, len(keys), arena.sets(num_bytes) if queries else 1)
    q = arena.take(1, batch * new, heads, dim)[0]
    out = torch.full_like(q, torch.nan)
    seq_lens = lengths.int().to(arena.device)
    query_start = (torch.arange(batch + 1, dtype=torch.int32) * new).to(arena.device)
    cut, key_splits = prefill_cut(arena.device, batch, context, queries=queries, shape=shape, tile=tile, splits=splits)

    def launch(i: int) -> None:
        paged_prefill(
            *(q, keys, values, tables[i], query_start, seq_lens, out), scale=dim**-0.5, tile=cut, splits=key_splits
        )

    def check() -> float:
        launch(0)
        some = min(64, new)  # the last queries of the first prompt: they see the most keys
        reference = attend(q[new - some : new], *gather(keys, values, tables[0][0], context))
        return relative_error(out[new - some : new], reference)

    flops = 4 * heads * dim * batch * (new * (context - new) + new * (new + 1) // 2)
    return Case([partial(launch, i) for i in range(len(tables))], num_bytes, check, flops)


def prefill_cut(
    device: str,
    batch: int,
    context: int,
    *,
    queries: int | None = None,
    shape: str = "8b",
    tile: tuple[int, int, int, int] | None = None,
    splits: tuple[int, int, int] | None = None,
) -> tuple[PrefillTile, KeySplits]:
    """How a case of ``prefill`` is cut: as its arguments say, else as the engine would."""
    heads, kv_heads, dim = SHAPES[shape]
    tokens = batch * (queries or context)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    cut = choose_tile(tokens, batch, heads // kv_heads, kv_heads, dim, dtype) if tile is None else PrefillTile(*tile)
    if splits is not None:
        return cut, KeySplits(*splits)
    return cut, choose_key_splits(tokens, kv_heads, num_sms(device), MODEL_LEN, cut.keys)


def gather(
    keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A request's keys and values [length, kv_heads, dim] in float32."""
    blocks = table[: -(-length // BLOCK)].long()
    k, v = (cache[blocks].flatten(0, 1)[:length].float() for cache in (keys, values))
    return k, v


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Plain causal attention of the last queries [n, heads, dim] to keys [length, kv_heads, dim], in float32."""
    n, heads, dim = q.shape
    k, v = (x.repeat_interleave(heads // k.shape[1], dim=1) for x in (k, v))  # [length, heads, dim]
    scores = torch.einsum("nhd,lhd->hnl", q.float() * dim**-0.5, k)
    position = torch.arange(len(k), device=q.device)
    visible = position[None] <= position[-n:, None]  # [n, length]
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hnl,lhd->nhd", weights, v)


def num_sms(device: str) -> int:
    """Multiprocessors of the GPU."""
    properties: Any = torch.cuda.get_device_properties(0) if device == "cuda" else None
    return SMS_WITHOUT_GPU if properties is None else int(properties.multi_processor_count)
