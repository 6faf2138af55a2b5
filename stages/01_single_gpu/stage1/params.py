"""Sampling parameters: what a user may ask of a request's tokens.

Owns the public ``SamplingParams`` with every field that any stage understands, and the checks that need
nothing but the parameters themselves. Does not know the vocabulary or the model: checks that need
either are made by the input processor.

vLLM: ``vllm/sampling_params.py``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from stage1.params_check import MIN_TEMPERATURE, check_params, chosen_constraint


class RequestOutputKind(IntEnum):
    """What each output of a streaming request holds."""

    CUMULATIVE = 0  # everything so far
    DELTA = 1  # what is new since the last one
    FINAL_ONLY = 2  # nothing until the end


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to choose, stop and report the tokens of one request.

    Decoding a message runs the same checks as the constructor and derives nothing, so parameters are
    equal on both sides of a process border.

    Raises:
        ValueError: a value is out of range or contradicts another; the message names both.
    """

    n: int = 1  # completions of one prompt; child i samples with seed + i
    presence_penalty: float = 0.0  # [-2, 2], once a token occurs in the output
    frequency_penalty: float = 0.0  # [-2, 2], for each time it occurs in the output
    repetition_penalty: float = 1.0  # > 0, for tokens of prompt and output; 1 = off
    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0  # (0, 1]
    top_k: int = 0  # 0 or -1 = off
    min_p: float = 0.0  # [0, 1], relative to the most likely token
    seed: int | None = None  # None or -1: one is drawn at admission
    stop: list[str] = []
    stop_token_ids: list[int] = []
    bad_words: list[str] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None = up to max_model_len
    min_tokens: int = 0
    logprobs: int | None = None  # alternatives a sampled token; 0 = only its own
    prompt_logprobs: int | None = None  # -1 = the whole vocabulary
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None  # keep the last k; -1 = max_model_len
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: dict[str, Any] | None = None  # from stage 3 on
    guided_decoding: dict[str, Any] | None = None  # its older name: what is given here is kept there
    extra_args: dict[str, Any] | None = None

    # Filled in by the input processor, which knows the tokenizer and the checkpoint.
    eos_token_ids: list[int] = []
    bad_words_ids: list[list[int]] = []

    def __post_init__(self) -> None:
        force = msgspec.structs.force_setattr
        if isinstance(self.stop, str):
            force(self, "stop", [self.stop])
        for name in ("stop", "stop_token_ids", "bad_words"):
            if getattr(self, name) is None:
                force(self, name, [])
        if self.seed == -1:
            force(self, "seed", None)
        if self.guided_decoding is not None:
            # Moved at once, so that no reader of a request has to look in two places.
            force(self, "structured_outputs", chosen_constraint(self.guided_decoding, self.structured_outputs))
            force(self, "guided_decoding", None)
        check_params(self)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken, without noise or filters."""
        return self.temperature == 0.0

    @property
    def effective_temperature(self) -> float:
        """The temperature used: positive ones are lifted to ``MIN_TEMPERATURE``."""
        return max(self.temperature, MIN_TEMPERATURE)

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with ``changes``, checked like a new one."""
        return msgspec.structs.replace(self, **changes)
