"""Stage 3's settings.

vLLM: ``vllm/config/cache.py``, ``vllm/config/speculative.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stage1.config import setting
from stage3.spec.rules import Rules, read_rules


@dataclass(frozen=True)
class PrefixConfig:
    """What is remembered of requests that have ended."""

    enable_prefix_caching: bool = setting(True, "reuse computed blocks of requests with the same beginning")


@dataclass(frozen=True)
class SpeculativeConfig:
    """Guessing ahead."""

    speculative_config: str | None = setting(
        None, 'JSON such as {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}', json=True
    )

    def __post_init__(self) -> None:
        self.rules()

    def rules(self) -> Rules | None:
        """How to guess; ``None`` = not at all.

        Raises:
            ValueError: no JSON object, an unknown key or method, or a number out of its range.
        """
        return None if self.speculative_config is None else read_rules(self._read())

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.speculative_config or "{}")
        except json.JSONDecodeError as error:
            raise ValueError(f"speculative_config is not JSON ({error}): {self.speculative_config!r:.200}") from None
        if not isinstance(found, dict):
            raise ValueError(f"speculative_config is {self.speculative_config!r:.200}; it must be a JSON object")
        return found
