"""Names of models: what each may be, what it resolves to, and what is said where there is none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from stage1.config import DeviceConfig, ModelConfig
from stage1.model import hub
from stage1.model.byte_tokenizer import ByteTokenizer
from stage1.model.checkpoint import CheckpointError
from stage1.model.shape import UnsupportedModelError
from stage1.model.source import ModelSource, checkpoint, resolve, resolve_device, resolve_dtype, tensors
from stage1.model.tokenizer import load_tokenizer
from stage1.model.weights import expected_tensors

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 300,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "eos_token_id": 5,
}


def folder(path: Path, generation: Any = None, tokenizer: bool = True, **config: Any) -> str:
    (path / "config.json").write_text(json.dumps(CONFIG | config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    if tokenizer:
        (path / "tokenizer.json").write_text("{}")
    return str(path)


def weights(path: Path, source: ModelSource) -> dict[str, torch.Tensor]:
    made = {name: torch.rand(size) for name, size in expected_tensors(source.shape).items()}
    save_file(made, path / "model.safetensors")
    return made


def test_a_folder_resolves_to_its_shape_and_weights(tmp_path: Path) -> None:
    source = resolve(ModelConfig(model=folder(tmp_path), served_model_name="mine"))
    assert (source.name, source.kind, source.path, source.root) == ("mine", "folder", tmp_path, str(tmp_path))
    assert (source.shape.vocab_size, source.max_model_len, source.eos_token_ids) == (300, 128, (5,))
    assert (source.tokenizer, source.default_sampling) == (tmp_path, {})
    made = weights(tmp_path, source)
    read = dict(tensors(source))
    assert read.keys() == made.keys()
    assert all(torch.equal(read[name], made[name]) for name in made)


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_a_checkpoint_of_another_shape_is_refused_unread(tmp_path: Path, change: str) -> None:
    source = resolve(ModelConfig(model=folder(tmp_path)))
    made = weights(tmp_path, source)
    name = "model.layers.0.mlp.up_proj.weight"
    if change == "missing":
        del made[name]
    elif change == "extra":
        name = "model.layers.1.mlp.up_proj.weight"
        made[name] = torch.zeros(1)
    else:
        made[name] = torch.zeros(32, 17)
    save_file(made, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=name) as caught:
        checkpoint(source)
    assert str(tmp_path) in str(caught.value)


def test_eos_and_sampling_defaults_come_from_both_configs(tmp_path: Path) -> None:
    generation = {"eos_token_id": [7, 5], "temperature": 0.6, "top_k": 20, "top_p": 0.9, "max_new_tokens": 64}
    generation |= {"repetition_penalty": 1.1, "min_p": None, "do_sample": True, "transformers_version": "4.0"}
    name = folder(tmp_path, generation)
    source = resolve(ModelConfig(model=name))
    assert source.eos_token_ids == (5, 7)
    assert source.default_sampling == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
        "max_tokens": 64,
    }
    plain = resolve(ModelConfig(model=name, generation_config="vllm"))
    assert (plain.default_sampling, plain.eos_token_ids) == ({}, (5, 7))


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"top_p": True}, "top_p is True"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
        ({"eos_token_id": [1, -2]}, r"eos_token_id is \[1, -2\]"),
        ([1], "no JSON object"),
    ],
)
def test_a_damaged_generation_config_is_refused(tmp_path: Path, generation: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        resolve(ModelConfig(model=folder(tmp_path, generation)))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"x"', "\ud800"])
def test_a_damaged_config_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        resolve(ModelConfig(model=str(tmp_path)))


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read .*whole model"):
        resolve(ModelConfig(model=str(tmp_path)))


def test_an_unknown_architecture_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"MambaForCausalLM.*LlamaForCausalLM.*Qwen3ForCausalLM"):
        resolve(ModelConfig(model=folder(tmp_path, architectures=["MambaForCausalLM"])))


@pytest.mark.parametrize("length", [129, 0, -1])
def test_max_model_len_must_fit_the_model(tmp_path: Path, length: int) -> None:
    assert resolve(ModelConfig(model=folder(tmp_path), max_model_len=128)).max_model_len == 128
    with pytest.raises(ValueError, match=rf"max_model_len is {length}; .* has 128 positions"):
        resolve(ModelConfig(model=folder(tmp_path), max_model_len=length))


def test_weights_without_a_tokenizer_ask_for_one(tmp_path: Path) -> None:
    name = folder(tmp_path, tokenizer=False)
    with pytest.raises(ValueError, match=r"no tokenizer files.*--tokenizer"):
        resolve(ModelConfig(model=name))
    assert resolve(ModelConfig(model=name, tokenizer="some/where")).tokenizer == "some/where"


def test_a_preset_has_random_weights_and_bytes_for_tokens() -> None:
    source = resolve(ModelConfig(model="tiny", load_format="dummy"))
    assert (source.kind, source.path, source.tokenizer, source.root) == ("dummy", None, None, "tiny")
    tokenizer = load_tokenizer(source)
    assert isinstance(tokenizer, ByteTokenizer)
    assert len(tokenizer) == source.shape.vocab_size
    assert source.eos_token_ids == (tokenizer.eos_token_id,)


def test_a_folders_shape_can_have_random_weights(tmp_path: Path) -> None:
    source = resolve(ModelConfig(model=folder(tmp_path, tokenizer=False), load_format="dummy"))
    assert (source.kind, source.path, source.tokenizer) == ("dummy", tmp_path, None)
    assert len(load_tokenizer(source)) == 300


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2", "no model 'smolm2'.*no such folder or file.*smollm2-135m-instruct"),
        ("./missing", "no model './missing'"),
        ("/missing/folder", "no model '/missing/folder'"),
        ("a/b/c", "no model 'a/b/c'"),
        ("missing.gguf", "no model 'missing.gguf'"),
        ("", "config.json"),  # the working folder
        ("tiny", "only a shape.*--load-format dummy"),
    ],
)
def test_a_name_of_nothing_says_what_it_was_tried_as(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        resolve(ModelConfig(model=name))


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    with pytest.raises(ValueError, match=r"name a \.gguf file, or the folder"):
        resolve(ModelConfig(model=str(tmp_path / "config.json")))


def test_a_folder_with_several_gguf_files_asks_which(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"has 2 \.gguf files: name one"):
        resolve(ModelConfig(model=str(tmp_path)))


def test_a_hub_id_without_a_network_fails_at_once_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    started = time.process_time()
    with pytest.raises(ValueError, match=r"nobody/nothing is not in the cache.*smollm2-135m-instruct"):
        resolve(ModelConfig(model="nobody/nothing", download_dir=str(tmp_path)))
    assert time.process_time() - started < 5.0


def test_a_hub_id_becomes_the_downloaded_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    asked: list[Any] = []

    def download(name: str, patterns: tuple[str, ...], where: str | None = None) -> Path:
        asked.append((name, "*.safetensors" in patterns, where))
        return tmp_path

    monkeypatch.setattr(hub, "download", download)
    source = resolve(ModelConfig(model="some/model", download_dir="/d"))
    assert (source.path, source.name, source.root) == (tmp_path, "some/model", "some/model")
    resolve(ModelConfig(model="some/model", load_format="dummy"))
    assert asked == [("some/model", True, "/d"), ("some/model", False, None)]


@pytest.mark.parametrize("kind", ["gated", "unknown", "disk"])
def test_what_the_hub_says_becomes_one_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    response = httpx.Response(401, request=httpx.Request("GET", "https://hub/x"))
    errors: dict[str, tuple[Exception, str]] = {
        "gated": (GatedRepoError("long\ntext", response=response), "consent"),
        "unknown": (RepositoryNotFoundError("long\ntext", response=response), "check the name"),
        "disk": (OSError(28, "No space left on device"), "No space left"),
    }
    error, message = errors[kind]

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ValueError, match=message) as caught:
        hub.download("a/b", ("*.json",))
    assert "\n" not in str(caught.value)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = {name: str(resolve_device(DeviceConfig(device=name))) for name in ("auto", "cpu", "cuda", "cuda:1")}
    assert found == {"auto": "cuda:0", "cpu": "cpu", "cuda": "cuda:0", "cuda:1": "cuda:1"}
    with pytest.raises(ValueError, match="'cuda:2' is not there, torch sees 2"):
        resolve_device(DeviceConfig(device="cuda:2"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device(DeviceConfig()) == torch.device("cpu")
    with pytest.raises(ValueError, match="'cuda' is not there, torch sees 0"):
        resolve_device(DeviceConfig(device="cuda"))


@pytest.mark.parametrize("name", ["vulkan", "cuda:", "cuda:x", "cpu:0", "tpu:0", "", "cuda:-1", "cuda:0:0"])
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown: choose auto"):
        resolve_device(DeviceConfig(device=name))


def test_precisions() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda:0")
    assert resolve_dtype(ModelConfig(), cpu) is torch.float32
    assert resolve_dtype(ModelConfig(), gpu) is torch.bfloat16
    assert resolve_dtype(ModelConfig(dtype="half"), cpu) is torch.float16
    assert resolve_dtype(ModelConfig(dtype="float"), gpu) is torch.float32
