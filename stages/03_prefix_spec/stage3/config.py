"""Stage 3's settings.

vLLM: ``vllm/config/cache.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from stage1.config import setting


@dataclass(frozen=True)
class PrefixConfig:
    """What is remembered of requests that have ended."""

    enable_prefix_caching: bool = setting(True, "reuse computed blocks of requests with the same beginning")
