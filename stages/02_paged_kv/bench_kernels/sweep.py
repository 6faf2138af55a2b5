"""The sweep behind the constants of the kernels: every way to cut the work at a point, the best few first.

Owns which variants are tried. What it finds is written into the kernels' tables by hand: nothing is tuned
while serving.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench_kernels.arena import Arena
from bench_kernels.attention_cases import num_sms
from bench_kernels.compiling import compile_all
from bench_kernels.points import FEW_TOKENS, FEWER_TOKENS, MATRICES, UNTILED, Point
from bench_kernels.timing import CapturedCase
from stage2.kernels.decode_splits import MAX_SPLITS, choose_splits
from stage2.kernels.matvec import choose_tile
from stage2.kernels.merge_splits import MIN_TILES

BEST = 4  # variants printed of each point
ROUNDS = 2
KV_HEADS = {"8b": 8, "135m": 3}

# (keys, warps, stages)
TILINGS = [
    *((32, 2, stages) for stages in (2, 3, 4, 5)),
    (32, 4, 3),
    *((64, 2, stages) for stages in (2, 3, 4, 5)),
    *((64, 4, stages) for stages in (2, 3, 4)),
    *((128, 4, stages) for stages in (2, 3, 4)),
    (128, 8, 3),
]
# (most of a request, fewest tiles of each)
SPLITS = [(1, 2), (2, 2), (4, 2), (4, 8), (8, 8), (4, 16), (8, 16), (4, 32), (8, 32), (4, 64)]
SPLIT_BATCHES = {"8b": (16, 24, 32, 48, 64), "135m": (32, 64, 88, 128, 256)}
# (rows, keys, warps, stages)
PREFILL_TILES = [
    *((64, 64, 4, stages) for stages in (2, 3, 4)),
    *((64, 128, 4, stages) for stages in (2, 3)),
    *((128, 32, 4, stages) for stages in (3, 4)),
    *((128, 64, 4, stages) for stages in (2, 3, 4)),
    (128, 32, 8, 3),
    *((128, 64, 8, stages) for stages in (2, 3, 4, 5)),
    *((128, 128, 8, stages) for stages in (2, 3)),
    *((256, 64, 8, stages) for stages in (2, 3, 5)),
]
# (rows, columns, warps, stages); 256 columns a warp: the 8 numbers of x that a thread loads are those it multiplies
MATVEC_TILES = [
    *(
        (rows, columns, warps, 1)
        for columns, warps in ((256, 1), (512, 1), (512, 2), (1024, 2), (1024, 4), (2048, 4), (1024, 8), (2048, 8))
        for rows in (1, 2, 4)
    ),
    (8, 256, 1, 1),
    (8, 1024, 4, 1),
    *((rows, 1024, 4, 3) for rows in (1, 2, 4)),
    *((rows, 2048, 8, 3) for rows in (1, 2)),
]

# For several tokens; no more than MOST_SUMS sums a thread.
FEW_TILES = [
    *((rows, columns, warps, 1) for columns, warps in ((256, 1), (512, 1), (512, 2), (1024, 4)) for rows in (1, 2, 4)),
    (8, 256, 1, 1),
]
MOST_SUMS = 32

# (rows, columns, warps, stages); for small matrices, which want many programs
SMALL_SKINNY_TILES = [
    *((8, 64, 1, stages) for stages in (4, 8)),
    (8, 128, 1, 4),
    (16, 64, 2, 6),
    (16, 128, 2, 4),
    (16, 256, 2, 3),
    (32, 64, 4, 6),
    (32, 128, 4, 4),
    *((64, columns, 4, 4) for columns in (64, 128)),
]
# (rows, columns, warps, stages)
SKINNY_TILES = [
    *((16, 256, 2, stages) for stages in (3, 4)),
    (16, 512, 2, 3),
    *((32, 128, 4, stages) for stages in (4, 6)),
    *((32, 256, 4, stages) for stages in (3, 4, 5)),
    *((32, 256, 2, stages) for stages in (3, 4)),
    *((64, 64, 4, stages) for stages in (4, 6)),
    *((64, 128, 4, stages) for stages in (3, 4, 5)),
    (64, 256, 4, 3),
]


def decode_variants() -> Iterator[list[Point]]:
    """For each point, all tilings with the splits of its batch size and those around them."""
    grid = [(1, 4096), (8, 4096), (1, 32768), (4, 32768), (64, 1024), (64, 4096), (256, 1024)]
    points: list[dict[str, Any]] = [{"batch": b, "context": c} for b, c in grid]
    points += [{"batch": b, "context": c, "ragged": True} for b, c in ((64, 4096), (256, 1024))]
    points += [{"batch": b, "context": 1024, "shape": "135m"} for b in (1, 64, 256)]
    for point in points:
        multiples = (2, 4, 8) if "ragged" in point else (1, 2, 4)
        usual = choose_splits(point["batch"], KV_HEADS[point.get("shape", "8b")], num_sms("cuda")).number
        splits = sorted({max(1, min(MAX_SPLITS, usual * n // 2)) for n in multiples})
        yield [Point("decode", {**point, "tiling": t, "splits": (n, MIN_TILES)}) for t in TILINGS for n in splits]


def split_variants() -> Iterator[list[Point]]:
    """Batches between few and many, alike and ragged, and one with long requests: how their keys are cut."""
    contexts = [(128, False), (1024, False), (3500, False), (1024, True), (4096, True)]
    for shape, batches in SPLIT_BATCHES.items():
        sizes = [(batch, *rest) for batch in batches for rest in contexts] + [(24, 16000, True)]
        for batch, context, ragged in sizes:
            point = {"batch": batch, "context": context, "shape": shape, "ragged": ragged}
            yield [Point("decode", {**point, "splits": splits}) for splits in SPLITS]


def prefill_variants() -> Iterator[list[Point]]:
    """All tiles for several prompts with heads of 128 and of 64, for a long one, and for a chunk behind a long one."""
    points: list[dict[str, Any]] = [{"batch": 8, "context": 4000, "shape": shape} for shape in ("8b", "135m")]
    points += [{"batch": 1, "context": 8192}, {"batch": 1, "context": 16384 + 64, "queries": 64}]
    for point in points:
        yield [Point("prefill", {**point, "tile": tile}) for tile in PREFILL_TILES]


def matvec_variants() -> Iterator[list[Point]]:
    """All tiles for each matrix, those wider than a row left out; the library is in it too."""
    for num_rows, width in (matrix for matrices in MATRICES.values() for matrix in matrices):
        sizes = {"num_rows": num_rows, "width": width}
        tiles = {tuple(choose_tile(num_rows, width)), *(t for t in MATVEC_TILES if t[1] < 2 * width)}
        yield [
            Point("library", {"tokens": 1, **sizes}),
            *(Point("matvec", {**sizes, "tile": t}) for t in sorted(tiles)),
        ]


def few_variants() -> Iterator[list[Point]]:
    """All tiles of both kernels for each matrix of the small models and two to eight tokens, and the library."""
    for num_rows, width in MATRICES["135m"] + MATRICES["0.6b"]:
        for tokens in FEWER_TOKENS:
            sizes = {"tokens": tokens, "num_rows": num_rows, "width": width}
            fit = [t for t in FEW_TILES if t[1] < 2 * width and tokens * t[0] * t[1] <= MOST_SUMS * 256 * t[2]]
            tiles = {tuple(choose_tile(num_rows, width, tokens)), *fit}
            yield [
                *(Point(kernel, sizes) for kernel in UNTILED),
                *(Point("skinny", {**sizes, "tile": t}) for t in SMALL_SKINNY_TILES if t[1] < 2 * width),
                *(Point("matvec", {**sizes, "tile": t}) for t in sorted(tiles)),
            ]


def skinny_variants() -> Iterator[list[Point]]:
    """All tiles for each matrix of the large model and two batch sizes; the library is in it too."""
    for tokens in FEW_TOKENS:
        for num_rows, width in MATRICES["8b"]:
            sizes = {"tokens": tokens, "num_rows": num_rows, "width": width}
            yield [Point("library", sizes), *(Point("skinny", {**sizes, "tile": t}) for t in SKINNY_TILES)]


SWEEPS = {
    "decode": decode_variants,
    "splits": split_variants,
    "prefill": prefill_variants,
    "matvec": matvec_variants,
    "few": few_variants,
    "skinny": skinny_variants,
}


def sweep(name: str, arena: Arena) -> Iterator[tuple[dict[str, object], list[tuple[float, Point]]]]:
    """(what the variants of a point share, its variants with their microseconds, fastest first), point by point."""
    groups = list(SWEEPS[name]())
    failed = compile_all([point for group in groups for point in group])
    for group in groups:
        timed = []
        for point in (p for p in group if str(p) not in failed):
            captured = CapturedCase(point.build(arena))
            timed.append((min(captured.microseconds() for _ in range(ROUNDS)), point))
        common = {k: v for k, v in group[-1].arguments.items() if k not in ("tile", "tiling", "splits")}
        yield common, sorted(timed, key=lambda pair: pair[0])
