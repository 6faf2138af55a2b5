"""The points of the kernel benchmark, run small: every case does what its reference does, and would notice if not."""

import pytest
import torch

from bench_kernels import attention_cases
from bench_kernels.arena import Arena, Case
from bench_kernels.attention_cases import decode_cut, decode_lengths, prefill_cut
from bench_kernels.points import (
    Point,
    decode_points,
    matvec_points,
    pointwise_points,
    prefill_points,
    sampling_points,
)
from bench_kernels.pointwise_cases import SAMPLING
from bench_kernels.sweep import few_variants
from stage2.kernels.decode_attention import paged_decode
from stage2.kernels.few_tokens import MEASURED, choose_few_tokens
from stage2.kernels.matvec import MatvecTile, choose_tile
from stage2.kernels.prefill_tiles import PrefillTile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = [
    Point("decode", {"batch": 3, "context": 40, "shape": "135m"}),
    Point("decode", {"batch": 4, "context": 70, "ragged": True, "splits": (2, 1), "shape": "135m"}),
    Point("prefill", {"batch": 2, "context": 24, "shape": "135m"}),
    Point("prefill", {"batch": 2, "context": 70, "queries": 9, "shape": "135m"}),
    Point("prefill", {"batch": 1, "context": 90, "queries": 9, "shape": "135m", "splits": (4, 4, 1)}),
    Point("matvec", {"num_rows": 24, "width": 48}),
    Point("matvec", {"num_rows": 24, "width": 48, "tile": (4, 32, 1, 1)}),
    Point("matvec", {"num_rows": 24, "width": 48, "tokens": 5}),
    Point("ops", {"tokens": 3, "num_rows": 24, "width": 48}),
    Point("skinny", {"tokens": 3, "num_rows": 24, "width": 48}),
    Point("library", {"tokens": 2, "num_rows": 24, "width": 48}),
    Point("norm", {"tokens": 3, "hidden": 64}),
    Point("activation", {"tokens": 3, "inner": 64}),
    Point("rope_store", {"tokens": 5, "shape": "135m"}),
    Point("rope_store", {"tokens": 5, "shape": "135m", "head_norm": False}),
    *(Point("sampling", {"rows": 3, "vocab_size": 300, "mode": mode}) for mode in SAMPLING),
]


@pytest.fixture(scope="module")
def arena() -> Arena:
    torch.manual_seed(0)
    return Arena(1 << 18, DEVICE, most_sets=2)


@pytest.mark.parametrize("point", SMALL, ids=str)
def test_every_case_computes_what_its_reference_does(arena: Arena, point: Point) -> None:
    case = point.build(arena)
    assert isinstance(case, Case)
    assert case.check() < (1e-4 if DEVICE == "cpu" else 0.02)
    assert case.num_bytes > 0
    for launch in case.launches:
        launch()


def test_a_wrong_result_shows(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Point("decode", {"batch": 2, "context": 40, "shape": "135m"}).build(arena)
    monkeypatch.setattr(attention_cases, "paged_decode", lambda *args, **kw: paged_decode(*args, **{**kw, "scale": 1}))
    assert case.check() > 0.02
    monkeypatch.setattr(attention_cases, "paged_decode", lambda *args, **kw: args[-1].fill_(torch.nan))
    assert not case.check() < 0.02  # numbers that nobody wrote


def test_no_page_is_in_two_tables(arena: Arena) -> None:
    tables = arena.tables(torch.tensor([1, 16, 17, 40]), num_blocks=20, sets=5)
    assert len(tables) == 2  # 7 blocks each: a third set would not fit
    used = [table[row, :count] for table in tables for row, count in enumerate((1, 1, 2, 3))]
    assert torch.cat(used).unique().numel() == 14


def test_an_arena_that_is_too_small_says_so(arena: Arena) -> None:
    with pytest.raises(ValueError, match="make it larger"):
        arena.take(3, 1 << 17)
    with pytest.raises(ValueError, match="wants 21 blocks, the arena has 20"):
        arena.tables(torch.tensor([21 * 16]), num_blocks=20, sets=1)


def test_shrinking_keeps_what_a_kernel_is_compiled_for() -> None:
    points = decode_points() + prefill_points() + matvec_points() + sampling_points() + pointwise_points()
    for point in points:
        small, arguments = point.shrink(DEVICE).arguments, point.arguments
        for name in ("shape", "width", "hidden", "inner", "vocab_size", "mode"):
            assert small.get(name) == arguments.get(name)
        if point.kernel == "decode":
            lengths = decode_lengths(arguments["batch"], arguments["context"], arguments.get("ragged", False))
            assert small["splits"] == decode_cut(DEVICE, lengths, arguments.get("shape", "8b"))
        if point.kernel == "prefill":
            assert small["batch"] == arguments["batch"]
            tile, splits = prefill_cut(DEVICE, **arguments)
            assert (PrefillTile(*small["tile"]), small["splits"]) == (tile, splits)
        if point.kernel == "matvec":
            tokens = arguments.get("tokens", 1)
            assert small["tile"] == tuple(choose_tile(arguments["num_rows"], arguments["width"], tokens))
            assert small.get("tokens", 1) == tokens
        if point.kernel == "skinny":
            assert (small["tokens"], len(small["tile"])) == (arguments["tokens"], 4)


def test_a_sweep_over_few_tokens_has_the_library_what_the_ops_pick_and_the_tables_tile() -> None:
    groups = list(few_variants())
    assert {group[0].arguments["tokens"] for group in groups} == {2, 4, 8}
    for group in groups:
        sizes = group[0].arguments
        assert [point.kernel for point in group[:2]] == ["library", "ops"]
        tiles = [point.arguments["tile"] for point in group if point.kernel == "matvec"]
        assert tuple(choose_tile(sizes["num_rows"], sizes["width"], sizes["tokens"])) in tiles
        assert len(set(tiles)) == len(tiles)


def test_a_sweep_over_few_tokens_tries_what_the_table_says_and_leaves_no_entry_out() -> None:
    measured = set()
    for group in few_variants():
        sizes = group[0].arguments
        tile = choose_few_tokens(sizes["num_rows"], sizes["width"], sizes["tokens"])
        kernel = "library" if tile is None else "matvec" if isinstance(tile, MatvecTile) else "skinny"
        assert Point(kernel, sizes if tile is None else {**sizes, "tile": tuple(tile)}) in group
        measured.add((sizes["num_rows"], sizes["width"]))
    assert measured == set(MEASURED)
