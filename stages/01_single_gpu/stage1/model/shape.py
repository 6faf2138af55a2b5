"""What a dense transformer looks like: the sizes and switches that fix its parameters and its arithmetic.

Owns the shape and the preset ones. Does not know config files (``hf_config`` reads those), tensors or devices.

vLLM: ``vllm/config/__init__.py``, where transformers' own config objects play this part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch


class UnsupportedModelError(ValueError):
    """A model this engine cannot run as it was trained; the message names what, and what would do."""


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context. The last three are read by ``llama3`` alone."""

    kind: Literal["linear", "llama3"]
    factor: float  # slow pairs turn this much slower
    low_freq_factor: float = 1.0  # pairs with fewer turns than this in the original context are slowed fully
    high_freq_factor: float = 4.0  # pairs with more turns are left alone; those between are interpolated
    original_max_position: int = 8192  # tokens of the context before it was stretched


@dataclass(frozen=True)
class ModelShape:
    """Everything that fixes the parameters and the arithmetic of one model.

    Attention is full in every layer. A model trained with a sliding window gives the same answers up to the window's
    length, so there ``max_position`` is capped at the window.
    """

    architecture: str  # name of the class in transformers, one of hf_config.SUPPORTED
    vocab_size: int  # rows of the embedding, at least the tokenizer's size
    hidden_size: int  # width of the residual stream
    intermediate_size: int  # width inside the MLP
    num_layers: int
    num_heads: int  # query heads
    num_kv_heads: int  # key and value heads; num_heads is a multiple
    head_dim: int  # even; num_heads * head_dim need not be hidden_size
    rms_eps: float  # added to the mean square in every norm
    rope_theta: float  # base of the rotary wavelengths
    rope_scaling: RopeScaling | None
    max_position: int  # longest sequence in tokens
    tie_embeddings: bool  # the output projection is the embedding
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool  # RMS norm over each head of q and k, before the rotation
    sliding_window: int | None = None  # tokens; the trained window where it is shorter than the trained context

    @property
    def num_parameters(self) -> int:
        """Weights and biases in total; a tied output projection counts once."""
        hidden, inner = self.hidden_size, self.intermediate_size
        q, qkv = self.num_heads * self.head_dim, (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        attention = hidden * qkv + q * hidden + self.qkv_bias * qkv + self.o_bias * hidden
        mlp = 3 * hidden * inner + self.mlp_bias * (2 * inner + hidden)
        norms = 2 * hidden + self.qk_norm * 2 * self.head_dim
        embeddings = self.vocab_size * hidden * (1 if self.tie_embeddings else 2)
        return embeddings + self.num_layers * (attention + mlp + norms) + hidden

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of keys and values that one token leaves in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize


def _preset(
    architecture: str,
    width: tuple[int, int, int],  # vocabulary, hidden, MLP
    num_layers: int,
    heads: tuple[int, int, int],  # query heads, KV heads, head_dim
    rope_theta: float,
    max_position: int,
    tie_embeddings: bool,
) -> ModelShape:
    """A shape without biases and without rope scaling, as all of the presets are."""
    qwen3 = architecture == "Qwen3ForCausalLM"
    return ModelShape(
        architecture=architecture,
        vocab_size=width[0],
        hidden_size=width[1],
        intermediate_size=width[2],
        num_layers=num_layers,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=heads[2],
        rms_eps=1e-6 if qwen3 else 1e-5,
        rope_theta=rope_theta,
        rope_scaling=None,
        max_position=max_position,
        tie_embeddings=tie_embeddings,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=qwen3,
    )


# The sizes of the public checkpoints. ``tiny`` is for tests and lessons: 256 bytes, 3 special ids and 5 spare ones make
# a vocabulary that 2, 4 and 8 ranks can share, and attention kernels like heads of 64, however narrow the model.
PRESETS: Mapping[str, ModelShape] = {
    "tiny": _preset("LlamaForCausalLM", (264, 64, 128), 4, (8, 2, 64), 1e4, 2048, True),
    "smollm2-135m": _preset("LlamaForCausalLM", (49152, 576, 1536), 30, (9, 3, 64), 1e5, 8192, True),
    "qwen3-0.6b": _preset("Qwen3ForCausalLM", (151936, 1024, 3072), 28, (16, 8, 128), 1e6, 40960, True),
    "qwen3-8b": _preset("Qwen3ForCausalLM", (151936, 4096, 12288), 36, (32, 8, 128), 1e6, 40960, False),
    "llama3-8b": _preset("LlamaForCausalLM", (128256, 4096, 14336), 32, (32, 8, 128), 5e5, 8192, False),
}
