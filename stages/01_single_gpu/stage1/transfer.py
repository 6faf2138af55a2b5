"""From Python lists to tensors on the device, without waiting for it.

Owns the one copy that per-step host values take. Does not know what they mean.

vLLM: ``vllm/utils/__init__.py`` (``async_tensor_h2d``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def to_device(values: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """``values`` as a tensor [len(values)] of ``dtype`` on ``device``.

    From ordinary memory, a copy to a GPU waits until the GPU has done all its earlier work. From pinned memory it
    queues like a kernel, and torch keeps the pinned block until the copy is through.
    """
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
