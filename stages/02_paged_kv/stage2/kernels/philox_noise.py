"""Philox noise inside a kernel: the same integers as ``stage1.philox``, made where they are used.

Owns the random words of a tile of tokens and the way from a word to log2 of an exponential number. Does not know
logits. Nothing of [rows, vocab] noise is stored: a sampler calls the device functions below on each tile.

    word[t] = lane (t & 3) of philox(key = seed, counter = (t >> 2, position low, position high, 0))
    u       = (word + 0.5) / 2**32, at most 1 - 2**-24
    E       = -log1p(-u)

``exponential_noise`` writes E out; the plain version is ``stage1.philox.exponential_noise``. The words are equal bit
for bit; E differs by about 1e-6 of itself. vLLM: ``vllm/v1/worker/gpu/sample/gumbel.py``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

_BLOCK = 1024
_LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
_STEP: tl.constexpr = tl.constexpr(2.0**-32)
_BELOW_ONE: tl.constexpr = tl.constexpr(1.0 - 2.0**-24)  # the largest float32 below 1
_FIRST: tl.constexpr = tl.constexpr(0xD2511F53)
_SECOND: tl.constexpr = tl.constexpr(0xCD9E8D57)
_KEY0: tl.constexpr = tl.constexpr(0x9E3779B9)
_KEY1: tl.constexpr = tl.constexpr(0xBB67AE85)
_SERIES_BELOW: tl.constexpr = tl.constexpr(0.125)


def exponential_noise(
    seeds: torch.Tensor, positions: torch.Tensor, vocab_size: int, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Exponential(1) noise [R, vocab] float32, a function of (seed, position, token id) and of nothing else.

    Args:
        seeds: [R] int64, contiguous, any bits.
        positions: [R] int64, contiguous, output positions.
        vocab_size: numbers a row.
        out: [R, vocab] float32, contiguous, takes the noise.
    """
    noise = out
    if noise is None:
        noise = torch.empty(len(seeds), vocab_size, dtype=torch.float32, device=seeds.device)
    grid = (len(seeds), triton.cdiv(vocab_size, _BLOCK))
    _noise_kernel[grid](seeds, positions, noise, vocab_size, block=_BLOCK)
    return noise


@triton.jit  # type: ignore[untyped-decorator]
def _noise_kernel(
    seeds_ptr: tl.tensor, positions_ptr: tl.tensor, noise_ptr: tl.tensor, vocab_size: int, block: tl.constexpr
) -> None:
    """A program is a tile of a row."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * block
    words = random_words(tl.load(seeds_ptr + row), tl.load(positions_ptr + row), start, block)  # [block]
    token = start + tl.arange(0, block)
    tl.store(noise_ptr + row * vocab_size + token, exponential(words), mask=token < vocab_size)


@triton.jit  # type: ignore[untyped-decorator]
def random_words(seed: tl.tensor, position: tl.tensor, start: tl.tensor, block: tl.constexpr) -> tl.tensor:
    """Words [block] uint32 of tokens [start, start + block); ``start`` and ``block`` are multiples of 4.

    One call of Philox gives the words of four tokens side by side. Lanes a, b, c, d are woven together by pairs:
    interleave(a, c) = a0 c0 a1 c1 …, interleave(b, d) = b0 d0 b1 d1 …, and those two give a0 b0 c0 d0 a1 ….
    """
    group = ((start >> 2) + tl.arange(0, block // 4)).to(tl.uint32)  # [block / 4]
    low = (position & 0xFFFFFFFF).to(tl.uint32)
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    a, b, c, d = _philox(seed, group, low, high)
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.jit  # type: ignore[untyped-decorator]
def _philox(
    seed: tl.tensor, group: tl.tensor, low: tl.tensor, high: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Philox4x32-10 of the counter (group, low, high, 0) under the key ``seed``.

    As ``tl.philox``, but with one 64-bit product where that takes two instructions for its halves.
    """
    key0, key1 = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    a, b, c, d = group, low + group * 0, high + group * 0, group * 0
    for _ in tl.static_range(10):
        first, second = a.to(tl.uint64) * _FIRST, c.to(tl.uint64) * _SECOND
        a, b = (second >> 32).to(tl.uint32) ^ b ^ key0, second.to(tl.uint32)
        c, d = (first >> 32).to(tl.uint32) ^ d ^ key1, first.to(tl.uint32)
        key0, key1 = key0 + _KEY0, key1 + _KEY1
    return a, b, c, d


@triton.jit  # type: ignore[untyped-decorator]
def exponential(words: tl.tensor) -> tl.tensor:
    """E > 0 (float32) of 32-bit ``words``, accurate for small u, which decide the draw.

    1 - u rounds, so a logarithm of it loses the small u altogether. Below 1/8 the series u + u²/2 + … + u⁶/6 is used:
    what it leaves out is less than 6e-7 of E. From 1/8 on, the error of the fast logarithm (2**-22) is below 1e-6 of E.
    """
    u = tl.minimum(words.to(tl.float32) * _STEP + _STEP / 2, _BELOW_ONE)
    series = u * (1.0 + u * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5 + u * (1 / 6))))))
    return tl.where(u < _SERIES_BELOW, series, -_LN2 * fast_log2(1.0 - u))


@triton.jit  # type: ignore[untyped-decorator]
def fast_log2(x: tl.tensor) -> tl.tensor:
    """log2 of x > 0 within 2**-22, in one instruction where ``tl.log2`` takes some twenty."""
    if _COMPILED:
        return libdevice.fast_log2f(x)
    else:
        return tl.log2(x)


# Triton's interpreter knows no libdevice.
_COMPILED: tl.constexpr = tl.constexpr(isinstance(fast_log2, triton.JITFunction))
