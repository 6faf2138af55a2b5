"""Engines and tokenizers that several test files share. The real model is loaded once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from stage1.config import ModelConfig
from stage1.trace.events import (
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    Event,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
    TraceStart,
)

if TYPE_CHECKING:
    from stage1.llm import LLM
    from stage1.model.source import ModelSource

TINY: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 256}


@pytest.fixture(scope="session")
def smollm_source() -> ModelSource:
    from stage1.model.source import resolve

    return resolve(ModelConfig())


@pytest.fixture(scope="session")
def smollm_tokenizer(smollm_source: ModelSource) -> Any:
    from stage1.model.tokenizer import load_tokenizer

    return load_tokenizer(smollm_source)


@pytest.fixture(scope="session")
def smollm() -> Iterator[LLM]:
    """The real model in exact arithmetic, wherever it runs."""
    from stage1.llm import LLM

    with LLM(dtype="float32", max_model_len=1024) as llm:
        yield llm


@pytest.fixture
def make_tiny() -> Iterator[Callable[..., LLM]]:
    """A function that makes an engine of the tiny random model; the engines are shut down afterwards."""
    from stage1.llm import LLM

    made: list[LLM] = []

    def make(**settings: Any) -> LLM:
        made.append(LLM(**{"dtype": "float32", **TINY, **settings}))
        return made[-1]

    yield make
    for llm in made:
        llm.shutdown()


TRACE_START = TraceStart(0.0, 1.7e9, 2, "tiny", 4, 8, 4)


def synthetic_trace() -> list[Event]:
    """A (3-token prompt) shares a block with B, B is preempted and comes back, both end."""
    return [
        TRACE_START,
        RequestAdded(0.1, "a", 5, 2),
        RequestAdded(0.2, "b", 6, 2),
        BlocksTaken(1.0, "a", [0, 1]),
        StepScheduled(1.0, 1, {"a": (0, 5)}, 1, 1),
        TokensSampled(1.5, 1, {"a": [7]}),
        BlocksShared(2.0, "b", [0], 4),
        BlocksTaken(2.0, "b", [2]),
        StepScheduled(2.0, 2, {"b": (4, 1)}, 2, 0),
        TokensSampled(2.5, 2, {}),
        BlocksFreed(3.0, "b", [0, 2]),
        RequestPreempted(3.0, 3, "b"),
        StepScheduled(3.0, 3, {"a": (5, 1)}, 1, 1),
        TokensSampled(3.5, 3, {"a": [8]}),
        RequestFinished(3.6, "a", "length", 2),
        BlocksFreed(3.6, "a", [0, 1]),
        BlocksTaken(4.0, "b", [1, 0]),
        StepScheduled(4.0, 4, {"b": (0, 6)}, 1, 0),
        TokensSampled(4.5, 4, {"b": [9]}),
        RequestFinished(4.6, "b", "stop", 1),
        BlocksFreed(4.6, "b", [1, 0]),
    ]


@pytest.fixture
def good_events() -> Callable[[], list[Event]]:
    """A function that makes a small trace without faults, new at each call."""
    return synthetic_trace
