"""What drawing a request's tokens takes beyond its temperature.

Owns the questions. They are asked on the host, once a request or a step, to choose what is launched.

vLLM: ``v1/sample/metadata.py`` (``no_penalties``, ``all_greedy`` and their like).
"""

from __future__ import annotations

from collections.abc import Iterable

from stage1.logprobs import alternatives
from stage1.params import SamplingParams


def is_plain(params: SamplingParams, vocab_size: int) -> bool:
    """Whether greedy choice or a draw at the temperature is all: what a captured graph does."""
    wants_logprobs = params.logprobs is not None or params.prompt_logprobs is not None
    return not (wants_logprobs or changes_logits(params) or has_filter(params, vocab_size))


def has_filter(params: SamplingParams, vocab_size: int) -> bool:
    """Whether top-k, top-p or min-p may leave tokens out; of a greedy choice they leave the best in any case."""
    return not params.is_greedy and (params.top_p < 1 or params.min_p > 0 or 0 < params.top_k < vocab_size)


def changes_logits(params: SamplingParams) -> bool:
    """Whether a logits processor has work with the request."""
    return params.structured_outputs is not None or has_rules(params)


def has_rules(params: SamplingParams) -> bool:
    """Whether a rule of stage 1 changes the request's logits: masks, biases, penalties."""
    return bool(
        params.allowed_token_ids is not None
        or params.bad_words_ids
        or params.min_tokens
        or params.logit_bias
        or params.repetition_penalty != 1
        or params.presence_penalty
        or params.frequency_penalty
    )


def most_alternatives(wanting: Iterable[SamplingParams], vocab_size: int) -> int | None:
    """The largest number of alternatives that anyone asks for; ``None`` if nobody wants log-probabilities."""
    asked = (alternatives(params.logprobs, vocab_size) for params in wanting)
    return max((k for k in asked if k is not None), default=None)
