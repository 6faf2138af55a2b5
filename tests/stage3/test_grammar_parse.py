"""The regular expressions of guided decoding: what is read, and what is refused by name."""

from __future__ import annotations

import re
import sys

import pytest

from stage3.grammar.charsets import complement, named_set, union
from stage3.grammar.errors import GrammarError
from stage3.grammar.regex_parse import MAX_DEPTH, MAX_PATTERN, Chars, Choice, Concat, Repeat, parse

A, B = Chars(((97, 97),)), Chars(((98, 98),))


def test_tree_of_a_pattern() -> None:
    assert parse("a") == A
    assert parse("") == Concat(())
    assert parse("ab|") == Choice((Concat((A, B)), Concat(())))
    assert parse("(?:ab)*a{2,}b{,3}a{2}") == Concat(
        (Repeat(Concat((A, B)), 0, None), Repeat(A, 2, None), Repeat(B, 0, 3), Repeat(A, 2, 2))
    )
    assert parse("a+(b?)") == Concat((Repeat(A, 1, None), Repeat(B, 0, 1)))


@pytest.mark.parametrize("pattern", ["a{", "a{b}", "a{}", "{", "a{1,b}", "a{-1}", "a{ 1}", "}", "]", "a{1", "{x}"])
def test_braces_that_are_no_quantifier_are_literal_as_in_python(pattern: str) -> None:
    assert re.fullmatch(pattern, pattern)
    expected = tuple(Chars(((ord(c), ord(c)),)) for c in pattern)
    assert parse(pattern) == (expected[0] if len(expected) == 1 else Concat(expected))


@pytest.mark.parametrize(
    "pattern",
    [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "[a-c]", "[^a-c]", "[]a]", "[^]a]", "[a-]", "[-a]", r"[\]\-a]",
     r"[\d_]", r"[^\w\s]", r"\x41", r"\u00e9", r"\U0001F999", r"[\x00-\x1f]", r"[\b]", r"\.", r"\-", r"\n", r"[\n]",
     "[^^]", "[a^]", "[é-ü]", "[🦙-🦜]", "é", r"\é", "[a-cb-x]", r"[\s\S]", "[.]", "[(|)*]"],
)  # fmt: skip
def test_sets_are_those_of_python(pattern: str) -> None:
    node = parse(pattern)
    assert isinstance(node, Chars)
    members = {code for low, high in node.ranges for code in range(low, high + 1)}
    compiled = re.compile(pattern)
    codes = [*range(0x3000), *range(0xD700, 0xD800), *range(0xE000, 0xE100), *range(0x1F000, 0x1FFFF), sys.maxunicode]
    assert [c for c in codes if (c in members) != (compiled.fullmatch(chr(c)) is not None)] == []
    assert not members & set(range(0xD800, 0xE000))  # no UTF-8 for them


@pytest.mark.parametrize(
    ("pattern", "name", "at"),
    [
        ("^a", "an anchor (^)", 0), ("a$", "an anchor ($)", 1), (r"a\Z", "an anchor", 1),
        (r"\bfoo", "word boundary", 0),
        ("a(?=b)", "look-ahead", 1), ("a(?!b)", "look-ahead", 1), ("(?<=a)b", "look-behind", 0),
        ("(?<!a)b", "look-behind", 0), (r"(a)\1", "a back reference", 3), ("(?P<n>a)", "a named group", 0),
        ("(?P=n)", "a back reference", 0), ("a*?", "lazy", 1), ("a{2}?", "lazy", 1), ("a++", "possessive", 1),
        ("a?+", "possessive", 1), ("(?i)a", "a flag", 0), ("(?i:a)", "a flag", 0), ("(?>a)", "an atomic group", 0),
        ("(?#x)", "a comment", 0), ("foo**", "two quantifiers", 3), ("a{2}{3}", "two quantifiers", 1),
        ("*a", "nothing before it", 0), ("{2}", "nothing before it", 0), ("a|*", "nothing before it", 2),
        ("(", "never closed", 0), ("(a", "never closed", 0), ("a)", ") without its (", 1), ("[", "a ]", 0),
        ("a[b", "a ]", 1), ("[]", "a ]", 0), ("[z-a]", "a range", 2), (r"[a-\d]", "a range", 2),
        ("a\\", "backslash", 1),
        (r"\q", "an escape", 0), (r"\p{L}", "an escape", 0), (r"\x4", "hexadecimal", 0), (r"\0", "octal", 0),
        (r"\U00110000", "10FFFF", 0), ("a{3,2}", "at least 3 and at most 2", 1), ("a{1000000}", "more than", 1),
        ("a{" + "9" * 5000 + "}", "more than", 1), (r"[^\s\S]", "without any character", 0),
        ("[\ud800-\udfff]", "without any character", 0), ("\ud800", "without any character", 0),
    ],
)  # fmt: skip
def test_the_rest_is_refused_by_name_and_position(pattern: str, name: str, at: int) -> None:
    with pytest.raises(GrammarError) as error:
        parse(pattern)
    assert name in str(error.value)
    assert f"(position {at}, near" in str(error.value)


def test_size_and_depth_are_bounded() -> None:
    parse("(" * MAX_DEPTH + ")" * MAX_DEPTH)
    parse("a" * MAX_PATTERN)
    with pytest.raises(GrammarError, match=f"more than {MAX_DEPTH} groups"):
        parse("(" * 5000 + ")" * 4000)
    with pytest.raises(GrammarError, match="10,001 characters; the limit is 10,000"):
        parse("a" * (MAX_PATTERN + 1))


def test_arithmetic_of_sets() -> None:
    assert union([(5, 6), (1, 2), (3, 4), (9, 9)]) == ((1, 6), (9, 9))
    assert complement(()) == ((0, 0xD7FF), (0xE000, 0x10FFFF))
    assert complement(complement(named_set("w"))) == named_set("w")
    assert union([(0xD000, 0xE100)]) == ((0xD000, 0xD7FF), (0xE000, 0xE100))
    assert union(named_set("d") + named_set("D")) == complement(())
