"""GGUF files as Hugging Face checkpoints: names, order of rows, configuration; and damaged ones."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.config import ModelConfig
from stage1.model.checkpoint import CheckpointError
from stage1.model.gguf_file import open_gguf
from stage1.model.gguf_model import GGUFCheckpoint, config_from_gguf
from stage1.model.hf_config import shape_from_hf
from stage1.model.shape import UnsupportedModelError
from stage1.model.source import resolve, tensors
from stage1.model.weights import expected_tensors

HEADS, KV_HEADS, DIM, HIDDEN = 4, 2, 8, 32
SIZES = {
    "context_length": 64,
    "block_count": 1,
    "feed_forward_length": 64,
    "embedding_length": HIDDEN,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
}
GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "model.layers.0.input_layernorm.weight": "blk.0.attn_norm.weight",
    "model.layers.0.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
    "model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "model.layers.0.self_attn.k_proj.weight": "blk.0.attn_k.weight",
    "model.layers.0.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    "model.layers.0.self_attn.o_proj.weight": "blk.0.attn_output.weight",
    "model.layers.0.self_attn.q_norm.weight": "blk.0.attn_q_norm.weight",
    "model.layers.0.self_attn.k_norm.weight": "blk.0.attn_k_norm.weight",
    "model.layers.0.self_attn.q_proj.bias": "blk.0.attn_q.bias",
    "model.layers.0.self_attn.k_proj.bias": "blk.0.attn_k.bias",
    "model.layers.0.self_attn.v_proj.bias": "blk.0.attn_v.bias",
    "model.layers.0.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    "model.layers.0.mlp.up_proj.weight": "blk.0.ffn_up.weight",
    "model.layers.0.mlp.down_proj.weight": "blk.0.ffn_down.weight",
}


def write(path: Path, arch: str, arrays: Mapping[str, np.ndarray], extra: Callable[[Any], None] | None = None) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    for key, value in SIZES.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{arch}.rope.freq_base", 10000.0)
    writer.add_token_list(["a", "b", "c"])
    if extra:
        extra(writer)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def permuted(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's order, row by row: first half and second half of a head take turns."""
    out = torch.empty_like(rows)
    for head in range(heads):
        for i in range(DIM // 2):
            out[head * DIM + 2 * i] = rows[head * DIM + i]
            out[head * DIM + 2 * i + 1] = rows[head * DIM + DIM // 2 + i]
    return out


def model_weights(architecture: str, **config: Any) -> dict[str, torch.Tensor]:
    shape = shape_from_hf(
        {
            "architectures": [architecture],
            "vocab_size": 96,
            "hidden_size": HIDDEN,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": DIM,
            **config,
        }
    )
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(size, generator=generator) for name, size in expected_tensors(shape).items()}


def as_gguf(weights: Mapping[str, torch.Tensor], arch: str) -> dict[str, np.ndarray]:
    arrays = {}
    for name, tensor in weights.items():
        ours = GGUF_NAMES[name]
        if arch == "llama" and (".attn_q." in ours or ".attn_k." in ours):
            tensor = permuted(tensor, HEADS if ".attn_q." in ours else KV_HEADS)
        arrays[ours] = tensor.numpy()
    return arrays


@pytest.fixture(scope="module")
def good_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "good.gguf"
    arrays = as_gguf(model_weights("LlamaForCausalLM", tie_word_embeddings=True), "llama")
    return write(path, "llama", arrays).read_bytes()


# --- the model ---


@pytest.mark.parametrize(
    ("arch", "architecture", "config"),
    [
        ("llama", "LlamaForCausalLM", {"tie_word_embeddings": True}),
        ("llama", "LlamaForCausalLM", {"tie_word_embeddings": False}),
        ("qwen2", "Qwen2ForCausalLM", {"tie_word_embeddings": True}),
        ("qwen3", "Qwen3ForCausalLM", {"tie_word_embeddings": False}),
    ],
)
def test_names_order_and_config_are_hugging_faces(
    tmp_path: Path, arch: str, architecture: str, config: dict[str, Any]
) -> None:
    weights = model_weights(architecture, **config)

    def head_size(writer: Any) -> None:
        writer.add_uint32(f"{arch}.attention.key_length", DIM)

    source = resolve(ModelConfig(model=str(write(tmp_path / "m.gguf", arch, as_gguf(weights, arch), head_size))))
    read = dict(tensors(source))
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(read[name], tensor), name
    shape = source.shape
    assert (shape.architecture, shape.tie_embeddings) == (architecture, config["tie_word_embeddings"])
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.vocab_size) == (HEADS, KV_HEADS, DIM, 96)
    assert (shape.rms_eps, shape.max_position, source.kind) == (1e-5, 64, "gguf")


def test_biases_of_a_llama_are_reordered_too(tmp_path: Path) -> None:
    weights = {k: v for k, v in model_weights("Qwen2ForCausalLM", tie_word_embeddings=True).items() if "proj.bias" in k}
    arrays = as_gguf(weights, "llama") | {"token_embd.weight": np.zeros((96, HIDDEN), np.float32)}
    file = open_gguf(write(tmp_path / "m.gguf", "llama", arrays))
    config = config_from_gguf(file)
    read = dict(GGUFCheckpoint(file, config).tensors())
    assert config["attention_bias"] is True
    assert all(torch.equal(read[name], tensor) for name, tensor in weights.items())
    assert not np.array_equal(arrays["blk.0.attn_q.bias"], weights["model.layers.0.self_attn.q_proj.bias"].numpy())


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_scaling_is_recovered(tmp_path: Path, factor: float) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    hf = LlamaConfig(hidden_size=128, num_attention_heads=1, max_position_embeddings=131072, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](hf, torch.device("cpu"))
    plain = 10000.0 ** -(torch.arange(0, 128, 2).float() / 128)

    def head_size(writer: Any) -> None:
        writer.add_uint32("llama.attention.key_length", 128)

    def scaling(divisors: torch.Tensor) -> dict[str, Any]:
        arrays = {"token_embd.weight": np.zeros((96, HIDDEN), np.float32), "rope_freqs.weight": divisors.numpy()}
        config = config_from_gguf(open_gguf(write(tmp_path / "m.gguf", "llama", arrays, head_size)))
        return dict(config["rope_scaling"])

    divisors = (plain / scaled).double().round(decimals=4).float()  # the file has them without the noise of a division
    assert scaling(divisors) == {k: v for k, v in rope.items() if k != "rope_theta"}
    with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight is not Llama 3's"):
        scaling(divisors**0.9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.add_uint32("llama.expert_count", 8), "8 experts"),
        (lambda w: w.add_string("llama.rope.scaling.type", "yarn"), "rope scaling 'yarn'"),
        (lambda w: w.add_uint32("llama.rope.dimension_count", 4), "rope.dimension_count is 4"),
        (lambda w: w.add_array("llama.attention.key_length", [8, 8]), "differs by layer"),
        (lambda w: w.add_string("llama.attention.key_length", "8"), "no number"),
        (lambda w: w.add_array("llama.expert_count", [0, 1]), "differs by layer"),
        (lambda w: w.add_array("llama.rope.scaling.type", [0, 1]), "rope scaling"),
    ],
)
def test_what_the_shape_cannot_say_is_refused(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    arrays = {"token_embd.weight": np.zeros((96, HIDDEN), np.float32)}
    file = open_gguf(write(tmp_path / "m.gguf", "llama", arrays, change))
    with pytest.raises(ValueError, match=message):
        config_from_gguf(file)


def test_another_architecture_is_refused_with_the_list(tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path / "m.gguf", "gemma2", {"token_embd.weight": np.zeros((96, HIDDEN), np.float32)}))
    with pytest.raises(UnsupportedModelError, match=r"'gemma2'.*llama, qwen2, qwen3"):
        config_from_gguf(file)


# --- damage ---


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_loads_or_is_refused(
    data: st.DataObject, good_bytes: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    damaged = bytearray(good_bytes)
    header = good_bytes.index(b"blk.0.ffn_down.weight") + 64
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged)
    tracemalloc.start()
    started = time.process_time()
    try:
        list(tensors(resolve(ModelConfig(model=str(path)))))
    except (CheckpointError, UnsupportedModelError):
        pass
    finally:
        seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100e6
    assert seconds < 1.0
