"""The reference attention against a loop over single queries, on ragged batches with permuted blocks."""

import math
from types import SimpleNamespace

import pytest
import torch

from stage1.attention import QUERY_SLICE, TorchAttention
from stage1.batch import ForwardBatch
from stage1.kv_cache import KVCache
from stage1.model.rope import apply_rope
from stage1.model.shape import PRESETS


def make_shape(heads: int, kv_heads: int, dim: int) -> SimpleNamespace:
    return SimpleNamespace(num_layers=1, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim)


def make_batch(spans: list[tuple[int, int]], tables: list[list[int]], block_size: int) -> ForwardBatch:
    """``spans`` are half-open intervals of positions to compute."""
    width = max(map(len, tables))
    positions = [p for start, end in spans for p in range(start, end)]
    slots = [
        tables[r][p // block_size] * block_size + p % block_size
        for r, (start, end) in enumerate(spans)
        for p in range(start, end)
    ]
    starts = [0]
    for start, end in spans:
        starts.append(starts[-1] + end - start)
    return ForwardBatch(
        rows=torch.arange(len(spans)),
        input_ids=torch.zeros(len(positions), dtype=torch.int64),
        positions=torch.tensor(positions),
        query_start=torch.tensor(starts),
        seq_lens=torch.tensor([end for _, end in spans]),
        block_table=torch.tensor([t + [0] * (width - len(t)) for t in tables]),
        slot_mapping=torch.tensor(slots),
        logits_rows=torch.tensor(starts[1:]) - 1,
        max_query_len=max(end - start for start, end in spans),
        max_seq_len=max(end for _, end in spans),
    )


def rope(shape: SimpleNamespace, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.arange(length)[:, None] / 10 ** (torch.arange(shape.head_dim // 2) / shape.head_dim)
    return angle.cos(), angle.sin()


def slow_attention(shape, qkv, tables) -> torch.Tensor:
    """One query, one head at a time, over the whole sequence of one request: [T, heads, dim]."""
    cos, sin = tables
    q, k, v = qkv.unflatten(-1, (-1, shape.head_dim)).split(
        (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads), 1
    )
    q, k = apply_rope(q, cos[: len(q)], sin[: len(q)]), apply_rope(k, cos[: len(k)], sin[: len(k)])
    out = torch.zeros_like(q)
    for t in range(len(q)):
        for h in range(shape.num_heads):
            g = h // (shape.num_heads // shape.num_kv_heads)
            weights = torch.softmax(k[: t + 1, g] @ q[t, h] / math.sqrt(shape.head_dim), 0)
            out[t, h] = weights @ v[: t + 1, g]
    return out


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("chunks", [[11, 1, 1], [5, 5, 3], [1] * 13])
def test_chunks_over_permuted_blocks_equal_one_query_at_a_time(heads, kv_heads, block_size, chunks):
    torch.manual_seed(0)
    shape, layer = make_shape(heads, kv_heads, 8), None
    lengths = [13, 7, 10]
    needed = [-(-n // block_size) for n in lengths]
    order = torch.randperm(sum(needed) + 3).tolist()  # three blocks belong to nobody
    tables = [[order.pop() for _ in range(n)] for n in needed]
    cache = KVCache(shape, sum(needed) + 3, block_size, torch.float32, torch.device("cpu"))
    cache.layers[0].fill_(math.nan)  # whatever was not written must never be read
    layer = SimpleNamespace(
        index=0, num_heads=heads, num_kv_heads=kv_heads, head_dim=8, q_norm=None, k_norm=None, eps=1e-6
    )
    tables_rope = rope(shape, 16)
    backend = TorchAttention(cache, *tables_rope)
    qkv = [torch.randn(n, (heads + 2 * kv_heads) * 8) for n in lengths]
    got: list[list[torch.Tensor]] = [[] for _ in lengths]
    done = [0] * len(lengths)
    for step in range(13):
        active = [r for r in range(3) if done[r] < lengths[r]]
        if not active:
            break
        spans = [(done[r], min(lengths[r], done[r] + chunks[min(step, len(chunks) - 1)])) for r in active]
        batch = make_batch(spans, [tables[r] for r in active], block_size)
        backend.plan(batch)
        out = backend.attend(layer, torch.cat([qkv[r][a:b] for r, (a, b) in zip(active, spans, strict=True)]), batch)
        for r, piece, (_, b) in zip(active, out.split([b - a for a, b in spans]), spans, strict=True):
            got[r].append(piece)
            done[r] = b
    for r in range(3):
        expected = slow_attention(shape, qkv[r], tables_rope).flatten(1)
        torch.testing.assert_close(torch.cat(got[r]), expected, rtol=1e-4, atol=1e-5)


def test_prompts_longer_than_a_slice_of_queries():
    torch.manual_seed(1)
    shape, n = make_shape(2, 1, 4), QUERY_SLICE + 9
    cache = KVCache(shape, 2, n, torch.float32, torch.device("cpu"))
    layer = SimpleNamespace(index=0, num_heads=2, num_kv_heads=1, head_dim=4, q_norm=None, k_norm=None, eps=1e-6)
    tables = rope(shape, n)
    backend = TorchAttention(cache, *tables)
    qkv = torch.randn(n + 3, 16)
    batch = make_batch([(0, n), (0, 3)], [[1], [0]], n)
    backend.plan(batch)
    out = backend.attend(layer, qkv, batch)
    torch.testing.assert_close(out[:n], slow_attention(shape, qkv[:n], tables).flatten(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[n:], slow_attention(shape, qkv[n:], tables).flatten(1), rtol=1e-4, atol=1e-5)


def test_kv_bytes_follow_the_formula():
    """2 * block size * KV heads * head size * bytes of the dtype, a layer."""
    from stage1.kv_cache import kv_cache_bytes

    shape = PRESETS["smollm2-135m"]
    assert kv_cache_bytes(shape, num_blocks=1, block_size=16, dtype=torch.bfloat16) == 2 * 16 * 3 * 64 * 2 * 30
