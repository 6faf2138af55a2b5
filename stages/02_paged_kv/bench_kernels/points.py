"""Which points are measured and how a point becomes a case.

Owns the grid: a ``Point`` is the name of a kernel and the arguments of its case, plain enough to be sent to a process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from typing import Any, NamedTuple

from bench_kernels.arena import BLOCK, Arena, Case
from bench_kernels.attention_cases import decode, decode_cut, decode_lengths, prefill, prefill_cut
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
from stage2.kernels.matvec import choose_tile
from stage2.kernels.prefill_splits import WHOLE
from stage2.kernels.skinny_matmul import choose_tile as choose_skinny_tile

CASES: dict[str, Callable[..., Case]] = {
    "decode": decode,
    "prefill": prefill,
    "matvec": matrix_vector,
    "skinny": skinny,
    "library": library,
    "ops": partial(library, chosen=True),
    "norm": norm,
    "activation": activation,
    "rope_store": rope_store,
    "sampling": sampling,
}
UNTILED = ("library", "ops")  # whose way to cut the work is not a point's to say
# Rows and columns of the matrices of a layer (qkv, output, gate and up, down), of the head, and where a small model
# drafts for itself, of what joins two hidden states into one.
MATRICES = {
    "135m": [(960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576), (576, 1152)],
    "0.6b": [(4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)],
    "8b": [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288), (151936, 4096)],
}
FEW_TOKENS = (8, 64)  # of the large model
FEWER_TOKENS = (2, 4, 8)  # of the small ones


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
            tile = choose_tile(small["num_rows"], small["width"], small.get("tokens", 1))
            small["tile"] = small.get("tile") or tuple(tile)
        if self.kernel == "skinny":
            small["tile"] = small.get("tile") or tuple(choose_skinny_tile(small["tokens"], small["num_rows"]))
        if self.kernel == "decode":
            lengths = decode_lengths(small["batch"], small["context"], small.get("ragged", False))
            small["splits"] = small.get("splits") or tuple(decode_cut(device, lengths, small.get("shape", "8b")))
            small |= {"batch": 2, "ragged": False}
        if self.kernel == "prefill":
            tile, key_splits = prefill_cut(device, **small)
            small |= {"tile": astuple(tile), "splits": tuple(key_splits)}
        tokens = 64 if self.kernel == "skinny" else 16  # products are compiled for tokens, matvec for up to 8
        limits = {"context": 4 * BLOCK, "queries": 4 * BLOCK, "tokens": tokens, "num_rows": 1024, "rows": 16}
        for name, limit in limits.items():
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
    """Several prompts and a long one, with heads of 128 and of 64; short chunks of one, as they are cut and uncut."""
    sizes = [(8, 4000), (1, 8192)]
    whole = [Point("prefill", {"batch": b, "context": c, "shape": s}) for s in ("8b", "135m") for b, c in sizes]
    behind = {"batch": 1, "shape": "8b"}
    chunks = [{**behind, "context": n + c, "queries": n} for n, c in ((64, 16384), (64, 1024), (256, 16384))]
    return whole + [Point("prefill", chunk | cut) for chunk in chunks for cut in ({}, {"splits": tuple(WHOLE)})]


def matvec_points() -> list[Point]:
    """Each matrix by the kernel and by the library, for one token and for a few."""
    points = []
    for model, matrices in MATRICES.items():
        for num_rows, width in matrices:
            sizes = {"num_rows": num_rows, "width": width}
            points += [Point("matvec", sizes), Point("library", {"tokens": 1, **sizes})]
            few = [{"tokens": n, **sizes} for n in (FEW_TOKENS if model == "8b" else FEWER_TOKENS)]
            kernels = ("skinny", "library") if model == "8b" else ("matvec", "library")
            points += [Point(kernel, arguments) for arguments in few for kernel in kernels]
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
