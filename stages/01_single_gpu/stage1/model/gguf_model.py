"""A GGUF file as if it were a Hugging Face checkpoint: the same configuration, tensor names and row order.

Owns the translation. Does not know the file's bytes (``gguf_file``) or what the model computes.

vLLM: ``vllm/model_executor/model_loader/gguf_loader.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stage1.model.checkpoint import CheckpointError
from stage1.model.gguf_file import GGUFFile
from stage1.model.shape import UnsupportedModelError

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# GGUF metadata key (after the architecture's name) -> key of config.json
CONFIG_KEYS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
}
OTHER_NUMBERS = (
    "attention.value_length",
    "expert_count",
    "rope.dimension_count",
    "rope.scale_linear",
    "rope.scaling.factor",
)
TOKEN_KEYS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
PERMUTED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
ROPE_FACTORS = "rope_freqs.weight"


def config_from_gguf(file: GGUFFile) -> dict[str, Any]:
    """The ``config.json`` that the model of ``file`` would have.

    Raises:
        UnsupportedModelError: an architecture, mixture of experts or rope scaling that has no place in it.
        CheckpointError: metadata or tensors are missing or contradict each other.
    """
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path} holds a {arch!r} model, not supported in a GGUF file: use one of {', '.join(ARCHITECTURES)}"
        )
    own = _own_numbers(file, arch)
    if own.get("expert_count"):
        raise UnsupportedModelError(f"{file.path} has {own['expert_count']} experts a layer: use a dense model")
    config: dict[str, Any] = {name: own[key] for key, name in CONFIG_KEYS.items() if key in own}
    config |= {
        name: file.metadata[f"tokenizer.ggml.{key}"]
        for key, name in TOKEN_KEYS.items()
        if f"tokenizer.ggml.{key}" in file.metadata
    }
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError(f"{file.path} has no tensor token_embd.weight: it is no whole model")
    config |= {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "hidden_act": "silu",
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    if arch == "llama":  # Hugging Face has one switch for the biases of q, k, v and o
        config["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    if config.get("sliding_window"):
        config["use_sliding_window"] = True
        if arch == "llama":  # Mistral is a Llama with a window
            config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    _check_heads(file, own, config)
    if scaling := _rope_scaling(file, arch, own, config):
        config["rope_scaling"] = scaling
    return config


@dataclass(frozen=True)
class GGUFCheckpoint:
    """The tensors of ``file`` under their Hugging Face names, with the rows of q and k in Hugging Face's order."""

    file: GGUFFile
    config: Mapping[str, Any]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor shapes by Hugging Face name; a tensor without one keeps its own, for the error message."""
        return {hf_name(name): info.shape for name, info in self.file.tensors.items() if name != ROPE_FACTORS}

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Read and de-quantise the tensors, one at a time."""
        for name in self.file.tensors:
            if name != ROPE_FACTORS:
                yield hf_name(name), self._unpermuted(name, self.file.read(name))

    def _unpermuted(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Undo llama.cpp's reordering of q and k, which only its ``llama`` architecture has.

        Rotary embedding pairs element i of a head with element i + dim/2 here, and 2i with 2i + 1 there.
        For a head of 6 rows the file holds 0 3 1 4 2 5, which is [3, 2] transposed.
        """
        matched = LAYER_TENSOR.fullmatch(name)
        heads = self.config[PERMUTED[matched[2]]] if matched and matched[2] in PERMUTED else None
        if heads is None or self.config["model_type"] not in ("llama", "mistral"):
            return tensor
        pairs = tensor.reshape(heads, -1, 2, *tensor.shape[1:])  # [heads, dim/2, 2, ...]
        return pairs.transpose(1, 2).reshape(tensor.shape)


def hf_name(name: str) -> str:
    """``blk.3.attn_q.weight`` → ``model.layers.3.self_attn.q_proj.weight``; unknown names stay as they are."""
    matched = LAYER_TENSOR.fullmatch(name)
    if matched and matched[2] in LAYER_NAMES:
        return f"model.layers.{matched[1]}.{LAYER_NAMES[matched[2]]}.{matched[3]}"
    return TOP_NAMES.get(name, name)


def _own_numbers(file: GGUFFile, arch: str) -> dict[str, Any]:
    """The metadata that are read here, without the architecture's name; one number each.

    Floats are given back as they were written once: 1e-05 for float32's 9.999999747378752e-06.
    """
    found = {
        key: file.metadata[f"{arch}.{key}"]
        for key in (*CONFIG_KEYS, *OTHER_NUMBERS)
        if f"{arch}.{key}" in file.metadata
    }
    for key, value in found.items():
        if isinstance(value, list | np.ndarray):
            raise UnsupportedModelError(f"{file.path}: {arch}.{key} differs by layer: one number for all is supported")
        if not isinstance(value, int | float):
            raise CheckpointError(f"{file.path}: {arch}.{key} is {value!r}, no number: download the file again")
    return {key: float(str(np.float32(value))) if isinstance(value, float) else value for key, value in found.items()}


def _check_heads(file: GGUFFile, own: Mapping[str, Any], config: dict[str, Any]) -> None:
    """Fill in what the file leaves out, and refuse sizes that the shape has no place for."""
    for key in ("num_attention_heads", "hidden_size"):
        if not isinstance(config.get(key), int) or config[key] < 1:
            raise CheckpointError(f"{file.path}: {key} is {config.get(key)!r}, no size: download the file again")
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    head_dim = config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, head_dim) != head_dim:
            raise UnsupportedModelError(f"{file.path}: {key} is {own[key]}, head_dim {head_dim}: they must be equal")


def _rope_scaling(
    file: GGUFFile, arch: str, own: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    kind = file.metadata.get(f"{arch}.rope.scaling.type", "none")
    if not isinstance(kind, str) or kind not in ("none", "linear"):
        raise UnsupportedModelError(f"{file.path} has rope scaling {kind!r}: supported are none, linear and Llama 3's")
    if ROPE_FACTORS in file.tensors:
        return _llama3_scaling(file, config)
    factor = own.get("rope.scaling.factor", own.get("rope.scale_linear", 1.0))
    return None if factor in (0.0, 1.0) else {"rope_type": "linear", "factor": factor}


def _llama3_scaling(file: GGUFFile, config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama 3's scaling from what llama.cpp made of it: a divisor for each frequency, and no parameters.

    All models published with it have low_freq_factor 1, high_freq_factor 4 and 8,192 original positions; only the
    factor differs (8 in Llama 3.1, 32 in 3.2). It is the largest divisor. The others are computed and compared.
    """
    original, dim = 8192, config["head_dim"]
    if file.tensors[ROPE_FACTORS].shape != (dim // 2,):
        raise CheckpointError(
            f"{file.path}: {ROPE_FACTORS} is {list(file.tensors[ROPE_FACTORS].shape)}, not [{dim // 2}]"
        )
    found = file.read(ROPE_FACTORS).float()  # [dim/2]
    factor, low, high = float(found.max()), 1.0, 4.0
    wavelengths = 2 * math.pi * float(config.get("rope_theta", 10_000.0)) ** (torch.arange(0, dim, 2).float() / dim)
    smooth = ((original / wavelengths - low) / (high - low)).clamp(0, 1)  # 1 = keep the frequency, 0 = divide it
    if not torch.allclose(found, 1 / ((1 - smooth) / factor + smooth), rtol=1e-3):
        raise UnsupportedModelError(
            f"{file.path}: {ROPE_FACTORS} is not Llama 3's rope scaling, the only one known there"
        )
    names = {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original}
    return {"rope_type": "llama3", "factor": factor} | names
