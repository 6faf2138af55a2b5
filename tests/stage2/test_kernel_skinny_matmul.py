"""The product for a few tokens against one in float64: any number of tokens, any shape, rows that lie apart."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stage2.kernels.few_tokens import MEASURED
from stage2.kernels.skinny_matmul import MAX_TOKENS, TILES, SkinnyTile, choose_tile, skinny_matmul
from stage2.ops import TritonOps

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
SMALL = SkinnyTile(16, 32, 4, 2)


def randn(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def error(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> float:
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 33, 64), (16, 7, 130), (17, 40, 576), (64, 100, 96)], ids=str)
def test_it_is_the_product(shape, with_bias, dtype) -> None:
    num_tokens, num_rows, width = shape
    x, weight = randn(num_tokens, width, dtype=dtype), randn(num_rows, width, dtype=dtype, seed=1)
    bias = 10 * randn(num_rows, dtype=dtype, seed=2) if with_bias else None
    for tile in (SMALL, SMALL._replace(rows=8, num_warps=1)):
        out = skinny_matmul(x, weight, bias, tile=tile)
        assert (out.shape, out.dtype) == ((num_tokens, num_rows), dtype)
        assert error(out, x, weight, bias) < TOLERANCE[dtype]


@settings(deadline=None, max_examples=40)
@given(
    num_tokens=st.integers(1, MAX_TOKENS),
    num_rows=st.integers(1, 40),
    width=st.integers(1, 150),
    tile=st.builds(
        SkinnyTile,
        rows=st.sampled_from([8, 16, 32]),
        columns=st.sampled_from([16, 64, 128]),
        num_warps=st.sampled_from([1, 4]),
        num_stages=st.sampled_from([1, 3]),
    ),
)
def test_every_tile_gives_the_same(num_tokens, num_rows, width, tile) -> None:
    x, weight = randn(num_tokens, width), randn(num_rows, width, seed=1)
    assert error(skinny_matmul(x, weight, tile=tile), x, weight) < 1e-5


FEW = sorted({tile for tiles in MEASURED.values() for tile in tiles if isinstance(tile, SkinnyTile)})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 63, 64, 65, 576, 600])
@pytest.mark.parametrize("tile", FEW, ids=str)
def test_tiles_for_small_matrices_take_widths_that_they_do_not_divide(tile, width, dtype) -> None:
    """Beyond the width lies what is not a number."""
    for num_tokens in (2, 5, 8):
        wide, x = torch.full((2, 75, width + 9), torch.nan, dtype=dtype, device=DEVICE).unbind()
        weight, x = wide[:70, :width], x[:num_tokens, :width]
        weight.copy_(randn(70, width))
        x.copy_(randn(num_tokens, width, seed=1))
        assert error(skinny_matmul(x, weight, tile=tile), x, weight) < TOLERANCE[dtype]


def test_a_token_does_not_depend_on_its_neighbours() -> None:
    x, weight = randn(5, 70), randn(20, 70, seed=1)
    expected = skinny_matmul(x, weight, tile=SMALL)
    x[3] = torch.nan
    out = skinny_matmul(x, weight, tile=SMALL)
    assert out[3].isnan().all()
    assert torch.equal(out[[0, 1, 2, 4]], expected[[0, 1, 2, 4]])


def test_what_lies_between_rows_and_behind_the_matrices_is_not_used() -> None:
    wide, x = torch.full((8, 80), torch.nan, device=DEVICE), torch.full((6, 90), torch.nan, device=DEVICE)
    weight, x = wide[:6, :70], x[:3, :70]
    weight.copy_(randn(6, 70))
    x.copy_(randn(3, 70, seed=1))
    out = torch.full((5, 6), torch.nan, device=DEVICE)
    skinny_matmul(x, weight, out=out[1:4], tile=SMALL)
    assert error(out[1:4], x, weight) < 1e-6
    assert out[0].isnan().all()
    assert out[4].isnan().all()


def test_the_table_serves_every_number_of_tokens() -> None:
    for num_tokens in (1, 16, 17, MAX_TOKENS):
        assert choose_tile(num_tokens, 2**31) in {tile for _, _, tile in TILES}


@pytest.mark.parametrize("num_tokens", [0, MAX_TOKENS + 1])
def test_other_numbers_of_tokens_are_refused(num_tokens) -> None:
    with pytest.raises(ValueError, match=f"x has {num_tokens} tokens; this kernel takes 1 to {MAX_TOKENS}"):
        skinny_matmul(randn(num_tokens, 8), randn(4, 8))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8, 4096, 12288), (64, 6144, 4096), (3, 151936, 1024)], ids=str)
def test_the_tables_tiles_run(shape) -> None:
    x = randn(shape[0], shape[2], dtype=torch.bfloat16)
    weight = randn(*shape[1:], dtype=torch.bfloat16, seed=1)
    assert error(skinny_matmul(x, weight), x, weight) < TOLERANCE[torch.bfloat16]


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", [2, 3, 8])
@pytest.mark.parametrize("shape", MEASURED, ids=str)
def test_what_the_ops_pick_for_a_measured_matrix_is_the_product(shape, num_tokens) -> None:
    x, weight = randn(num_tokens, shape[1], dtype=torch.bfloat16), randn(*shape, dtype=torch.bfloat16, seed=1)
    assert error(TritonOps().linear(x, weight), x, weight) < TOLERANCE[torch.bfloat16]
