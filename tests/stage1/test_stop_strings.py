"""Where a text ends: against a search of the whole text after every token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.stop_strings import StopChecker

F1 = [" ", "6", ",", " ", "7", ",", " ", "8", ",", " ", "9", ",", " ", "1", "0", ","]


def run(
    pieces: list[str], stops: list[str], *, include: bool = False, min_tokens: int = 0
) -> tuple[list[str], str | None, int]:
    """What was released token by token, the stop string, and the number of tokens taken."""
    checker = StopChecker(stops, include_stop=include)
    released: list[str] = []
    for count, piece in enumerate(pieces, start=1):
        text, hit = checker.push(piece, counts=count > min_tokens)
        released.append(text)
        if hit is not None:
            return released, hit, count
    return [*released, checker.flush()], None, len(pieces)


def oracle(pieces: list[str], stops: list[str], include: bool, min_tokens: int) -> tuple[str, str | None, int]:
    """The same by looking at the whole text after every token."""
    exempt = len("".join(pieces[:min_tokens]))
    for count in range(min_tokens + 1, len(pieces) + 1):
        text = "".join(pieces[:count])
        hits = [
            (start, order, stop)
            for order, stop in enumerate(stops)
            for start in range(len(text))
            if text.startswith(stop, start) and start + len(stop) > exempt
        ]
        if hits:
            start, _, stop = min(hits)
            return text[: start + (len(stop) if include else 0)], stop, count
    return "".join(pieces), None, len(pieces)


@pytest.mark.parametrize(
    ("stops", "include", "text", "hit", "tokens"),
    [
        (["8, 9"], False, " 6, 7, ", "8, 9", 11),
        (["8, 9"], True, " 6, 7, 8, 9", "8, 9", 11),
        ([", 8"], False, " 6, 7", ", 8", 8),
        ([" 7"], False, " 6,", " 7", 5),
        (["9", "8, 9"], False, " 6, 7, ", "8, 9", 11),  # both end here: the earlier start
        (["9", "7"], False, " 6, ", "7", 5),
        (["8, x"], False, " 6, 7, 8, 9, 10,", None, 16),
        (["zzz"], False, " 6, 7, 8, 9, 10,", None, 16),
        ([], False, " 6, 7, 8, 9, 10,", None, 16),
    ],
)
def test_counting(stops: list[str], include: bool, text: str, hit: str | None, tokens: int) -> None:
    released, found, taken = run(F1, stops, include=include)
    assert ("".join(released), found, taken) == (text, hit, tokens)


def test_stop_inside_a_token() -> None:
    assert run(["this", " classic", " math"], ["lassi"])[0] == ["this", " c"]
    assert run(["abcdef"], ["cd", "ab"])[:2] == ([""], "ab")  # the earlier place, not the earlier in the list
    assert run(["abcdef"], ["abc", "ab"])[1] == "abc"  # one place: the first listed
    assert run(["abcdef"], ["ab", "abc"])[1] == "ab"


def test_nothing_is_held_without_a_partial_match() -> None:
    released, _, _ = run(F1, ["8, x"])
    assert released[:7] == F1[:7]
    assert released[7:11] == ["", "", "", "8, 9"]  # held while it could be, given out when it cannot


def test_min_tokens() -> None:
    assert run(F1, ["7"], min_tokens=8)[1] is None
    assert run(F1, ["9"], min_tokens=3)[1:] == ("9", 11)
    assert run(F1, ["7"], min_tokens=5)[1] is None  # wholly inside the first five
    assert run(F1, ["7"], min_tokens=4)[1:] == ("7", 5)
    assert run(F1, ["7, 8"], min_tokens=7)[1:] == ("7, 8", 8)  # begins inside, ends behind


words = st.text("ab", max_size=4)


@settings(max_examples=400, deadline=None)
@given(
    pieces=st.lists(words, max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
    include=st.booleans(),
    min_tokens=st.integers(0, 6),
)
def test_against_the_oracle(pieces: list[str], stops: list[str], include: bool, min_tokens: int) -> None:
    released, hit, taken = run(pieces, stops, include=include, min_tokens=min_tokens)
    assert ("".join(released), hit, taken) == oracle(pieces, stops, include, min_tokens)


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(words, max_size=12), stops=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3)
)
def test_holds_back_less_than_the_longest_stop(pieces: list[str], stops: list[str]) -> None:
    checker = StopChecker(stops)
    seen = shown = ""
    for piece in pieces:
        text, hit = checker.push(piece)
        if hit is not None:
            break
        seen, shown = seen + piece, shown + text
        assert seen.startswith(shown)
        assert len(seen) - len(shown) <= max(map(len, stops)) - 1
