"""The process's surroundings: the only module of this stage that reads or sets environment variables.

Owns where things are cached and which device is there. Does not know the engine.

vLLM: ``vllm/envs.py``, ``vllm/platforms/``.
"""

from __future__ import annotations

import os
from pathlib import Path

# Tokenizers warn about forks otherwise; their own parallelism gains nothing for one prompt.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def cache_dir() -> Path:
    """Where converted models are kept: ``$SIXFOLD_CACHE`` or ``~/.cache/sixfold`` (``$XDG_CACHE_HOME`` is honoured)."""
    own = os.environ.get("SIXFOLD_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "sixfold"


def api_keys() -> tuple[str, ...]:
    """Keys that the server asks for besides ``--api-key``: ``$VLLM_API_KEY``, as vLLM's users know it."""
    key = os.environ.get("VLLM_API_KEY")
    return (key,) if key else ()
