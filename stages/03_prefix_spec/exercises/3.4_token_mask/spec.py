"""No automaton at all: every match there is, written down, and a look at how it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product


def allowed(pattern: str, tokens: Sequence[bytes], before: bytes, letters: str, most: int) -> list[int]:
    """The tokens behind which a match is left: some match begins with ``before`` and the token.

    ``letters`` and ``most`` bound the matches that are looked at: texts of these characters, up to that length.
    """
    found = [match for match in matches(pattern, letters, most) if match.startswith(before)]
    return [i for i, token in enumerate(tokens) if token and any(match.startswith(before + token) for match in found)]


def matches(pattern: str, letters: str, most: int) -> Iterator[bytes]:
    """All matches as bytes."""
    compiled = re.compile(pattern)
    for length in range(most + 1):
        for text in map("".join, product(letters, repeat=length)):
            if compiled.fullmatch(text):
                yield text.encode()
