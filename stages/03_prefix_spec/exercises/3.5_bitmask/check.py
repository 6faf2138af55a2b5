"""Masks of vocabularies that fill their last word, and of such that do not; read bit by bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
MOST_SHOWN = 8  # words


def cases(rng: random.Random) -> list[Case]:
    """From one token to a large vocabulary."""

    def case(name: str, words: str, vocab_size: int, *allowed: int) -> Case:
        return Case(name, words, {"allowed": sorted(allowed), "vocab_size": vocab_size})

    def some(vocab_size: int, share: float) -> list[int]:
        return [token for token in range(vocab_size) if rng.random() < share]

    return [
        case("one token", "token 0 is the lowest bit of the first word: 1", 32, 0),
        case("three tokens", "tokens 0, 2 and 5 are the bits of worth 1, 4 and 32", 32, 0, 2, 5),
        case("the highest bit", "token 31 is worth 2147483648, too much for an int32", 32, 31),
        case("the second word", "token 33 is bit 1 of word 1", 64, 3, 33),
        case("nothing", "a mask that allows nothing", 64),
        case("a word that is not full", "70 tokens: 26 bits of the last word are nobody's", 70, 1, 64, 69),
        case("everything", "all tokens are allowed; bits behind the last one are not tokens", 45, *range(45)),
        case("fewer than 32", "a vocabulary of five tokens is one word", 5, 1, 4),
        case("mixed", "half of the tokens", 101, *some(101, 0.5)),
        case("a large one", "151,669 tokens, a tenth of them allowed", 151_669, *some(151_669, 0.1)),
    ]  # fmt: skip


def run(subject: Callable[..., Any], case: Case) -> Any:
    """The words of the subject."""
    allowed = np.zeros(case.inputs["vocab_size"], dtype=np.bool_)
    allowed[case.inputs["allowed"]] = True
    words = np.asarray(subject(allowed))
    return _answer(f"{list(words.shape)} {words.dtype}", words.ravel().tolist())


def expected(case: Case) -> Any:
    """What is right."""
    words = spec.words_of(**case.inputs)
    return _answer(f"[{len(words)}] uint32", words)


def _answer(shape: str, words: list[int]) -> Any:
    return {"first words": words[:MOST_SHOWN], "shape and dtype": shape, "words": words}
