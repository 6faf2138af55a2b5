"""Configs of Hugging Face: what silence means, both spellings of rotary settings, windows, and refusals by name."""

from typing import Any

import pytest

from stage1.model.hf_config import SUPPORTED, shape_from_hf
from stage1.model.shape import ModelShape, UnsupportedModelError

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
GOOD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def shape_of(**changes: Any) -> ModelShape:
    return shape_from_hf({**GOOD, **changes})


def test_silent_configs_get_the_defaults_of_transformers() -> None:
    import transformers

    for architecture in SUPPORTED:
        family = architecture.removesuffix("ForCausalLM")
        sizes = {key: value for key, value in GOOD.items() if key != "architectures"}
        sizes |= {"num_attention_heads": 32, "hidden_size": 1024}
        theirs = getattr(transformers, f"{family}Config")(**sizes).to_dict()
        assert shape_from_hf({**sizes, "architectures": [architecture]}) == shape_from_hf(theirs)


def test_old_and_new_rotary_settings_mean_the_same() -> None:
    scaling = {key: value for key, value in LLAMA3.items() if key not in ("rope_theta", "rope_type")}
    new = shape_of(rope_parameters={**LLAMA3, "rope_theta": 5e5})
    assert new == shape_of(rope_theta=500000, rope_scaling={**scaling, "rope_type": "llama3"})
    assert new == shape_of(rope_theta=5e5, rope_scaling={**scaling, "type": "llama3"})
    assert shape_of(rope_theta=7.0, rope_scaling=None) == shape_of(rope_parameters={"rope_theta": 7.0})


def test_linear_scaling_lengthens_the_context() -> None:
    shape = shape_of(max_position_embeddings=4096, rope_scaling={"type": "linear", "factor": 2.5})
    assert shape.max_position == 10240


@pytest.mark.parametrize(
    ("changes", "max_position", "window"),
    [
        ({"architectures": ["MistralForCausalLM"]}, 4096, 4096),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, 32768, None),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 65536}, 32768, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 100, "use_sliding_window": False}, 32768, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 100, "use_sliding_window": True}, 32768, None),
        (
            {"architectures": ["Qwen3ForCausalLM"], "sliding_window": 100, "use_sliding_window": True}
            | {"max_window_layers": 1},
            100,
            100,
        ),
        ({"sliding_window": 100}, 32768, None),  # Llama has none, whatever its config says
    ],
)
def test_a_window_caps_the_context(changes: dict[str, Any], max_position: int, window: int | None) -> None:
    shape = shape_of(max_position_embeddings=32768, num_key_value_heads=2, **changes)
    assert (shape.max_position, shape.sliding_window) == (max_position, window)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM.*LlamaForCausalLM.*Qwen3ForCausalLM"),
        ({"architectures": [["a"]]}, "not supported"),
        ({"architectures": None, "model_type": "gemma3"}, "gemma3.*LlamaForCausalLM"),
        ({"architectures": None, "model_type": {}}, "not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn.*linear or llama3"),
        ({"rope_scaling": {"type": ["linear"], "factor": 4.0}}, "not supported"),
        ({"rope_scaling": "linear"}, "rotary settings"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "differ by layer"),
        ({"rope_scaling": {"type": "linear"}}, "factor is None"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor 1.0"),
        ({"rope_scaling": {"type": "linear", "factor": 1e4}, "max_position_embeddings": 4096}, "tokens of context"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"rope_interleaved": True}, "interleaved"),
        ({"hidden_act": "gelu"}, "gelu.*silu"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"num_local_experts": 8}, "mixture-of-experts"),
        ({"num_experts": 8}, "mixture-of-experts"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "4 query heads.*3 KV heads"),
        ({"num_key_value_heads": 8}, "8 KV heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"head_dim": -64}, "head_dim is -64"),
        ({"hidden_size": 66}, "not a multiple of 4"),
        ({"hidden_size": 2**62}, "hidden_size"),
        ({"hidden_size": 64.0}, "hidden_size is 64.0"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"max_position_embeddings": 2**40}, "max_position_embeddings"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"attention_bias": "yes"}, "attention_bias"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"hidden_size": 2**17, "intermediate_size": 2**19, "num_hidden_layers": 1024, "head_dim": 64}, "parameters"),
        (
            {"architectures": ["MistralForCausalLM"], "num_key_value_heads": 2, "sliding_window": 0},
            "sliding_window is 0",
        ),
    ],
)
def test_configs_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        shape_of(**changes)


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"])
def test_a_missing_size_is_named(key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{key} is None"):
        shape_from_hf({name: value for name, value in GOOD.items() if name != key})


@pytest.mark.parametrize("config", [{}, [], None, "llama"])
def test_what_is_no_config_is_refused(config: Any) -> None:
    with pytest.raises(UnsupportedModelError):
        shape_from_hf(config)
