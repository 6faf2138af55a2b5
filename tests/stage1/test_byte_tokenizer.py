"""The tokenizer without a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage1.model.byte_tokenizer import BOS, EOS, PAD, ByteTokenizer


@given(text=st.text())
def test_bytes_come_back(text: str) -> None:
    tokenizer = ByteTokenizer(300)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    if not any(name in text for name in tokenizer.all_special_tokens):
        assert bytes(ids) == text.encode()
    assert tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(ids)) == text


@given(ids=st.lists(st.integers(-2, 400)))
def test_any_ids_decode(ids: Sequence[int]) -> None:
    kept = ByteTokenizer(300).decode(ids, skip_special_tokens=True)
    assert kept == ByteTokenizer(300).decode([i for i in ids if i not in (BOS, EOS, PAD)])


def test_special_tokens_of_the_byte_tokenizer() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("h\xe9") == [BOS, 104, 195, 169]
    assert tokenizer("h\xe9", add_special_tokens=False) == {"input_ids": [104, 195, 169], "attention_mask": [1, 1, 1]}
    assert tokenizer(["a", "bc"])["input_ids"] == [[BOS, 97], [BOS, 98, 99]]
    assert tokenizer.encode("a<eos>b", add_special_tokens=False) == [97, EOS, 98]
    assert tokenizer.decode([97, EOS, 195]) == "a<eos>\ufffd"
    assert tokenizer.convert_ids_to_tokens([65, EOS, 258]) == ["<0x41>", "<eos>", "<pad>"]
    assert tokenizer.convert_tokens_to_ids(["<0x41>", "nothing"]) == [65, None]
    assert (len(tokenizer.get_vocab()), tokenizer.get_added_vocab()["<bos>"]) == (259, 256)
    with pytest.raises(ValueError, match="259 ids, the model has 258"):
        ByteTokenizer(258)


def test_the_chat_template_of_bytes() -> None:
    messages = [{"role": "user", "content": "hi"}]
    text = ByteTokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "user: hi\nassistant:"
    assert ByteTokenizer().apply_chat_template(messages) == list(b"user: hi\n")
    own = ByteTokenizer().apply_chat_template(messages, tokenize=False, chat_template="{{ x }}", x=3)
    assert own == "3"
    with pytest.raises(Exception, match="unsafe"):
        ByteTokenizer().apply_chat_template(messages, chat_template="{{ ''.__class__.__mro__ }}")
