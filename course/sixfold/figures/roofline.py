"""The roofline of an engine's work: how fast it can be, given the bytes that it must read.

Owns the arithmetic from a model's shape, and the layout. Rates and step times are measured elsewhere.

vLLM: none; the model of the roofline is by Williams, Waterman and Patterson (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from sixfold.figures.measured import Rates
from stage1.model.shape import ModelShape
from stage1.trace import palette


@dataclass(frozen=True)
class Work:
    """A piece of work: arithmetic, and bytes that have to come from memory once."""

    name: str
    flop: float
    read: float  # bytes

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flop / self.read

    def limit(self, rates: Rates) -> float:
        """TFLOP/s that the device allows for it."""
        return min(rates.matmul_tflop_s, rates.read_tb_s * self.intensity)


def decode_attention(shape: ModelShape, dtype: torch.dtype, context: int) -> Work:
    """Attention of one new token over ``context`` keys, all layers: 2 FLOP a number for the score, 2 for the sum."""
    flop = 4.0 * shape.num_layers * shape.num_heads * shape.head_dim * context
    return Work("decode attention", flop, shape.kv_bytes_per_token(dtype) * context)


def matrices(shape: ModelShape, dtype: torch.dtype, tokens: int) -> Work:
    """All matrix products of a step of ``tokens`` tokens: the weights are read once for all of them."""
    return Work(
        f"matrices, {palette.count(tokens, 'token')}",
        2.0 * shape.num_parameters * tokens,
        shape.num_parameters * dtype.itemsize,
    )


def decode_step(shape: ModelShape, dtype: torch.dtype, batch: int, context: int) -> Work:
    """A whole step in which ``batch`` requests of ``context`` tokens get one token each."""
    products, attention = matrices(shape, dtype, batch), decode_attention(shape, dtype, context)
    return Work(f"batch {batch:,}", products.flop + batch * attention.flop, products.read + batch * attention.read)


def draw_roofline(rates: Rates, work: Sequence[Work], measured: Sequence[tuple[Work, float]] = ()) -> Figure:
    """The roof, each ``work`` where it touches it, and crosses for what was ``measured``, in TFLOP/s."""
    figure = palette.new_figure(9.5, 4.2)
    ax = figure.subplots()
    low, high = 0.5, 20_000.0
    corner = rates.matmul_tflop_s / rates.read_tb_s
    ax.plot([low, corner, high], [low * rates.read_tb_s, *[rates.matmul_tflop_s] * 2], color=palette.INK, linewidth=1.5)
    ax.axvspan(low, corner, color=palette.lighter(palette.PROMPT, 0.9), linewidth=0)
    for x, side, name in ((corner / 1.1, "right", "memory-bound"), (corner * 1.1, "left", "compute-bound")):
        ax.text(x, 0.03, name, ha=side, transform=ax.get_xaxis_transform(), fontsize=palette.NORMAL, color=palette.PALE)
    for item in work:
        colour = palette.LOST if "attention" in item.name else palette.PROMPT
        ax.plot(item.intensity, item.limit(rates), "o", color=colour, markersize=7)
        ax.annotate(
            item.name, (item.intensity, item.limit(rates)), (7, -11), textcoords="offset points", fontsize=palette.SMALL
        )
    for item, reached in measured:
        ax.plot(item.intensity, reached, "x", color=palette.INK, markersize=7)
        ax.annotate(item.name, (item.intensity, reached), (7, -3), textcoords="offset points", fontsize=palette.SMALL)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_xlabel("FLOP a byte that is read", fontsize=palette.NORMAL)
    ax.set_ylabel("TFLOP/s", fontsize=palette.NORMAL)
    palette.bare(ax)
    crosses = ", crosses what whole decode steps reached" if measured else ""
    palette.title(ax, "The roof over decode", f"{rates.device}: dots are the most that is possible{crosses}")
    return figure
