"""Where the seeds of requests come from.

Owns the derivation of seeds from the engine's and from a request's own. Does not know sampling.

vLLM: none (unseeded requests share one generator there, so their draws depend on their neighbours).
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


def drawn_seed(engine_seed: int, number: int) -> int:
    """The seed of the ``number``-th request that brought none: equal engines give equal ones.

    It is output ``number`` of splitmix64 (Steele, Lea, Flood 2014), as a signed 64-bit integer.
    """
    z = (engine_seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return _signed(z ^ (z >> 31))


def child_seed(seed: int, index: int) -> int:
    """The seed of completion ``index``: ``seed + index``, from the smallest again after the largest."""
    return _signed(seed + index)


def _signed(value: int) -> int:
    """``value`` modulo 2**64, in [-2**63, 2**63)."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
