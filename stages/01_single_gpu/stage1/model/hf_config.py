"""Reads a model's shape from a Hugging Face ``config.json``, which is not to be trusted.

Owns the list of supported architectures, what a silent config means, and the checks that keep a damaged or hostile one
from becoming a huge allocation. Does not know files, tensors or devices.

vLLM: ``vllm/transformers_utils/config.py``, ``vllm/model_executor/models/registry.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

from stage1.model.shape import ModelShape, RopeScaling, UnsupportedModelError

# No dense model of these families is near either limit; a config that asks for more is damaged.
MAX_PARAMETERS = 10**12
MAX_CONTEXT = 2**22  # tokens; the rotary tables alone take 2 GiB there with heads of 128


@dataclass(frozen=True)
class _Family:
    """What transformers assumes where a config is silent."""

    model_type: str
    max_position: int
    num_kv_heads: int | None = None  # None = as many as query heads
    head_dim: int | None = None  # None = hidden_size / num_heads
    qk_norm: bool = False
    qkv_bias: bool | None = False  # None = the config's attention_bias
    o_bias: bool | None = False
    mlp_bias: bool | None = False  # None = the config's mlp_bias


SUPPORTED: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family("llama", 2048, qkv_bias=None, o_bias=None, mlp_bias=None),
    "MistralForCausalLM": _Family("mistral", 131072, num_kv_heads=8),
    "Qwen2ForCausalLM": _Family("qwen2", 32768, num_kv_heads=32, qkv_bias=True),
    "Qwen3ForCausalLM": _Family(
        "qwen3", 32768, num_kv_heads=32, head_dim=128, qk_norm=True, qkv_bias=None, o_bias=None
    ),
}
DEFAULT_WINDOW = 4096  # tokens; of Mistral, and of Qwen where use_sliding_window is on

# Keys that change the arithmetic: with any of them set, the model would run and be wrong.
REFUSED_KEYS = {
    "quantization_config": "quantised weights are not supported: use the unquantised checkpoint or a .gguf file",
    "num_local_experts": "mixture-of-experts models are not supported: use a dense one",
    "num_experts": "mixture-of-experts models are not supported: use a dense one",
    "rope_interleaved": "interleaved rotary pairs are not supported: convert q and k to halves",
}


def shape_from_hf(config: Mapping[str, Any]) -> ModelShape:
    """Read the dict of a ``config.json`` or of ``AutoConfig.to_dict()``.

    Both spellings of rotary settings are understood: ``rope_parameters`` of transformers 5, and ``rope_theta`` with
    ``rope_scaling``. Linear scaling lengthens the context that the config names, as in vLLM.

    Raises:
        UnsupportedModelError: the architecture or a setting is not supported, or a size is missing, of the wrong
            type or absurd.
    """
    if not isinstance(config, Mapping):
        raise UnsupportedModelError(f"a model config is a mapping of names to values, not {type(config).__name__}")
    architecture = _architecture(config)
    family = SUPPORTED[architecture]
    _refuse(config)
    heads = _size(config, "num_attention_heads", 1024)
    hidden = _size(config, "hidden_size", 2**17)
    scaling, theta, stretch = _rope(config, family)
    context = int(_size(config, "max_position_embeddings", MAX_CONTEXT, family.max_position) * stretch)
    layers = _size(config, "num_hidden_layers", 1024)
    window = _window(config, architecture, layers)
    bias = _flag(config, "attention_bias")
    shape = ModelShape(
        architecture=architecture,
        vocab_size=_size(config, "vocab_size", 2**22),
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size", 2**19),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_kv_heads(config, family, heads),
        head_dim=_head_dim(config, family, hidden, heads),
        rms_eps=_number(config, "rms_norm_eps", 1e-12, 1e-1, 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position=context if window is None else min(context, window),
        tie_embeddings=_flag(config, "tie_word_embeddings"),
        qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
        o_bias=bias if family.o_bias is None else family.o_bias,
        mlp_bias=_flag(config, "mlp_bias") if family.mlp_bias is None else family.mlp_bias,
        qk_norm=family.qk_norm,
        sliding_window=window if window is not None and window < context else None,
    )
    for what, value, limit in (
        ("parameters", shape.num_parameters, MAX_PARAMETERS),
        ("tokens of context", context, MAX_CONTEXT),
    ):
        if value > limit:
            raise UnsupportedModelError(f"the config describes {value:,} {what}; the limit is {limit:,}: check it")
    return shape


def _architecture(config: Mapping[str, Any]) -> str:
    """The supported class that the config names, by ``architectures`` or, where that is missing, by ``model_type``."""
    named = config.get("architectures")
    if isinstance(named, (list, tuple)) and named:
        found = next((name for name in named if isinstance(name, str) and name in SUPPORTED), None)
        what = short(named[0])
    else:
        kind = config.get("model_type")
        found = next((name for name, family in SUPPORTED.items() if family.model_type == kind), None)
        what = f"of model_type {short(kind)}"
    if found is None:
        raise UnsupportedModelError(f"architecture {what} is not supported: use one of {', '.join(SUPPORTED)}")
    return found


def _refuse(config: Mapping[str, Any]) -> None:
    """Raise on settings that would be ignored silently otherwise."""
    for key, reason in REFUSED_KEYS.items():
        if config.get(key):
            raise UnsupportedModelError(f"{key} is set: {reason}")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(f"hidden_act {short(activation)} is not supported: use a model with silu")


def _rope(config: Mapping[str, Any], family: _Family) -> tuple[RopeScaling | None, float, float]:
    """Scaling, theta, and how much longer than ``max_position_embeddings`` the context becomes."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping) or any(isinstance(value, Mapping) for value in rope.values()):
        raise UnsupportedModelError("rotary settings that differ by layer are not supported: one set for all is")
    for source in (config, rope):
        if _number(source, "partial_rotary_factor", 0.0, 1e3, 1.0) != 1.0:
            raise UnsupportedModelError("partial_rotary_factor is not 1: only fully rotated heads are supported")
    theta = _number(rope if rope.get("rope_theta") is not None else config, "rope_theta", 1.0, 1e15, 10000.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None, theta, 1.0
    if kind == "linear":
        factor = _number(rope, "factor", 1.0, 1e4)
        return RopeScaling("linear", factor), theta, factor
    if kind != "llama3":
        raise UnsupportedModelError(f"rope type {short(kind)} is not supported: use default, linear or llama3")
    low = _number(rope, "low_freq_factor", 1e-3, 1e6)
    high = _number(rope, "high_freq_factor", 1e-3, 1e6)
    if high <= low:
        raise UnsupportedModelError(f"high_freq_factor {high} must be above low_freq_factor {low}: check the config")
    source = rope if config.get("original_max_position_embeddings") is None else config
    context = _size(config, "max_position_embeddings", MAX_CONTEXT, family.max_position)
    original = _size(source, "original_max_position_embeddings", MAX_CONTEXT, context)
    return RopeScaling("llama3", _number(rope, "factor", 1.0, 1e4), low, high, original), theta, 1.0


def _window(config: Mapping[str, Any], architecture: str, num_layers: int) -> int | None:
    """Tokens that the most short-sighted layer sees; ``None`` = all."""
    if architecture == "LlamaForCausalLM":
        return None
    if architecture != "MistralForCausalLM":
        if not _flag(config, "use_sliding_window"):
            return None
        kinds, full = config.get("layer_types"), config.get("max_window_layers", 28)
        if isinstance(kinds, (list, tuple)):
            slides = "sliding_attention" in kinds
        else:  # the first ``full`` layers see everything
            slides = not isinstance(full, int) or full < num_layers
        if not slides:
            return None
    if config.get("sliding_window", DEFAULT_WINDOW) is None:
        return None
    return _size(config, "sliding_window", 2**31, DEFAULT_WINDOW)


def _kv_heads(config: Mapping[str, Any], family: _Family, heads: int) -> int:
    missing = "num_key_value_heads" not in config and family.num_kv_heads is not None
    kv_heads = _size(config, "num_key_value_heads", 1024, family.num_kv_heads if missing else heads)
    if heads % kv_heads:
        raise UnsupportedModelError(f"{heads} query heads do not share {kv_heads} KV heads evenly: check the config")
    return kv_heads


def _head_dim(config: Mapping[str, Any], family: _Family, hidden: int, heads: int) -> int:
    derived = family.head_dim if "head_dim" not in config else None
    if derived is None and config.get("head_dim") is None and hidden % heads:
        raise UnsupportedModelError(f"hidden_size {hidden} is not a multiple of {heads} heads: set head_dim")
    dim = _size(config, "head_dim", 1024, derived or hidden // heads)
    if dim % 2:
        raise UnsupportedModelError(f"head_dim is {dim}: rotary pairs need an even one")
    return dim


def _size(config: Mapping[str, Any], key: str, limit: int, default: int | None = None) -> int:
    """A whole number in [1, limit]; ``default`` where it is missing or null."""
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise UnsupportedModelError(
            f"{key} is {short(value)}; it must be an integer from 1 to {limit:,}: check the config"
        )
    return value


def _number(config: Mapping[str, Any], key: str, low: float, high: float, default: float | None = None) -> float:
    """A real number in [low, high], which not-a-number never is; ``default`` where it is missing or null."""
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise UnsupportedModelError(f"{key} is {short(value)}; it must be from {low:g} to {high:g}: check the config")
    return float(value)


def _flag(config: Mapping[str, Any], key: str) -> bool:
    """True or false; false where it is missing or null."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise UnsupportedModelError(f"{key} is {short(value)}; it must be true or false: check the config")
    return bool(value)
