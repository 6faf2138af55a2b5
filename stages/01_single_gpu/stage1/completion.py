"""One completion while it grows: its tokens, its text, and where it ends.

Owns detokenising, stop strings and log-probabilities of one output. Does not know its siblings, the request, or how
outputs are delivered to whom.

Tokens and log-probabilities are delivered in the step that brought them, as vLLM does, even where their text is still
held back because a character or a stop string may be under way.

vLLM: ``v1/engine/output_processor.py`` (``RequestState``), ``v1/engine/logprobs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stage1.detokenizer import Detokenizer
from stage1.outputs import CompletionOutput, Logprob, TokenLogprobs
from stage1.params import SamplingParams
from stage1.records import Logprobs
from stage1.stop_strings import StopChecker

MIN_LOGPROB = -9999.0  # stands for -inf, which is not legal JSON

TextOf = Callable[[int], str | None]


class Completion:
    """Output ``index`` of a request."""

    def __init__(self, index: int, params: SamplingParams, detokenizer: Detokenizer, text_of: TextOf) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self._stop_reason: int | str | None = None
        self._error: str | None = None
        self._params = params
        self._detokenizer = detokenizer
        self._stops = StopChecker(params.stop, include_stop=params.include_stop_str_in_output)
        self._text_of = text_of
        self._token_ids: list[int] = []
        self._pieces: list[str] = []
        self._logprobs: list[TokenLogprobs] | None = None if params.logprobs is None else []
        self._cumulative_logprob: float | None = None if params.logprobs is None else 0.0
        self._sent_tokens = 0
        self._sent_pieces = 0
        self._sent_end = False

    @property
    def has_news(self) -> bool:
        """Whether something has come that ``delta`` or ``whole`` has not delivered."""
        return len(self._token_ids) > self._sent_tokens or (self.finish_reason is not None and not self._sent_end)

    def push(
        self,
        token_ids: Sequence[int],
        rows: Logprobs | None = None,
        finish_reason: str | None = None,
        stop_reason: int | None = None,
        error: str | None = None,
    ) -> None:
        """Take in one step's tokens (``rows`` are theirs) and, with a ``finish_reason``, the end.

        A stop string ends the completion with the token that completes it; what comes after is dropped.
        """
        for position, token_id in enumerate(token_ids):
            self._token_ids.append(token_id)
            if rows is not None:
                self._add_logprobs(rows, position)
            is_end = finish_reason == "stop" and position == len(token_ids) - 1
            if is_end and self._is_silent(token_id, stop_reason):
                continue
            if self._show(self._detokenizer.push(token_id)):
                return
        if finish_reason is None:
            return
        hit = self._show(self._detokenizer.finish())
        self._pieces.append(self._stops.flush())
        if not hit:
            self.finish_reason, self._stop_reason, self._error = finish_reason, stop_reason, error

    def delta(self) -> CompletionOutput:
        """What is new since the last delivery."""
        output = self._output(self._sent_pieces, self._sent_tokens)
        self._mark_sent()
        return output

    def whole(self) -> CompletionOutput:
        """All of it so far; the lists are the receiver's own."""
        self._pieces = ["".join(self._pieces)]
        self._mark_sent()
        return self._output(0, 0)

    def _output(self, first_piece: int, first_token: int) -> CompletionOutput:
        return CompletionOutput(
            index=self.index,
            text="".join(self._pieces[first_piece:]),
            token_ids=self._token_ids[first_token:],
            cumulative_logprob=self._cumulative_logprob,
            logprobs=None if self._logprobs is None else self._logprobs[first_token:],
            finish_reason=self.finish_reason,
            stop_reason=self._stop_reason,
            error=self._error,
        )

    def _mark_sent(self) -> None:
        self._sent_tokens, self._sent_pieces = len(self._token_ids), len(self._pieces)
        self._sent_end = self.finish_reason is not None

    def _show(self, text: str) -> bool:
        """Add the text of the last token, as far as it may be shown; whether it completes a stop string."""
        counts = len(self._token_ids) > self._params.min_tokens
        text, hit = self._stops.push(text, counts=counts)
        self._pieces.append(text)
        if hit is not None:
            self.finish_reason, self._stop_reason = "stop", hit
        return hit is not None

    def _is_silent(self, token_id: int, stop_reason: int | None) -> bool:
        """Whether the last token only says that the text ends.

        A stop token is shown on request, EOS only where special tokens are shown as well.
        """
        include = self._params.include_stop_str_in_output
        if stop_reason is not None:
            return token_id == stop_reason and not include
        return token_id in self._params.eos_token_ids and not (include and not self._params.skip_special_tokens)

    def _add_logprobs(self, rows: Logprobs, position: int) -> None:
        if self._logprobs is None or self._cumulative_logprob is None:
            return
        row = token_logprobs(rows, position, self._text_of)
        self._logprobs.append(row)
        self._cumulative_logprob += row[rows.ids[position][0]].logprob


def token_logprobs(rows: Logprobs, position: int, text_of: TextOf) -> TokenLogprobs:
    """Row ``position`` as users read it: the token itself first, then the most likely ones from rank 1 on.

    The token is there once, also where it is among the most likely ones.
    """
    ids, values = rows.ids[position], rows.values[position]
    entries = {ids[0]: Logprob(max(values[0], MIN_LOGPROB), rows.ranks[position], text_of(ids[0]))}
    for rank, (token_id, value) in enumerate(zip(ids[1:], values[1:], strict=True), start=1):
        if token_id not in entries:
            entries[token_id] = Logprob(max(value, MIN_LOGPROB), rank, text_of(token_id))
    return entries
