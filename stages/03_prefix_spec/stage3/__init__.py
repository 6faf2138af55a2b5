"""Stage 3: prefix caching, guided decoding and speculative decoding, plugged into stage 2.

The public face is vLLM's: ``from stage3 import LLM, AsyncLLM, SamplingParams, StructuredOutputsParams``. Names are
loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stage1.params import SamplingParams
    from stage3.grammar.structured_outputs import GuidedDecodingParams, StructuredOutputsParams
    from stage3.llm import LLM, AsyncLLM
    from stage3.serving import serve

_HOME = {
    "LLM": "stage3.llm",
    "AsyncLLM": "stage3.llm",
    "SamplingParams": "stage1.params",
    "StructuredOutputsParams": "stage3.grammar.structured_outputs",
    "GuidedDecodingParams": "stage3.grammar.structured_outputs",
    "serve": "stage3.serving",
}

__all__ = ["LLM", "AsyncLLM", "GuidedDecodingParams", "SamplingParams", "StructuredOutputsParams", "serve"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'stage3' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
