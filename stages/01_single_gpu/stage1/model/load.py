"""A model in memory: from a resolved source to a transformer that holds its weights.

Owns the order — check the memory, allocate, fill. Does not know file formats (``source``) or names (``weights``).

vLLM: ``vllm/model_executor/model_loader/base_loader.py``, ``dummy_loader.py``.
"""

from __future__ import annotations

import torch

from stage1.interfaces import Ops
from stage1.memory import check_memory
from stage1.model.source import ModelSource, tensors
from stage1.model.transformer import Transformer, build_model
from stage1.model.weights import load_weights, random_weights


def load_model(
    source: ModelSource, ops: Ops, dtype: torch.dtype, device: torch.device, seed: int, cache_bytes: int
) -> Transformer:
    """The model of ``source`` on ``device``; random weights from ``seed`` where it has none.

    Args:
        cache_bytes: what the KV cache will take; it counts on a GPU only, because a CPU commits its pages when they
            are touched.

    Raises:
        ValueError: weights and cache do not fit, or the checkpoint is damaged.
    """
    weight_bytes = source.shape.num_parameters * dtype.itemsize
    on_cpu = device.type == "cpu"
    what = f"{source.name}'s weights" + ("" if on_cpu else " and its KV cache")
    check_memory(weight_bytes if on_cpu else weight_bytes + cache_bytes, what, device)
    model = build_model(source.shape, ops, dtype, device)
    is_random = source.kind == "dummy"
    load_weights(model, random_weights(source.shape, seed, dtype, device) if is_random else tensors(source))
    return model
