"""Differences are found and said; mistakes are recognised by their answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from sixfold.exercises.advice import read_advice, recognise
from sixfold.exercises.checking import Raised, first_difference, in_words

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (1, 1),
        (1.0 + 1e-9, 1.0),
        (2, 2.0),
        (NAN, NAN),
        (-INF, -INF),
        ((1, [2.0]), [1, (2.0,)]),
        ({"a": torch.tensor([1.0, NAN, INF])}, {"a": torch.tensor([1.0 + 1e-7, NAN, INF])}),
        (torch.tensor(3), 3),
        (3, torch.tensor(3)),
        (None, None),
        ("a", "a"),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
        (torch.tensor([True]), torch.tensor([True])),
    ],
)
def test_answers_that_agree(got: Any, wanted: Any) -> None:
    assert first_difference(got, wanted, 1e-5) is None


@pytest.mark.parametrize(
    ("got", "wanted", "message"),
    [
        (1, 2, "result is 1, not 2"),
        (None, torch.zeros(2), "result is None, not a tensor float32 [2] = [0, 0]: is a `return` missing?"),
        (0, None, "result is 0, not None"),
        ([], None, "result is [], not None"),
        (True, 1, "result is True, not 1"),
        (1.0, 1.1, "result is 1, not 1.1"),
        (NAN, 1.0, "result is nan, not 1"),
        (1e300, INF, "result is 1e+300, not inf"),
        ([1, 2], [1, 3], "result[1] is 2, not 3"),
        ([1], [1, 3], "result has the length 1, not 2: [1], not [1, 3]"),
        ({"ids": [1]}, {"ids": [2]}, "ids[0] is 1, not 2"),
        ({}, {"ids": [2]}, "result has nothing for 'ids', where [2] is expected"),
        ({"ids": 1, "more": 2}, {"ids": 1}, "result has 2 for 'more', where nothing is expected"),
        ([1.0], torch.ones(1), "result is [1] of type list, not a tensor float32 [1] = [1]"),
        (torch.ones(2, 1), torch.ones(1, 2), "result has the shape [2, 1], not [1, 2]"),
        (torch.ones(1).double(), torch.ones(1), "result has the dtype torch.float64, not torch.float32"),
        (torch.tensor([[1, 2], [3, 5]]), torch.tensor([[1, 2], [3, 4]]), "result[1, 1] is 5, not 4 (1 of 4 numbers"),
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, 2.0]), "result[1] is nan, not 2"),
        (torch.tensor([3.0]), torch.tensor([INF]), "result[0] is 3, not inf"),
        (torch.tensor([True, False]), torch.tensor([True, True]), "result[1] is False, not True"),
    ],
)
def test_first_difference_in_words(got: Any, wanted: Any, message: str) -> None:
    found = first_difference(got, wanted, 1e-5)
    assert found is not None
    assert found.startswith(message)


def test_tolerance_by_dtype() -> None:
    low, high = torch.tensor([1.0, 1.01]).bfloat16(), torch.tensor([1.0, 1.02]).bfloat16()
    tolerance = {"float32": 1e-6, "bfloat16": 1e-2}
    assert first_difference(low, high, tolerance) is None
    assert first_difference(low.float(), high.float(), tolerance) is not None
    assert first_difference(low, high, {"float32": 1.0}) is not None


def test_objects_that_break_their_own_comparison_differ() -> None:
    class Broken:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        def __repr__(self) -> str:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    assert first_difference(Broken(), "x", 0.0) == "result is an object of type Broken, not 'x'"


def test_long_values_are_shortened() -> None:
    assert in_words(torch.zeros(100, 3)) == "a tensor float32 [100, 3]"
    assert len(in_words(list(range(10_000)))) <= 600


RIGHT = [1, 2, 3, 4]
MISTAKES: dict[str, list[Any]] = {
    "late": [1, 2, 0, 0],
    "early": [9, 2, 3, 4],
    "both": [9, 2, 0, 0],
    "raises": [1, Raised("KeyError"), 3, 4],
    "harmless": RIGHT,
}


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        (RIGHT, None),
        ([1, 2, 0, 0], "late"),
        ([9, 2, 3, 4], "early"),
        ([9, 2, 0, 0], "both"),
        ([9, 2, 3, 5], "early"),  # and a second one, which shows when this one is mended
        ([1, 2, 0, 4], None),  # only half of it
        ([1, 5, 0, 0], None),  # the first wrong case is another mistake's
        ([1, Raised("KeyError"), 3, 4], "raises"),
        ([1, Raised("TypeError"), 3, 4], None),
    ],
)
def test_mistake_is_recognised_by_its_answers(answers: list[Any], name: str | None) -> None:
    assert recognise(answers, RIGHT, MISTAKES, 1e-5) == name


def test_advice_needs_idea_and_text(tmp_path: Any) -> None:
    path = tmp_path / "wrong_a.py"
    path.write_text('"""The idea.\n\nThe advice,\nin lines.\n"""\n', encoding="utf-8")
    advice = read_advice(path)
    assert (advice.name, advice.idea, advice.text) == ("wrong_a", "The idea.", "The advice,\nin lines.")
    for text in ("", '"""Only the idea."""\n'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="must be the misconception"):
            read_advice(path)
