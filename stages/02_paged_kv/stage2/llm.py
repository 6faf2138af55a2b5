"""The offline and the asynchronous engine of stage 2: stage 1's, with this stage's wiring.

vLLM: ``vllm/entrypoints/llm.py``, ``v1/engine/async_llm.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stage1 import llm as stage1_llm
from stage1.client import InProcessClient
from stage1.config import Settings
from stage1.core import EngineCore
from stage1.frontend import load_processors
from stage1.text_client import TextClient
from stage1.trace.sinks import Sink
from stage2.build import CONFIGS, SUPPORTED, build
from stage2.config import BatchConfig


def supported(settings: Settings) -> frozenset[str]:
    """The request features of an engine with ``settings``: a priority that nobody would look at is refused."""
    return SUPPORTED if settings[BatchConfig].scheduling_policy == "priority" else SUPPORTED - {"priority"}


class LLM(stage1_llm.LLM):
    """Stage 1's ``LLM`` over a paged cache with continuous batching."""

    configs: Sequence[type[Any]] = CONFIGS
    build: Callable[..., EngineCore] = staticmethod(build)
    supported: Callable[[Settings], frozenset[str]] = staticmethod(supported)


class AsyncLLM(TextClient):
    """Requests join and leave while others run: ``async for output in llm.generate(prompt, params, request_id=…)``.

    Args and errors are those of ``LLM``.
    """

    def __init__(
        self, model: str | None = None, *, parts: Any = None, sinks: Sequence[Sink] = (), **settings: Any
    ) -> None:
        chosen = Settings.from_keywords(CONFIGS, settings if model is None else {"model": model, **settings})
        inputs, outputs = load_processors(chosen, supported(chosen))
        core = build(chosen, **({} if parts is None else {"parts": parts}), sinks=sinks)
        super().__init__(InProcessClient(core), inputs, outputs, stage=2)
