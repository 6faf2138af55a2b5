"""How many tokens a text has at least, without tokenising it.

Owns the bound that refuses a text of fifty megabytes before the tokenizer spends seconds on it. Does not know
limits or requests.

vLLM: ``renderers/params.py`` multiplies the longest token with ``max_model_len`` in later versions.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from stage1.detokenizer import BYTE_OF_CHARACTER
from stage1.model.byte_tokenizer import NUM_TOKENS, ByteTokenizer

# Unicode's composed form (NFC) of a text is never more than four times shorter in bytes; tried for every character, the
# worst is U+0390: iota (as U+1FBE), diaeresis and tone mark (as U+0341) take 7 bytes, composed they take 2.
_NFC_SHRINKS = 4
# All that UTF-8 is made of: 0xC0, 0xC1 and 0xF5 and above never occur.
_UTF8_BYTES = frozenset({*range(0xC0), *range(0xC2, 0xF5)})
_KEEPS_TEXT = frozenset({"ByteLevel", "Digits", "Split"})  # pre-tokenizers that only cut


class TokenFloor:
    """A lower bound that is never wrong, for tokenizers whose tokens are bytes; 0, no bound, for all others.

    Every byte of the text ends up in one token, unless the vocabulary lacks it (SmolLM2 has none for U+0004, say), and
    no token has more than L bytes: ``tokens >= (bytes - bytes without a token) / L``. It holds only where nothing in
    the tokenizer removes text, so what it is made of is read once, from its own description, when a text is first
    suspect.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> int:
        """At least so many tokens."""
        longest, absent = self._bytes
        return 0 if longest == 0 else -(-len(text.encode(errors="replace").translate(None, absent)) // longest)

    @cached_property
    def _bytes(self) -> tuple[int, bytes]:
        """Bytes of the text in the longest token (0 = unbounded), and the bytes that may vanish."""
        if isinstance(self._tokenizer, ByteTokenizer):
            return max(len(self._tokenizer.decode(i)) for i in range(NUM_TOKENS)), b""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return 0, b""
        spec = json.loads(backend.to_str())
        if not _keeps_every_byte(spec):
            return 0, b""
        vocab = spec["model"]["vocab"]
        longest = max([*map(len, vocab), *(len(token["content"].encode()) for token in spec["added_tokens"])])
        absent = _bytes_without_token(vocab)
        if spec["normalizer"] is None:
            return longest, absent
        return (0, b"") if absent else (longest * _NFC_SHRINKS, b"")


def _keeps_every_byte(spec: dict[str, Any]) -> bool:
    """Whether the tokenizer described by ``spec`` is byte-level BPE that drops nothing by rule."""
    model, normalizer, pre = spec["model"], spec["normalizer"], spec["pre_tokenizer"] or {}
    parts = pre.get("pretokenizers", [pre])
    return (
        model["type"] == "BPE"
        and not (model["continuing_subword_prefix"] or model["end_of_word_suffix"])
        and (normalizer is None or normalizer["type"] == "NFC")
        and any(part.get("type") == "ByteLevel" for part in parts)
        and all(part.get("type") in _KEEPS_TEXT and part.get("behavior") != "Removed" for part in parts)
        and not any(token["lstrip"] or token["rstrip"] for token in spec["added_tokens"])
    )


def _bytes_without_token(vocab: dict[str, int]) -> bytes:
    """The bytes of UTF-8 that have no token of their own, and so may vanish."""
    present = {BYTE_OF_CHARACTER[token] for token in vocab if token in BYTE_OF_CHARACTER}
    return bytes(sorted(_UTF8_BYTES - present))
