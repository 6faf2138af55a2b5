"""The kernels for one to eight tokens against a float64 product: any shape, every tile, rows that lie apart, offsets
past 2^31; and that no token sees another."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.model.shape import PRESETS
from stage2.kernels.matvec import MAX_TOKENS, TILES, MatvecTile, choose_tile, matvec
from stage2.ops import TritonOps

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def randn(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def error(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> float:
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 16), (7, 5), (9, 576), (33, 130), (5, 1536), (3, 9728), (2, 12288)], ids=str
)
def test_it_is_the_product(shape, num_tokens, with_bias, dtype) -> None:
    num_rows, width = shape
    x, weight = randn(num_tokens, width, dtype=dtype), randn(num_rows, width, dtype=dtype, seed=1)
    bias = 10 * randn(num_rows, dtype=dtype, seed=2) if with_bias else None
    out = matvec(x, weight, bias)
    assert (out.shape, out.dtype) == ((num_tokens, num_rows), dtype)
    assert error(out, x, weight, bias) < TOLERANCE[dtype]


@settings(deadline=None, max_examples=100)
@given(
    num_tokens=st.integers(1, MAX_TOKENS),
    num_rows=st.integers(1, 40),
    width=st.integers(1, 300),
    tile=st.builds(
        MatvecTile,
        rows=st.sampled_from([1, 2, 4, 8]),
        columns=st.sampled_from([16, 64, 256]),
        num_warps=st.sampled_from([1, 4]),
        num_stages=st.sampled_from([1, 3]),
    ),
)
def test_every_tile_gives_the_same(num_tokens, num_rows, width, tile) -> None:
    x, weight = randn(num_tokens, width), randn(num_rows, width, seed=1)
    assert error(matvec(x, weight, tile=tile), x, weight) < 1e-4  # a few numbers may nearly cancel


@settings(deadline=None, max_examples=60)
@given(
    num_tokens=st.integers(1, MAX_TOKENS),
    num_rows=st.integers(1, 20),
    width=st.integers(1, 100),
    gaps=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    dtype=st.sampled_from(list(TOLERANCE)),
    rows=st.sampled_from([1, 4]),
)
def test_what_lies_between_rows_and_behind_the_matrices_is_not_used(
    num_tokens, num_rows, width, gaps, dtype, rows
) -> None:
    """All memory around the numbers is poisoned, and none around the result is written."""
    nothing = {"dtype": dtype, "device": DEVICE}
    x = torch.full((num_tokens + 1, width + gaps[0]), torch.nan, **nothing)[:num_tokens, :width]
    weight = torch.full((num_rows + 1, width + gaps[1]), torch.nan, **nothing)[:num_rows, :width]
    x.copy_(randn(num_tokens, width))
    weight.copy_(randn(num_rows, width, seed=1))
    around = torch.full((num_rows * (num_tokens + 2) + 1,), torch.nan, **nothing)
    out = around[num_rows:-num_rows][: num_tokens * num_rows].view(num_tokens, num_rows)
    returned = matvec(x, weight, out=out, tile=MatvecTile(rows, 32, 1))
    assert returned.data_ptr() == out.data_ptr()
    expected = x.double() @ weight.double().T
    scale = x.double().abs() @ weight.double().abs().T  # what rounding grows with, also where products cancel
    assert ((out.double() - expected).abs() <= TOLERANCE[dtype] * scale).all()
    assert around[:num_rows].isnan().all()
    assert around[num_rows * (num_tokens + 1) :].isnan().all()


@settings(deadline=None, max_examples=30)
@given(
    num_tokens=st.integers(2, MAX_TOKENS), broken=st.integers(0, MAX_TOKENS - 1), dtype=st.sampled_from([*TOLERANCE])
)
def test_a_token_does_not_depend_on_its_neighbours(num_tokens, broken, dtype) -> None:
    x, weight = randn(num_tokens, 150, dtype=dtype), randn(10, 150, dtype=dtype, seed=1)
    expected = matvec(x, weight)
    x[broken % num_tokens] = torch.nan
    out = matvec(x, weight)
    others = [token for token in range(num_tokens) if token != broken % num_tokens]
    assert out[broken % num_tokens].isnan().all()
    assert torch.equal(out[others], expected[others])


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("padded", [4, 8])
def test_a_token_has_the_same_bits_at_any_place_and_in_any_company_of_one_padded_size(padded, dtype) -> None:
    tokens, weight = randn(padded, 576, dtype=dtype), randn(12, 576, dtype=dtype, seed=1)
    expected = matvec(tokens, weight)
    for number in range(padded // 2 + 1, padded + 1):
        assert torch.equal(matvec(tokens[:number], weight), expected[:number])
    assert torch.equal(matvec(tokens.flip(0), weight), expected.flip(0))


def test_offsets_need_64_bits() -> None:
    """Rows of a view lie a gigabyte apart; only the touched pages of the memory below cost anything."""
    stride, width = 2**30, 32
    memory = torch.empty(3 * stride + width, dtype=torch.float16, device=DEVICE)
    weight = memory.as_strided((4, width), (stride, 1))
    weight.copy_(randn(4, width))
    for num_tokens in (1, 3):
        x = randn(num_tokens, width, dtype=torch.float16, seed=1)
        assert error(matvec(x, weight), x, weight) < TOLERANCE[torch.float16]


def test_a_broken_number_breaks_its_own_rows_alone() -> None:
    weight = randn(6, 50, seed=1)
    weight[2, 49] = torch.nan
    weight[3, 0] = torch.inf
    for num_tokens in (1, 4):
        out = matvec(randn(num_tokens, 50), weight)
        assert out[:, 2].isnan().all()
        assert out[:, 3].isinf().all()
        assert out[:, [0, 1, 4, 5]].isfinite().all()


def test_sums_are_kept_in_float32() -> None:
    x = torch.ones(2, 4096, dtype=torch.bfloat16, device=DEVICE)
    weight = torch.ones(2, 4096, dtype=torch.bfloat16, device=DEVICE)
    weight[1, ::2] = 2.0**-7  # bfloat16 sums would stand still at 256
    assert matvec(x[:1], weight).tolist() == [[4096.0, 2064.0]]
    assert matvec(x, weight).tolist() == 2 * [[4096.0, 2064.0]]


@pytest.mark.parametrize("num_tokens", range(1, MAX_TOKENS + 1))
def test_the_table_serves_every_matrix_of_every_model(num_tokens) -> None:
    for shape in PRESETS.values():
        attention = shape.num_heads * shape.head_dim
        qkv = attention + 2 * shape.num_kv_heads * shape.head_dim
        matrices = [(qkv, shape.hidden_size), (shape.hidden_size, attention), (shape.vocab_size, shape.hidden_size)]
        matrices += [(2 * shape.intermediate_size, shape.hidden_size), (shape.hidden_size, shape.intermediate_size)]
        for num_rows, width in matrices:
            tile = choose_tile(num_rows, width, num_tokens)
            assert 16 <= tile.columns <= max(16, 2 * width)
            assert tile.columns % 16 == 0


@pytest.mark.parametrize("tokens", [1, 2, 4, 8])
def test_no_matrix_is_without_a_tile_and_no_tile_wants_more_registers_than_there_are(tokens) -> None:
    assert TILES[tokens][-1][:2] == (2**31, 2**31)
    for _, _, tile in TILES[tokens]:
        assert tokens == 1 or tile.columns % (256 * tile.num_warps) == 0
        assert tokens * tile.rows * tile.columns // (256 * tile.num_warps) <= 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(0, 8)}, "x has 0 tokens; this kernel takes 1 to 8: use F.linear"),
        ({"x": torch.zeros(9, 8)}, "x has 9 tokens; this kernel takes 1 to 8: use F.linear"),
        ({"x": torch.zeros(1, 9)}, r"x is \(1, 9\); this weight takes rows of 8"),
        ({"x": torch.zeros(8, 3).T}, "rows must be dense: call contiguous"),
        ({"weight": torch.zeros(8, 4).T}, "rows must be dense: call contiguous"),
        ({"bias": torch.zeros(8)}, r"bias is \(8,\); it must be \(4,\)"),
        ({"out": torch.zeros(1, 5)}, r"out is \(1, 5\); it must be \(1, 4\)"),
        ({"out": torch.zeros(1, 4).half()}, "they must be the same"),
    ],
)
def test_what_does_not_fit_is_refused(change, message) -> None:
    arguments = {"x": torch.zeros(1, 8), "weight": torch.zeros(4, 8), "bias": None, "out": None} | change
    with pytest.raises(ValueError, match=message):
        matvec(*(None if t is None else t.to(DEVICE) for t in arguments.values()))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_tokens", [1, 2, 5, 8])
def test_the_ops_use_it_for_few_tokens_and_capture_it(num_tokens, dtype, monkeypatch) -> None:
    ops = TritonOps()
    x, weight = randn(num_tokens, 576, dtype=dtype), randn(960, 576, dtype=dtype, seed=1)
    bias = randn(960, dtype=dtype, seed=2)
    monkeypatch.setattr(F, "linear", lambda *args: pytest.fail("few tokens went to the library"))
    ops.linear(x, weight, bias)  # compiles outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.linear(x, weight, bias)
    x.copy_(randn(num_tokens, 576, dtype=dtype, seed=3))
    graph.replay()
    assert error(out, x, weight, bias) < TOLERANCE[dtype]


@pytest.mark.gpu
def test_float32_is_not_rounded_to_tf32(monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    for num_tokens in (1, 2, 4, 8):
        x, weight = randn(num_tokens, 4096), randn(256, 4096, seed=1)
        assert error(TritonOps().linear(x, weight), x, weight) < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(151936, 1024), (4096, 12288), (49152, 576), (576, 1152), (1024, 3072)], ids=str)
def test_large_matrices(shape, num_tokens) -> None:
    x, weight = randn(num_tokens, shape[1], dtype=torch.bfloat16), randn(*shape, dtype=torch.bfloat16, seed=1)
    assert error(matvec(x, weight), x, weight) < TOLERANCE[torch.bfloat16]
