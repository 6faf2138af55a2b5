"""What a user gets back: texts, tokens, log-probabilities and times of one request.

Owns the public result types, with vLLM's names and meanings. Does not know how they come about: the output
processor fills them.

vLLM: ``vllm/outputs.py``, ``vllm/logprobs.py``, ``vllm/v1/metrics/stats.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Logprob:
    """The log-probability of one token at one position, before temperature and penalties."""

    logprob: float  # never -inf: that is not legal JSON, so it is raised to -9999.0
    rank: int | None = None  # 1 = the most likely
    decoded_token: str | None = None  # its text alone; U+FFFD for bytes that are no whole character


# One position's alternatives by token id: the token itself first, then the most likely ones.
TokenLogprobs = dict[int, Logprob]


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's ``n`` completions: all of it, or with ``DELTA`` what is new."""

    index: int  # 0 <= index < n
    text: str
    token_ids: list[int]  # with EOS or the stop token; with a stop string, up to the token that completed it
    cumulative_logprob: float | None = None  # sum over all tokens so far; None without logprobs
    logprobs: list[TokenLogprobs] | None = None  # [len(token_ids)]
    finish_reason: str | None = None  # stop, length, abort or error; None while it runs
    stop_reason: int | str | None = None  # the stop string or stop_token_id; None for EOS
    error: str | None = None  # why, with finish_reason "error"

    def finished(self) -> bool:
        """Whether this completion has ended."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """When a request passed its milestones: seconds, ``time.time()``; 0.0 = not yet, or not known."""

    arrival_time: float = 0.0
    queued: float = 0.0
    scheduled: float = 0.0  # first time in a plan
    first_token: float = 0.0
    last_token: float = 0.0


@dataclass(slots=True)
class RequestOutput:
    """A prompt and what has become of it.

    While a request runs, ``outputs`` holds all completions so far, or with ``DELTA`` only those that have news.
    """

    request_id: str  # as the user knows it
    prompt: str | None  # None where the prompt came as tokens
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool  # all completions have ended
    prompt_logprobs: list[TokenLogprobs | None] | None = None  # [len(prompt_token_ids)], the first is None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    num_cached_tokens: int | None = None  # prompt tokens found in the cache; None until known
    kv_transfer_params: dict[str, Any] | None = None
