"""The plain operations: few rows are computed another way on a CPU, with the same result."""

import pytest
import torch
import torch.nn.functional as F

from stage1.model.linear import FEW_ROWS
from stage1.model.ops import TorchOps


@pytest.mark.parametrize("rows", [0, 1, 2, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_equals_torch_for_any_number_of_rows(rows, dtype, with_bias):
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, 19), torch.randn(11, 19), torch.randn(11)
    out = TorchOps().linear(x.to(dtype), weight.to(dtype), bias.to(dtype) if with_bias else None)
    assert out.shape == (rows, 11)
    assert out.is_contiguous()
    expected = F.linear(x.double(), weight.double(), bias.double() if with_bias else None)
    tolerance = 1e-5 if dtype == torch.float32 else 0.15
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=tolerance)
