"""The GGUF reader: what a good file says, and that a bad one costs a clear error and nothing else."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from stage1.model.checkpoint import CheckpointError
from stage1.model.gguf_file import open_gguf

# --- the numbers ---


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_every_type_reads_as_the_writer_means_it(tmp_path: Path, type_name: str) -> None:
    kind = gguf.GGMLQuantizationType[type_name]
    values = np.random.default_rng(3).standard_normal((6, 64)).astype(np.float32)
    path, data = tmp_path / "t.gguf", gguf.quantize(values, kind)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("x", data, raw_dtype=None if type_name in ("F32", "F16") else kind)
    writer.add_tensor("y", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(path)
    read = file.read("x")
    assert read.dtype == {"F16": torch.float16, "BF16": torch.bfloat16}.get(type_name, torch.float32)
    assert read.shape == (6, 64)
    assert torch.equal(file.read("y"), torch.from_numpy(values))
    # Each block of 32 has a step of (largest - smallest) / levels; a value is at most a step away.
    steps = {"F32": 0.0, "F16": 2**-10, "BF16": 2**-7, "Q8_0": 1 / 127, "Q5_0": 1 / 15, "Q5_1": 1 / 15}
    step = steps.get(type_name, 1 / 7)
    assert np.abs(read.float().numpy() - values).max() <= step * np.abs(values).max()
    assert np.array_equal(read.float().numpy(), gguf.dequantize(data, kind).reshape(6, 64))


# --- bad files ---

HEADER = b"GGUF" + struct.pack("<I", 3)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def one_tensor(dims: list[int], type_id: int = 0, offset: int = 0, name: bytes = b"t", count: int = 1) -> bytes:
    info = text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
    info += struct.pack("<IQ", type_id, offset)
    body = HEADER + struct.pack("<QQ", count, 0) + info * count
    return body + bytes(-len(body) % 32) + bytes(64)


def one_key(kind: int, value: bytes, repeat: int = 1) -> bytes:
    return HEADER + struct.pack("<QQ", 0, repeat) + (text(b"k") + struct.pack("<I", kind) + value) * repeat


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes"),
        (b"GG", "2 bytes"),
        (b"GGML" + bytes(60), "no GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1;"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "little-endian"),
        (HEADER, "ends at byte 8"),
        (HEADER + struct.pack("<QQ", 2**62, 0), "4,611,686,018,427,387,904 tensors"),
        (HEADER + struct.pack("<QQ", 0, 2**63), "metadata keys"),
        (one_tensor([2**62]), "needs bytes"),
        (one_tensor([2**62, 2**62, 2**62, 2**62]), "needs bytes"),
        (one_tensor([4], offset=1 << 40), "needs bytes"),
        (one_tensor([4], offset=3), "aligned"),
        (one_tensor([64]), "needs bytes"),
        (one_tensor([0, 4]), "multiples of 1"),
        (one_tensor([31], type_id=8), "multiples of 32"),
        (one_tensor([4] * 5), "5 dimensions"),
        (one_tensor([]), "0 dimensions"),
        (one_tensor([4], type_id=77), "number 77"),
        (one_tensor([4], type_id=26), "type I32"),
        (one_tensor([4], count=2), "twice"),
        (one_key(4, struct.pack("<I", 1), repeat=2), "'k' twice"),
        (one_key(13, bytes(8)), "type 13"),
        (one_key(8, struct.pack("<Q", 2**40)), "1,099,511,627,776 bytes"),
        (one_key(8, text(b"\xff\xfe")), "UTF-8"),
        (one_key(9, struct.pack("<IQ", 4, 2**61)), "items in 'k'"),
        (one_key(9, struct.pack("<IQ", 9, 1) * 100), "deeper than 3"),
        (one_key(9, struct.pack("<IQ", 99, 1) + bytes(8)), "array of type 99"),
    ],
)
def test_a_lying_header_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(CheckpointError, match=message) as caught:
        open_gguf(path)
    assert time.process_time() - started < 1.0
    assert "bad.gguf" in str(caught.value)


def test_tensors_may_not_overlap(tmp_path: Path) -> None:
    infos = b"".join(
        text(name) + struct.pack("<IQIQ", 1, 16, 0, offset) for name, offset in ((b"a", 0), (b"b", 32))
    )  # 64 bytes each, 32 apart
    body = HEADER + struct.pack("<QQ", 2, 0) + infos
    path = tmp_path / "bad.gguf"
    path.write_bytes(body + bytes(-len(body) % 32) + bytes(128))
    with pytest.raises(CheckpointError, match=r"tensor b starts at .* inside a"):
        open_gguf(path)


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_what_is_no_file_is_the_same_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read|no GGUF"):
        open_gguf(tmp_path / name)
