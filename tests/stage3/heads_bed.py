"""Heads with random weights for the shape ``tiny``: what they guess is wrong, how they guess is right."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from stage1.model.ops import TorchOps
from stage1.model.shape import PRESETS
from stage3.spec.eagle import EagleLayer, eagle_shape
from stage3.spec.medusa import MedusaHeads

SHAPE = PRESETS["tiny"]


def write_heads(folder: Path, method: str, changed: dict[str, str] | None = None) -> Path:
    """A file of random heads for ``tiny`` in ``folder``; ``changed`` replaces metadata."""
    if method == "medusa":
        module = MedusaHeads(2, 4, SHAPE.hidden_size)
    else:
        module = EagleLayer(eagle_shape(SHAPE, SHAPE.intermediate_size), SHAPE.num_layers, TorchOps())
    generator = torch.Generator().manual_seed(7)
    tensors = {
        name: torch.ones(parameter.shape, dtype=torch.bfloat16)
        if "norm" in name
        else (torch.randn(parameter.shape, generator=generator) * 0.1).to(torch.bfloat16)
        for name, parameter in module.named_parameters()
    }
    metadata = {
        "format": "sixfold-heads-1",
        "method": method,
        "target": "tiny",
        "hidden_size": str(SHAPE.hidden_size),
        "vocab_size": str(SHAPE.vocab_size),
        "intermediate_size": str(SHAPE.intermediate_size),
    }
    path = folder / f"{method}.safetensors"
    save_file(tensors, path, metadata | (changed or {}))
    return path
