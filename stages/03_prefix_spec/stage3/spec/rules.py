"""What ``--speculative-config`` says, read and checked.

Owns the keys, their defaults and their limits. Does not know drafters: ``wiring`` makes one of the rules.

    {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    {"method": "eagle", "num_speculative_tokens": 3}                             the heads that come with the stage
    {"model": "owner/small-model", "num_speculative_tokens": 4}                  a draft model

vLLM: ``vllm/config/speculative.py``, whose keys these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stage3.spec.ngram import NgramRules

METHODS = ("ngram", "draft_model", "medusa", "eagle")
NUMBERS = (
    *("num_speculative_tokens", "disable_by_batch_size", "draft_tensor_parallel_size"),
    *("prompt_lookup_max", "prompt_lookup_min"),
)
NGRAM_KEYS = {"prompt_lookup_max", "prompt_lookup_min", "latest"}
KEYS = ("method", "model", *NUMBERS, "latest", "rejection_sample_method")
STRICT, PROBABILISTIC = "strict", "probabilistic"  # verification by match, by rejection
# Requests in a step; of more nothing is drafted unless ``disable_by_batch_size`` says otherwise. On an H200 and a model
# of 135M parameters EAGLE gained a fifth at 64 requests and n-grams a third; Medusa gained at 16 and lost 7 % at 64
# (the stage's README).
LARGE_BATCH = {"ngram": 64, "draft_model": 64, "medusa": 32, "eagle": 64}
MOST_DRAFTS = 64


@dataclass(frozen=True)
class Rules:
    """How an engine speculates."""

    method: str  # of METHODS
    num_speculative_tokens: int  # most drafts of a request in a step
    model: str | None  # a draft model, or where the heads are; None = the stage's own heads
    max_batch: int  # requests in a step up to which drafts are made
    ngram: NgramRules
    draws: bool = False  # drafts are drawn, and verified by rejection; else guessed, and verified by match

    @property
    def has_cache(self) -> bool:
        """Whether the drafter keeps keys and values in the requests' blocks."""
        return self.method in ("draft_model", "eagle")

    @property
    def blocks_to_recompute(self) -> int:
        """Blocks at the end of a prefix hit whose last entry may have been made for another next token."""
        return int(self.method == "eagle")


def read_rules(found: Mapping[str, Any]) -> Rules:
    """The rules in ``found``, as ``speculative_config`` holds them.

    Raises:
        ValueError: an unknown key or method, a number out of its range, or a key that is missing.
    """
    if unknown := sorted(found.keys() - set(KEYS)):
        raise ValueError(f"speculative_config has unknown keys {', '.join(unknown)}; known: {', '.join(KEYS)}")
    found = {key: value for key, value in found.items() if value is not None}  # None: as if it were not there
    if not isinstance(found.get("latest", False), bool):
        raise ValueError(f"speculative_config has latest {found['latest']!r}; it must be true or false")
    model = found.get("model")
    if model is not None and not isinstance(model, str):
        raise ValueError(f"speculative_config has the model {model!r}; it must be a name or a path")
    method = found.get("method", "draft_model" if model else None)
    if method not in METHODS:
        raise ValueError(f"speculative_config has the method {method!r}; choose {', '.join(METHODS)}")
    if foreign := sorted(found.keys() & (NGRAM_KEYS if method != "ngram" else {"model"})):
        raise ValueError(
            f"speculative_config has {', '.join(foreign)}: the method {method} has no use for it, leave it out"
        )
    for key in NUMBERS:
        value = found.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"speculative_config has {key} {value!r}; it must be a whole number from 1 on")
    if found.get("draft_tensor_parallel_size", 1) != 1:
        raise ValueError("speculative_config has draft_tensor_parallel_size above 1; drafts are made on one GPU: 1")
    if "num_speculative_tokens" not in found:
        raise ValueError("speculative_config has no num_speculative_tokens: add it, 3 to 5 is usual")
    count = found["num_speculative_tokens"]
    if count > MOST_DRAFTS:
        raise ValueError(f"speculative_config has num_speculative_tokens {count}; at most {MOST_DRAFTS} are verified")
    if method == "draft_model" and not model:
        raise ValueError("speculative_config has no model: name the draft model, or choose another method")
    verification = found.get("rejection_sample_method", STRICT)
    if verification not in (STRICT, PROBABILISTIC):
        raise ValueError(
            f"speculative_config has rejection_sample_method {verification!r}; choose {STRICT} or {PROBABILISTIC}"
        )
    if method == "ngram" and verification == PROBABILISTIC:
        raise ValueError(f"n-gram drafts are not drawn: leave rejection_sample_method out, or make it {STRICT}")
    longest = found.get("prompt_lookup_max", found.get("prompt_lookup_min", 5))
    shortest = found.get("prompt_lookup_min", min(3, longest))
    ngram = NgramRules(count, longest, shortest, bool(found.get("latest", False)))
    return Rules(
        method,
        count,
        model,
        found.get("disable_by_batch_size", LARGE_BATCH[method]),
        ngram,
        verification == PROBABILISTIC,
    )
