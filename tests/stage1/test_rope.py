"""Rotary tables and rotation against transformers' own functions."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from stage1.model.hf_config import shape_from_hf
from stage1.model.rope import apply_rope, rope_frequencies, rope_tables
from stage1.model.shape import PRESETS, RopeScaling

CPU = torch.device("cpu")
LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}


def make_config(head_dim: int, rope: dict[str, Any]) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=32, hidden_size=4 * head_dim, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=16384, rope_parameters=rope,
    )  # fmt: skip


@pytest.mark.parametrize("head_dim", [2, 64, 128])
@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "default", "rope_theta": 1e6},
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
        LLAMA31,
        {**LLAMA31, "factor": 32.0, "low_freq_factor": 0.5, "high_freq_factor": 9.0},
    ],
)
def test_tables_and_rotation_equal_transformers(head_dim: int, rope: dict[str, Any]) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = make_config(head_dim, rope)
    shape = shape_from_hf(config.to_dict())
    positions = torch.cat((torch.arange(40), torch.tensor([1023, 4096, 8191, 16383])))
    torch.manual_seed(0)
    q, k = torch.randn(len(positions), 4, head_dim), torch.randn(len(positions), 2, head_dim)
    theirs = LlamaRotaryEmbedding(config)
    cos, sin = theirs(q, positions[None])  # [1, T, dim]
    want_q, want_k = apply_rotary_pos_emb(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cos, sin)

    ours = rope_tables(shape, 16384, CPU)
    torch.testing.assert_close(rope_frequencies(shape), theirs.inv_freq, rtol=1e-6, atol=0.0)
    our_cos, our_sin = (table[positions] for table in ours)  # [T, dim / 2]
    half = head_dim // 2
    # A last-digit difference of a frequency is multiplied by the position, here up to 16,383.
    torch.testing.assert_close(our_cos, cos[0, :, :half], rtol=0.0, atol=4e-3)
    torch.testing.assert_close(our_cos[:40], cos[0, :40, :half], rtol=0.0, atol=1e-5)
    torch.testing.assert_close(our_sin[:40], sin[0, :40, half:], rtol=0.0, atol=1e-5)
    for x, want in ((q, want_q), (k, want_k)):
        torch.testing.assert_close(apply_rope(x, our_cos, our_sin)[:40], want[0].transpose(0, 1)[:40])


def test_tables_have_a_row_a_position_and_start_without_rotation() -> None:
    cos, sin = rope_tables(PRESETS["tiny"], 7, CPU)
    assert cos.shape == sin.shape == (7, 32)
    assert cos.dtype == sin.dtype == torch.float32
    assert cos[0].eq(1).all()
    assert sin[0].eq(0).all()


def test_the_example_of_the_docstring() -> None:
    shape = dataclasses.replace(PRESETS["tiny"], head_dim=4)
    cos, sin = rope_tables(shape, 2, CPU)
    turned = apply_rope(torch.tensor([[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]), cos[1:], sin[1:])
    wanted = [[math.cos(1), 0.0, math.sin(1), 0.0], [0.0, math.cos(0.01), 0.0, math.sin(0.01)]]
    torch.testing.assert_close(turned[0], torch.tensor(wanted))


def test_scores_depend_on_the_distance_alone() -> None:
    cos, sin = rope_tables(PRESETS["tiny"], 200, CPU)
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 64)
    scores = [
        (apply_rope(q, cos[[p + 5]], sin[[p + 5]]) * apply_rope(k, cos[[p]], sin[[p]])).sum() for p in (0, 17, 150)
    ]
    torch.testing.assert_close(scores[1], scores[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(scores[2], scores[0], atol=1e-4, rtol=1e-4)


def test_llama3_keeps_fast_pairs_divides_slow_ones_and_blends_between() -> None:
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    shape = dataclasses.replace(PRESETS["llama3-8b"], rope_scaling=scaling)
    plain = rope_frequencies(dataclasses.replace(shape, rope_scaling=None))
    turns = 8192 * plain / (2 * math.pi)
    share = rope_frequencies(shape) / plain
    fast, slow = turns > 4, turns < 1
    torch.testing.assert_close(share[fast], torch.ones(int(fast.sum())))
    torch.testing.assert_close(share[slow], torch.full((int(slow.sum()),), 1 / 8))
    between = share[~fast & ~slow]
    assert len(between) > 2
    assert ((between > 1 / 8) & (between < 1)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotation_rounds_once(dtype: torch.dtype) -> None:
    cos, sin = rope_tables(PRESETS["tiny"], 50, CPU)
    torch.manual_seed(0)
    x = torch.randn(50, 3, 64).to(dtype)
    turned = apply_rope(x, cos, sin)
    assert turned.dtype == dtype
    assert torch.equal(turned, apply_rope(x.float(), cos, sin).to(dtype))
