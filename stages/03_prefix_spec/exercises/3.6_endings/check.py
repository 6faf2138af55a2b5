"""Outputs under a script of calls: what may follow, what is accepted, and whether it is the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage3.grammar.masks import unpack
from stage3.grammar.token_fsm import choice_grammar
from stage3.grammar.vocabulary import Vocabulary

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
TOKENS = [b"n", b"o", b"no", b"p", b"e", b"pe", b"nope", b".", b"", b"", b"s"]
N, O_, NO, P, E, PE, NOPE, DOT, EOS, PAD, S = range(len(TOKENS))
GARBAGE = 0xA5A5A5A5  # what lies in the buffer before


def cases(rng: random.Random) -> list[Case]:
    """From one text to a long random script with two ending tokens, one of which has a text."""

    def case(name: str, words: str, texts: list[str], endings: list[int], *calls: Any) -> Case:
        return Case(name, words, {"texts": texts, "ending_ids": endings, "calls": list(calls)})

    def any_call() -> Any:
        if rng.random() < 0.3:
            return ("rollback", rng.randint(1, 2))
        return ("accept", *(rng.choice((N, O_, NO, P, E, PE, DOT, EOS)) for _ in range(rng.randint(1, 3))))

    def accept(*ids: int) -> Any:
        return ("accept", *ids)

    return [
        case("at the start", "no text yet: end-of-text is forbidden", ["no"], [EOS], accept()),
        case("in the middle", "half a text: not yet", ["nope"], [EOS], accept(N), accept(O_)),
        case("a whole match", "the text is there: end-of-text is allowed, and nothing else is left", ["no"], [EOS],
             accept(N), accept(O_), accept(EOS)),
        case("longer or not", "`no` may end, and may become `nope`: both stay open", ["no", "nope"], [EOS],
             accept(NO), accept(P), accept(E), accept(EOS)),
        case("too early", "end-of-text in the middle is not accepted, and changes nothing", ["nope"], [EOS],
             accept(NO), accept(EOS), accept(PE)),
        case("several at once", "up to the first that cannot follow; those before it stay", ["nope"], [EOS],
             accept(N, O_, E, P), accept(P, E, EOS, EOS)),
        case("after the end", "nothing follows an ending token", ["no", "nope"], [EOS], accept(NO, EOS), accept(PE),
             accept(EOS)),
        case("no text is a text", "an empty text is a whole match", ["", "no"], [EOS], accept(EOS), accept(N)),
        case("an ending with a text", "`.` ends this request's output: it is no text of it any more",
             ["no", "no.", "n.s"], [EOS, DOT], accept(N), accept(DOT), accept(O_), accept(DOT), accept(S)),
        case("undone", "what was guessed wrong is taken back, the end included", ["no", "nope"], [EOS],
             accept(NO, EOS), ("rollback", 1), accept(PE), ("rollback", 2), accept(NOPE, EOS)),
        case("a long script", "every call of a random script", ["no", "nope", "none", "o"], [DOT, EOS],
             *(any_call() for _ in range(60))),
    ]  # fmt: skip


def run(subject: Callable[..., Any], case: Case) -> Any:
    """One line a call."""
    texts, endings = case.inputs["texts"], frozenset(case.inputs["ending_ids"])
    vocabulary = Vocabulary(TOKENS)
    matcher = subject(choice_grammar(texts, vocabulary).start(), endings)

    def allowed() -> list[int]:
        out = np.full(vocabulary.num_words, GARBAGE, dtype=np.uint32)
        matcher.allowed_mask(out)
        return np.flatnonzero(unpack(out, 32 * vocabulary.num_words)).tolist()

    return _lines(matcher, allowed, case.inputs["calls"])


def expected(case: Case) -> Any:
    """What the plain matcher answers."""
    texts = [text.encode() for text in case.inputs["texts"]]
    matcher = spec.PlainMatcher(texts, TOKENS, case.inputs["ending_ids"])
    return _lines(matcher, matcher.allowed, case.inputs["calls"])


def _lines(matcher: Any, allowed: Callable[[], list[int]], calls: list[Any]) -> list[str]:
    """What each call answers, and what may follow behind it; no more is undone than was accepted."""
    lines, accepted = [], 0
    for name, *arguments in calls:
        if name == "accept":
            count = matcher.accept(arguments)
            accepted += count if isinstance(count, int) else 0
            line = f"accept({', '.join(map(_name, arguments))}) → {count}"
        else:
            count = min(arguments[0], accepted)
            accepted -= count
            matcher.rollback(count)
            line = f"rollback({count})"
        end = "ended" if matcher.has_ended else "complete" if matcher.is_complete else "open"
        lines.append(f"{line}; {end}; may follow: {', '.join(map(_name, allowed())) or 'nothing'}")
    return lines


def _name(token: int) -> str:
    if token in (EOS, PAD):
        return "<end>" if token == EOS else "<pad>"
    return TOKENS[token].decode() if token < len(TOKENS) else f"token {token}"
