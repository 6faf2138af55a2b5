"""Engines and tokenizers that several test files share. The real model is loaded once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from stage1.config import ModelConfig

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
