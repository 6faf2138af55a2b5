"""A lower bound of a text's tokens: never too high, and worth having."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stage1.model.byte_tokenizer import ByteTokenizer
from stage1.token_floor import TokenFloor


@pytest.fixture(scope="module")
def floors(smollm_tokenizer: Any) -> list[tuple[Any, TokenFloor]]:
    tokenizers = (smollm_tokenizer, ByteTokenizer(), BYTE_LEVEL_NFC, BYTE_LEVEL_STRIPPING)
    return [(tokenizer, TokenFloor(tokenizer)) for tokenizer in tokenizers]


hard_texts = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [" " * 90, "\n" + " " * 81, "\x04" * 50, "\U00040000", "<|im_end|>", "a", "K", "Å", "\u1fbe\u0308\u0341"]
    ),
    max_size=20,
).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=hard_texts)
def test_the_floor_is_never_too_high(floors: list[tuple[Any, TokenFloor]], text: str) -> None:
    for tokenizer, floor in floors:
        assert floor(text) <= len(tokenizer.encode(text, add_special_tokens=False))


def test_the_floor_is_worth_having(smollm_tokenizer: Any) -> None:
    assert TokenFloor(smollm_tokenizer)("x" * 81_000) >= 900
    assert TokenFloor(smollm_tokenizer)("\x04" * 81_000) == 0  # SmolLM2 has no token for it and drops it
    assert TokenFloor(BYTE_LEVEL_NFC)("x" * 1000) >= 200
    assert TokenFloor(BYTE_LEVEL_STRIPPING)("x" * 1000) == 0  # nothing can be promised


def _byte_level(strips: bool) -> Any:
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("a", lstrip=strips)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


BYTE_LEVEL_NFC, BYTE_LEVEL_STRIPPING = _byte_level(False), _byte_level(True)
