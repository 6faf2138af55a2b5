"""From logits to one token a row in one pass over the logits, without a host synchronisation.

Owns the greedy choice, the draw at a temperature and the check for broken rows. Does not know requests, processors or
log-probabilities; thresholds of top-k, top-p and min-p come ready-made from ``sampling_filters``.

    temperature 0:  id = the first maximum of logits
    otherwise:      id = argmax(logits / max(temperature, 0.01) - log E),  E exponential noise of (seed, position, id)
    floor:          ids whose logit is below it are out
    bad:            a row that has a not-a-number, +inf, or nothing above -inf

The draw is the race of ``stage1.philox``: no softmax, no sum, so a row can be cut into chunks. Programs
(row, chunk) each find their best, then one small program a row picks the best of the bests. A chunk is 8,192 tokens: a
vocabulary of 128k makes 16 programs for a single row, and 4,096 for 256 of them.

The plain version is ``stage1.sampler.TorchSampler``, with the same ids unless the two best scores are within rounding
of each other. vLLM: ``vllm/v1/worker/gpu/sample/gumbel.py``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage1.params_check import MIN_TEMPERATURE
from stage2.kernels.philox_noise import exponential, fast_log2, random_words

_CHUNK = 8192  # tokens a program
_BLOCK = 1024  # tokens at once: 8 a thread, one 16-byte load of bfloat16
_NUM_WARPS = 4
_LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
_MIN_TEMPERATURE: tl.constexpr = tl.constexpr(MIN_TEMPERATURE)


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    floor: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    bad: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token for each row: (ids [R] int64, bad [R] bool). Rows are independent of each other.

    A bad row gets an id in [0, vocab) all the same, so that it can be looked up before anyone reads ``bad``.

    Args:
        logits: [R, vocab], float32, bfloat16 or float16; rows may lie apart, the numbers of a row may not.
        temperature: [R] float32, contiguous; 0 = greedy.
        seeds: [R] int64, contiguous, any bits; greedy rows have no need of it.
        positions: [R] int64, contiguous, output positions, counted from 0; likewise.
        floor: [R] float32, contiguous, in units of ``logits``; -inf keeps all. See ``filter_thresholds``.
        out: [R] int64, contiguous, takes the ids.
        bad: [R] bool, contiguous, takes the flags.
    """
    num_rows, vocab_size = logits.shape
    num_chunks = triton.cdiv(vocab_size, _CHUNK)
    ids = torch.empty(num_rows, dtype=torch.int64, device=logits.device) if out is None else out
    flags = torch.empty(num_rows, dtype=torch.bool, device=logits.device) if bad is None else bad
    best, peak = torch.empty(2, num_rows, num_chunks, dtype=torch.float32, device=logits.device).unbind()
    best_id = torch.empty(num_rows, num_chunks, dtype=torch.int32, device=logits.device)
    _race_kernel[(num_rows, num_chunks)](
        logits, temperature, seeds, positions, temperature if floor is None else floor, best, peak, best_id,
        logits.stride(0), vocab_size, chunk=_CHUNK, block=_BLOCK, filtered=floor is not None, num_warps=_NUM_WARPS,
    )  # fmt: skip
    _pick_kernel[(num_rows,)](
        best, peak, best_id, ids, flags, num_chunks, chunks=triton.next_power_of_2(num_chunks), num_warps=1
    )
    return ids, flags


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=[
        "temperature_ptr",
        "seeds_ptr",
        "positions_ptr",
        "floor_ptr",
        "best_ptr",
        "peak_ptr",
    ]
)
def _race_kernel(
    logits_ptr: tl.tensor,
    temperature_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    floor_ptr: tl.tensor,
    best_ptr: tl.tensor,
    peak_ptr: tl.tensor,
    best_id_ptr: tl.tensor,
    row_stride: int,
    vocab_size: int,
    chunk: tl.constexpr,
    block: tl.constexpr,
    filtered: tl.constexpr,
) -> None:
    """A program is a chunk of a row: its best score, the first id that has it, and its largest logit (bad: +inf).

    Scores are in powers of two, not of e: a logarithm is then one instruction. The best so far is kept for each of
    ``block`` columns, which meet once, at the end.
    """
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * chunk
    temperature = tl.load(temperature_ptr + row)
    seed = tl.load(seeds_ptr + row)
    position = tl.load(positions_ptr + row)
    scale = _LOG2E / tl.maximum(temperature, _MIN_TEMPERATURE)
    column = tl.arange(0, block)
    best = tl.full([block], float("-inf"), tl.float32)
    best_start = tl.full([block], 0, tl.int32) + first  # [block] of the tile that has the best
    peak = best
    for start in range(first, tl.minimum(first + chunk, vocab_size), block):
        token = start + column  # [block]
        logit = tl.load(logits_ptr + row * row_stride + token, mask=token < vocab_size, other=float("-inf"))
        score = logit.to(tl.float32)
        peak = tl.maximum(peak, score, propagate_nan=tl.PropagateNan.ALL)
        if filtered:
            score = tl.where(score < tl.load(floor_ptr + row), float("-inf"), score)
        if temperature > 0:
            score = score * scale - fast_log2(exponential(random_words(seed, position, start, block)))
        better = score > best  # false for a not-a-number, and for an equal score with a larger id
        best = tl.where(better, score, best)
        best_start = tl.where(better, start, best_start)
    peak = tl.where(peak == peak, peak, float("inf"))
    winner = tl.max(best, axis=0)
    cell = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(best_ptr + cell, winner)
    tl.store(best_id_ptr + cell, tl.min(tl.where(best == winner, best_start + column, 2**31 - 1), axis=0))
    tl.store(peak_ptr + cell, tl.max(peak, axis=0))


@triton.jit(do_not_specialize_on_alignment=["best_ptr", "peak_ptr"])  # type: ignore[untyped-decorator]
def _pick_kernel(
    best_ptr: tl.tensor,
    peak_ptr: tl.tensor,
    best_id_ptr: tl.tensor,
    ids_ptr: tl.tensor,
    bad_ptr: tl.tensor,
    num_chunks: int,
    chunks: tl.constexpr,
) -> None:
    """A program is a row: the best of its chunks, the smallest id among equals."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, chunks)
    real = chunk < num_chunks
    cell = row * num_chunks + chunk  # [chunks]
    best = tl.load(best_ptr + cell, mask=real, other=float("-inf"))
    best_id = tl.load(best_id_ptr + cell, mask=real, other=2**31 - 1)
    peak = tl.max(tl.load(peak_ptr + cell, mask=real, other=float("-inf")), axis=0)
    chosen = tl.min(tl.where(best == tl.max(best, axis=0), best_id, 2**31 - 1), axis=0)
    tl.store(ids_ptr + row, chosen.to(tl.int64))
    tl.store(bad_ptr + row, (peak == float("inf")) | (peak == float("-inf")))
