"""Tokens to text, one at a time: nothing halved, nothing lost, and the same as a decode in one go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stage1.detokenizer import DetokenizerFactory, special_ids
from stage1.model.byte_tokenizer import ByteTokenizer

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def deltas(tokenizer: Any, ids: list[int], prompt_ids: list[int] | None = None, **options: bool) -> list[str]:
    """One text a token, and the rest at the end."""
    detokenizer = DetokenizerFactory(tokenizer).make(prompt_ids or [], **options)
    return [*(detokenizer.push(i) for i in ids), detokenizer.finish()]


@pytest.fixture(scope="module")
def sentencepiece() -> Any:
    """A vocabulary of Llama 2's kind: words with ▁, byte fallback, the first space stripped."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁Hi", "▁there", "Hi", "!", "\ufffd"]
    tokenizer = Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words[:3]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def byte_level() -> Any:
    """Byte-level BPE with added tokens that are hard to tell from byte tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("two words"), AddedToken("né"), AddedToken("漢")])
    tokenizer.add_special_tokens([AddedToken("<end>", special=True), AddedToken("<tool>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([10813, 116, 243], ["", "", "🦙", ""]),
        ([143, 233], ["", "ď", ""]),
        ([24211], ["\ufffd", ""]),  # the ordinary token of U+FFFD
        ([10813, 81], ["", "\ufffda", ""]),  # a bad byte does not block what follows
        ([10813, 116], ["", "", "\ufffd"]),  # an output that ends in the middle of a character
        ([10813, 242, 218, 10813], ["", "", "😀", "", "\ufffd"]),
    ],
)
def test_characters_over_several_tokens(smollm_tokenizer: Any, ids: list[int], expected: list[str]) -> None:
    assert deltas(smollm_tokenizer, ids) == expected


@quick
@given(data=st.data(), skip=st.booleans())
def test_pushes_equal_one_decode_smollm(smollm_tokenizer: Any, data: Any, skip: bool) -> None:
    partial = st.sampled_from([10813, 116, 243, 143, 233, 24211, 0, 2, 4, 15107])
    ids = data.draw(st.lists(st.integers(0, 49151) | st.integers(200, 260) | partial, max_size=40))
    whole = smollm_tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    assert "".join(deltas(smollm_tokenizer, ids, skip_special_tokens=skip)) == whole


@quick
@given(ids=st.lists(st.integers(0, 262), max_size=40), skip=st.booleans())
def test_pushes_equal_one_decode_bytes(ids: list[int], skip: bool) -> None:
    tokenizer = ByteTokenizer(300)
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    assert "".join(deltas(tokenizer, ids, skip_special_tokens=skip)) == whole


@quick
@given(ids=st.lists(st.integers(0, 260) | st.integers(255, 260), max_size=40), skip=st.booleans())
def test_pushes_equal_one_decode_with_added_tokens(byte_level: Any, ids: list[int], skip: bool) -> None:
    whole = byte_level.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    assert "".join(deltas(byte_level, ids, skip_special_tokens=skip)) == whole


@quick
@given(text=st.text(max_size=30))
def test_whole_characters_only(text: str) -> None:
    """Valid text never shows a replacement character on its way."""
    tokenizer = ByteTokenizer()
    pieces = deltas(tokenizer, tokenizer.encode(text, add_special_tokens=False), skip_special_tokens=False)
    assert "".join(pieces) == text
    assert text.count("\ufffd") == sum(piece.count("\ufffd") for piece in pieces)


@quick
@given(data=st.data(), skip=st.booleans())
def test_window_equals_one_decode(sentencepiece: Any, data: Any, skip: bool) -> None:
    """Words and well-formed characters in any order, specials among them."""
    byte_ids = {byte: sentencepiece.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in range(256)}
    words = st.sampled_from(["▁", "▁Hi", "▁there", "Hi", "!", "\ufffd", "</s>"])
    word_ids = words.map(lambda word: [sentencepiece.convert_tokens_to_ids(word)])
    characters = st.sampled_from("é漢🦙a").map(lambda c: [byte_ids[byte] for byte in c.encode()])
    ids = [i for part in data.draw(st.lists(word_ids | characters, max_size=20)) for i in part]
    whole = sentencepiece.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    assert "".join(deltas(sentencepiece, ids, skip_special_tokens=skip)) == whole


def test_window_at_word_boundaries(sentencepiece: Any) -> None:
    there, hi = sentencepiece.convert_tokens_to_ids(["▁there", "Hi"])
    assert deltas(sentencepiece, [there, hi]) == ["there", "Hi", ""]
    assert deltas(sentencepiece, [there, hi], prompt_ids=[hi]) == [" there", "Hi", ""]


def test_window_with_broken_bytes(sentencepiece: Any) -> None:
    f0, e2, x82, xac, there = sentencepiece.convert_tokens_to_ids(["<0xF0>", "<0xE2>", "<0x82>", "<0xAC>", "▁there"])
    assert deltas(sentencepiece, [f0, there]) == ["", "\ufffd there", ""]
    assert deltas(sentencepiece, [e2, x82, xac, f0, there]) == ["", "", "€", "", "\ufffd there", ""]
    assert deltas(sentencepiece, [e2, x82]) == ["", "", "\ufffd"]


def test_window_without_bytes_to_look_at() -> None:
    """A tokenizer that shows only text: U+FFFD waits for as long as a character can be, then goes out."""
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    byte = {character: wrapped.convert_tokens_to_ids(character) for character in "ðŁ¦Ļa"}  # F0 9F A6 99 and "a"
    assert "".join(deltas(wrapped, [byte[c] for c in "ðŁ¦Ļa"])) == "🦙a"
    assert deltas(wrapped, [byte[c] for c in "ðŁ¦Ļ"]) == ["", "", "", "🦙", ""]
    assert deltas(wrapped, [byte["Ļ"], byte["a"]]) == ["", "\ufffda", ""]
    assert deltas(wrapped, [byte["Ļ"]] * 5)[3] == "\ufffd" * 4


@pytest.mark.parametrize("silent", [False, True])
def test_a_token_costs_the_same_at_any_length(sentencepiece: Any, silent: bool) -> None:
    """Also where tokens have no text at all, and so give the window no reason to move on."""
    lengths: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(sentencepiece, name)

        def decode(self, ids: list[int], **options: Any) -> str:
            lengths.append(len(ids))
            return "" if silent else sentencepiece.decode(ids, **options)

    detokenizer = DetokenizerFactory(Counting()).make()
    for token_id in [*sentencepiece.convert_tokens_to_ids(["▁", "▁Hi", "</s>"])] * 100:
        detokenizer.push(token_id)
    assert 0 < max(lengths) <= (32 if silent else 4)


def test_special_tokens(smollm_tokenizer: Any) -> None:
    assert {0, 1, 2, 3, 16} <= special_ids(smollm_tokenizer)
    assert 28 not in special_ids(smollm_tokenizer)
    assert "".join(deltas(smollm_tokenizer, [28, 2, 28])) == ",,"
    assert "".join(deltas(smollm_tokenizer, [28, 2, 28], skip_special_tokens=False)) == ",<|im_end|>,"


def test_no_text_is_wanted(smollm_tokenizer: Any) -> None:
    assert deltas(None, [1, 2, 3]) == [""] * 4
    assert deltas(smollm_tokenizer, [28, 28], detokenize=False) == [""] * 3


def test_text_of_one_token(smollm_tokenizer: Any, sentencepiece: Any) -> None:
    of_smollm, of_words = DetokenizerFactory(smollm_tokenizer).text_of, DetokenizerFactory(sentencepiece).text_of
    assert [of_smollm(i) for i in (7042, 2, 116, 24211)] == [" Paris", "<|im_end|>", "\ufffd", "\ufffd"]
    there, fallback = sentencepiece.convert_tokens_to_ids(["▁there", "<0x41>"])
    assert (of_words(there), of_words(fallback)) == (" there", "A")
    assert DetokenizerFactory(None).text_of(5) is None
