"""What every checkpoint reader offers, whatever the file format.

Owns the socket and its error. Does not know formats, architectures or devices.

vLLM: ``vllm/model_executor/model_loader/weight_utils.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch


class CheckpointError(ValueError):
    """A model's file is damaged, lies about itself or cannot be read; the message names the file and the mend."""


class Checkpoint(Protocol):
    """Weights in a file. Opening one has checked its header against the file; nothing is read yet."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Tensor shapes by Hugging Face checkpoint name, known before any data is read."""

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Read the tensors, on the CPU, one at a time: only one is alive unless the caller keeps more."""
