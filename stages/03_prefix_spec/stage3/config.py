"""Stage 3's settings.

vLLM: ``vllm/config/cache.py``, ``vllm/config/speculative.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stage1.config import setting
from stage3.spec.ngram import NgramRules

METHODS = ("ngram",)
_KEYS = (
    "method",
    "num_speculative_tokens",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "latest",
    "disable_by_batch_size",
)


@dataclass(frozen=True)
class PrefixConfig:
    """What is remembered of requests that have ended."""

    enable_prefix_caching: bool = setting(True, "reuse computed blocks of requests with the same beginning")


@dataclass(frozen=True)
class SpeculativeConfig:
    """Guessing ahead."""

    speculative_config: str | None = setting(
        None, 'JSON such as {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
    )

    def __post_init__(self) -> None:
        self.rules()

    @property
    def max_batch(self) -> int:
        """Requests in a step up to which drafts are verified (``disable_by_batch_size``)."""
        return int(self._read().get("disable_by_batch_size", 64))

    def rules(self) -> NgramRules | None:
        """What to look for; ``None`` = nothing is guessed.

        Raises:
            ValueError: no JSON object, an unknown key or method, or a number out of its range.
        """
        if self.speculative_config is None:
            return None
        found = self._read()
        if unknown := sorted(found.keys() - set(_KEYS)):
            raise ValueError(f"speculative_config has unknown keys {', '.join(unknown)}; known: {', '.join(_KEYS)}")
        if found.get("method") not in METHODS:
            raise ValueError(f"speculative_config has the method {found.get('method')!r}; choose {', '.join(METHODS)}")
        numbers = {key: value for key, value in found.items() if key not in ("method", "latest")}
        for key, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"speculative_config has {key} {value!r}; it must be a whole number from 1 on")
        if "num_speculative_tokens" not in found:
            raise ValueError("speculative_config has no num_speculative_tokens: add it, 3 to 5 is usual")
        longest = found.get("prompt_lookup_max", found.get("prompt_lookup_min", 5))
        shortest = found.get("prompt_lookup_min", min(3, longest))
        return NgramRules(found["num_speculative_tokens"], longest, shortest, bool(found.get("latest", False)))

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.speculative_config or "{}")
        except json.JSONDecodeError as error:
            raise ValueError(f"speculative_config is not JSON ({error}): {self.speculative_config!r:.200}") from None
        if not isinstance(found, dict):
            raise ValueError(f"speculative_config is {self.speculative_config!r:.200}; it must be a JSON object")
        return found
