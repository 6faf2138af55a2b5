"""Tokens to text, one token at a time, in step with the model.

Owns the two ways to do it. Where a tokenizer's tokens are bytes (byte-level BPE: GPT-2, Llama 3, Qwen, SmolLM2), the
bytes are decoded as they come, which is exact. Elsewhere (SentencePiece) a token's text depends on its neighbours, and
a short window is decoded twice, with and without it. Does not know stop strings or requests.

A character may be spread over several tokens: 🦙 is ``F0 9F | A6 | 99``. Nothing of it is given out before it is whole,
and that is decided by the bytes: a text that ends with U+FFFD may end with the ordinary token of that character.

vLLM: ``v1/engine/detokenizer.py``, ``transformers_utils/detokenizer_utils.py``.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tokenizers import decoders

from stage1.model.byte_tokenizer import ByteTokenizer

_CONTEXT_TOKENS = 5  # of the prompt; enough to know whether a word goes on
_LONGEST_CHARACTER = 4  # bytes in UTF-8
_MAX_PENDING = 16  # tokens without text of their own, before the window moves on


class Detokenizer(Protocol):
    """One output's text."""

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` completes: whole characters, often none."""

    def finish(self) -> str:
        """The output has ended: what was held back, with U+FFFD for a character that was never completed."""


class NoDetokenizer:
    """For requests that want tokens only."""

    def push(self, token_id: int) -> str:
        """No text."""
        return ""

    def finish(self) -> str:
        """No text."""
        return ""


class ByteDetokenizer:
    """Decodes the exact bytes of each token; all pushes and ``finish`` together equal a decode in one go."""

    def __init__(self, bytes_of: Mapping[int, bytes], skipped: frozenset[int]) -> None:
        self._bytes_of = bytes_of
        self._skipped = skipped
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """See ``Detokenizer``."""
        return "" if token_id in self._skipped else self._utf8.decode(self._bytes_of[token_id])

    def finish(self) -> str:
        """See ``Detokenizer``."""
        return self._utf8.decode(b"", final=True)


class WindowDetokenizer:
    """Decodes a short window of tokens twice: what the last one adds is its text.

        context          pending
        "▁Hi"            "▁there"       decode(context + pending) - decode(context) = " there"

    Decoded alone, ``▁there`` would lose its space. The window moves on with every token that has text, so a token costs
    the same at any length. Byte tokens (``<0xF0>``) are decoded as bytes: a broken run of them gives U+FFFD for each
    bad part, where tokenizers replace every byte of the run, whole characters included.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        byte_of: Mapping[int, bytes],
        skipped: frozenset[int],
        prompt_ids: Sequence[int],
    ) -> None:
        self._decode = decode
        self._byte_of = byte_of
        self._skipped = skipped
        self._context = [i for i in prompt_ids[-_CONTEXT_TOKENS:] if i not in skipped]
        self._pending: list[int] = []
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """See ``Detokenizer``."""
        if token_id in self._skipped:
            return ""
        if (byte := self._byte_of.get(token_id)) is not None:
            before = self._take_pending()
            self._context = [token_id]  # whatever it stands for, a word that follows it keeps its space
            return before + self._utf8.decode(byte)
        before = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._pending.append(token_id)
        text = self._pending_text()
        # Without bytes to look at, U+FFFD at the end may be the first part of a character, for as long as one can be.
        waits = text.endswith("\ufffd") and len(self._pending) < _LONGEST_CHARACTER
        if waits or (not text and len(self._pending) < _MAX_PENDING):
            return before
        return before + self._take_pending()

    def finish(self) -> str:
        """See ``Detokenizer``."""
        return self._take_pending() + self._utf8.decode(b"", final=True)

    def _pending_text(self) -> str:
        return self._decode([*self._context, *self._pending])[len(self._decode(self._context)) :]

    def _take_pending(self) -> str:
        if not self._pending:
            return ""
        text = self._pending_text()
        self._context, self._pending = self._pending, []
        return text


class DetokenizerFactory:
    """Makes detokenizers for one tokenizer (``None``: there is no text), and keeps what they share."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._bytes_of = token_bytes(tokenizer)
        self._byte_of = _fallback_bytes(tokenizer) if self._bytes_of is None else {}
        self._special = special_ids(tokenizer)
        self._texts: dict[int, str] = {}

    def make(
        self,
        prompt_ids: Sequence[int] = (),
        *,
        detokenize: bool = True,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> Detokenizer:
        """A detokenizer for an output that follows ``prompt_ids``.

        ``spaces_between_special_tokens`` matters only to tokenizers that put spaces there; byte-level ones do not.
        """
        if self._tokenizer is None or not detokenize:
            return NoDetokenizer()
        skipped = self._special if skip_special_tokens else frozenset()
        if self._bytes_of is not None:
            return ByteDetokenizer(self._bytes_of, skipped)

        def decode(ids: Sequence[int]) -> str:
            return self._decode(ids, spaces_between_special_tokens)

        return WindowDetokenizer(decode, self._byte_of, skipped, prompt_ids)

    def text_of(self, token_id: int) -> str | None:
        """The text of one token in the middle of a text, as logprobs show it: U+FFFD for a part of a character."""
        if self._tokenizer is None:
            return None
        text = self._texts.get(token_id)
        if text is None:
            text = self._texts[token_id] = self._text_of(token_id)
        return text

    def _text_of(self, token_id: int) -> str:
        table = self._byte_of if self._bytes_of is None else self._bytes_of
        if token_id in table or self._bytes_of is not None:
            return table[token_id].decode("utf-8", "replace")
        # Behind itself it has a neighbour, so a leading space is not stripped.
        return self._decode([token_id, token_id])[len(self._decode([token_id])) :]

    def _decode(self, ids: Sequence[int], spaces_between_special_tokens: bool = True) -> str:
        text: str = self._tokenizer.decode(
            list(ids),
            skip_special_tokens=False,
            spaces_between_special_tokens=spaces_between_special_tokens,
            clean_up_tokenization_spaces=False,
        )
        return text


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that ``skip_special_tokens`` leaves out, among them those that have no name such as EOS."""
    if tokenizer is None:
        return frozenset()
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return frozenset(tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}


def token_bytes(tokenizer: Any) -> Mapping[int, bytes] | None:
    """The bytes of every token, computed when first met, where tokens are bytes; ``None`` elsewhere."""
    if isinstance(tokenizer, ByteTokenizer):
        return _Table(lambda i: bytes([i]) if i < 256 else tokenizer.decode([i]).encode())
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if not isinstance(decoder, decoders.ByteLevel):
        return None

    def from_vocabulary(token_id: int) -> bytes:
        token: str | None = tokenizer.convert_ids_to_tokens(token_id)
        if token is None:  # padding of the vocabulary
            return b""
        try:
            return bytes([BYTE_OF_CHARACTER[character] for character in token])
        except KeyError:  # an added token is written as it is
            return token.encode()

    return _Table(from_vocabulary)


class _Table(dict[int, bytes]):
    """Filled as tokens are met: most of a vocabulary never is."""

    def __init__(self, compute: Callable[[int], bytes]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, token_id: int) -> bytes:
        value = self[token_id] = self._compute(token_id)
        return value


def _fallback_bytes(tokenizer: Any) -> dict[int, bytes]:
    """The byte tokens ``<0x00>`` … ``<0xFF>`` of a SentencePiece vocabulary by id; empty where there are none."""
    if tokenizer is None:
        return {}
    ids = tokenizer.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in range(256)])
    if len(set(ids) - {None}) < 256:  # unknown tokens share one id
        return {}
    return {token_id: bytes([byte]) for byte, token_id in enumerate(ids)}


def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes a byte as one printable character: itself, or the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    table.update((chr(0x100 + i), byte) for i, byte in enumerate(sorted(set(range(256)) - printable)))
    return table


BYTE_OF_CHARACTER = _byte_of_character()
