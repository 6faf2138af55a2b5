"""The prefill kernel against one query, one head and one block lookup at a time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from sixfold.exercises.importer import load_file
from stage2.kernels.prefill_tiles import PrefillTile, bound_query_tiles, choose_tile

bed = load_file(Path(__file__).with_name("prefill_bed.py"))
DEVICE, HALF, Case, assert_near, make_case = bed.DEVICE, bed.HALF, bed.Case, bed.assert_near, bed.make_case


def test_mixed_batch_of_decodes_whole_prompts_and_later_chunks() -> None:
    case = make_case([(1, 1), (15, 15), (1, 33), (17, 17), (9, 40), (16, 32), (1, 16), (2, 17)], heads=4, kv_heads=2)
    assert_near(case.run(), case.expected())


@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_query_heads_share_kv_heads(group: int) -> None:
    case = make_case([(7, 20), (1, 5), (18, 18)], heads=2 * group, kv_heads=2, dim=16)
    assert_near(case.run(), case.expected())


@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_head_sizes_and_dtypes_with_the_tile_chosen_by_shape(dim: int, dtype: torch.dtype) -> None:
    case = make_case([(37, 70), (1, 3)], dim=dim, dtype=dtype)
    assert_near(case.run(tile=None), case.expected(), dtype)


@pytest.mark.parametrize("dtype", HALF)
def test_decodes_with_the_tile_chosen_by_shape(dtype: torch.dtype) -> None:
    case = make_case([(1, 1), (1, 16), (1, 17), (2, 80)], heads=3, dtype=dtype)
    assert choose_tile(5, 4, 3, 1, 64, dtype).rows == 16
    assert_near(case.run(tile=None), case.expected(), dtype)


@pytest.mark.parametrize("block_size", [1, 12, 64, 256])
def test_block_sizes_need_not_fit_the_tile_of_keys(block_size: int) -> None:
    case = make_case([(5, 70), (1, 64), (1, 65), (12, 12)], dim=16, block_size=block_size)
    assert_near(case.run(), case.expected())


@pytest.mark.parametrize("keys", [16, 32, 64])
@pytest.mark.parametrize("rows", [16, 32])
def test_any_tile_gives_the_same(rows: int, keys: int) -> None:
    case = make_case([(40, 81), (33, 33), (1, 64)], heads=3, dim=16)
    assert_near(case.run(tile=PrefillTile(rows, keys, 4, 2)), case.expected())


def test_one_prompt_in_chunks_equals_the_prompt_at_once() -> None:
    whole = make_case([(50, 50)], dim=16)
    want = whole.run()
    for begin, end in ((0, 16), (16, 17), (17, 50)):
        starts, lens = torch.tensor([0, end - begin], device=DEVICE), torch.tensor([end], device=DEVICE)
        part = Case(whole.q[begin:end], whole.k, whole.v, whole.table, starts, lens)
        assert_near(part.run(), want[begin:end])


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_rows_without_queries_and_padding_tokens_are_left_alone(index_dtype: torch.dtype) -> None:
    case = make_case(
        [(0, 9), (3, 20), (0, 0), (0, 4), (20, 20), (0, 0)], dim=16, index_dtype=index_dtype, num_padding=5
    )
    case.q[-5:] = math.nan
    out = torch.full_like(case.q, 7.0)
    assert case.run(out=out) is out
    assert_near(out[:-5], case.expected()[:-5])
    assert (out[-5:] == 7.0).all()


def test_queries_before_the_first_key_give_zeros() -> None:
    case = make_case([(4, 4), (1, 1), (40, 40), (4, 4)], dim=16)
    want = case.expected()
    case.seq_lens[1:] = torch.tensor([0, 0, 2])  # the last request's queries are at positions -2, -1, 0 and 1
    out = case.run()
    assert (out[4:47] == 0.0).all()
    assert (case.run(tile=PrefillTile(64, 16, 4, 2))[4:47] == 0.0).all()
    assert_near(out[:4], want[:4])
    first = Case(case.q[-2:], case.k, case.v, case.table[3:], torch.tensor([0, 2], device=DEVICE), case.seq_lens[3:])
    assert_near(out[47:], first.expected())


def test_one_poisoned_request_harms_no_other() -> None:
    case = make_case([(5, 30), (6, 6), (1, 20)], dim=16)
    want = case.expected()
    case.k[case.table[1, 0]] = math.nan
    case.v[case.table[1, 0]] = math.nan
    out = case.run()
    assert out[5:11].isnan().all()
    assert_near(torch.cat([out[:5], out[11:]]), torch.cat([want[:5], want[11:]]))


def test_huge_scores_do_not_overflow() -> None:
    case = make_case([(20, 40)], dim=16)
    case.q *= 1e4
    torch.testing.assert_close(case.run(), case.expected(), atol=1e-3, rtol=1e-3)  # a score itself is off by 1e-3


def test_strided_queries_out_and_cache() -> None:
    case = make_case([(5, 21), (1, 7)], heads=4, kv_heads=2, dim=16)
    want = case.expected()
    merged = torch.randn(6, 8, 16, device=DEVICE)  # q, k and v of a token behind each other
    merged[:, :4] = case.q
    kv = torch.stack([case.k, case.v], dim=1)  # [num_blocks, 2, block_size, kv_heads, dim]
    out = torch.full((6, 8, 16), 7.0, device=DEVICE)
    case.q, case.k, case.v = merged[:, :4], kv[:, 0], kv[:, 1]
    case.run(out=out[:, 2:6])
    assert_near(out[:, 2:6], want)
    assert (out[:, :2] == 7.0).all()
    assert (out[:, 6:] == 7.0).all()


def test_more_programs_than_tiles_and_exactly_enough() -> None:
    case = make_case([(9, 9), (1, 12), (8, 30)], dim=16)  # 8 queries a tile: 2 + 1 + 1 tiles
    want = case.expected()
    for max_query_tiles in (4, 50):
        out = torch.full_like(case.q, math.nan)
        assert_near(case.run(out=out, max_query_tiles=max_query_tiles), want)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_blocks_beyond_two_to_the_31_elements(index_dtype: torch.dtype) -> None:
    case = make_case([(3, 40)], dim=64, dtype=torch.float16, index_dtype=index_dtype)
    want = case.expected()
    few, far = len(case.k), 2**31 // case.k[0].numel()
    k, v = (torch.empty(far + few, *case.k.shape[1:], dtype=torch.float16, device=DEVICE) for _ in range(2))
    k[far:], v[far:] = case.k, case.v  # a CPU commits no more memory than these pages
    case.k, case.v, case.table = k, v, case.table + far
    assert_near(case.run(), want, torch.float16)


def test_no_tokens_at_all() -> None:
    case = make_case([(0, 3)], dim=16)
    assert case.run().shape == (0, 2, 16)


def test_bound_is_reached_and_never_passed() -> None:
    tile = PrefillTile(16, 16, 4, 1)
    for group in (1, 3, 8):
        queries = 16 // group
        for total, num_reqs in ((1, 1), (5, 9), (40, 3), (41, 3)):
            ways = _partitions(total, num_reqs)
            most = max(sum(-(-n // queries) for n in parts) for parts in ways)
            assert bound_query_tiles(total, num_reqs, group, tile) == most


def _partitions(total: int, parts: int) -> list[list[int]]:
    """All ways to give ``total`` to at most ``parts`` requests, order ignored."""

    def divide(left: int, parts: int, largest: int) -> list[list[int]]:
        if left == 0:
            return [[]]
        if parts == 0:
            return []
        return [[n, *rest] for n in range(min(left, largest), 0, -1) for rest in divide(left - n, parts - 1, n)]

    return divide(total, parts, total)


def test_what_does_not_fit_is_refused() -> None:
    case = make_case([(2, 2)], heads=4, kv_heads=1, dim=16)
    with pytest.raises(ValueError, match="scale is -1"):
        case.run(scale=-1.0)
    with pytest.raises(ValueError, match="lay them out alike"):
        Case(case.q, case.k, case.v.transpose(0, 1), case.table, case.query_start, case.seq_lens).run()
    with pytest.raises(ValueError, match="must be dense"):
        case.run(out=torch.empty(2, 16, 4, device=DEVICE).transpose(1, 2))
    many = make_case([(1, 1)], heads=17, kv_heads=1, dim=16)
    with pytest.raises(ValueError, match="17 query heads"):
        many.run()
    odd = make_case([(1, 1)], heads=3, kv_heads=2, dim=16)
    with pytest.raises(ValueError, match="3 query heads cannot share 2"):
        odd.run()


@pytest.mark.skipif(DEVICE.type == "cuda", reason="about Triton's interpreter")
def test_bfloat16_is_refused_by_the_interpreter() -> None:
    case = make_case([(1, 1)], dim=16, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="float32"):
        case.run()
