"""Log-probabilities in the two shapes of the OpenAI API.

Owns the formats. Does not know where the values come from; they are finite already (-inf has become -9999.0).

vLLM: ``_create_completion_logprobs`` in ``serving_completion.py``, ``_create_chat_logprobs`` in ``serving_chat.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stage1.outputs import Logprob, TokenLogprobs


def completion_logprobs(
    token_ids: Sequence[int],
    rows: Sequence[TokenLogprobs | None],
    num_top: int,
    decode: Callable[[int], str],
    *,
    offset: int = 0,
    as_ids: bool = False,
) -> dict[str, list[Any]]:
    """Columns of the completions API.

    ``top_logprobs`` holds the token itself and the ``num_top`` best, so ``num_top`` or one more; two tokens with one
    text share an entry, and the likelier keeps it, unless the other was chosen. ``offset`` is the position in the text
    where the first token begins; a position is a sum of the lengths of token texts. A row is ``None`` for the first
    token of a prompt, which nothing predicts: ``decode`` gives its text.
    """
    tokens: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for token_id, row in zip(token_ids, rows, strict=True):
        if row is None:
            text = f"token_id:{token_id}" if as_ids else decode(token_id)
            values.append(None)
            tops.append(None)
        else:
            text = _text(token_id, row[token_id], as_ids)
            values.append(row[token_id].logprob)
            top: dict[str, float] = {text: row[token_id].logprob}
            for other, entry in row.items():
                if other != token_id and _among(entry, num_top):
                    top.setdefault(_text(other, entry, as_ids), entry.logprob)
            tops.append(top)
        tokens.append(text)
        offsets.append(offset)
        offset += len(text)
    return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}


def chat_logprobs(
    token_ids: Sequence[int], rows: Sequence[TokenLogprobs], num_top: int, *, as_ids: bool = False
) -> dict[str, list[Any]]:
    """The chat API's list: each token with its ``num_top`` best alternatives, itself among them only if it is one."""
    content = []
    for token_id, row in zip(token_ids, rows, strict=True):
        best = sorted((entry.rank or 0, i, t) for i, (t, entry) in enumerate(row.items()) if _among(entry, num_top))
        best = best if num_top == -1 else best[:num_top]
        content.append(
            _chat_entry(token_id, row[token_id], as_ids)
            | {"top_logprobs": [_chat_entry(t, row[t], as_ids) for _, _, t in best]}
        )
    return {"content": content}


def _among(entry: Logprob, num_top: int) -> bool:
    return num_top == -1 or entry.rank is None or entry.rank <= num_top


def _chat_entry(token_id: int, entry: Logprob, as_ids: bool) -> dict[str, Any]:
    text = _text(token_id, entry, as_ids)
    return {"token": text, "logprob": entry.logprob, "bytes": list(text.encode("utf-8", errors="replace"))}


def _text(token_id: int, entry: Logprob, as_ids: bool) -> str:
    if as_ids or entry.decoded_token is None:
        return f"token_id:{token_id}"
    return entry.decoded_token
