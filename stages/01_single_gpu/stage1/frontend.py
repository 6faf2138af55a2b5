"""The front end's two halves, made for a model: everything that knows text.

Separate from ``build``, because from stage 5 on it lives in another process than the core.

vLLM: ``v1/engine/async_llm.py`` (``AsyncLLM.__init__``).
"""

from __future__ import annotations

from collections.abc import Callable

from stage1.config import ModelConfig, Settings
from stage1.input_processor import InputProcessor
from stage1.model.source import resolve
from stage1.model.tokenizer import load_tokenizer
from stage1.output_processor import OutputProcessor
from stage1.params import SamplingParams


def load_processors(
    settings: Settings, supported: frozenset[str], check: Callable[[SamplingParams], None] = lambda params: None
) -> tuple[InputProcessor, OutputProcessor]:
    """Input and output processor for the model of ``settings``; ``supported`` names the stage's request features.

    ``check`` raises ``ValueError`` for parameters that the stage knows to be wrong.
    """
    model = settings[ModelConfig]
    source = resolve(model)
    tokenizer = load_tokenizer(source)
    inputs = InputProcessor(
        source, tokenizer, max_logprobs=model.max_logprobs, seed=model.seed, supported=supported, check=check
    )
    return inputs, OutputProcessor(tokenizer)
