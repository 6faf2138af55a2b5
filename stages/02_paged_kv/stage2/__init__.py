"""Stage 2: a paged KV cache and continuous batching around stage 1's model.

The public face is vLLM's: ``from stage2 import LLM, AsyncLLM, SamplingParams``. Names are loaded when they are first
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stage1.params import SamplingParams
    from stage2.llm import LLM, AsyncLLM
    from stage2.serving import serve

_HOME = {"LLM": "stage2.llm", "AsyncLLM": "stage2.llm", "SamplingParams": "stage1.params", "serve": "stage2.serving"}

__all__ = ["LLM", "AsyncLLM", "SamplingParams", "serve"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'stage2' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
