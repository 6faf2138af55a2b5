"""The pointwise kernels against the plain operations: any width and dtype, in place or not, rows that lie apart."""

import pytest
import torch

from stage1.model.ops import TorchOps
from stage2.kernels.activation import silu_and_mul
from stage2.kernels.norm import add_rms_norm
from stage2.ops import TritonOps

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# One step of the dtype, relative: where float32 results differ in their last bit, they may round to neighbours.
STEP = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
EPS = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # numpy's, and wanted: x / infinity


def randn(*size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return (3 * torch.randn(size, generator=torch.Generator().manual_seed(seed))).to(DEVICE, dtype)


def assert_same(out: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to a rounding step; in a narrow dtype nearly all to the bit, which only the same roundings give.

    Triton's interpreter cuts bfloat16 off where a GPU rounds it, once a rounding: there, float16 shows their order.
    """
    assert (out.dtype, out.shape) == (expected.dtype, expected.shape)
    cut_off = out.dtype == torch.bfloat16 and DEVICE == "cpu"
    torch.testing.assert_close(out.float(), expected.float(), rtol=STEP[out.dtype] * (4 if cut_off else 2), atol=1e-6)
    if out.dtype != torch.float32 and not cut_off:
        assert (out != expected).sum() <= 0.01 * out.numel()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [1, 2, 64, 576, 1024, 1500, 4096])
@pytest.mark.parametrize("with_residual", [False, True])
def test_norm_equals_the_plain_one(dtype, hidden, with_residual):
    x, weight = randn(3, hidden, dtype=dtype), randn(hidden, dtype=dtype, seed=1)
    residual = randn(3, hidden, dtype=dtype, seed=2) if with_residual else None
    kept = [t.clone() for t in (x, weight, residual) if t is not None]
    normed, total = add_rms_norm(x, residual, weight, EPS)
    expected_normed, expected_total = TorchOps().add_rms_norm(x, residual, weight, EPS)
    assert_same(normed, expected_normed)
    assert_same(total, expected_total)
    assert (total is x) == (residual is None)
    assert all(
        torch.equal(a, b) for a, b in zip([t for t in (x, weight, residual) if t is not None], kept, strict=True)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_in_place_gives_the_same(dtype):
    x, residual, weight = (randn(*size, dtype=dtype, seed=i) for i, size in enumerate([(4, 576), (4, 576), (576,)]))
    expected = add_rms_norm(x, residual, weight, EPS)
    for normed_into_x in (True, False):
        a, b = x.clone(), residual.clone()
        out, total_out = (a, b) if normed_into_x else (b, a)
        normed, total = add_rms_norm(a, b, weight, EPS, out, total_out)
        assert (normed.data_ptr(), total.data_ptr()) == (out.data_ptr(), total_out.data_ptr())
        assert torch.equal(normed, expected[0])
        assert torch.equal(total, expected[1])


def test_norm_takes_rows_that_lie_apart_and_leaves_what_is_between():
    weight = randn(100, dtype=torch.float32, seed=1)
    wide = [torch.full((5, width), torch.nan, device=DEVICE) for width in (128, 120, 112, 104)]
    x, residual, out, total_out = (tensor[:, :100] for tensor in wide)
    x.copy_(randn(5, 100, dtype=torch.float32))
    residual.copy_(randn(5, 100, dtype=torch.float32, seed=2))
    normed, total = add_rms_norm(x, residual, weight, EPS, out, total_out)
    expected = TorchOps().add_rms_norm(x, residual, weight, EPS)
    assert_same(normed, expected[0])
    assert_same(total, expected[1])
    assert all(tensor[:, 100:].isnan().all() for tensor in wide)


def test_norm_of_zeros_is_zero_and_a_bad_row_stays_alone():
    x = randn(3, 96, dtype=torch.bfloat16)
    x[0] = 0
    x[1, 5] = torch.nan
    normed, _ = add_rms_norm(x, None, torch.ones(96, device=DEVICE, dtype=torch.bfloat16), EPS)
    assert normed[0].abs().max() == 0
    assert normed[1].isnan().all()
    assert normed[2].isfinite().all()


def test_norm_refuses_a_place_for_a_sum_that_is_not_made():
    x = randn(1, 4, dtype=torch.float32)
    with pytest.raises(ValueError, match="residual_out was given but residual is None"):
        add_rms_norm(x, None, x[0], EPS, residual_out=x.clone())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inner", [1, 3, 256, 1023, 1536, 2049])
def test_activation_equals_the_plain_one(dtype, inner):
    gate_up = randn(3, 2 * inner, dtype=dtype)
    assert_same(silu_and_mul(gate_up), TorchOps().activation(gate_up))


def test_activation_at_the_ends_of_the_range():
    gate = torch.tensor([-1000.0, -100.0, -0.0, 0.0, 100.0, 1000.0], device=DEVICE)
    gate_up = torch.cat((gate, torch.full_like(gate, 2.0)))[None]
    out = silu_and_mul(gate_up)
    torch.testing.assert_close(out, TorchOps().activation(gate_up), rtol=1e-4, atol=1e-30)
    assert out[0, 0] == 0  # not 0 * infinity


def test_activation_writes_where_it_is_told_and_nowhere_else():
    wide, out = torch.full((4, 50), torch.nan, device=DEVICE), torch.full((4, 32), torch.nan, device=DEVICE)
    gate_up = wide[:, :40]
    gate_up.copy_(randn(4, 40, dtype=torch.float32))
    returned = silu_and_mul(gate_up, out[:, :20])
    assert returned.data_ptr() == out.data_ptr()
    assert_same(out[:, :20], TorchOps().activation(gate_up))
    assert out[:, 20:].isnan().all()


def test_activation_refuses_an_odd_width():
    with pytest.raises(ValueError, match="gate_up is 7 wide"):
        silu_and_mul(torch.zeros(1, 7, device=DEVICE))


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ops_agree_with_the_plain_ops(rows, dtype):
    ops, plain = TritonOps(), TorchOps()
    x, residual = randn(rows, 48, dtype=dtype), randn(rows, 48, dtype=dtype, seed=1)
    weight, matrix, bias = (randn(*s, dtype=dtype, seed=2) for s in ((48,), (96, 48), (96,)))
    for out, expected in zip(
        ops.add_rms_norm(x, residual, weight, EPS), plain.add_rms_norm(x, residual, weight, EPS), strict=True
    ):
        assert_same(out, expected)
    gate_up = ops.linear(x, matrix, bias)
    torch.testing.assert_close(gate_up, plain.linear(x, matrix, bias), rtol=STEP[dtype], atol=STEP[dtype] * 10)
    assert_same(ops.activation(gate_up), plain.activation(gate_up))


@pytest.mark.gpu
def test_ops_can_be_captured():
    ops = TritonOps()
    x, residual = randn(4, 576, dtype=torch.bfloat16), randn(4, 576, dtype=torch.bfloat16, seed=1)
    weight = randn(576, dtype=torch.bfloat16, seed=2)
    ops.activation(ops.add_rms_norm(x, residual, weight, EPS)[0])  # compiles outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        normed, _ = ops.add_rms_norm(x, residual, weight, EPS)
        out = ops.activation(normed)
    x.copy_(randn(4, 576, dtype=torch.bfloat16, seed=3))
    graph.replay()
    assert_same(out, TorchOps().activation(TorchOps().add_rms_norm(x, residual, weight, EPS)[0]))
