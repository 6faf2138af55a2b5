"""The checks of ``SamplingParams``: limits, types, ranges and contradictions.

Owns every limit on what a request may ask of the sampler. Does not know text, tokenizer or model: what needs the
vocabulary's size is a second function, called by the input processor. Each message begins with the field's name, so
that a server can say which parameter was wrong. All checks are linear in the size of what was sent and copy nothing.

vLLM: ``vllm/sampling_params.py`` (``_verify_args``), ``v1/engine/processor.py`` (``_validate_*``).
"""

from __future__ import annotations

import math
from enum import IntEnum
from reprlib import Repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stage1.params import SamplingParams

MIN_TEMPERATURE = 0.01  # a smaller positive one is lifted to it: dividing by 1e-30 overflows
MAX_N = 1024  # completions of one prompt
MAX_INT = 2**31 - 1  # counts and token ids
MAX_STOPS = 128  # stop strings; each is searched for after every token
MAX_STOP_LENGTH = 1024  # characters
MAX_STOP_TOKENS = 1024  # stop token ids
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_LENGTH = 256  # characters
MAX_TOKEN_RULES = 2**18  # entries of logit_bias and allowed_token_ids: larger than the vocabularies in use
MAX_BIAS = 100.0  # either sign, as OpenAI's API has it; vLLM clamps instead

_FLOAT_LIMIT = 1e30  # logits times or divided by it, or its inverse, stay finite in float32
_RANGES: dict[str, tuple[float, float]] = {  # inclusive
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (1 / _FLOAT_LIMIT, _FLOAT_LIMIT),
    "temperature": (0.0, _FLOAT_LIMIT),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "n": (1, MAX_N),
    "top_k": (-1, MAX_INT),
    "seed": (-(2**63), 2**63 - 1),
    "max_tokens": (1, MAX_INT),
    "min_tokens": (0, MAX_INT),
    "logprobs": (-1, MAX_INT),
    "prompt_logprobs": (-1, MAX_INT),
    "truncate_prompt_tokens": (-1, MAX_INT),
}
_FLOATS = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p")
_OPTIONAL = ("seed", "max_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens")
_FLAGS = (
    "include_stop_str_in_output",
    "ignore_eos",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
_SHORT = Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 40


def check_params(params: SamplingParams) -> None:
    """Check all that needs nothing but the parameters themselves.

    Raises:
        ValueError: for the first value that is of the wrong type, out of range, too large, or contradicts another.
    """
    for name, (low, high) in _RANGES.items():
        value = getattr(params, name)
        if value is not None or name not in _OPTIONAL:
            _check_number(name, value, low, high)
    for name in _FLAGS:
        if not isinstance(getattr(params, name), bool):
            raise ValueError(f"{name} must be true or false, not {_show(getattr(params, name))}")
    if not isinstance(params.output_kind, IntEnum):
        raise ValueError(f"output_kind must be a RequestOutputKind, not {_show(params.output_kind)}")
    for name in ("structured_outputs", "extra_args"):
        _check_object(name, getattr(params, name))
    _check_strings("stop", params.stop, MAX_STOPS, MAX_STOP_LENGTH)
    _check_strings("bad_words", params.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH)
    _check_ids("stop_token_ids", params.stop_token_ids, MAX_STOP_TOKENS)
    _check_ids("eos_token_ids", params.eos_token_ids, MAX_STOP_TOKENS)
    _check_bad_words_ids(params.bad_words_ids)
    if params.logit_bias is not None:
        _check_bias(params.logit_bias)
    if params.allowed_token_ids is not None:
        _check_ids("allowed_token_ids", params.allowed_token_ids, MAX_TOKEN_RULES)
        if not params.allowed_token_ids:
            raise ValueError("allowed_token_ids must not be empty: name at least one token, or leave it out")
    _check_contradictions(params)


def chosen_constraint(guided_decoding: Any, structured_outputs: Any) -> Any:
    """The constraint on the output, given under its older name: ``guided_decoding``.

    Raises:
        ValueError: it is no object, or there is one under the newer name as well.
    """
    _check_object("guided_decoding", guided_decoding)
    if structured_outputs is not None:
        raise ValueError("guided_decoding is the older name of structured_outputs, and both are given: leave one out")
    return guided_decoding


def check_against_vocab(params: SamplingParams, vocab_size: int, max_logprobs: int) -> None:
    """Check what depends on the model: token ids below ``vocab_size``, and at most ``max_logprobs`` (-1 = all of them).

    Raises:
        ValueError: an id outside the vocabulary, or more log-probabilities than the engine gives.
    """
    limit = vocab_size if max_logprobs == -1 else min(max_logprobs, vocab_size)
    for name in ("logprobs", "prompt_logprobs"):
        asked = getattr(params, name)
        if asked is not None and (vocab_size if asked == -1 else asked) > limit:
            what = f"-1 (all {vocab_size:,} tokens)" if asked == -1 else f"{asked:,}"
            raise ValueError(f"{name} must be at most {limit:,}, not {what}: ask for fewer or raise --max-logprobs")
    for name in ("stop_token_ids", "eos_token_ids", "logit_bias", "allowed_token_ids"):
        _check_vocab(name, max(getattr(params, name) or (0,)), vocab_size)
    for word in params.bad_words_ids:
        _check_vocab("bad_words_ids", max(word), vocab_size)


# --- one rule each --------------------------------------------------------------------------------


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    """``value`` is a number of the field's type in [low, high]; the comparisons refuse not-a-number too."""
    is_float = name in _FLOATS
    if isinstance(value, bool) or not (isinstance(value, int) or (is_float and isinstance(value, float))):
        raise ValueError(f"{name} must be {'a number' if is_float else 'an integer'}, not {_show(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:,} and {high:,}, not {_show(value)}")


def _check_object(name: str, value: Any) -> None:
    if not isinstance(value, dict | None):
        raise ValueError(f"{name} must be an object (a dict) or null, not {_show(value)}")


def _check_strings(name: str, values: Any, max_count: int, max_length: int) -> None:
    """``values`` is a short list of non-empty strings."""
    _check_list(name, values, max_count)
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{name} must hold strings, not {_show(value)}")
        if not value:
            raise ValueError(f"{name} must not hold an empty string: remove it")
        if len(value) > max_length:
            raise ValueError(
                f"{name} holds a string of {len(value):,} characters; the limit is {max_length:,}: shorten it"
            )


def _check_ids(name: str, values: Any, max_count: int) -> None:
    """``values`` is a list of token ids."""
    _check_list(name, values, max_count)
    for value in values:
        _check_id(name, value)


def _check_bad_words_ids(words: Any) -> None:
    """Every bad word may have two spellings in tokens, with and without a space before it."""
    _check_list("bad_words_ids", words, 2 * MAX_BAD_WORDS)
    for word in words:
        _check_ids("bad_words_ids", word, MAX_BAD_WORD_LENGTH * 4)  # at most one token a byte
        if not word:
            raise ValueError("bad_words_ids must not hold an empty list: remove it")


def _check_bias(biases: Any) -> None:
    """``biases`` maps token ids to finite numbers in the range of OpenAI's API."""
    if not isinstance(biases, dict):
        raise ValueError(f"logit_bias must be an object from token ids to numbers, not {_show(biases)}")
    if len(biases) > MAX_TOKEN_RULES:
        raise ValueError(f"logit_bias has {len(biases):,} entries; the limit is {MAX_TOKEN_RULES:,}: send fewer")
    for token, bias in biases.items():
        _check_id("logit_bias", token)
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise ValueError(f"logit_bias of token {token} must be a number, not {_show(bias)}")
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            raise ValueError(
                f"logit_bias of token {token} must be between -{MAX_BIAS:g} and {MAX_BIAS:g}, not {_show(bias)}"
            )


def _check_contradictions(params: SamplingParams) -> None:
    """Values that are fine alone and make no sense together, and the gaps inside ranges."""
    if params.top_p == 0:
        raise ValueError("top_p must be above 0 (and at most 1), not 0: for the most likely token use temperature 0")
    if params.truncate_prompt_tokens == 0:
        raise ValueError("truncate_prompt_tokens must be at least 1, or -1 for the model's limit, not 0")
    if params.n > 1 and params.temperature == 0:
        raise ValueError(f"n must be 1 with temperature 0, not {params.n}: greedy completions are all the same")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise ValueError(f"min_tokens must be at most max_tokens ({params.max_tokens:,}), not {params.min_tokens:,}")
    if params.stop and not params.detokenize:
        raise ValueError("stop strings need text: leave detokenize on, or use stop_token_ids")


def _check_list(name: str, values: Any, max_count: int) -> None:
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list, not {_show(values)}")
    if len(values) > max_count:
        raise ValueError(f"{name} has {len(values):,} entries; the limit is {max_count:,}: send fewer")


def _check_id(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must hold token ids (integers), not {_show(value)}")
    if not 0 <= value <= MAX_INT:
        raise ValueError(f"{name} holds {_show(value)}, which is no token id: ids begin at 0")


def _check_vocab(name: str, largest: int, vocab_size: int) -> None:
    if largest >= vocab_size:
        raise ValueError(f"{name} holds token id {largest:,}; the vocabulary ends at {vocab_size - 1:,}: remove it")


def _show(value: Any) -> str:
    """A short form for messages: whoever sends a megabyte does not get it back."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length():,} bits"
    return _SHORT.repr(value)


def check_fields(
    request_id: Any,
    priority: Any,
    arrival_time: Any,
    cache_salt: Any,
    kv_transfer_params: Any,
    rank: Any,
) -> None:
    """Types and ranges of what travels beside a prompt; raises ``ValueError``."""
    if not isinstance(request_id, str) or not request_id:
        raise ValueError(f"request_id must be a non-empty string, not {request_id!r:.60}")
    if arrival_time is not None and not (isinstance(arrival_time, int | float) and math.isfinite(arrival_time)):
        raise ValueError(f"arrival_time must be seconds as time.time() counts them, not {arrival_time!r:.60}")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ValueError(f"priority must be an integer, not {priority!r:.60}")
    if cache_salt is not None and (not isinstance(cache_salt, str) or not cache_salt):
        raise ValueError(f"cache_salt must be a non-empty string, not {cache_salt!r:.60}: leave it out for none")
    if kv_transfer_params is not None and not isinstance(kv_transfer_params, dict):
        raise ValueError(f"kv_transfer_params must be an object, not {type(kv_transfer_params).__name__}")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise ValueError(f"data_parallel_rank must be an integer from 0 on, not {rank!r:.60}")
