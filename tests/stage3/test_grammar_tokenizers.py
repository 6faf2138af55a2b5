"""The vocabulary of real tokenizers: the bytes of every token, and whole texts through grammars token by token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from stage1.config import ModelConfig
from stage1.model.source import resolve
from stage1.model.tokenizer import load_tokenizer
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.masks import unpack
from stage3.grammar.matcher import Matcher
from stage3.grammar.structured_outputs import constraint_of
from stage3.grammar.vocabulary import Vocabulary, load_vocabulary

Embedded = tuple[Any, Vocabulary, GrammarCompiler]


@pytest.fixture(scope="module")
def embedded() -> Iterator[Embedded]:
    tokenizer = load_tokenizer(resolve(ModelConfig()))
    compiler = GrammarCompiler(load_vocabulary(tokenizer, 49152))
    yield tokenizer, compiler.vocabulary, compiler
    compiler.shutdown()


def allowed(matcher: Matcher, vocabulary: Vocabulary) -> set[int]:
    words = np.zeros(vocabulary.num_words, dtype=np.uint32)
    matcher.allowed_mask(words)
    return set(np.flatnonzero(unpack(words, vocabulary.num_words * 32)).tolist())


def test_bytes_of_byte_level_tokens(embedded: Embedded) -> None:
    tokenizer, vocabulary, _ = embedded
    assert vocabulary.size == len(tokenizer) == 49152
    special = [i for i, text in enumerate(vocabulary.tokens) if not text]
    assert set(special) == set(tokenizer.all_special_ids) | {
        i for i, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    for text in ("Once upon a time — naïve 🦙 café\n\n\t日本語", '{"a": [1, 2.5e-3, "x\\n"]}'):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(vocabulary.tokens[i] for i in ids).decode() == text


TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"choice": ["Positive", "Negative", "Not sure 🤔"]}, "Not sure 🤔"),
    ({"regex": r"[\w .]+@example\.(com|org)\n"}, "ada.löve lace@example.org\n"),
    ({"regex": r"(🦙|🦜| )+"}, "🦙🦜 🦙"),
    ({"regex": r"[\s\S]*"}, "anything — 日本語\r\n"),
    ({"json": {"type": "object", "properties": {"naïve": {"type": "array"}}}}, '{"naïve": [1, "🦙", {}]}'),
    ({"json_object": True}, '{"a":{"b":null}}'),
    ({"grammar": 'start: "(" start ")" | "é"'}, "(((é)))"),
]


@pytest.mark.parametrize(("asked", "text"), TEXTS, ids=[next(iter(asked)) + text[:3] for asked, text in TEXTS])
def test_whole_texts_and_their_end(embedded: Embedded, asked: dict[str, Any], text: str) -> None:
    tokenizer, vocabulary, compiler = embedded
    eos = tokenizer.eos_token_id
    matcher = Matcher(compiler.compile(constraint_of(asked)).start(), frozenset({eos}))
    for token in tokenizer.encode(text, add_special_tokens=False):
        ids = allowed(matcher, vocabulary)
        assert token in ids
        assert not ids & (set(tokenizer.all_special_ids) - {eos})
        assert (eos in ids) == matcher.is_complete
        assert matcher.accept([token]) == 1
    assert matcher.is_complete
    assert matcher.accept([eos]) == 1
    assert allowed(matcher, vocabulary) == {eos}


def test_ends_of_text_never_appear_inside_a_json_string(embedded: Embedded) -> None:
    tokenizer, vocabulary, compiler = embedded
    grammar = compiler.compile(constraint_of({"json": {"type": "string"}}))
    matcher = Matcher(grammar.start(), frozenset({tokenizer.eos_token_id}))
    assert matcher.accept(tokenizer.encode('"a', add_special_tokens=False)) > 0
    assert not allowed(matcher, vocabulary) & set(tokenizer.all_special_ids)
    for token in tokenizer.all_special_ids:
        assert matcher.accept([token]) == 0


@pytest.mark.parametrize("pattern", [r"(\w|é|🦙| )*x?", r"[^a]{3}", "日本*"])
def test_masks_of_a_real_vocabulary_are_what_trying_tokens_gives(embedded: Embedded, pattern: str) -> None:
    tokenizer, vocabulary, compiler = embedded
    matcher = Matcher(compiler.compile(constraint_of({"regex": pattern})).start(), frozenset({2}))
    partial = [i for i, text in enumerate(vocabulary.tokens) if text and text[-1] >= 0x80]
    for token in (None, tokenizer.encode("日", add_special_tokens=False)[0]):
        if token is not None and not matcher.accept([token]):
            continue
        ids = allowed(matcher, vocabulary)
        for token_id in {*partial, *range(0, vocabulary.size, 37)}:
            is_allowed = matcher.accept([token_id]) == 1
            assert is_allowed == (token_id in ids)
            matcher.rollback(int(is_allowed))


def test_bytes_of_sentencepiece_tokens() -> None:
    names = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", "\u2581Hi", "a", "<0xZ>"]
    backend = Tokenizer(
        models.BPE({name: i for i, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True)
    )
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(name, special=True) for name in names[:3]])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    tokens = load_vocabulary(tokenizer, 263).tokens
    assert tokens[:4] == (b"", b"", b"", b"\x00")
    assert tokens[3 + 0xF0] == b"\xf0"
    assert tokens[-4:] == (b" ", b" Hi", b"a", b"<0xZ>")


def test_texts_are_json() -> None:
    assert all(json.loads(text) for asked, text in TEXTS if "json" in asked or "json_object" in asked)
