from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from stage2.kernels.decode_attention import (
    paged_decode,
    paged_verify,
    workspace_size,
)
from stage2.kernels.merge_splits import merge_splits

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass
class Case:
    """One launch's inputs. Slots and block ids that no request owns are poison."""

    q: torch.Tensor  # [T, heads, dim]
    cache: torch.Tensor  # [2, num_blocks, block_size, kv_heads, dim]
    block_table: torch.Tensor  # [R, B]
    seq_lens: torch.Tensor  # [R]
    scale: float

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.q, self.cache[0], self.cache[1], self.block_table, self.seq_lens


def make_case(
    lens: list[int],
    num_tokens: int | None = None,
    *,
    heads: int = 4,
    kv_heads: int = 1,
    dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    index_dtype: torch.dtype = torch.int32,
    seed: int = 0,
) -> Case:
    rng = torch.Generator().manual_seed(seed)
    counts = [-(-n // block_size) for n in lens]
    num_blocks = sum(counts) + 2
    cache = torch.full((2, num_blocks, block_size, kv_heads, dim), math.nan)
    order = torch.randperm(num_blocks, generator=rng).tolist()
    block_table = torch.full((len(lens), max([*counts, 1]) + 1), 2**30)  # an id that would fault if it were read
    for row, (length, count) in enumerate(zip(lens, counts, strict=True)):
        blocks = [order.pop() for _ in range(count)]
        block_table[row, :count] = torch.tensor(blocks, dtype=torch.int64)
        for position in range(length):
            at = (slice(None), blocks[position // block_size], position % block_size)
            cache[at] = torch.randn(2, kv_heads, dim, generator=rng)
    qkv = torch.randn(len(lens) if num_tokens is None else num_tokens, heads + 2 * kv_heads, dim, generator=rng)
    return Case(
        q=qkv.to(DEVICE, dtype)[:, :heads],  # a view: its rows lie apart
        cache=cache.to(DEVICE, dtype),
        block_table=block_table.to(DEVICE, index_dtype),
        seq_lens=torch.tensor(lens, device=DEVICE, dtype=index_dtype),
        scale=dim**-0.5,
    )


def oracle(case: Case, query_start: list[int] | None = None) -> torch.Tensor:
    """A loop over tokens and heads in float64; rows that no request owns are not-a-number."""
    num_reqs, block_size, kv_heads = len(case.seq_lens), case.cache.shape[2], case.cache.shape[3]
    starts = list(range(num_reqs + 1)) if query_start is None else query_start
    q, cache = case.q.double().cpu(), case.cache.double().cpu()
    out = torch.full(q.shape, math.nan, dtype=torch.float64)
    for r, length in enumerate(case.seq_lens.tolist()):
        tokens = range(starts[r], starts[r + 1])
        blocks = case.block_table[r].tolist()
        for token in tokens:
            visible = length - (tokens.stop - 1 - token) if length else 0
            for head in range(q.shape[1]):
                group = head // (q.shape[1] // kv_heads)
                rows = [cache[:, blocks[j // block_size], j % block_size, group] for j in range(visible)]
                if not rows:
                    out[token, head] = 0
                    continue
                keys, values = torch.stack(rows, dim=1)  # [visible, dim] each
                out[token, head] = torch.softmax(case.scale * keys @ q[token, head], dim=0) @ values
    return out


def check(out: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    assert out.dtype == dtype
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double().cpu(), expected, rtol=tolerance, atol=tolerance)


RAGGED = [1, 15, 16, 17, 300]
# 1 and 16 rows of a table of 16-key pages; 63, 64, 65: the edges of a tile; 129: the first length that is split.
EDGES = [1, 16, 63, 64, 65, 128, 129]


@pytest.mark.parametrize("num_splits", [1, 2, 5])
def test_ragged_lengths_in_any_number_of_splits(num_splits: int) -> None:
    case = make_case([*RAGGED, *EDGES])
    check(paged_decode(*case.inputs, num_splits=num_splits, scale=case.scale), oracle(case))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(3, 1, 64), (2, 2, 64), (8, 2, 128), (8, 1, 96), (9, 3, 64), (2, 1, 256), (20, 1, 64)],
)
@pytest.mark.parametrize("num_splits", [1, 4])
def test_head_counts_and_sizes(heads: int, kv_heads: int, dim: int, num_splits: int) -> None:
    case = make_case([5, 270], heads=heads, kv_heads=kv_heads, dim=dim)
    check(paged_decode(*case.inputs, num_splits=num_splits, scale=case.scale), oracle(case))


@pytest.mark.parametrize("block_size", [16, 24, 64, 256])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_page_sizes(block_size: int, index_dtype: torch.dtype) -> None:
    lens = [1, block_size - 1, block_size, block_size + 1]
    case = make_case(lens, block_size=block_size, index_dtype=index_dtype)
    check(paged_decode(*case.inputs, num_splits=2, scale=case.scale), oracle(case))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_half_precision(dtype: torch.dtype, dim: int) -> None:
    case = make_case([3, 64, 200], dim=dim, dtype=dtype)
    for num_splits in (1, 3):
        check(paged_decode(*case.inputs, num_splits=num_splits, scale=case.scale), oracle(case), dtype)


@pytest.mark.parametrize("num_splits", [1, 4])
def test_padding_gives_zeros(num_splits: int) -> None:
    case = make_case([0, 200, 0])
    out = torch.full((3, 4, 64), math.nan, device=DEVICE)
    assert paged_decode(*case.inputs, out, num_splits=num_splits, scale=case.scale) is out
    check(out, oracle(case))
    assert not out[[0, 2]].any()


def test_large_scores_do_not_overflow() -> None:
    case = make_case([150, 20])
    case.q.mul_(100)
    check(paged_decode(*case.inputs, num_splits=2, scale=case.scale), oracle(case))


def test_a_key_that_dwarfs_those_of_other_splits() -> None:
    case = make_case([400])
    block, slot = case.block_table[0, 20], 3
    case.cache[0, block, slot] = case.q[0, 0] * 50
    out = paged_decode(*case.inputs, num_splits=3, scale=case.scale)
    check(out, oracle(case))
    torch.testing.assert_close(out[0, 0], case.cache[1, block, slot, 0])


def test_workspace_of_the_stated_size_suffices_and_may_hold_anything() -> None:
    case = make_case([1, 300, 140])
    size = workspace_size(num_tokens=3, heads=4, dim=64, num_splits=4)
    memory = torch.full((size + 8,), math.nan, device=DEVICE)
    settings: dict[str, Any] = {"num_splits": 4, "scale": case.scale}
    check(paged_decode(*case.inputs, workspace=memory[:size], **settings), oracle(case))
    assert memory[size:].isnan().all()
    with pytest.raises(ValueError, match="workspace"):
        paged_decode(*case.inputs, workspace=memory[: size - 1], **settings)
    assert workspace_size(3, 4, 64, 1) == 0


@pytest.mark.parametrize("num_splits", [1, 3])
def test_the_last_tokens_of_a_request_see_no_later_key(num_splits: int) -> None:
    counts, lens = [1, 4, 2, 3, 4], [1, 4, 67, 300, 257]  # 257: its first queries see nothing of the last split
    starts = [sum(counts[:i]) for i in range(len(counts) + 1)]
    case = make_case(lens, num_tokens=starts[-1])
    out = paged_verify(
        *case.inputs,
        torch.tensor(starts, device=DEVICE),
        max_query_len=4,
        num_splits=num_splits,
        scale=case.scale,
    )
    check(out, oracle(case, starts))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dtype"), [(3, 1, torch.float32), (8, 1, torch.float32), (8, 2, torch.bfloat16)]
)
def test_eight_query_tokens(heads: int, kv_heads: int, dtype: torch.dtype) -> None:
    starts, lens = [0, 8, 13], [130, 40]
    case = make_case(lens, num_tokens=13, heads=heads, kv_heads=kv_heads, dtype=dtype)
    query_start = torch.tensor(starts, device=DEVICE, dtype=torch.int32)
    out = paged_verify(*case.inputs, query_start, max_query_len=8, num_splits=2, scale=case.scale)
    check(out, oracle(case, starts), dtype)


@pytest.mark.parametrize("num_splits", [1, 3])
def test_rows_of_no_request_stay_as_they_are(num_splits: int) -> None:
    starts = [0, 1, 3, 3]  # one token of two possible; padding that owns two; a request without tokens
    case = make_case([200, 0, 0], num_tokens=5)
    out = torch.full((5, 4, 64), 7.0, device=DEVICE)
    poison = torch.full((workspace_size(5, 4, 64, num_splits),), math.nan, device=DEVICE)
    paged_verify(
        *case.inputs,
        torch.tensor(starts, device=DEVICE),
        out,
        max_query_len=2,
        num_splits=num_splits,
        scale=case.scale,
        workspace=poison,
    )
    expected = oracle(case, starts)
    expected[3:] = 7.0
    check(out, expected)


def test_merging_is_the_average_over_all_keys() -> None:
    values = torch.tensor([[1.0, 2.0], [5.0, -2.0]], device=DEVICE)  # [splits, dim]
    partial, lse = values.view(1, 1, 2, 2), torch.tensor([[[0.0, 1.0]]], device=DEVICE)  # weights 1 and 2
    out = merge_splits(
        partial, lse, torch.tensor([4 * 16], device=DEVICE), torch.empty(1, 1, 2, device=DEVICE), tile=16
    )
    check(out, torch.tensor([[[11 / 3, -2 / 3]]], dtype=torch.float64))


def test_only_long_requests_are_cut_where_splits_have_a_least_length() -> None:
    case = make_case([700, 3, 129, 256])
    whole = paged_decode(*case.inputs, num_splits=1, scale=case.scale)
    cut = paged_decode(*case.inputs, num_splits=4, min_tiles=4, scale=case.scale)
    torch.testing.assert_close(cut, whole, rtol=2e-2 if whole.dtype != torch.float32 else 1e-5, atol=1e-2)
    assert torch.equal(cut[1:3], whole[1:3]), "one split each: the very same sums"


def test_misfits_are_refused() -> None:
    case = make_case([5, 9])
    settings: dict[str, Any] = {"num_splits": 1, "scale": case.scale}
    q, k, v, table, lens = case.inputs
    with pytest.raises(ValueError, match="one each"):
        paged_decode(q[:1], k, v, table, lens, **settings)
    with pytest.raises(ValueError, match="does not fit"):
        paged_decode(q[..., :32], k, v, table, lens, **settings)
    with pytest.raises(ValueError, match="num_splits is 65"):
        paged_decode(*case.inputs, num_splits=65, scale=1.0)
    wide, wide_cache = torch.empty(2, 4, 320, device=DEVICE), torch.empty(1, 16, 1, 320, device=DEVICE)
    with pytest.raises(ValueError, match="head size is 320"):
        paged_decode(wide, wide_cache, wide_cache, table, lens, **settings)
    with pytest.raises(ValueError, match="block_table has 1 rows"):
        paged_decode(q, k, v, table[:1], lens, **settings)
    with pytest.raises(ValueError, match="differ"):
        paged_decode(q, k, v[:, :8], table, lens, **settings)
    with pytest.raises(ValueError, match="contiguous"):
        paged_decode(q, k, v, table, lens, out=q, **settings)
    with pytest.raises(ValueError, match="max_query_len is 9"):
        paged_verify(q, k, v, table, lens, torch.tensor([0, 1, 2]), max_query_len=9, **settings)
    with pytest.raises(ValueError, match="query_start"):
        paged_verify(q, k, v, table, lens, torch.tensor([0, 1]), max_query_len=2, **settings)


@pytest.mark.gpu
def test_a_captured_launch_follows_new_lengths() -> None:
    case = make_case([1, 500, 900], heads=8, kv_heads=2, dim=128, dtype=torch.bfloat16)
    workspace = torch.empty(workspace_size(3, 8, 128, 4), device=DEVICE)
    out = torch.empty(3, 8, 128, dtype=torch.bfloat16, device=DEVICE)
    settings: dict[str, Any] = {"num_splits": 4, "scale": case.scale, "workspace": workspace}
    paged_decode(*case.inputs, out, **settings)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        paged_decode(*case.inputs, out, **settings)
    for lens in ([1, 2, 3], [0, 400, 899], [1, 500, 900]):
        case.seq_lens.copy_(torch.tensor(lens))
        graph.replay()
        check(out, oracle(case), torch.bfloat16)


@pytest.mark.gpu
def test_offsets_beyond_32_bits() -> None:
    block_size, kv_heads, dim = 64, 8, 128
    num_blocks = 2**31 // (block_size * kv_heads * dim) + 64  # elements of k alone pass 2^31: 8.9 GB in all
    cache = torch.empty(2, num_blocks, block_size, kv_heads, dim, dtype=torch.bfloat16, device=DEVICE)
    table = torch.arange(num_blocks - 3, num_blocks, device=DEVICE, dtype=torch.int32)[None]
    cache[:, -3:].normal_()
    small = cache[:, -3:].clone()
    q = torch.randn(1, 32, dim, dtype=torch.bfloat16, device=DEVICE)
    lens = torch.tensor([150], device=DEVICE, dtype=torch.int32)
    settings: dict[str, Any] = {"num_splits": 2, "scale": dim**-0.5}
    far = paged_decode(q, cache[0], cache[1], table, lens, **settings)
    near = paged_decode(q, small[0], small[1], table - (num_blocks - 3), lens, **settings)
    assert torch.equal(far, near)
