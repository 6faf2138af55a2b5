"""The offline and the asynchronous engine of stage 3: stage 2's, with this stage's wiring.

vLLM: ``vllm/entrypoints/llm.py``, ``v1/engine/async_llm.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from stage1 import llm as stage1_llm
from stage1.client import InProcessClient
from stage1.config import Settings
from stage1.core import EngineCore
from stage1.frontend import load_processors
from stage1.params import SamplingParams
from stage1.text_client import TextClient
from stage1.trace.sinks import Sink
from stage2.config import BatchConfig
from stage3.build import CONFIGS, SUPPORTED, build
from stage3.config import PrefixConfig
from stage3.grammar.structured_outputs import check_request


def supported(settings: Settings) -> frozenset[str]:
    """The request features of an engine with ``settings``: what nobody would look at is refused."""
    missing = set()
    if settings[BatchConfig].scheduling_policy != "priority":
        missing.add("priority")
    if not settings[PrefixConfig].enable_prefix_caching:
        missing.add("cache_salt")
    return SUPPORTED - missing


class LLM(stage1_llm.LLM):
    """Stage 1's ``LLM`` over a paged cache with prefix caching."""

    configs: Sequence[type[Any]] = CONFIGS
    build: Callable[..., EngineCore] = staticmethod(build)
    supported: Callable[[Settings], frozenset[str]] = staticmethod(supported)
    check: Callable[[SamplingParams], None] = staticmethod(check_request)

    def __init__(
        self, model: str | None = None, *, parts: Any = None, sinks: Sequence[Sink] = (), **settings: Any
    ) -> None:
        super().__init__(model, parts=parts, sinks=sinks, **_plain(settings))

    def reset_prefix_cache(self) -> bool:
        """Forget what all blocks hold; ``False`` and nothing is forgotten while a request holds one."""
        return bool(self.core.reset_prefix_cache())  # type: ignore[attr-defined]


class AsyncLLM(TextClient):
    """Requests join and leave while others run; args and errors are those of ``LLM``."""

    def __init__(
        self, model: str | None = None, *, parts: Any = None, sinks: Sequence[Sink] = (), **settings: Any
    ) -> None:
        keywords = _plain(settings if model is None else {"model": model, **settings})
        chosen = Settings.from_keywords(CONFIGS, keywords)
        inputs, outputs = load_processors(chosen, supported(chosen), check_request)
        core = build(chosen, **({} if parts is None else {"parts": parts}), sinks=sinks)
        super().__init__(InProcessClient(core), inputs, outputs, stage=3)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """``speculative_config`` may be a dictionary, as in vLLM; settings are plain values."""
    given = settings.get("speculative_config")
    if not isinstance(given, dict):
        return settings
    return {**settings, "speculative_config": json.dumps(given, default=_number)}


def _number(value: Any) -> Any:
    """Numbers of numpy and torch, which are what they hold."""
    if hasattr(value, "item"):
        return value.item()
    raise ValueError(f"speculative_config holds {value!r:.60}: give texts, numbers and booleans")
