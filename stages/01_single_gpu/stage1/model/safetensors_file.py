"""Opens a folder with safetensors files.

Owns finding the files and checking what their headers claim, before anything is mapped or allocated; safetensors'
own library then reads the data. Does not know architectures.

vLLM: ``vllm/model_executor/model_loader/weight_utils.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stage1.model.checkpoint import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
MAX_DIMS = 8
ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class SafetensorsCheckpoint:
    """Checked files. ``files`` holds the names of the tensors of each."""

    shapes: dict[str, tuple[int, ...]]
    files: dict[Path, tuple[str, ...]]

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Read the tensors, one at a time, in the order of the files."""
        from safetensors import SafetensorError, safe_open

        for path, names in self.files.items():
            try:
                with safe_open(path, framework="pt") as file:
                    for name in names:
                        yield name, file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path} cannot be read: {error}. Download it again") from error


def open_folder(folder: Path) -> SafetensorsCheckpoint:
    """Check the headers of ``model.safetensors``, or of the files that ``model.safetensors.index.json`` lists.

    Raises:
        CheckpointError: a file is missing, cut off or contradicts itself or the index.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        headers = {single: read_header(single)}
    elif index.is_file():
        headers = _headers_by_index(folder, index)
    else:
        raise CheckpointError(
            f"{folder} has neither {SINGLE} nor {INDEX}; other weight files (.bin, .pt) are not read: "
            "convert them to safetensors"
        )
    shapes: dict[str, tuple[int, ...]] = {}
    for path, header in headers.items():
        for name, shape in header.items():
            if name in shapes:
                raise CheckpointError(f"{path} has tensor {name}, which another file of the folder has too")
            shapes[name] = shape
    return SafetensorsCheckpoint(shapes, {path: tuple(header) for path, header in headers.items()})


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """The tensors' shapes, in the order of their data, once every claim of the header fits the file.

    The file is: 8 bytes n, n bytes of JSON, data. Offsets count from the data's first byte and must cover it all.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise _error(path, f"claims a header of {length:,} bytes and has {size:,} bytes")
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    header = _parse(path, text)
    header.pop("__metadata__", None)
    spans = {name: _span(path, name, entry) for name, entry in header.items()}
    end = 0
    for name, (_, start, stop) in sorted(spans.items(), key=lambda item: item[1][1:]):
        if start != end:
            raise _error(path, f"tensor {name} starts at byte {start:,} of the data, the one before ends at {end:,}")
        end = stop
    if end != size - 8 - length:
        raise _error(path, f"its tensors take {end:,} bytes, the file has {size - 8 - length:,} for them")
    return {name: shape for name, (shape, _, _) in sorted(spans.items(), key=lambda item: item[1][1:])}


def _headers_by_index(folder: Path, index: Path) -> dict[Path, dict[str, tuple[int, ...]]]:
    """Read the files that the index lists; each must hold exactly the tensors that the index says."""
    try:
        text = index.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{index} cannot be read: {error.strerror or error}") from error
    places = _parse(index, text).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise _error(index, "has no weight_map")
    by_file: dict[str, set[str]] = {}
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise _error(
                index, f"says that tensor {name} is in {file!r}; only .safetensors files of the folder are read"
            )
        by_file.setdefault(file, set()).add(name)
    headers = {}
    for file, names in sorted(by_file.items()):
        if not (folder / file).is_file():
            raise _error(folder / file, f"is missing, {INDEX} lists {len(names)} tensors in it")
        header = read_header(folder / file)
        if differing := sorted(names ^ header.keys()):
            where = "is only in the index" if differing[0] in names else "is not in the index"
            raise _error(folder / file, f"tensor {differing[0]} {where} ({len(differing)} of them differ)")
        headers[folder / file] = header
    return headers


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    """A JSON object whose names are unique."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise _error(path, f"has {next(name for name in names if names.count(name) > 1)} twice")
        return found

    try:
        parsed = json.loads(text.decode(), object_pairs_hook=unique)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise _error(path, f"its header is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise _error(path, "its header is not a JSON object")
    return parsed


def _span(path: Path, name: str, entry: Any) -> tuple[tuple[int, ...], int, int]:
    """(shape, first byte, end) of one entry; dtype × shape must be exactly the bytes."""
    try:
        dtype, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise _error(path, f"tensor {name} lacks dtype, shape or data_offsets") from error
    numbers = (*shape, start, stop)
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers) or len(shape) > MAX_DIMS:
        raise _error(path, f"tensor {name} has shape {list(shape)} and offsets {[start, stop]}")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise _error(path, f"tensor {name} is of type {dtype!r}; known: {', '.join(ITEM_BYTES)}")
    nbytes = math.prod(shape) * ITEM_BYTES[dtype]
    if stop - start != nbytes:
        raise _error(path, f"tensor {name} {list(shape)} {dtype} needs {nbytes:,} bytes, it has {stop - start:,}")
    return shape, start, stop


def _error(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: {what}. Download it again")
