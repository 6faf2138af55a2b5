"""A tokenizer without a vocabulary: one token a byte.

Owns text ↔ ids for preset shapes with random weights. Offers the part of a Hugging Face tokenizer's interface that
the engine uses. Does not know models.

vLLM: none (it runs dummy weights with the tokenizer of a real model).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BOS, EOS, PAD = 256, 257, 258
SPECIAL = {"<bos>": BOS, "<eos>": EOS, "<pad>": PAD}
NUM_TOKENS = 259
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


class ByteTokenizer:
    """Ids 0-255 are the bytes of UTF-8, then come BOS, EOS and PAD; a model may have more ids, which stand for nothing.

    ``"é"`` is ``[195, 169]``. An id without a meaning decodes to U+FFFD, as half a character does.
    """

    bos_token, eos_token, pad_token = SPECIAL
    bos_token_id, eos_token_id, pad_token_id = BOS, EOS, PAD
    all_special_ids = [BOS, EOS, PAD]
    all_special_tokens = list(SPECIAL)
    is_fast = False
    chat_template: str | None = CHAT_TEMPLATE

    def __init__(self, vocab_size: int = NUM_TOKENS) -> None:
        if vocab_size < NUM_TOKENS:
            raise ValueError(
                f"the byte tokenizer needs {NUM_TOKENS} ids, the model has {vocab_size:,}: name a --tokenizer"
            )
        self.vocab_size = vocab_size

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = True, **_: Any) -> list[int]:
        """The bytes of ``text``, and BOS first where special tokens are asked for. Special tokens are found in text."""
        ids = [BOS] if add_special_tokens else []
        while text:
            starts = {at: name for name in SPECIAL if (at := text.find(name)) >= 0}
            if not starts:
                break
            at = min(starts)
            ids += [*_bytes(text[:at]), SPECIAL[starts[at]]]
            text = text[at + len(starts[at]) :]
        return ids + list(_bytes(text))

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        """``{"input_ids": ids, "attention_mask": ones}`` of one text, or lists of them."""
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        rows = [self.encode(item, add_special_tokens) for item in text]
        return {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}

    def decode(self, ids: int | Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        ids = [ids] if isinstance(ids, int) else ids
        return b"".join(self._piece(int(id_), skip_special_tokens) for id_ in ids).decode(errors="replace")

    def convert_ids_to_tokens(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> Any:
        """``<0x41>`` for byte 65, ``<eos>`` for 257, ``<unused 300>`` for an id without a meaning."""
        if isinstance(ids, int):
            return _name(ids)
        return [_name(int(id_)) for id_ in ids if not (skip_special_tokens and id_ in self.all_special_ids)]

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """The reverse; ``None`` for a name that is no token."""
        if isinstance(tokens, str):
            return self.get_vocab().get(tokens)
        return [self.get_vocab().get(token) for token in tokens]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens as ``convert_ids_to_tokens`` names them."""
        vocab = self.get_vocab()
        return self.decode([vocab[token] for token in tokens])

    def get_vocab(self) -> dict[str, int]:
        """Every token's name and id."""
        return {_name(id_): id_ for id_ in range(self.vocab_size)}

    def get_added_vocab(self) -> dict[str, int]:
        """The special tokens."""
        return dict(SPECIAL)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str | list[int]:
        """``role: content`` lines, and ``assistant:`` where an answer is to follow."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        template = ImmutableSandboxedEnvironment(keep_trailing_newline=True).from_string(chat_template or CHAT_TEMPLATE)
        text = template.render(messages=messages, add_generation_prompt=add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def _piece(self, id_: int, skip_special_tokens: bool) -> bytes:
        if 0 <= id_ < 256:
            return bytes([id_])
        if BOS <= id_ <= PAD:
            return b"" if skip_special_tokens else _name(id_).encode()
        return "\ufffd".encode()


def _bytes(text: str) -> bytes:
    """UTF-8; half of a surrogate pair, which has none, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _name(id_: int) -> str:
    for name, special in SPECIAL.items():
        if id_ == special:
            return name
    return f"<0x{id_:02X}>" if 0 <= id_ < 256 else f"<unused {id_}>"
