"""Sets of characters as ranges of code points: what a literal, a dot or a class of a regular expression matches.

Owns the arithmetic of such sets, and what ``\\d``, ``\\w`` and ``\\s`` stand for. Does not know patterns. The sets are
those of Python's ``re`` for text: any Unicode. Surrogates are in none of them: UTF-8 has no form for them.

    [a-cx]    ((97, 99), (120, 120))          both ends included, sorted, apart
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

Ranges = tuple[tuple[int, int], ...]

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """``ranges`` in any order, overlapping or not, as a set."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return _without_surrogates(merged)


def complement(ranges: Ranges) -> Ranges:
    """Every character that is not in ``ranges``."""
    gaps, start = [], 0
    for low, high in ranges:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return _without_surrogates(gaps)


def single(character: str) -> Ranges:
    """The set of one character."""
    return union([(ord(character), ord(character))])


@cache
def named_set(letter: str) -> Ranges:
    """What ``\\d``, ``\\w``, ``\\s`` and their negations ``\\D``, ``\\W``, ``\\S`` stand for."""
    if letter.isupper():
        return complement(named_set(letter.lower()))
    return _matching(_MEMBERS[letter])


_MEMBERS: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
}


def _matching(is_member: Callable[[str], bool]) -> Ranges:
    return union((code, code) for code in range(MAX_CODE_POINT + 1) if is_member(chr(code)))


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Ranges:
    first, last = SURROGATES
    kept = []
    for low, high in ranges:
        if high < first or low > last:
            kept.append((low, high))
            continue
        kept += [(low, first - 1)] * (low < first) + [(last + 1, high)] * (high > last)
    return tuple(kept)
