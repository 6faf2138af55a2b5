"""Rotary position embeddings: a query or key turns by an angle that grows with its position.

Owns the frequencies, their scaling beyond the trained context, and the rotation. Does not know layers or batches.

A head of ``dim`` numbers is ``dim / 2`` pairs. Number i pairs with number i + dim / 2 (halves, as Hugging Face
checkpoints have them, not neighbours), and pair i turns by ``position * theta^(-2i / dim)`` radians. The dot product of
a query and a key then depends on the distance of their positions alone.

Example, dim 4, theta 10,000: pair 0 = (x0, x2) turns by 1 radian a position, pair 1 = (x1, x3) by 0.01.
[1, 0, 0, 0] at position 1 becomes [cos 1, 0, sin 1, 0] = [0.540, 0, 0.841, 0].

vLLM: ``vllm/model_executor/layers/rotary_embedding/``; the paper is arXiv:2104.09864.
"""

from __future__ import annotations

import math

import torch

from stage1.model.shape import ModelShape, RopeScaling


def rope_tables(shape: ModelShape, max_len: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every pair's angle at positions ``0 … max_len - 1``: both float32 [max_len, head_dim / 2].

    They are computed on the CPU, so that every device rotates by the same numbers.
    """
    frequencies = rope_frequencies(shape)  # [dim / 2]
    angles = torch.arange(max_len, dtype=torch.float32)[:, None] * frequencies  # [max_len, dim / 2]
    return angles.cos().to(device), angles.sin().to(device)


def rope_frequencies(shape: ModelShape) -> torch.Tensor:
    """Radians that each pair turns by from one position to the next: float32 [head_dim / 2], falling."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    frequencies = 1.0 / shape.rope_theta**exponents
    if shape.rope_scaling is None:
        return frequencies
    if shape.rope_scaling.kind == "linear":
        return frequencies / shape.rope_scaling.factor
    return _llama3_frequencies(frequencies, shape.rope_scaling)


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn every pair of every head: [T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim].

    Computed in float32 and rounded once to the dtype of ``x``.
    """
    first, second = x.float().chunk(2, dim=-1)  # [T, heads, dim / 2]
    cos, sin = cos[:, None], sin[:, None]  # [T, 1, dim / 2], the same for all heads
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def _llama3_frequencies(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Slow down only the pairs that the original context did not turn often enough to be known at every angle.

        turns in the original context    … low_freq_factor … high_freq_factor …
        frequency                        / factor   |  blend  |  as it was

    Example, Llama 3.1 (factor 8, low 1, high 4, context 8,192): a pair that turns 2.5 times there is halfway, and
    keeps 1/2 + 1/2 * 1/8 = 0.5625 of its frequency.
    """
    turns = scaling.original_max_position * frequencies / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)
