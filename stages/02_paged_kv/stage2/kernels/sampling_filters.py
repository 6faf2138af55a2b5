"""Top-k, top-p and min-p as one threshold a row, found by search instead of a sort.

Owns the thresholds. Does not know noise or the draw: ``sampling.sample`` takes the result as its ``floor``.

    min-p:  keep v  if  v >= max + temperature * log(min_p)
    top-k:  keep v  if  fewer than top_k tokens are above v
    top-p:  keep v  if  the tokens above v have less than top_p of the weight of all that the other two keep
    floor = the smallest value that all three keep;   weight of v = exp((v - max) / temperature)

Top-k and top-p ask one question: which is the smallest v with less than ``target`` above it, counted or weighed? The
answer lies in [low, high]. A pass over the row tries the middle, and then moves one end to the nearest *logit* on its
side: so the search ends when no logit is left between, exactly, and equal logits stay or go together.

Example, top-k 2 of logits 9 7 7 3 1: 1 above 7 is fewer than 2, 3 above 3 are not, so the floor is 7 and three stay.
[1, 9] → 3 above 5: low = 7; [7, 9] → 1 above 8: high = 7; done after two passes.

The plain version is ``stage1.sampler.filter_logits``, which sorts. vLLM: ``v1/sample/ops/topk_topp_triton.py``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage1.params_check import MIN_TEMPERATURE

_BLOCK = 4096  # 8 logits a thread: with their sums and bounds 32 registers, so two rows share a multiprocessor
_NUM_WARPS = 16
_LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
_MIN_TEMPERATURE: tl.constexpr = tl.constexpr(MIN_TEMPERATURE)


def filter_thresholds(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """A threshold for each row, [R] float32 in units of ``logits``: its filters keep the logits from there up.

    Greedy rows, rows without a filter and rows with +inf or nothing above -inf get -inf, which keeps all. A
    not-a-number is as good as -inf. The most likely tokens always stay.

    A row is one program that reads itself once for its extremes and then once for each step of the search. With
    131,072 normal logits a filter took 8 to 11 steps in bfloat16 and up to 20 in float32, where few are equal. Rows
    without a filter read nothing.

    Args:
        logits: [R, vocab], float32, bfloat16 or float16; rows may lie apart, the numbers of a row may not.
        temperature: [R] float32, contiguous; 0 = greedy.
        top_k: [R] int64 or int32, contiguous; off below 1 and from vocab on.
        top_p: [R] float32, contiguous; off from 1 on.
        min_p: [R] float32, contiguous; 0 = off.
        out: [R] float32, contiguous, takes the thresholds.
    """
    num_rows, vocab_size = logits.shape
    floor = torch.empty(num_rows, dtype=torch.float32, device=logits.device) if out is None else out
    _threshold_kernel[(num_rows,)](
        logits, temperature, top_k, top_p, min_p, floor, logits.stride(0), vocab_size,
        block=_BLOCK, num_warps=_NUM_WARPS,
    )  # fmt: skip
    return floor


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["temperature_ptr", "top_k_ptr", "top_p_ptr", "min_p_ptr"]
)
def _threshold_kernel(
    logits_ptr: tl.tensor,
    temperature_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    floor_ptr: tl.tensor,
    row_stride: int,
    vocab_size: int,
    block: tl.constexpr,
) -> None:
    """A program is a row."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * row_stride
    temperature = tl.load(temperature_ptr + row)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    min_p = tl.load(min_p_ptr + row)
    has_k = (top_k > 0) & (top_k < vocab_size)
    floor = tl.full([], float("-inf"), tl.float32)
    if (temperature > 0) & (has_k | (top_p < 1) | (min_p > 0)):
        temperature = tl.maximum(temperature, _MIN_TEMPERATURE)
        scale = _LOG2E / temperature
        lowest, peak = _extremes(row_ptr, vocab_size, block)
        if (lowest <= peak) & (peak < float("inf")):
            floor = lowest
            if min_p > 0:
                floor = tl.minimum(tl.maximum(peak + temperature * tl.log(min_p), floor), peak)
            if has_k:
                target = top_k.to(tl.float32)  # a count in float32 is exact up to 2**24
                floor = _search(row_ptr, vocab_size, floor, peak, target, peak, scale, False, block)
            if top_p < 1:
                target = top_p * _weight_from(row_ptr, vocab_size, floor, peak, scale, block)
                # All logits up to this value have, together, less than (1 - top_p) of the weight: top-p drops them.
                low = peak + temperature * tl.log((1.0 - top_p) * 0.5 / vocab_size)
                floor = _search(row_ptr, vocab_size, tl.maximum(low, floor), peak, target, peak, scale, True, block)
    tl.store(floor_ptr + row, floor)


@triton.jit  # type: ignore[untyped-decorator]
def _search(
    row_ptr: tl.tensor,
    vocab_size: int,
    low: tl.tensor,
    high: tl.tensor,
    target: tl.tensor,
    peak: tl.tensor,
    scale: tl.tensor,
    weighted: tl.constexpr,
    block: tl.constexpr,
) -> tl.tensor:
    """The smallest logit in [low, high] with less than ``target`` above it; ``low`` if nothing below it matters.

    ``high`` is a logit that is kept; below ``low`` all logits go, or there are none.
    """
    while low < high:
        middle = tl.maximum(low * 0.5 + high * 0.5, low)  # halves first: the sum of two large logits may overflow
        middle = tl.where(middle < high, middle, low)
        amount, below, above = _split(row_ptr, vocab_size, middle, peak, scale, weighted, block)
        if amount < target:
            high = below  # below ``low`` when no logit is left in [low, middle]
        else:
            low = above
    return tl.minimum(tl.maximum(low, high), peak)  # a target that rounds to 0 still keeps the peak


@triton.jit  # type: ignore[untyped-decorator]
def _split(
    row_ptr: tl.tensor,
    vocab_size: int,
    middle: tl.tensor,
    peak: tl.tensor,
    scale: tl.tensor,
    weighted: tl.constexpr,
    block: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """(number or weight of the logits above ``middle``, largest logit not above it, smallest logit above it)."""
    amount = tl.zeros([block], tl.float32)
    below = tl.full([block], float("-inf"), tl.float32)
    above = tl.full([block], float("inf"), tl.float32)
    for start in range(0, vocab_size, block):
        logit = _load(row_ptr, start, vocab_size, block)  # [block]
        is_above = logit > middle
        if weighted:
            amount += tl.where(is_above, tl.exp2((logit - peak) * scale), 0.0)
        else:
            amount += tl.where(is_above, 1.0, 0.0)
        below = tl.maximum(below, tl.where(is_above, float("-inf"), logit))
        above = tl.minimum(above, tl.where(is_above, logit, float("inf")))
    return tl.sum(amount, axis=0), tl.max(below, axis=0), tl.min(above, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _weight_from(
    row_ptr: tl.tensor, vocab_size: int, floor: tl.tensor, peak: tl.tensor, scale: tl.tensor, block: tl.constexpr
) -> tl.tensor:
    """The weight of all logits from ``floor`` up."""
    weight = tl.zeros([block], tl.float32)
    for start in range(0, vocab_size, block):
        logit = _load(row_ptr, start, vocab_size, block)  # [block]
        weight += tl.where(logit >= floor, tl.exp2((logit - peak) * scale), 0.0)
    return tl.sum(weight, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _extremes(row_ptr: tl.tensor, vocab_size: int, block: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """(smallest logit above -inf, largest logit); (+inf, -inf) for a row that has none."""
    lowest = tl.full([block], float("inf"), tl.float32)
    peak = tl.full([block], float("-inf"), tl.float32)
    for start in range(0, vocab_size, block):
        logit = _load(row_ptr, start, vocab_size, block)  # [block]
        lowest = tl.minimum(lowest, tl.where(logit > float("-inf"), logit, float("inf")))
        peak = tl.maximum(peak, logit)
    return tl.min(lowest, axis=0), tl.max(peak, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _load(row_ptr: tl.tensor, start: tl.tensor, vocab_size: int, block: tl.constexpr) -> tl.tensor:
    """Logits [block] from ``start`` in float32; what is not there, or not a number, is -inf."""
    token = start + tl.arange(0, block)
    logit = tl.load(row_ptr + token, mask=token < vocab_size, other=float("-inf")).to(tl.float32)
    return tl.where(logit == logit, logit, float("-inf"))
