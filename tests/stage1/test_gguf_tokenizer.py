"""Tokenizers built from the vocabulary of a GGUF file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage1.model.checkpoint import CheckpointError
from stage1.model.gguf_tokenizer import tokenizer_from_gguf

PATH = Path("some.gguf")


# --- byte-level vocabularies ---


def byte_vocabulary(pre: str | None, **more: Any) -> dict[str, Any]:
    """All bytes, a few merges, one special token; enough to see where text is cut into words."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*sorted(ByteLevel.alphabet()), "12", "123", "1234", "\u0120\u0120", "\u0120a", "<s>", "'t", "'T"]
    values = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": np.array([3 if token == "<s>" else 1 for token in tokens], np.int32),
        "merges": ["1 2", "12 3", "123 4", "\u0120 \u0120", "\u0120 a", "' t", "' T"],
        "bos_token_id": tokens.index("<s>"),
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (values | more).items() if value is not None}


def pieces(metadata: dict[str, Any], text: str, special: bool = False) -> list[str]:
    tokenizer, _ = tokenizer_from_gguf(metadata, PATH)
    return tokenizer.encode(text, add_special_tokens=special).tokens


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("gpt-2", ["1234", "1"]),
        ("smollm", ["1", "2", "3", "4", "1"]),
        ("llama-bpe", ["123", "4", "1"]),
        ("qwen2", ["1", "2", "3", "4", "1"]),
    ],
)
def test_each_family_cuts_digits_its_way(pre: str, digits: list[str]) -> None:
    assert pieces(byte_vocabulary(pre), "12341") == digits
    assert pieces(byte_vocabulary(pre), "  a") == ["\u0120", "\u0120a"]
    assert pieces(byte_vocabulary(pre), "a<s>a") == ["a", "<s>", "a"]


def test_families_differ_in_case_normal_form_and_bos() -> None:
    assert pieces(byte_vocabulary("llama-bpe"), "a'T")[1:] == ["'T"]
    assert pieces(byte_vocabulary("qwen2"), "e\u0301") == pieces(byte_vocabulary("qwen2"), "\xe9")
    assert pieces(byte_vocabulary("gpt-2"), "e\u0301") != pieces(byte_vocabulary("gpt-2"), "\xe9")
    assert pieces(byte_vocabulary("llama-bpe"), "a", special=True) == ["<s>", "a"]
    assert pieces(byte_vocabulary("llama-bpe", add_bos_token=False), "a", special=True) == ["a"]
    assert pieces(byte_vocabulary("gpt-2"), "a", special=True) == ["a"]
    assert pieces(byte_vocabulary("gpt-2", add_bos_token=True), "a", special=True) == ["<s>", "a"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "bert"}, "kind 'bert'; known: gpt2, llama"),
        ({"model": None}, "kind None"),
        ({"model": np.array([1, 2])}, "kind None"),
        ({"pre": "tekken"}, "pre-tokenizer 'tekken'; known: gpt-2"),
        ({"pre": None}, "pre-tokenizer None"),
        ({"tokens": None}, "no list of strings tokenizer.ggml.tokens"),
        ({"tokens": np.array([1, 2])}, "no list of strings"),
        ({"tokens": ["a", "a"]}, "token twice"),
        ({"token_type": np.array([1, 1])}, "2 token types"),
        ({"merges": ["1 9"]}, "merges '1 9'"),
        ({"merges": ["12"]}, "merges '12'"),
        ({"merges": None}, "no list of strings tokenizer.ggml.merges"),
        ({"bos_token_id": 10_000}, "bos_token_id 10000"),
        ({"eos_token_id": -1}, "eos_token_id -1"),
        ({"eos_token_id": "x"}, "eos_token_id 'x'"),
    ],
)
def test_a_damaged_or_unknown_vocabulary_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        tokenizer_from_gguf(byte_vocabulary(**({"pre": "gpt-2"} | change)), PATH)
    assert "--tokenizer" in str(caught.value)


# --- sentencepiece vocabularies ---

WORDS = ["\u2581", "a", "b", "c", "ab", "bc", "abc", "\u2581a", "\u2581ab", "ca", "\u2581\u2581", "cab"]
SPM_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
SPM_SCORES = [0.0] * 259 + [-10.0, -11.0, -12.0, -13.0, -1.0, -3.0, -5.0, -4.0, -6.0, -2.0, -7.0, -8.0]


def spm_vocabulary(**more: Any) -> dict[str, Any]:
    values = {
        "model": "llama",
        "tokens": SPM_TOKENS,
        "scores": np.array(SPM_SCORES, np.float32),
        "token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(WORDS), np.int32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (values | more).items()}


def merge_best_first(text: str) -> list[str]:
    """Sentencepiece's rule, slowly: of all neighbours that make a piece, join the best, the leftmost of equals."""
    symbols = list(text.replace(" ", "\u2581"))
    scores = dict(zip(SPM_TOKENS, SPM_SCORES, strict=True))
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            break
        _, i = min(pairs)
        symbols[i : i + 2] = ["".join(symbols[i : i + 2])]
    return [
        piece
        for symbol in symbols
        for piece in ([symbol] if symbol in scores else [f"<0x{byte:02X}>" for byte in symbol.encode()])
    ]


@given(text=st.text(alphabet="abc \xe9", max_size=30))
def test_sentencepiece_merges_as_its_rule_says(text: str) -> None:
    tokenizer, _ = tokenizer_from_gguf(spm_vocabulary(), PATH)
    plain, _ = tokenizer_from_gguf(spm_vocabulary(add_space_prefix=False), PATH)
    assert plain.encode(text, add_special_tokens=False).tokens == merge_best_first(text)
    encoded = tokenizer.encode(text, add_special_tokens=False)
    if text:
        assert encoded.tokens == merge_best_first(" " + text)
    assert tokenizer.decode(encoded.ids) == text


def test_sentencepiece_begins_with_bos_unless_told() -> None:
    assert pieces(spm_vocabulary(), "a", special=True) == ["<s>", "\u2581a"]
    assert pieces(spm_vocabulary(add_bos_token=False), "a", special=True) == ["\u2581a"]


@pytest.mark.parametrize("scores", [None, np.zeros(3, np.float32), ["x"] * len(SPM_TOKENS)])
def test_sentencepiece_needs_scores(scores: Any) -> None:
    with pytest.raises(CheckpointError, match="without a score for each token"):
        tokenizer_from_gguf(spm_vocabulary(scores=scores), PATH)
