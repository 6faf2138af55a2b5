"""Masks of small vocabularies, whose tokens end before, at and behind everything that a pattern asks for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage3.grammar.fsm import Machine
from stage3.grammar.nfa import Nfa
from stage3.grammar.regex_parse import parse
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
WORDS = [b"y", b"ye", b"yes", b"yess", b"", b"n", b"no", b"nope", b"noon", b"es", b"s", b"o", b"pe", b"yno", b"x"]
DIGITS = [b"1", b"12", b"121", b"1212", b"", b"1a", b"a1", b"2", b"2.", b".", b".1", b".12", b"1.2", b"1.21", b"1.213"]
LOOPS = [b"a", b"b", b"ab", b"aba", b"abb", b"abab", b"ba", b"bab", b"bc", b"c", b"cc", b"abc", b"ababc", b""]
E, E_GRAVE, LLAMA, SMILE = (text.encode() for text in "éè🦙😀")
PIECES = [
    E, E_GRAVE, E[:1], E[1:], E[1:] + b"x", LLAMA, LLAMA[:1], LLAMA[:2], LLAMA[:3], SMILE[:2], SMILE[:3], LLAMA[1:],
    LLAMA[1:3], LLAMA[2:], SMILE[2:], b"x", b"xx", b"", E[:1] + b"x", LLAMA + b"x", LLAMA[:1] + b"x", b"\xff",
]  # fmt: skip


def cases(rng: random.Random) -> list[Case]:
    """From two words to characters of four bytes, at the start and behind every kind of beginning."""

    def case(name: str, words: str, pattern: str, tokens: list[bytes], before: bytes, letters: str, most: int) -> Case:
        inputs = {"pattern": pattern, "tokens": tokens, "before": before, "letters": letters, "most": most}
        return Case(name, words, inputs)

    many = ["".join(rng.choice("ab.1") for _ in range(rng.randint(1, 4))).encode() for _ in range(60)]
    return [
        case("two words", "what one of the words begins with", "yes|no", WORDS, b"", "yesno", 3),
        case("behind one letter", "what continues that word, and not the other", "yes|no", WORDS, b"y", "yesno", 3),
        case("at the end", "a match that nothing can make longer: no token", "yes|no", WORDS, b"no", "yesno", 3),
        case("longer or not", "a match that may end, and may go on", "no|nope|noon", WORDS, b"no", "nope", 4),
        case("a number", "every byte counts, not only the first", r"[12]+(\.[12]{2})?", DIGITS, b"", "12.", 7),
        case("behind the point", "two more digits, no second point", r"[12]+(\.[12]{2})?", DIGITS, b"2.", "12.", 7),
        case("a loop", "round the loop as often as the token says", "(ab)*c", LOOPS, b"", "abc", 7),
        case("inside the loop", "the same loop, entered in the middle", "(ab)*c", LOOPS, b"aba", "abc", 9),
        case("parts of a character", "a token may end inside a character of several bytes", "(é|🦙)x", PIECES, b"",
             "éè🦙😀x", 3),
        case("the rest of a character", "the output stands inside one: only its other bytes", "(é|🦙)x", PIECES,
             LLAMA[:2], "éè🦙😀x", 3),
        case("another character", "bytes that begin a character of the pattern, but none that may stand here", "éx🦙",
             PIECES, b"", "éè🦙😀x", 3),
        case("any character but one", "what is excluded is excluded byte by byte", "[^é]x", PIECES, b"", "éè🦙😀x", 2),
        case("many tokens", "sixty tokens at once", r"a(b|\.1)*1?", many, b"ab", "ab.1", 7),
    ]  # fmt: skip


def run(subject: Callable[..., Any], case: Case) -> Any:
    """The tokens that the subject allows, and the shape of its answer."""
    tokens = case.inputs["tokens"]
    machine = Machine(Nfa.of_pattern(parse(case.inputs["pattern"])))
    allowed = np.asarray(subject(machine, Vocabulary(tokens), _place(machine, case.inputs["before"])))
    return _answer(tokens, f"{list(allowed.shape)} {allowed.dtype}", np.flatnonzero(allowed).tolist())


def expected(case: Case) -> Any:
    """What is right."""
    return _answer(case.inputs["tokens"], f"[{len(case.inputs['tokens'])}] bool", spec.allowed(**case.inputs))


def _answer(tokens: list[bytes], shape: str, allowed: list[int]) -> Any:
    texts = [tokens[i].decode(errors="backslashreplace") for i in allowed if i < len(tokens)]
    return {"shape and dtype": shape, "allowed tokens": allowed, "their texts": texts}


def _place(machine: Machine, before: bytes) -> Place:
    """Where the output is behind ``before``."""
    state, node = machine.begin(machine.start), 0
    for byte in before:
        state, node = machine.read(state, node, byte)
    return machine.places(state), node
