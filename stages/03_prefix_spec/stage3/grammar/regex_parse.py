"""Regular expressions: from the pattern's text to a tree of four kinds of node.

Owns the syntax, which is that of Python's ``re`` for text as far as it goes: literals, escapes, ``.``, classes with
ranges and negation, ``\\d \\w \\s`` and their negations, groups, ``|`` and ``* + ? {m} {m,} {,n} {m,n}``. Whatever else
``re`` knows is refused by name and position: an output that must match as a whole has no use for anchors, and
look-around, back references and the like are beyond a finite automaton. Does not know automata or tokens.

    a(b|c)*    Concat(Chars(a), Repeat(Choice(Chars(b), Chars(c)), 0, None))

vLLM: ``v1/structured_output/backend_outlines.py`` (``validate_regex_is_buildable``) refuses likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

from stage3.grammar.charsets import MAX_CODE_POINT, Ranges, complement, named_set, single, union
from stage3.grammar.errors import GrammarError

MAX_PATTERN = 10_000  # characters
MAX_DEPTH = 100  # groups inside each other
MAX_COUNT = 100_000  # in {m,n}


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set that is not empty."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Concat:
    """One part behind the other; without parts, the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``part`` from ``low`` to ``high`` times; ``None`` = any number."""

    part: Node
    low: int
    high: int | None


Node = Chars | Concat | Choice | Repeat

_ANY = complement(single("\n"))
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_GROUPS = {  # what may follow "(?"
    "=": "look-ahead",
    "!": "look-ahead",
    "<=": "look-behind",
    "<!": "look-behind",
    "P<": "a named group",
    "P=": "a back reference",
    ">": "an atomic group",
    "#": "a comment",
    "(": "a conditional group",
}
_ESCAPES = {"A": "an anchor", "Z": "an anchor", "z": "an anchor", "b": "a word boundary", "B": "a word boundary"}


def parse(pattern: str) -> Node:
    """The tree of ``pattern``.

    Raises:
        GrammarError: it is too long, not well formed, or uses what is refused; the message names it and its position.
    """
    if len(pattern) > MAX_PATTERN:
        raise GrammarError(
            f"the regex has {len(pattern):,} characters; the limit is {MAX_PATTERN:,}: shorten it, or write a grammar"
        )
    return _Parser(pattern).whole()


class _Parser:
    """A pattern and the place that is read next."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._at < len(self._pattern):  # only a closing bracket ends a choice before the pattern's end
            raise self._error("a ) without its (", self._at)
        return node

    def _choice(self) -> Node:
        parts = [self._concat()]
        while self._take("|"):
            parts.append(self._concat())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _concat(self) -> Node:
        parts = []
        while self._at < len(self._pattern) and not self._sees("|") and not self._sees(")"):
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def _atom(self) -> Node:
        start = self._at
        character = self._next("a character")
        if character == "(":
            return self._group(start)
        if character == "[":
            return self._class(start)
        if character == "\\":
            return self._set(self._escape(start, in_class=False), start)
        if character in "^$":
            raise self._error(f"an anchor ({character}): the output must match as a whole anyhow, leave it out", start)
        if character in _REPEATS or self._counts(start) is not None:
            raise self._error(f"{character} with nothing before it to repeat", start)
        return self._set(_ANY if character == "." else single(character), start)

    def _group(self, start: int) -> Node:
        if self._take("?") and not self._take(":"):
            kinds = [kind for mark, kind in _GROUPS.items() if self._sees(mark)]
            raise self._error(f"{kinds[0] if kinds else 'a flag'}, which is not supported", start)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} groups inside each other", start)
        node = self._choice()
        self._depth -= 1
        if not self._take(")"):
            raise self._error("a ( that is never closed", start)
        return node

    def _repeated(self, node: Node) -> Node:
        start = self._at
        bounds = self._bounds()
        if bounds is None:
            return node
        if self._sees("?"):
            raise self._error("a lazy quantifier, which is not supported", start)
        if self._sees("+"):
            raise self._error("a possessive quantifier, which is not supported", start)
        if self._bounds() is not None:
            raise self._error("two quantifiers in a row: put the first in a group", start)
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The quantifier that comes next, if one does; it is read then."""
        for mark, bounds in _REPEATS.items():
            if self._take(mark):
                return bounds
        counts = self._counts(self._at)
        if counts is not None:
            self._at = self._pattern.index("}", self._at) + 1
        return counts

    def _counts(self, at: int) -> tuple[int, int | None] | None:
        """``{m}``, ``{m,}``, ``{,n}`` or ``{m,n}`` at ``at``; anything else there is literal text, as in Python."""
        end = self._pattern.find("}", at)
        if not self._pattern.startswith("{", at) or end < 0:
            return None
        low, comma, high = self._pattern[at + 1 : end].partition(",")
        numbers = [text for text in (low, high) if text]
        if not (numbers or comma) or not all(text.isascii() and text.isdigit() for text in numbers):
            return None
        if any(len(text.lstrip("0")) > len(str(MAX_COUNT)) or int(text[-9:]) > MAX_COUNT for text in numbers):
            raise self._error(f"a repetition of more than {MAX_COUNT:,} times", at)
        least = int(low or 0)
        most = least if not comma else int(high) if high else None
        if most is not None and least > most:
            raise self._error(f"a repetition of at least {least:,} and at most {most:,} times", at)
        return least, most

    # --- below: one character, or a set of them -------------------------------------------------------

    def _class(self, start: int) -> Chars:
        """What is between ``[`` and ``]``; a ``]`` in the first place is a member."""
        is_negated = self._take("^")
        members: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            low = self._member(start)
            if not self._sees("-") or self._pattern.startswith("-]", self._at):
                members += low
                continue
            at, self._at = self._at, self._at + 1
            high = self._member(start)
            if not _is_single(low) or not _is_single(high) or low[0][0] > high[0][0]:
                raise self._error("a range that does not go from a character to a later one", at)
            members.append((low[0][0], high[0][0]))
        ranges = union(members)
        return self._set(complement(ranges) if is_negated else ranges, start)

    def _member(self, start: int) -> Ranges:
        at = self._at
        character = self._next("a ]", start)
        if character == "\\":
            return self._escape(at, in_class=True)
        return ((ord(character), ord(character)),)

    def _escape(self, start: int, in_class: bool) -> Ranges:
        """The set that a backslash and what follows it stand for."""
        letter = self._next("a character after the backslash", start)
        if letter in "dwsDWS":
            return named_set(letter)
        if letter == "b" and in_class:
            return single("\b")
        if letter in _CONTROLS:
            return single(_CONTROLS[letter])
        if letter in _HEX_DIGITS:
            return self._code_point(start, _HEX_DIGITS[letter])
        if letter in "0123456789":
            what = "an octal escape: write \\x and two digits" if letter == "0" or in_class else "a back reference"
            raise self._error(f"{what}, which is not supported", start)
        if letter.isascii() and letter.isalpha():
            raise self._error(f"{_ESCAPES.get(letter, 'an escape')} (\\{letter}), which is not supported", start)
        return single(letter)

    def _code_point(self, start: int, digits: int) -> Ranges:
        text = self._pattern[self._at : self._at + digits]
        if len(text) < digits or not all(digit in "0123456789abcdefABCDEF" for digit in text):
            raise self._error(f"an escape that needs {digits} hexadecimal digits", start)
        self._at += digits
        code = int(text, 16)
        if code > MAX_CODE_POINT:
            raise self._error("a code point above 10FFFF", start)
        return ((code, code),)

    def _set(self, ranges: Ranges, start: int) -> Chars:
        if not union(ranges):
            raise self._error("a set without any character", start)
        return Chars(union(ranges))

    # --- below: reading -------------------------------------------------------------------------------

    def _sees(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if not self._sees(text):
            return False
        self._at += len(text)
        return True

    def _next(self, wanted: str, start: int | None = None) -> str:
        if self._at == len(self._pattern):
            raise self._error(f"an end where {wanted} is needed", self._at if start is None else start)
        self._at += 1
        return self._pattern[self._at - 1]

    def _error(self, what: str, at: int) -> GrammarError:
        excerpt = self._pattern[max(at - 10, 0) : at + 10]
        return GrammarError(f"the regex has {what} (position {at:,}, near {excerpt!r})")


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
