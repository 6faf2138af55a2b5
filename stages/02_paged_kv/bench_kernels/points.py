"""Which points are measured and how a point becomes a case.

Owns the grid: a ``Point`` is the name of a kernel and the arguments of its case, plain enough to be sent to a process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bench_kernels.arena import BLOCK, Arena, Case
from bench_kernels.attention_cases import SHAPES, decode, num_sms, prefill
from bench_kernels.pointwise_cases import (
    SAMPLING,
    activation,
    library,
    matrix_vector,
    norm,
    rope_store,
    sampling,
    skinny,
)
from stage2.kernels.decode_attention import choose_splits
from stage2.kernels.matvec import choose_tile
from stage2.kernels.skinny_matmul import choose_tile as choose_skinny_tile

CASES: dict[str, Callable[..., Case]] = {
    "decode": decode,
    "prefill": prefill,
    "matvec": matrix_vector,
    "skinny": skinny,
    "library": library,
    "norm": norm,
    "activation": activation,
    "rope_store": rope_store,
    "sampling": sampling,
}
# Rows and columns of the matrices of a layer (qkv, output, gate and up, down) and of the head.
MATRICES = {
    "135m": [(960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576)],
    "0.6b": [(4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)],
    "8b": [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288), (151936, 4096)],
}
FEW_TOKENS = (8, 64)


class Point(NamedTuple):
    """A kernel and the arguments of its case."""

    kernel: str
    arguments: dict[str, Any]

    def build(self, arena: Arena) -> Case:
        """The case, with its inputs in ``arena``."""
        return CASES[self.kernel](arena, **self.arguments)

    def shrink(self, device: str = "cuda") -> Point:
        """A point with little memory and work that runs the same compiled kernel."""
        small = dict(self.arguments)
        if self.kernel == "matvec":
            small["tile"] = small.get("tile") or tuple(choose_tile(small["num_rows"], small["width"]))
        if self.kernel == "skinny":
            small["tile"] = small.get("tile") or tuple(choose_skinny_tile(small["tokens"], small["num_rows"]))
        if self.kernel == "decode":
            _, kv_heads, dim = SHAPES[small.get("shape", "8b")]
            splits = choose_splits(small["batch"], kv_heads, num_sms(device), dim)
            small["num_splits"] = small.get("num_splits") or splits.number
            small |= {"batch": 2, "ragged": False}
        tokens = 64 if self.kernel == "skinny" else 16  # of the kernels, only the skinny product is compiled for tokens
        for name, limit in (("context", 4 * BLOCK), ("tokens", tokens), ("num_rows", 1024), ("rows", 16)):
            if name in small:
                small[name] = min(small[name], limit)
        return Point(self.kernel, small)


def decode_points() -> list[Point]:
    """Batches of the cache's whole bandwidth, even and ragged, and a long context at every batch size."""
    grid = [(1, 4096), (8, 4096), (64, 1024), (64, 4096), (256, 1024), (256, 4096)]
    even = [Point("decode", {"batch": b, "context": c}) for b, c in grid]
    ragged = [Point("decode", {"batch": b, "context": c, "ragged": True}) for b, c in ((64, 4096), (256, 1024))]
    long = [Point("decode", {"batch": 1 << i, "context": 32768}) for i in range(7)]
    return even + ragged + long


def prefill_points() -> list[Point]:
    """Several prompts and a long one, with heads of 128 and of 64."""
    sizes = [(8, 4000), (1, 8192)]
    return [Point("prefill", {"batch": b, "context": c, "shape": s}) for s in ("8b", "135m") for b, c in sizes]


def matvec_points() -> list[Point]:
    """Each matrix by the kernel and by the library; those of the large model by the library for a few tokens too."""
    points = []
    for model, matrices in MATRICES.items():
        for num_rows, width in matrices:
            sizes = {"num_rows": num_rows, "width": width}
            points += [Point("matvec", sizes), Point("library", {"tokens": 1, **sizes})]
            if model == "8b":
                few = [{"tokens": n, **sizes} for n in FEW_TOKENS]
                points += [Point(kernel, arguments) for arguments in few for kernel in ("skinny", "library")]
    return points


def sampling_points() -> list[Point]:
    """256 rows of 131,072 logits, by each filter."""
    return [Point("sampling", {"rows": 256, "vocab_size": 131072, "mode": mode}) for mode in SAMPLING]


def pointwise_points() -> list[Point]:
    """The other kernels of a layer of the large model: a token, a full decode batch, a prompt."""
    points = []
    for tokens in (1, 256, 8192):
        points.append(Point("norm", {"tokens": tokens, "hidden": 4096}))
        points.append(Point("activation", {"tokens": tokens, "inner": 12288}))
        points.append(Point("rope_store", {"tokens": tokens}))
    return points
