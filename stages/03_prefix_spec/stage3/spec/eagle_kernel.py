"""What EAGLE's layer reads, in a launch each: the next tokens of a step, and two norms side by side.

Owns those two kernels. Does not know layers. A pass of the layer is some fifteen launches of two microseconds, so each
one saved counts; the plain versions are ``shifted.next_tokens_of`` and ``eagle.mix``.

vLLM: ``vllm/model_executor/models/llama_eagle.py``, where torch.compile fuses the norms.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage2.inputs import StepBatch
from stage3.spec.eagle import EagleLayer


def next_tokens_of(batch: StepBatch, token_ids: torch.Tensor) -> torch.Tensor:
    """``shifted.next_tokens_of``: the same arguments."""
    num_tokens, num_reqs = batch.num_tokens, batch.num_reqs
    ids = torch.empty(num_tokens, dtype=torch.int64, device=token_ids.device)
    block = 32
    _next_tokens_kernel[(triton.cdiv(num_tokens, block),)](
        batch.query_start, batch.rows, batch.positions, token_ids, ids, num_tokens, num_reqs, token_ids.stride(0),
        block=block, reqs=max(16, triton.next_power_of_2(num_reqs)), num_warps=4,
    )  # fmt: skip
    return ids


def mix(layer: EagleLayer, embedding: torch.Tensor, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """``eagle.mix``: the same arguments, the numbers of a row side by side."""
    num_tokens, width = hidden.shape
    out = torch.empty(num_tokens, 2 * width, dtype=hidden.dtype, device=hidden.device)
    _mix_kernel[(num_tokens, 2)](
        embedding, ids, hidden, layer.embed_norm.weight, layer.hidden_norm.weight, out,
        embedding.stride(0), hidden.stride(0), layer.embed_norm.eps, width=width,
        block=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return out


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_tokens", "num_reqs"], do_not_specialize_on_alignment=["query_start", "rows"]
)
def _next_tokens_kernel(
    query_start: tl.tensor,  # [R + 1]
    rows: tl.tensor,  # [R]
    positions: tl.tensor,  # [T]
    token_ids: tl.tensor,  # [table rows, W] int32
    out: tl.tensor,  # [T]
    num_tokens: int,
    num_reqs: int,
    row_stride: int,
    block: tl.constexpr,
    reqs: tl.constexpr,
) -> None:
    """A token's request is the number of requests that end at or before it."""
    token = tl.program_id(0) * block + tl.arange(0, block)
    req = tl.arange(0, reqs)
    end = tl.load(query_start + 1 + req, mask=req < num_reqs, other=1 << 62)  # [reqs]
    request = tl.sum((end[None, :] <= token[:, None]).to(tl.int32), axis=1)  # [block]
    request = tl.minimum(request, num_reqs - 1)  # of padding: any
    inside = token < num_tokens
    row = tl.load(rows + request, mask=inside, other=0)
    position = tl.load(positions + token, mask=inside, other=0)
    value = tl.load(token_ids + row * row_stride + position + 1, mask=inside, other=0)
    tl.store(out + token, value.to(tl.int64), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _mix_kernel(
    embedding: tl.tensor,  # [vocab, hidden]
    ids: tl.tensor,  # [T]
    hidden: tl.tensor,  # [T, hidden]
    embed_weight: tl.tensor,  # [hidden]
    hidden_weight: tl.tensor,
    out: tl.tensor,  # [T, 2 * hidden]
    embedding_stride: int,
    hidden_stride: int,
    eps: float,
    width: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """A program is one half of a token's row."""
    token, half = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, block)
    inside = column < width
    if half == 0:
        source = embedding + tl.load(ids + token) * embedding_stride
        weight = tl.load(embed_weight + column, mask=inside, other=0.0)
    else:
        source = hidden + token * hidden_stride
        weight = tl.load(hidden_weight + column, mask=inside, other=0.0)
    x = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    # Rounded before the weight is applied, as in ``stage1.model.ops``.
    rounded = x.to(out.dtype.element_ty) * weight
    tl.store(out + token * 2 * width + half * width + column, rounded, mask=inside)
