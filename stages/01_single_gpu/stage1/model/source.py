"""From the name of a model to its files, shape and defaults.

Owns what a name may be, and the agreement of configuration and checkpoint, all before anything large is allocated.
Does not know how a model computes or how requests use the defaults.

vLLM: ``vllm/config/__init__.py``, ``vllm/model_executor/model_loader/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from stage1.config import DeviceConfig, ModelConfig
from stage1.model import embedded, hub
from stage1.model.byte_tokenizer import EOS
from stage1.model.checkpoint import Checkpoint, CheckpointError
from stage1.model.gguf_file import open_gguf
from stage1.model.gguf_model import GGUFCheckpoint, config_from_gguf
from stage1.model.hf_config import shape_from_hf
from stage1.model.safetensors_file import open_folder
from stage1.model.shape import PRESETS, ModelShape
from stage1.model.weights import check_tensors

Kind = Literal["folder", "gguf", "dummy"]

# generation_config.json -> SamplingParams
SAMPLING_KEYS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
WHOLE_NUMBERS = ("top_k", "max_new_tokens")
DTYPES = {
    "float32": torch.float32,
    "float": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "half": torch.float16,
}


@dataclass(frozen=True)
class ModelSource:
    """A model that has been found and whose shape is known; no weight is read yet."""

    name: str  # in the API
    path: Path | None  # the folder or the .gguf file; None for a preset
    kind: Kind
    shape: ModelShape
    max_model_len: int  # prompt + output, in tokens
    eos_token_ids: tuple[int, ...]  # of config and generation config; the tokenizer may know a further one
    default_sampling: dict[str, Any]  # fields of SamplingParams that the checkpoint recommends
    tokenizer: str | Path | None  # hub id, folder or .gguf file; None = bytes
    root: str  # where a client finds the model's files: folder, file or hub id


def resolve(config: ModelConfig) -> ModelSource:
    """Find the model that ``config`` names: the embedded one, a folder, a .gguf file, a preset shape or a hub id.

    Raises:
        ValueError: nothing of that name, an unsupported architecture, or a ``max_model_len`` beyond the model.
        CheckpointError: its files are damaged.
    """
    if config.load_format == "dummy" and config.model in PRESETS:
        shape = PRESETS[config.model]
        return _source(config, shape, "dummy", None, _tokenizer(config, None), (EOS,), {})
    path = _find(config)
    if path.is_file():
        file = open_gguf(path)
        values = config_from_gguf(file)
        generation: dict[str, Any] = {}
    else:
        values = _read_json(path / "config.json")
        generation_file = path / "generation_config.json"
        generation = _read_json(generation_file) if generation_file.is_file() else {}
    kind: Kind = "gguf" if path.is_file() else "folder"
    if config.load_format == "dummy":
        kind = "dummy"
    tokenizer = _tokenizer(config, path)
    if tokenizer is None and kind != "dummy":
        raise ValueError(f"{path} has no tokenizer files: name a folder or hub id that has (--tokenizer)")
    eos = _eos_token_ids(path, values) + _eos_token_ids(path, generation)
    sampling = _sampling_defaults(path, generation) if config.generation_config == "auto" else {}
    return _source(config, shape_from_hf(values), kind, path, tokenizer, eos, sampling)


def checkpoint(source: ModelSource) -> Checkpoint:
    """The files of ``source``, whose tensors are those of its shape.

    Raises:
        CheckpointError: a tensor is missing, unknown or of another shape; nothing has been allocated then.
    """
    assert source.path is not None, "a preset has no files"
    opened: Checkpoint
    if source.kind == "gguf":
        file = open_gguf(source.path)
        opened = GGUFCheckpoint(file, config_from_gguf(file))
    else:
        opened = open_folder(source.path)
    try:
        check_tensors(source.shape, opened.shapes)
    except CheckpointError as error:
        raise CheckpointError(f"{source.path}: {error}") from error
    return opened


def tensors(source: ModelSource) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights of ``source`` under their Hugging Face names, on the CPU, one at a time."""
    return checkpoint(source).tensors()


def resolve_device(config: DeviceConfig) -> torch.device:
    """The device that ``config`` asks for; ``auto`` is the first GPU where there is one."""
    name = config.device
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda:0" if gpus else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and not (kind == "cuda" and number.isdecimal())):
        raise ValueError(f"device {name!r} is unknown: choose auto, cpu, cuda or cuda:N")
    if kind == "cpu":
        return torch.device("cpu")
    if int(number or 0) >= gpus:
        raise ValueError(f"device {name!r} is not there, torch sees {gpus} CUDA GPUs: choose auto or cpu")
    return torch.device("cuda", int(number or 0))


def resolve_dtype(config: ModelConfig, device: torch.device) -> torch.dtype:
    """The precision of weights and KV cache; ``auto`` is float32 on a CPU and bfloat16 on a GPU."""
    if config.dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return DTYPES[config.dtype]


def _find(config: ModelConfig) -> Path:
    """The folder or .gguf file of ``config.model``, downloaded or converted where it must be."""
    name, wanted = config.model, config.load_format
    if name.lower() == embedded.ALIAS:
        return embedded.find_gguf() if wanted == "gguf" else embedded.embedded_folder()
    path = Path(name).expanduser()
    if path.is_dir():
        ggufs = sorted(path.glob("*.gguf"))
        if wanted == "gguf" or (wanted == "auto" and ggufs and not (path / "config.json").exists()):
            return _only(path, ggufs)
        return path.resolve()
    if path.is_file():
        if path.suffix != ".gguf" or wanted == "safetensors":
            raise ValueError(f"{name} is a file: name a .gguf file, or the folder that the safetensors files are in")
        return path.resolve()
    if name in PRESETS:
        raise ValueError(f"{name} is only a shape: add --load-format dummy for random weights")
    if path.suffix == ".gguf" or not hub.HUB_ID.fullmatch(name) or name.startswith("."):
        raise ValueError(
            f"no model {name!r}: there is no such folder or file, it is no hub id (owner/name), and the names known "
            f"here are {embedded.ALIAS} and, with --load-format dummy, {', '.join(PRESETS)}"
        )
    folder = hub.download(name, hub.TOKENIZER_FILES if wanted == "dummy" else hub.MODEL_FILES, config.download_dir)
    return folder.resolve()


def _only(folder: Path, ggufs: list[Path]) -> Path:
    if len(ggufs) != 1:
        raise ValueError(f"{folder} has {len(ggufs)} .gguf files: name one of them")
    return ggufs[0].resolve()


def _source(
    config: ModelConfig,
    shape: ModelShape,
    kind: Kind,
    path: Path | None,
    tokenizer: str | Path | None,
    eos: tuple[int, ...],
    sampling: dict[str, int | float],
) -> ModelSource:
    longest = shape.max_position if config.max_model_len is None else config.max_model_len
    if not 1 <= longest <= shape.max_position:
        raise ValueError(
            f"max_model_len is {longest:,}; {config.model} has {shape.max_position:,} positions: "
            f"choose 1 to {shape.max_position:,}"
        )
    is_local = path is not None and (Path(config.model).expanduser().exists() or config.model.lower() == embedded.ALIAS)
    return ModelSource(
        name=config.served_model_name or config.model,
        path=path,
        kind=kind,
        shape=shape,
        max_model_len=longest,
        eos_token_ids=tuple(dict.fromkeys(eos)),
        default_sampling=sampling,
        tokenizer=tokenizer,
        root=str(path) if is_local else config.model,
    )


def _tokenizer(config: ModelConfig, path: Path | None) -> str | Path | None:
    """Where the tokenizer is: what the user names, or the model's own."""
    if config.tokenizer is not None:
        return embedded.embedded_folder() if config.tokenizer.lower() == embedded.ALIAS else config.tokenizer
    if path is None or path.is_file() or any((path / name).is_file() for name in TOKENIZER_FILES):
        return path
    return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}): is the folder a whole model?") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}): download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object: download it again")
    return value


def _eos_token_ids(path: Path, values: Mapping[str, Any]) -> tuple[int, ...]:
    """``eos_token_id`` is a number, a list of them, or missing."""
    found = values.get("eos_token_id")
    ids = () if found is None else tuple(found) if isinstance(found, list) else (found,)
    if not all(type(id_) is int and id_ >= 0 for id_ in ids):
        raise CheckpointError(f"{path}: eos_token_id is {found!r}; token ids are expected: mend the file")
    return ids


def _sampling_defaults(path: Path, values: Mapping[str, Any]) -> dict[str, int | float]:
    found = {key: values[key] for key in SAMPLING_KEYS if values.get(key) is not None}
    for key, value in found.items():
        if type(value) is not int and (key in WHOLE_NUMBERS or type(value) is not float):
            raise CheckpointError(
                f"{path / 'generation_config.json'}: {key} is {value!r}, no number: "
                "mend the file or set --generation-config vllm"
            )
    return {SAMPLING_KEYS[key]: value for key, value in found.items()}
