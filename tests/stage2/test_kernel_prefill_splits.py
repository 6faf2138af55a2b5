"""The prefill kernel with its keys in splits: the same numbers, and pieces as many as there are programs for."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage1.attention import TorchAttention
from stage1.kv_cache import KVCache
from stage1.model.rope import rope_tables
from stage1.model.shape import PRESETS
from stage2 import attention
from stage2.inputs import StepBuffers
from stage2.kernels.decode_attention import workspace_size
from stage2.kernels.prefill_attention import paged_prefill
from stage2.kernels.prefill_splits import WHOLE, KeySplits, choose_key_splits
from stage2.kernels.prefill_tiles import PrefillTile, bound_query_tiles

bed = load_file(Path(__file__).with_name("prefill_bed.py"))
DEVICE, HALF, Case, assert_near, make_case = bed.DEVICE, bed.HALF, bed.Case, bed.assert_near, bed.make_case
CHUNKS = [(1, 90), (15, 15), (20, 200), (0, 30), (9, 40), (2, 17), (1, 1), (16, 130)]
MANY = KeySplits(8, 40, 1)  # enough pieces to cut each of these requests as far as it goes


def poisoned(case: Case, splits: KeySplits) -> torch.Tensor:
    """A workspace of the stated size with a not-a-number in every place."""
    tokens, heads, dim = case.q.shape
    return torch.full((workspace_size(tokens, heads, dim, splits.num_splits),), math.nan, device=DEVICE)


@pytest.mark.parametrize("splits", [MANY, KeySplits(8, 6, 1), KeySplits(2, 20, 1), KeySplits(3, 30, 2)], ids=str)
def test_splits_change_nothing(splits: KeySplits) -> None:
    case = make_case(CHUNKS, heads=4, kv_heads=2, dim=32)
    assert_near(case.run(splits=splits, workspace=poisoned(case, splits)), case.expected())


@pytest.mark.parametrize("seed", range(8))
def test_random_batches(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=random))

    counts = [draw(0, 20) if draw(0, 1) else draw(0, 2) for _ in range(draw(1, 6))]
    chunks = [(n, max(1, n) + (draw(0, 150) if draw(0, 2) else 0)) for n in counts]
    kv_heads = draw(1, 2)
    shape = {"heads": kv_heads * draw(1, 5), "kv_heads": kv_heads, "dim": 16, "block_size": (1, 12, 16)[seed % 3]}
    case = make_case(chunks, **shape, num_padding=draw(0, 3), seed=seed)  # type: ignore[arg-type]
    splits = KeySplits(draw(2, 8), draw(1, 30), draw(1, 3))
    tile = PrefillTile((16, 32)[seed % 2], (16, 32)[seed // 2 % 2], 4, 2)
    want = case.expected()
    out = torch.full_like(case.q, math.nan)
    case.run(out=out, splits=splits, tile=tile, workspace=poisoned(case, splits))
    torch.testing.assert_close(out, want, atol=2e-5, rtol=2e-5, equal_nan=True)


@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_head_sizes_and_dtypes_with_the_tile_chosen_by_shape(dim: int, dtype: torch.dtype) -> None:
    case = make_case([(37, 170), (1, 3), (3, 130)], dim=dim, dtype=dtype)
    assert_near(case.run(tile=None, splits=MANY, workspace=poisoned(case, MANY)), case.expected(), dtype)


@pytest.mark.parametrize("min_queries", [1, 2, 10])
def test_requests_that_are_left_out_stay_as_they_are(min_queries: int) -> None:
    case = make_case([(1, 150), (9, 80), (1, 3), (17, 100)], dim=16, num_padding=4)
    out = torch.full_like(case.q, 7.0)
    case.run(out=out, splits=MANY, min_queries=min_queries, workspace=poisoned(case, MANY))
    want = torch.full_like(case.q, 7.0)
    for begin, end in ((0, 1), (1, 10), (10, 11), (11, 28)):
        if end - begin >= min_queries:
            want[begin:end] = case.expected()[begin:end]
    assert_near(out, want)


def test_queries_before_the_first_key_give_zeros() -> None:
    case = make_case([(4, 4), (1, 1), (40, 40), (4, 4), (60, 60)], dim=16)
    case.seq_lens[1:] = torch.tensor([0, 0, 2, 50])  # positions from -2 on, then from -10: several splits
    out = case.run(splits=MANY, workspace=poisoned(case, MANY))
    assert (out[4:47] == 0.0).all()
    assert (out[49:59] == 0.0).all()
    for begin, end, row in ((0, 4, 0), (47, 49, 3), (59, 109, 4)):
        starts = torch.tensor([0, end - begin], device=DEVICE)
        alone = Case(case.q[begin:end], case.k, case.v, case.table[row:], starts, case.seq_lens[row : row + 1])
        assert_near(out[begin:end], alone.expected())


def test_a_request_with_one_split_is_written_directly() -> None:
    case = make_case([(8, 200), (16, 16), (5, 30)], dim=16)  # 13, 1 and 2 tiles of keys
    splits = KeySplits(4, 20, 3)
    workspace = poisoned(case, splits)
    assert_near(case.run(splits=splits, workspace=workspace), case.run(splits=WHOLE))
    partial = workspace[: 29 * 2 * 4 * 16].view(29, -1)
    assert partial[8:].isnan().all(), "nothing is left for the second launch"
    assert partial[:8].isfinite().all()


@given(
    chunks=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 200)), min_size=1, max_size=4),
    splits=st.tuples(st.integers(2, 8), st.integers(1, 12), st.integers(1, 4)),
)
@settings(max_examples=15, deadline=None)
def test_pieces_never_outnumber_the_programs(chunks: list[tuple[int, int]], splits: tuple[int, int, int]) -> None:
    """All values are 1, so every query whose pieces all ran gives 1, and the others what was there before."""
    counts = torch.tensor([n for n, _ in chunks])
    lengths = counts + torch.tensor([context for _, context in chunks])
    total = int(counts.sum())
    k, v = torch.zeros(1, 16, 1, 16, device=DEVICE), torch.ones(1, 16, 1, 16, device=DEVICE)
    table = torch.zeros(len(chunks), 30, dtype=torch.int32, device=DEVICE)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).to(DEVICE)
    q, out = torch.ones(total, 2, 16, device=DEVICE), torch.full((total, 2, 16), math.nan, device=DEVICE)
    case = Case(q, k, v, table, starts, lengths.to(DEVICE))
    tiles = int((-(-counts // 8)).sum())  # the fewest that hold: a launch has more where the division is another
    cut = KeySplits(*splits)
    case.run(out=out, splits=cut, max_query_tiles=tiles, workspace=poisoned(case, cut))
    torch.testing.assert_close(out, torch.ones_like(out))


def test_a_chunk_that_fills_the_programs_is_not_cut() -> None:
    case = make_case([(64, 256)], dim=16)  # 8 tiles of rows, 16 of keys
    whole = case.run()
    for wanted, is_cut in ((8, False), (15, False), (16, True)):
        workspace = poisoned(case, MANY)
        assert_near(case.run(splits=KeySplits(8, wanted, 1), workspace=workspace), whole)
        assert workspace.isfinite().any() == is_cut, wanted


def test_one_poisoned_request_harms_no_other() -> None:
    case = make_case([(5, 130), (6, 90), (1, 120)], dim=16)
    want = case.expected()
    case.k[case.table[1, 3]] = math.nan
    case.v[case.table[1, 3]] = math.nan
    out = case.run(splits=MANY, workspace=poisoned(case, MANY))
    assert out[5:11].isnan().all()
    assert_near(torch.cat([out[:5], out[11:]]), torch.cat([want[:5], want[11:]]))


def test_a_key_that_dwarfs_those_of_other_splits() -> None:
    case = make_case([(3, 150)], heads=1, dim=16)
    case.k[case.table[0, 4], 5] = case.q[0, 0] * 1e3
    torch.testing.assert_close(case.run(splits=MANY)[0, 0], case.v[case.table[0, 4], 5, 0])


def test_strided_out() -> None:
    case = make_case([(5, 121), (1, 7)], heads=4, kv_heads=2, dim=16)
    out = torch.full((6, 8, 16), 7.0, device=DEVICE)
    case.run(out=out[:, 2:6], splits=MANY)
    assert_near(out[:, 2:6], case.expected())
    assert (out[:, [0, 1, 6, 7]] == 7.0).all()


def test_a_workspace_that_is_too_small_is_refused() -> None:
    case = make_case([(5, 121)], dim=16)
    with pytest.raises(ValueError, match="workspace"):
        case.run(splits=MANY, workspace=poisoned(case, MANY)[:-1])


def test_splits_are_chosen_from_sizes_alone() -> None:
    def choose(tokens: int, kv_heads: int = 8, max_len: int = 40960) -> KeySplits:
        return choose_key_splits(tokens, kv_heads, 132, max_len, 64)

    assert choose(64) == (16, 33, 8)
    assert choose(256) == (8, 33, 8)
    assert choose(512) == (4, 33, 8)
    assert choose(513) == choose(8192) == WHOLE, "these fill the GPU"
    assert choose(64, max_len=2048) == WHOLE, "none can be long"
    assert choose(64, max_len=4096).num_splits == 8, "none can have more of 512 keys"
    assert choose(64, kv_heads=128).num_splits == 2
    assert choose(64, kv_heads=256) == WHOLE
    for tokens in range(1, 513):
        assert workspace_size(tokens, 32, 128, choose(tokens).num_splits) * 4 < 35e6
    assert bound_query_tiles(64, 8, 4, PrefillTile(64, 64, 4, 3)) + choose(64).wanted == 44, "programs a KV head"


def test_the_backend_cuts_a_short_chunk_behind_a_long_context(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[KeySplits] = []

    def noting(*args: object, splits: KeySplits, **settings: object) -> torch.Tensor:
        used.append(splits)
        return paged_prefill(*args, splits=splits, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "paged_prefill", noting)
    shape = replace(PRESETS["smollm2-135m"], num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16)
    layer: Any = SimpleNamespace(index=0, num_heads=2, num_kv_heads=1, head_dim=16, q_norm=None, k_norm=None, eps=1e-6)
    counts, lengths = torch.tensor([12, 1, 3]), torch.tensor([1100, 40, 3])
    for max_blocks, is_cut in ((256, True), (100, False)):
        cache, plain_cache = (KVCache(shape, 160, 16, torch.float32, DEVICE) for _ in range(2))
        plain_cache.layers[0].normal_()
        cache.layers[0].copy_(plain_cache.layers[0])
        batch = StepBuffers(3, 16, max_blocks, DEVICE).batch(
            3, 16, num_chunks=2, num_few=1, max_query_len=12, max_seq_len=1100
        )
        batch.query_start[1:] = counts.cumsum(0)
        batch.seq_lens.copy_(lengths)
        batch.few_lens.copy_(torch.tensor([0, 40, 0]))
        batch.block_table[:, :70] = torch.tensor([[0], [80], [90]]) + torch.arange(70)
        request = torch.arange(3).repeat_interleave(counts)
        positions = torch.cat([torch.arange(length - n, length) for n, length in zip(counts, lengths, strict=True)])
        batch.positions.copy_(positions)
        batch.slot_mapping.copy_(torch.tensor([0, 80, 90])[request] * 16 + positions)  # neighbouring pages
        qkv = torch.randn(16, 4 * 16, device=DEVICE)
        tables = rope_tables(shape, 1200, DEVICE)
        got = attention.TritonAttention(cache, *tables).attend(layer, qkv, batch)
        plain = TorchAttention(plain_cache, *tables)
        plain.plan(batch)
        want = plain.attend(layer, qkv, batch).view_as(got)
        torch.testing.assert_close(got, want, atol=2e-5 if DEVICE.type == "cpu" else 1e-3, rtol=1e-3)
        assert (used.pop().num_splits > 1) == is_cut


@pytest.mark.gpu
def test_a_captured_launch_follows_new_lengths() -> None:
    case = make_case([(40, 1000), (1, 600), (20, 900)], heads=8, kv_heads=2, dim=128, dtype=torch.bfloat16)
    out = torch.empty_like(case.q)
    settings = {"out": out, "splits": KeySplits(8, 33, 1), "tile": None, "max_query_tiles": None, "min_queries": 2}
    case.run(**settings)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.run(**settings)
    steps = [([0, 2, 40, 61], [1000, 40, 21]), ([0, 60, 61, 61], [64, 1, 0]), ([0, 1, 1, 61], [3, 9, 900])]
    for starts, lens in steps:
        case.query_start.copy_(torch.tensor(starts))
        case.seq_lens.copy_(torch.tensor(lens))
        out.fill_(7.0)
        graph.replay()
        want = case.expected()
        for begin, end in itertools.pairwise(starts):
            if end - begin == 1:
                want[begin] = 7.0
        assert_near(out, want, torch.bfloat16)
