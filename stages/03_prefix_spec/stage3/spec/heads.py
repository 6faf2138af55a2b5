"""Trained heads in a file: which model they belong to, and their tensors.

Owns the format and the checks, all before anything is allocated. Does not know what the tensors mean: ``medusa`` and
``eagle`` do.

A file is safetensors in bfloat16. Its metadata names the method and the sizes of the model that it was trained on:

    format sixfold-heads-1    method eagle    target smollm2-135m-instruct    hidden_size 576    vocab_size 49152

The heads of the embedded model lie in the stage's folder ``heads/`` and are found without a path.

vLLM: the draft model's ``config.json`` (``vllm/transformers_utils/configs/eagle.py``, ``medusa.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from stage1.model.shape import ModelShape
from stage1.model.transformer import allocate

FORMAT = "sixfold-heads-1"
FOLDER = Path(__file__).parents[2] / "heads"


@dataclass(frozen=True)
class HeadsFile:
    """A file that was opened, and what its header says; the tensors are read by ``load_into``."""

    path: Path
    method: str
    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]  # tensor → size


def find_heads(name: str | None, method: str) -> Path:
    """The file that ``name`` means: itself, ``<method>.safetensors`` in a folder, or the stage's own (``None``).

    Raises:
        ValueError: there is none.
    """
    path = FOLDER if name is None else Path(name).expanduser()
    if path.is_dir():
        path /= f"{method}.safetensors"
    if not path.is_file():
        raise ValueError(
            f"speculative_config: there is no {path}; name a file of {method} heads as its model, or train some: "
            "sixfold train-heads"
        )
    return path


def open_heads(path: Path, method: str, shape: ModelShape) -> HeadsFile:
    """Read the header of ``path`` and compare it with the model of ``shape``.

    Raises:
        ValueError: no such file, heads of another method, or of a model with other sizes.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as heads: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} has the format {metadata.get('format')!r}; it must be {FORMAT}: train the heads anew")
    if metadata.get("method") != method:
        raise ValueError(f"{path} holds {metadata.get('method')} heads; the method is {method}: name the other file")
    sizes = {name: int(value) for name, value in metadata.items() if name.endswith("_size") and value.isdecimal()}
    for name, ours in (("hidden_size", shape.hidden_size), ("vocab_size", shape.vocab_size)):
        if sizes.get(name) != ours:
            raise ValueError(
                f"{path} was trained for {metadata.get('target')}, with {name} {sizes.get(name)}; this model has "
                f"{ours}: train heads for it (sixfold train-heads)"
            )
    return HeadsFile(path, method, sizes, shapes)


def load_into(module: nn.Module, file: HeadsFile, dtype: torch.dtype, device: torch.device) -> None:
    """Allocate the parameters of ``module`` and fill them from ``file``, whose names they have.

    Raises:
        ValueError: a tensor is missing, unknown or of another size; nothing has been allocated then.
    """
    from safetensors import safe_open

    wanted = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    for name in sorted(wanted.keys() | file.shapes.keys()):
        if wanted.get(name) != file.shapes.get(name):
            raise ValueError(
                f"{file.path}: {name} is {file.shapes.get(name, 'missing')}; {wanted.get(name, 'no such tensor')} is "
                "wanted: train the heads anew"
            )
    allocate(module, dtype, device)
    parameters = dict(module.named_parameters())
    with safe_open(file.path, framework="pt") as opened:
        for name, parameter in parameters.items():
            parameter.copy_(opened.get_tensor(name))
