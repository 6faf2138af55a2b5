"""The automaton against Python's ``re``, and its masks against trying every token."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.model.byte_tokenizer import EOS, ByteTokenizer
from stage3.grammar.alphabet import DEAD, Alphabet, class_of
from stage3.grammar.charsets import complement, named_set, union
from stage3.grammar.errors import GrammarError
from stage3.grammar.fsm import FUEL, Machine
from stage3.grammar.masks import MaskStore, num_words, pack, set_bits, unpack
from stage3.grammar.matcher import Grammar, Matcher
from stage3.grammar.nfa import Nfa
from stage3.grammar.regex_parse import parse
from stage3.grammar.token_fsm import choice_grammar, regex_grammar
from stage3.grammar.vocabulary import Vocabulary, load_vocabulary

TEXTS = "abcé🦙 \n1_"
ATOMS = ["a", "b", "é", "🦙", ".", "[ab]", "[^a]", "[é-🦙]", r"\d", r"\w", r"\s", r"\W", r"\.", "[^é\n]", "(?:)", "1"]


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """One level more of structure. Two levels in all: Python's search takes exponential time for deeper repetitions."""
    counts = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,2}", "{1,}", "{0}"])
    return st.one_of(
        inner,
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, counts).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


patterns = combined(combined(st.sampled_from(ATOMS)))
VOCABULARY = Vocabulary(
    [b"a", b"b", b"ab", b"aba", b" ", b"\n", b"1", "é".encode(), "é".encode()[:1], "é".encode()[1:], "🦙".encode(), b"",
     "🦙".encode()[:1], "🦙".encode()[1:3], "🦙".encode()[2:], "🦙".encode()[3:],
     b"a\xc3", b"\xa9b", b"\xff", b"1a", b"_"]
    + [b"c" * n for n in range(1, 16)]
)  # fmt: skip
END_ID = 11


def machine(pattern: str) -> Machine:
    return Machine(Nfa.of_pattern(parse(pattern)))


def allowed(matcher: Matcher, vocabulary: Vocabulary = VOCABULARY) -> list[int]:
    words = np.full(vocabulary.num_words, 0xFFFFFFFF, dtype=np.uint32)
    matcher.allowed_mask(words)
    return np.flatnonzero(unpack(words, vocabulary.num_words * 32)).tolist()


def fresh(grammar: Grammar) -> Matcher:
    return Matcher(grammar.start(), frozenset({END_ID}))


@settings(max_examples=400, deadline=None)
@given(patterns, st.lists(st.text(TEXTS, max_size=6), min_size=1, max_size=12))
def test_matches_what_python_matches(pattern: str, texts: list[str]) -> None:
    automaton = machine(pattern)
    compiled = re.compile(pattern)
    for text in texts:
        assert automaton.matches(text.encode()) == (compiled.fullmatch(text) is not None), text


@settings(max_examples=150, deadline=None)
@given(patterns, st.integers(0, 2**32))
def test_masks_are_what_trying_every_token_gives_and_lead_to_matches(pattern: str, seed: int) -> None:
    grammar = grammar_or_none(pattern)
    if grammar is None:
        return
    matcher, chooser, output = fresh(grammar), random.Random(seed), b""
    for _ in range(12):
        tried = []
        for token in range(VOCABULARY.num_words * 32):
            if matcher.accept([token]):
                matcher.rollback(1)
                tried.append(token)
        assert allowed(matcher) == tried
        assert (END_ID in tried) == matcher.is_complete == is_match(pattern, output)
        following = [token for token in tried if token != END_ID]
        if not following:
            break
        token = chooser.choice(following)
        assert matcher.accept([token]) == 1
        output += VOCABULARY.tokens[token]


def grammar_or_none(pattern: str) -> Grammar | None:
    """``None`` where the pattern begins with characters that this small vocabulary lacks."""
    try:
        return regex_grammar(pattern, VOCABULARY)
    except GrammarError:
        return None


def is_match(pattern: str, output: bytes) -> bool:
    try:
        decoded = output.decode()
    except UnicodeDecodeError:
        return False
    # Python's search would take for ever on long ones; that the automaton is right is what another test shows.
    return machine(pattern).matches(output) if len(decoded) > 9 else re.fullmatch(pattern, decoded) is not None


@settings(max_examples=100, deadline=None)
@given(patterns, st.integers(0, 2**32), st.lists(st.integers(0, 5), max_size=8))
def test_rollback_equals_replay(pattern: str, seed: int, undone: list[int]) -> None:
    grammar = grammar_or_none(pattern)
    if grammar is None:
        return
    matcher, chooser = fresh(grammar), random.Random(seed)
    history: list[int] = []
    for count in undone:
        for _ in range(4):
            if not (ids := allowed(matcher)):
                break
            history.append(chooser.choice(ids))
            assert matcher.accept(history[-1:]) == 1
            if matcher.has_ended:
                break
        count = min(count, len(history))
        matcher.rollback(count)
        history = history[: len(history) - count]
        replayed = fresh(grammar)
        assert replayed.accept(history) == len(history)
        assert allowed(replayed) == allowed(matcher)
        assert replayed.is_complete == matcher.is_complete
        if matcher.has_ended:
            break


def test_drafts_stop_at_the_first_illegal_token_and_roll_back_exactly() -> None:
    matcher = fresh(regex_grammar("( [1]+,?)+a", VOCABULARY))
    assert matcher.accept([4]) == 1
    before = allowed(matcher)
    assert matcher.accept([6, 6, 4, 6, 5, 6]) == 4
    matcher.rollback(4)
    assert allowed(matcher) == before
    with pytest.raises(ValueError, match="2 tokens are to be undone; the last 1 are remembered"):
        matcher.rollback(2)


def test_nothing_follows_the_end_and_an_ending_token_is_no_text() -> None:
    grammar = regex_grammar("1{2}", VOCABULARY)
    matcher = Matcher(grammar.start(), frozenset({END_ID, 6, 40}))  # 6 is the only token for 1
    assert allowed(matcher) == []
    matcher = Matcher(regex_grammar("1a", VOCABULARY).start(), frozenset({END_ID, 0, 40}))
    assert allowed(matcher) == [6, 19]
    assert matcher.accept([END_ID]) == matcher.accept([0]) == 0
    assert matcher.accept([19, 40, 40]) == 2
    assert matcher.has_ended
    assert allowed(matcher) == [0, END_ID, 40]
    assert matcher.accept([END_ID]) == 0
    matcher.rollback(2)
    assert (allowed(matcher), matcher.has_ended) == ([6, 19], False)


def test_choices_are_texts_not_patterns() -> None:
    choices = ["a", "ab", "a.b", "é", "", "(", "🦙🦙"]
    automaton = Machine(Nfa.of_texts(choices))
    texts = [*choices, "aab", "axb", "🦙", "ab.", " "]
    assert [automaton.matches(text.encode()) for text in texts] == [text in choices for text in texts]
    matcher = fresh(choice_grammar(["ab", "é", "abab"], VOCABULARY))
    assert allowed(matcher) == [0, 2, 3, 7, 8]
    assert matcher.accept([3]) == 1
    assert allowed(matcher) == [1]
    assert matcher.accept([1]) == 1
    assert allowed(matcher) == [END_ID]


def test_no_token_can_begin_a_match() -> None:
    with pytest.raises(GrammarError, match="no token of this model can begin"):
        regex_grammar("x+", VOCABULARY)
    with pytest.raises(GrammarError, match="no token of this model can begin"):
        choice_grammar(["\ud83e"], VOCABULARY)  # half a surrogate pair


@pytest.mark.parametrize(
    "charsets",
    [[named_set("w"), named_set("S"), union([(0x800, 0xFFFF)])], [((0x10FFFF, 0x10FFFF),)], [complement(())]],
)
def test_decoder_gives_every_character_its_class(charsets: list[tuple[tuple[int, int], ...]]) -> None:
    alphabet = Alphabet(charsets)
    members = [{code for low, high in ranges for code in range(low, high + 1)} for ranges in charsets]
    codes = [*range(0x1000), *range(0xD7F0, 0xD800), *range(0xE000, 0xE010), *range(0xFFF0, 0x10010), 0x1F999, 0x10FFFF]
    for code in codes:
        node, reachable = 0, None
        for byte in chr(code).encode():
            entry = int(alphabet.decoder[node, byte])
            node = max(entry, 0)
            if entry > 0:
                reachable = alphabet.below[entry]
        wanted = frozenset(i for i, ranges in enumerate(members) if code in ranges)
        assert (alphabet.members[class_of(entry)] if entry != DEAD else frozenset()) == wanted
        assert reachable is None or not wanted or class_of(entry) in reachable
    for broken in (b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\x80"):
        entry = 0
        for byte in broken:
            entry = int(alphabet.decoder[entry, byte])
            if entry == DEAD:
                break
        assert entry == DEAD  # overlong, surrogate or beyond Unicode


HOSTILE = [
    "((a{0,200}){0,200}){0,200}", "(a+)+b", "(a*)*b", "(a|a)*b", "(a?){4900}", "(.?){4900}", ".*a.{1000}",
    "(.*a.{100}){5}", r"(\w{0,50}[aeiou]){40}", r"(\w?){2000}", "(a|aa|aaa){0,900}",
    "(" * 99 + "a{0,9}" + "){0,9}" * 99,
    "".join(f"(a{{0,{n}}}|b)*" for n in range(60)), "(|" * 90 + "a" + ")*" * 90, "a{0,19990}", "([^a]|[^b]){1,3000}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_patterns_cost_little_or_are_refused(pattern: str) -> None:
    """Without the bounds, some of them take hours and all of the memory."""
    vocabulary = load_vocabulary(ByteTokenizer(), 259)
    try:
        matcher = Matcher(regex_grammar(pattern, vocabulary).start(), frozenset({EOS}))
    except GrammarError:
        return
    for _ in range(5):
        if matcher.accept([ord("a")]):
            assert allowed(matcher, vocabulary)


def test_tables_are_emptied_when_full_and_masks_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stage3.grammar.fsm._MAX_CELLS", 4)
    grammar = regex_grammar("(ab|1[ab]{2})*é", VOCABULARY)
    matcher = fresh(grammar)
    for token in [2, 6, 1, 0, 2, 2, 7, END_ID]:
        tried = [t for t in range(VOCABULARY.size) if matcher.accept([t]) and (matcher.rollback(1) or True)]
        assert allowed(matcher) == tried
        assert matcher.accept([token]) == 1


def test_too_much_work_for_one_token_is_refused() -> None:
    with pytest.raises(GrammarError, match=f"more than {FUEL:,} visits"):
        regex_grammar("(.?){4900}", Vocabulary([b"a" * n for n in range(1, 400)]))


# --- packing, storing, reading a vocabulary ---------------------------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_packed_masks_round_trip(bits: list[bool]) -> None:
    words = pack(np.array(bits))
    assert words.dtype == np.uint32
    assert len(words) == num_words(len(bits))
    assert unpack(words, len(bits)).tolist() == bits
    assert [bool(words[t // 32] >> np.uint32(t % 32) & np.uint32(1)) for t in range(len(bits))] == bits
    set_bits(words, [0, len(bits) - 1], True)
    set_bits(words, [0], False)
    bits[-1], bits[0] = True, False
    assert unpack(words, len(bits)).tolist() == bits
    assert not unpack(words, num_words(len(bits)) * 32)[len(bits) :].any()


def test_mask_store_is_bounded_and_drops_what_was_used_longest_ago() -> None:
    store, made = MaskStore(max_bytes=3 * 12), []
    words = np.zeros(2, dtype=np.uint32)

    def get(name: bytes) -> None:
        store.get((None, name, 0), lambda: (made.append(name), words)[1])

    for name in (b"aaaa", b"bbbb", b"cccc", b"aaaa", b"dddd", b"aaaa", b"bbbb"):
        get(name)
    assert made == [b"aaaa", b"bbbb", b"cccc", b"dddd", b"bbbb"]
    assert len(store) == 3


def test_special_tokens_and_ids_without_meaning_never_match() -> None:
    vocabulary = load_vocabulary(ByteTokenizer(280), 300)
    matcher = Matcher(regex_grammar(r"[\s\S]*", vocabulary).start(), frozenset({EOS}))
    ids = allowed(matcher, vocabulary)
    assert set(ids) <= {*range(0xF5), EOS}
    assert {EOS, ord("a"), 0xC3} <= set(ids)
    assert not {0x80, 0xC0, 0xF5, 256, 258, 259, 299} & set(ids)
    assert matcher.accept([256]) == matcher.accept([299]) == matcher.accept([10_000]) == 0
    with pytest.raises(ValueError, match="name a --tokenizer"):
        load_vocabulary(None, 300)
    with pytest.raises(ValueError, match="has 280 tokens, the model 270"):
        load_vocabulary(ByteTokenizer(280), 270)


def test_levels_hold_every_token_once() -> None:
    seen = []
    for depth, level in enumerate(VOCABULARY.levels):
        seen += level.tokens.tolist()
        assert all(len(VOCABULARY.tokens[t]) == depth + 1 for t in level.tokens.tolist())
    assert sorted(seen) == [t for t, text in enumerate(VOCABULARY.tokens) if text]
