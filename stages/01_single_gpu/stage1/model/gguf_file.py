"""Reads GGUF files: metadata, the table of tensors and, one at a time, the tensors themselves.

Owns the format: every count, length, offset and size is compared with the file before it is used, so a damaged or
hostile file costs milliseconds and no memory. Does not know what the metadata mean.

vLLM: ``vllm/model_executor/model_loader/gguf_loader.py`` (it leaves the reading to the ``gguf`` package).
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stage1.model.checkpoint import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ENTRIES = 1 << 16  # metadata keys, tensors
MAX_ITEMS = 1 << 22  # of one array; the largest vocabularies have 2^18 tokens
MAX_NAME_BYTES = 1 << 12
MAX_DIMS = 4  # ggml's own limit
MAX_DEPTH = 3  # arrays of arrays of arrays; real files have no nesting at all

STRING, ARRAY = 8, 9
SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "|b1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
MIN_BYTES = {STRING: 8, ARRAY: 12} | {kind: np.dtype(name).itemsize for kind, name in SCALARS.items()}
PLAIN_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class TensorType:
    """How ggml stores numbers: ``block`` of them in ``nbytes`` bytes."""

    id: int
    name: str
    block: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: bytes ``[start, start + nbytes)`` of the file. ``shape`` is torch's order, rows first."""

    shape: tuple[int, ...]
    type: TensorType
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A checked file. Arrays of numbers in ``metadata`` are numpy arrays, other arrays are lists."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]

    def read(self, name: str) -> torch.Tensor:
        """Tensor ``name`` on the CPU: float16 and bfloat16 as they are, everything else as float32."""
        info = self.tensors[name]
        raw = np.fromfile(self.path, np.uint8, info.nbytes, offset=info.start)
        if len(raw) != info.nbytes:
            raise CheckpointError(
                f"{self.path}: tensor {name} was cut off while it was read: is the file being replaced?"
            )
        if dtype := PLAIN_DTYPES.get(info.type.name):
            return torch.from_numpy(raw).view(dtype).reshape(info.shape)
        from gguf import GGMLQuantizationType, quants

        rows = raw.reshape(*info.shape[:-1], -1)  # [..., bytes a row]
        return torch.from_numpy(quants.dequantize(rows, GGMLQuantizationType(info.type.id))).reshape(info.shape)


def open_gguf(path: Path) -> GGUFFile:
    """Read and check the header of ``path``; no tensor is read.

    Raises:
        CheckpointError: not a GGUF file, cut off, contradicts itself, or stores a tensor in a type unknown here.
    """
    try:
        if (size := path.stat().st_size) < len(MAGIC):
            raise CheckpointError(f"{path} has {size} bytes, it is no GGUF file: download it again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(path, data).parse()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


@cache
def tensor_type(type_id: int) -> TensorType | str:
    """The type with ggml's number ``type_id``; or, where its tensors cannot be read here, what to call it."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

    try:
        kind = GGMLQuantizationType(type_id)
    except ValueError:
        return f"number {type_id}, unknown to gguf"
    block, nbytes = GGML_QUANT_SIZES[kind]
    try:
        quants.dequantize(np.zeros((1, nbytes), np.uint8), kind)
    except NotImplementedError:
        return kind.name
    return TensorType(type_id, kind.name, block, nbytes)


class _Header:
    """A cursor over the file's bytes that never moves past their end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.pos = 0

    def parse(self) -> GGUFFile:
        magic = self.take(4, "the magic number")
        if magic != MAGIC:
            raise self.error(f"starts with {magic!r}, not {MAGIC!r}: it is no GGUF file")
        version = self.u32("the version")
        if version not in VERSIONS:
            raise self.error(f"has version {version}; versions 2 and 3 (little-endian) are read: convert it anew")
        num_tensors = self.count("tensors", self.u64("the number of tensors"), MAX_ENTRIES, 8 + 4 + 8 + 4 + 8)
        num_keys = self.count("metadata keys", self.u64("the number of metadata keys"), MAX_ENTRIES, 8 + 4 + 1)
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self.string("a metadata key", MAX_NAME_BYTES)
            if key in metadata:
                raise self.error(f"has metadata key {key!r} twice")
            metadata[key] = self.value(self.u32(key), key, 0)
        infos = [self.tensor_info() for _ in range(num_tensors)]
        return GGUFFile(self.path, metadata, self.place(infos, self.alignment(metadata)))

    def tensor_info(self) -> tuple[str, tuple[int, ...], TensorType, int]:
        name = self.string("a tensor's name", MAX_NAME_BYTES)
        num_dims = self.u32(name)
        if not 1 <= num_dims <= MAX_DIMS:
            raise self.error(f"tensor {name} has {num_dims:,} dimensions; 1 to {MAX_DIMS} are possible")
        shape = tuple(self.u64(name) for _ in range(num_dims))[::-1]
        kind = tensor_type(self.u32(name))
        offset = self.u64(name)
        if isinstance(kind, str):
            raise self.error(f"tensor {name} is of type {kind}, which cannot be read here: use another quantisation")
        if 0 in shape or shape[-1] % kind.block:
            raise self.error(
                f"tensor {name} has shape {list(shape)}; rows of {kind.name} are multiples of {kind.block}"
            )
        return name, shape, kind, offset

    def place(self, infos: list[tuple[str, tuple[int, ...], TensorType, int]], alignment: int) -> dict[str, TensorInfo]:
        """Turn offsets into places in the file; they must lie inside, aligned and apart."""
        base = -(-self.pos // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        end, before = base, "the header"
        for name, shape, kind, offset in sorted(infos, key=lambda info: info[3]):
            nbytes = math.prod(shape) // kind.block * kind.nbytes
            start = base + offset
            if start + nbytes > self.size:
                raise self.error(
                    f"tensor {name} {list(shape)} {kind.name} needs bytes {start:,} to {start + nbytes:,}, "
                    f"the file has {self.size:,}"
                )
            if name in tensors:
                raise self.error(f"has tensor {name} twice")
            if offset % alignment or start < end:
                raise self.error(f"tensor {name} starts at {start:,}: not aligned to {alignment}, or inside {before}")
            tensors[name] = TensorInfo(shape, kind, start, nbytes)
            end, before = start + nbytes, name
        return tensors

    def alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(value, int) or not 1 <= value <= 1 << 16 or value & (value - 1):
            raise self.error(f"general.alignment is {value!r}; a power of two up to 65,536 is possible")
        return value

    def value(self, kind: int, key: str, depth: int) -> Any:
        if kind in SCALARS:
            return np.frombuffer(self.take(MIN_BYTES[kind], key), SCALARS[kind])[0].item()
        if kind == STRING:
            return self.string(key, self.size)
        if kind == ARRAY:
            return self.array(key, depth + 1)
        raise self.error(f"metadata key {key!r} has a value of type {kind}; types 0 to 12 exist")

    def array(self, key: str, depth: int) -> Any:
        kind = self.u32(key)
        if depth > MAX_DEPTH:
            raise self.error(f"metadata key {key!r} nests arrays deeper than {MAX_DEPTH}")
        if kind not in MIN_BYTES:
            raise self.error(f"metadata key {key!r} is an array of type {kind}; types 0 to 12 exist")
        count = self.count(f"items in {key!r}", self.u64(key), MAX_ITEMS, MIN_BYTES[kind])
        if kind in SCALARS:
            return np.frombuffer(self.take(count * MIN_BYTES[kind], key), SCALARS[kind])
        if kind == STRING:
            return [self.string(key, self.size) for _ in range(count)]
        return [self.array(key, depth + 1) for _ in range(count)]

    def count(self, what: str, count: int, limit: int, least_bytes: int) -> int:
        """``count`` of ``what`` if so many can be in the rest of the file, each of at least ``least_bytes``."""
        room = min(limit, (self.size - self.pos) // least_bytes)
        if count > room:
            raise self.error(f"claims {count:,} {what}; its {self.size:,} bytes have room for {room:,} at most")
        return count

    def string(self, what: str, limit: int) -> str:
        length = self.u64(what)
        if length > limit:
            raise self.error(f"claims {length:,} bytes for {what}; at most {limit:,} are possible")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8 text") from error

    def u32(self, what: str) -> int:
        return int(struct.unpack("<I", self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack("<Q", self.take(8, what))[0])

    def take(self, length: int, what: str) -> bytes:
        if length > self.size - self.pos:
            raise self.error(f"ends at byte {self.size:,} inside {what!r}, which needs {length:,} from {self.pos:,}")
        self.pos += length
        return self.data[self.pos - length : self.pos]

    def error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}. Download or convert the file again")
