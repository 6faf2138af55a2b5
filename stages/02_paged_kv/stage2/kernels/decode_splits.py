"""Into how many pieces a launch of decode attention cuts the keys of its requests, and whether that pays.

Owns the rules, and the numbers in them, which are from an H200. Does not launch anything.

A program reads the keys of one request and one KV head. What a launch takes is the larger of two times:

    all keys / what the memory delivers          the same however they are cut
    the longest program / what one can read      halved by two splits, but joining them takes a launch of its own

So cutting pays where one request is long beside all others together: where they are few, or where it stands out. The
number of splits is part of a captured launch, so it may depend on the size of a batch only; that there is one at all
is the host's choice between two graphs, as it knows the lengths.

vLLM: ``v1/attention/backends/flash_attn.py`` (``max_num_splits``; the choice is in its kernel library).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stage2.kernels.merge_splits import MIN_TILES

MAX_SPLITS = 64
SHORT = 256  # keys: a program has read them before splits would have been joined
OUTLIERS = 4  # splits where there are enough programs without any
CAREFUL_TILES = 16  # of a split, where nobody knows whether cutting pays: most requests are left in one piece
MANY = 8  # programs for each multiprocessor without any split, from which on they hide each other's tails


class Splits(NamedTuple):
    """How the keys of a launch's requests are cut."""

    number: int  # most splits of a request
    min_tiles: int = MIN_TILES  # fewest tiles of a split


class Programs(NamedTuple):
    """Programs for each multiprocessor. Small heads make small tiles: as many bytes on their way are more programs."""

    wanted: int  # that few requests are cut into
    enough: float  # from so many equal ones on the memory is busy


SMALL_HEADS, LARGE_HEADS = Programs(6, 5.0), Programs(2, 2.5)


def programs_per_sm(head_dim: int) -> Programs:
    """The numbers for a head size."""
    return SMALL_HEADS if head_dim <= 64 else LARGE_HEADS


def choose_splits(max_reqs: int, kv_heads: int, num_sms: int, head_dim: int = 128, cut: bool | None = None) -> Splits:
    """The splits for a launch of ``max_reqs`` requests.

    Args:
        max_reqs: requests, padding included.
        kv_heads: of each, a program for one split.
        num_sms: multiprocessors.
        head_dim: size of a head.
        cut: what ``worth_cutting`` said of them; ``None``: nobody asked.
    """
    if cut is False:
        return Splits(1)
    programs, ideal = max_reqs * kv_heads, programs_per_sm(head_dim)
    number = 1 << max(0, round(math.log2(ideal.wanted * num_sms / programs)))
    if number > 1:
        return Splits(min(number, MAX_SPLITS))
    if cut is None and programs >= MANY * num_sms:
        return Splits(1)
    if cut is None and programs >= ideal.enough * num_sms:
        return Splits(OUTLIERS, CAREFUL_TILES)
    return Splits(OUTLIERS)


def worth_cutting(num_keys: int, longest: int, kv_heads: int, num_sms: int, head_dim: int = 128) -> bool:
    """Whether splits make a launch faster.

    Args:
        num_keys: keys of all requests.
        longest: keys of the longest one; with all others as long, there would be ``num_keys / longest`` requests.
        kv_heads: as in ``choose_splits``, as are the rest.
    """
    enough = programs_per_sm(head_dim).enough * num_sms
    return longest > SHORT and num_keys * kv_heads < enough * longest
