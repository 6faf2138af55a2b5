"""The random numbers of a verification, by position like all others.

Owns a domain of the counters of ``stage1.philox``: those of a plain draw have 0 in their fourth word, a verification's
have 1. So whether a draft is accepted does not depend on how it was drawn, and nothing has a state: preemption, batch
and device change no number.

    word 0        accept or reject the draft at this position
    words 1, 2    the token that takes a rejected one's place

vLLM: a generator for each seeded request in ``v1/sample/rejection_sampler.py``.
"""

from __future__ import annotations

import torch

from stage1.philox import philox4x32

DOMAIN = 1
_MASK = 0xFFFFFFFF
_BELOW_ONE = 1.0 - 2.0**-24  # the largest float32 below 1


def verification_noise(seeds: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(u float32, v float64), uniform in [0, 1), for ``seeds`` and ``positions`` int64 of one shape.

    u is fine near 0, where unlikely drafts are decided; v has the 53 bits that tell the tokens of a large vocabulary
    apart.
    """
    zero = torch.zeros_like(positions)
    first, second, third, _ = philox4x32(
        zero, positions & _MASK, positions >> 32 & _MASK, zero + DOMAIN, seeds & _MASK, seeds >> 32 & _MASK
    )
    u = first.float().add_(0.5).mul_(2.0**-32).clamp_(max=_BELOW_ONE)
    return u, (second << 21 | third >> 11).double() * 2.0**-53
