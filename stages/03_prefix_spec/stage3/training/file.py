"""The files that trained heads are kept in.

Owns names, dtype, metadata and the largest size of the safetensors files. The target's embedding and projection are not
in them.

vLLM: the checkpoints of its Medusa and EAGLE models, in formats of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import nn

from stage3.training.heads import DraftHeads
from stage3.training.target import Target

FORMAT = "sixfold-heads-1"
METHODS = ("eagle", "medusa")
HEADER_BYTES = 2048  # of a file, at most: names, shapes and metadata


def check_sizes(parameters: Mapping[str, int], folder: Path, max_megabytes: float) -> None:
    """Whether the files in ``folder`` are small enough once heads with so many ``parameters``, by method, are in it.

    Raises:
        ValueError: they would be larger than ``max_megabytes`` together; the message names the settings.
    """
    sizes = {path.stem: path.stat().st_size for path in folder.glob("*.safetensors") if path.stem in METHODS}
    sizes |= {method: 2 * count + HEADER_BYTES for method, count in parameters.items()}  # bfloat16
    total = sum(sizes.values()) / 1e6
    if total > max_megabytes:
        each = ", ".join(f"{method} {size / 1e6:.1f}" for method, size in sizes.items())
        raise ValueError(
            f"the heads would take {total:.1f} MB ({each}), max_megabytes is {max_megabytes:g}: lower medusa_heads, "
            "medusa_layers or intermediate_size, or raise max_megabytes"
        )


@torch.no_grad()
def round_parameters(heads: DraftHeads) -> None:
    """Round every parameter to what the file keeps, so that what is measured is what is saved."""
    for parameter in cast(nn.Module, heads).parameters():
        parameter.copy_(parameter.bfloat16().float())


def save_heads(heads: DraftHeads, target: Target, folder: Path) -> Path:
    """Write ``METHOD.safetensors`` into ``folder``, in bfloat16, and return its path.

    The metadata are strings: format, method, target, hidden_size, vocab_size, and for EAGLE intermediate_size.
    """
    from safetensors.torch import save_file

    tensors = {name: value.to("cpu", torch.bfloat16).contiguous() for name, value in heads.tensors().items()}
    metadata = {
        "format": FORMAT,
        "method": heads.method,
        "target": target.name,
        "hidden_size": str(target.shape.hidden_size),
        "vocab_size": str(target.shape.vocab_size),
    }
    if "layer.mlp.down_proj.weight" in tensors:
        metadata["intermediate_size"] = str(tensors["layer.mlp.down_proj.weight"].shape[1])
    path = folder / f"{heads.method}.safetensors"
    save_file(tensors, path, metadata=metadata)
    return path
