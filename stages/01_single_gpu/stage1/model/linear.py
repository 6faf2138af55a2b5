"""The matrix product of a linear layer, with the two cores of a small CPU in mind.

Owns the choice between two ways to write one product. Does not know which layer it serves.

vLLM: ``vllm/model_executor/layers/utils.py`` (``dispatch_unquantized_gemm``) makes such choices for each platform.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

FEW_ROWS = 8  # up to here a CPU computes the product the other way round


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """[T, in] × [out, in]ᵀ (+ [out]) → [T, out]."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and 0 < x.shape[0] <= FEW_ROWS:
        return _few_rows(x, weight, bias)
    return F.linear(x, weight, bias)


def _few_rows(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The same product with the operands exchanged, ``(weight @ xᵀ)ᵀ``, and one row computed as two.

    The CPU's matrix library splits the rows of its *first* operand over the cores, and uses one core for a single row.
    Exchanged, the linear layers of SmolLM2 take 20 ms instead of 44 at batch 1, and 45 instead of 58 at batch 8 (two
    cores of an AMD EPYC, torch 2.13; ``measure_cpu.py`` measures both ways).
    """
    rows = x if x.shape[0] > 1 else torch.cat((x, x))
    out = torch.mm(weight, rows.t()).t()[: x.shape[0]].contiguous()  # [T, out]
    return out if bias is None else out + bias
