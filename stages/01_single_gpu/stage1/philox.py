"""Random numbers by position: Philox4x32-10 and the noise that the sampler adds.

Owns the counter-based generator. There is no state: a number is a function of its key and its counter, so a draw
depends on (seed, output position, token id) and on nothing else: not on the batch, its order, the device, preemption
or how many draws came before. Does not know requests.

The integers are those of Triton's ``tl.philox`` with the same seed and counters, so a fused kernel can draw the same.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
vLLM: a ``torch.Generator`` for each seeded request in ``v1/sample/ops/topk_topp_sampler.py`` (``random_sample``).
"""

from __future__ import annotations

import torch

_MASK = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57  # multipliers
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # what the key grows by each round
_ROUNDS = 10

_BELOW_ONE = 1.0 - 2.0**-24  # the largest float32 below 1
_MAX_COUNTERS = 2**22  # generated at once: about ten int64 temporaries of 32 MiB live together


def philox4x32(
    c0: torch.Tensor, c1: torch.Tensor, c2: torch.Tensor, c3: torch.Tensor, k0: torch.Tensor, k1: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four random 32-bit numbers for each counter (c0, c1, c2, c3) under the key (k0, k1).

    All tensors are int64 with values in [0, 2**32), and broadcast against each other. A product of two such values
    wraps modulo 2**64 in int64; its two halves are right all the same, because shift and mask read them as bits.
    """
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            (product1 >> 32 & _MASK) ^ c1 ^ k0,
            product1 & _MASK,
            (product0 >> 32 & _MASK) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = k0 + _W0 & _MASK, k1 + _W1 & _MASK
    return c0, c1, c2, c3


def exponential_noise(seeds: torch.Tensor, positions: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Exponential(1) noise [R, vocab] float32 for ``seeds`` and ``positions`` [R] int64 (output positions).

    Token t of a row gets lane ``t & 3`` of the counter ``(t >> 2, position low, position high, 0)`` under the key
    ``(seed low, seed high)``, 32 bits each.

    With E exponential, ``argmax(logits - log E)`` is a draw from softmax(logits): a race in which token t arrives at
    time E / p(t) and the first one wins. The winner is decided by *small* E, so E is made as ``-log1p(-u)`` of
    ``u = (x + 0.5) / 2**32``: near 0 a float32 tells all these u apart. The common ``-log(u)`` makes small E from u
    near 1, where the steps of a float32 are 2**-24: the least likely tokens would win together or never.
    """
    counters = -(-vocab_size // 4)  # a row
    rows = max(1, _MAX_COUNTERS // counters)
    noise = torch.empty(len(seeds), vocab_size, dtype=torch.float32, device=seeds.device)
    for start in range(0, len(seeds), rows):
        part = slice(start, start + rows)
        noise[part] = _exponential(_random_words(seeds[part, None], positions[part, None], counters))[:, :vocab_size]
    return noise


def _random_words(seeds: torch.Tensor, positions: torch.Tensor, counters: int) -> torch.Tensor:
    """[r, 1] seeds and positions → [r, 4 * counters] words of 32 bits, the four lanes of a counter side by side."""
    token_group = torch.arange(counters, device=seeds.device)[None]  # [1, counters]
    lanes = philox4x32(
        token_group,
        positions & _MASK,
        positions >> 32 & _MASK,
        torch.zeros_like(positions),
        seeds & _MASK,
        seeds >> 32 & _MASK,
    )
    return torch.stack(lanes, dim=-1).flatten(1)  # [r, counters, 4] → [r, 4 * counters]


def _exponential(words: torch.Tensor) -> torch.Tensor:
    """32-bit words → float32 > 0. The largest words would round to u = 1: they are clamped, and E ends at 16.6."""
    uniform = words.float().add_(0.5).mul_(2.0**-32).clamp_(max=_BELOW_ONE)
    return uniform.neg_().log1p_().neg_()
