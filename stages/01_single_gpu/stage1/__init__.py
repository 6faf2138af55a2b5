"""Stage 1: a complete engine on one device, with static batching.

The public face is vLLM's: ``from stage1 import LLM, SamplingParams``. Names are loaded when they are first used, so
that importing one module of the package does not import torch and the whole engine with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stage1.llm import LLM
    from stage1.outputs import CompletionOutput, RequestOutput
    from stage1.params import RequestOutputKind, SamplingParams
    from stage1.serving import serve

_HOME = {
    "LLM": "llm",
    "CompletionOutput": "outputs",
    "RequestOutput": "outputs",
    "RequestOutputKind": "params",
    "SamplingParams": "params",
    "serve": "serving",
}

__all__ = ["LLM", "CompletionOutput", "RequestOutput", "RequestOutputKind", "SamplingParams", "serve"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'stage1' has no attribute {name!r}")
    return getattr(import_module(f"stage1.{_HOME[name]}"), name)
