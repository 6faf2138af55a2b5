"""Folders of safetensors: what good ones give, and that no header is believed before it fits its file."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from stage1.model.checkpoint import CheckpointError
from stage1.model.safetensors_file import open_folder, read_header

TENSORS = {
    "a": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "b": torch.arange(4, dtype=torch.float32).to(torch.bfloat16),
    "c": torch.tensor(2.5, dtype=torch.float16),
}


def raw(header: Any, data: int = 0, claim: int | None = None) -> bytes:
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(body) if claim is None else claim) + body + bytes(data)


def entry(shape: list[Any], start: Any, stop: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def sharded(folder: Path, weight_map: dict[str, Any] | None = None) -> Path:
    save_file({"a": TENSORS["a"]}, folder / "model-1.safetensors")
    save_file({"b": TENSORS["b"], "c": TENSORS["c"]}, folder / "model-2.safetensors")
    places = weight_map or {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def single(folder: Path) -> Path:
    save_file(TENSORS, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("make", [single, sharded])
def test_shapes_are_known_and_tensors_are_exact(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    checkpoint = open_folder(make(tmp_path))
    assert checkpoint.shapes == {"a": (3, 4), "b": (4,), "c": ()}
    read = dict(checkpoint.tensors())
    assert read.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"abc", "has 3 bytes"),
        (raw({}, claim=2**63), "9,223,372,036,854,775,808 bytes"),
        (raw({}, claim=3), "header of 3 bytes"),
        (raw(b"nonsense"), "not JSON"),
        (raw(b"[" * 100_000), "not JSON"),
        (raw(b"[1]"), "not a JSON object"),
        (raw(b'{"t": 1}'), "tensor t lacks"),
        (raw(b'{"t": {"dtype": "F32"}}'), "tensor t lacks"),
        (raw({"t": entry([4], 0, 16)}, 15), "take 16 bytes, the file has 15"),
        (raw({"t": entry([4], 0, 16)}, 17), "take 16 bytes, the file has 17"),
        (raw({"t": entry([4], 0, 12)}, 12), "needs 16 bytes, it has 12"),
        (raw({"t": entry([2**62, 2**62], 0, 16)}, 16), "needs"),
        (raw({"t": entry([2**70], 0, 16)}, 16), "tensor t has shape"),
        (raw({"t": entry([-4], 0, -16)}, 16), "tensor t has shape"),
        (raw({"t": entry([4.0], 0, 16)}, 16), "tensor t has shape"),
        (raw({"t": entry([True], 0, 4)}, 4), "tensor t has shape"),
        (raw({"t": entry([4], 2**40, 2**40 + 16)}, 16), "starts at byte 1,099,511,627,776"),
        (raw({"t": entry([4], 0, 16), "u": entry([4], 8, 24)}, 24), "tensor u starts at byte 8"),
        (raw({"t": entry([4], 0, 16), "u": entry([4], 20, 36)}, 36), "tensor u starts at byte 20"),
        (raw({"t": entry([4], 0, 16, "F4")}, 16), "type 'F4'"),
        (raw({"t": entry([4], 0, 16, ["F32"])}, 16), "of type"),
        (raw(b'{"t": %s, "t": %s}' % ((json.dumps(entry([4], 0, 16)).encode(),) * 2), 16), "has t twice"),
    ],
)
def test_a_lying_header_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(path)
    assert time.process_time() - started < 1.0
    assert "model.safetensors" in str(caught.value)
    assert "ownload it again" in str(caught.value)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"a": "model-1.safetensors", "b": "model-2.safetensors"}, "tensor c is not in the index"),
        ({"a": "model-1.safetensors", "d": "model-1.safetensors"}, "tensor d is only in the index"),
        ({"a": "model-3.safetensors"}, r"model-3\.safetensors: is missing"),
        ({"a": "../model-1.safetensors"}, r"only \.safetensors files of the folder"),
        ({"a": "/etc/passwd"}, r"only \.safetensors files of the folder"),
        ({"a": 7}, r"only \.safetensors files of the folder"),
        ({"a": ["model-1.safetensors"]}, r"only \.safetensors files of the folder"),
    ],
)
def test_an_index_that_disagrees_is_refused(tmp_path: Path, places: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_folder(sharded(tmp_path, places))


def test_one_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    sharded(tmp_path)
    save_file(TENSORS, tmp_path / "model-2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        '{"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors", '
        '"b": "model-2.safetensors", "c": "model-2.safetensors"}}'
    )
    with pytest.raises(CheckpointError, match="has a twice"):
        open_folder(tmp_path)


def test_a_folder_without_weights_says_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor .*convert them to safetensors"):
        open_folder(tmp_path)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_file_loads_or_is_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    damaged = bytearray((single(folder) / "model.safetensors").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    (folder / "model.safetensors").write_bytes(damaged)
    tracemalloc.start()
    started = time.process_time()
    try:
        list(open_folder(folder).tensors())
    except CheckpointError:
        pass
    finally:
        seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100e6
    assert seconds < 1.0
