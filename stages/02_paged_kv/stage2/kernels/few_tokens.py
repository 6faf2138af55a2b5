"""Which kernel multiplies a matrix with two to eight tokens: a table of what was fastest, matrix by matrix.

Owns the table and the way from any shape to an entry of it. Does not launch anything (``ops.py`` does), and does not
know large matrices: from ``LARGE`` rows and columns on, they go to ``skinny_matmul`` with the tiles of its own table.

    up to 4 tokens, few rows   ``matvec``: ordinary cores multiply, and all loads of a row leave together
    8 tokens, or many rows     ``skinny_matmul``: the matrix units multiply, so that more tokens cost next to nothing
    8 tokens, few long rows    the vendor's library

Microseconds of what is chosen / of cuBLAS, on the H200 of the table:

    rows × columns   960 × 576   3,072 × 576   49,152 × 576   576 × 1,536   6,144 × 1,024   1,024 × 2,048
    4 tokens         2.8 / 3.8   3.3 / 4.1     16.4 / 16.6    3.5 / 5.0     5.5 / 5.9       4.8 / 8.2
    8 tokens         2.8 / 3.7   3.3 / 4.1     16.6 / 16.7    4.7 / 5.0     5.6 / 5.9       5.8 / 5.8
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import log2

from stage2.kernels.matvec import MatvecTile
from stage2.kernels.skinny_matmul import SkinnyTile

TOKENS = (2, 4, 8)  # measured numbers of tokens; those between count as the next one
LARGE = 2048  # rows and columns: a smaller matrix makes too few programs for the tiles of ``skinny_matmul``'s own table

_NARROW = SkinnyTile(8, 64, 1, 8)  # a warp a program, 8 tiles on their way: rows of 576 numbers are 9 tiles
_MIDDLE = SkinnyTile(16, 128, 2, 4)
_LONG = SkinnyTile(16, 256, 2, 3)
_TALL = SkinnyTile(64, 64, 4, 4)
_TALL_WIDE = SkinnyTile(64, 128, 4, 4)
_LIBRARY = None

# Rows and columns of a matrix → what is fastest, or within 3 % of it, for each of ``TOKENS``. From
# ``measure_kernels.py --tune few``, bfloat16, one H200, torch 2.11, Triton 3.6: the matrices of SmolLM2-135M and
# Qwen3-0.6B, and what joins two hidden states where a model drafts for itself.
MEASURED: dict[tuple[int, int], tuple[MatvecTile | SkinnyTile | None, ...]] = {
    (576, 576): (MatvecTile(2, 512, 1), MatvecTile(2, 1024, 4), _NARROW),
    (960, 576): (MatvecTile(1, 512, 1), _NARROW, _NARROW),
    (3072, 576): (_NARROW, _NARROW, _NARROW),
    (49152, 576): (_TALL, _TALL, _TALL),
    (4096, 1024): (_MIDDLE, _MIDDLE, _MIDDLE),
    (6144, 1024): (_MIDDLE, _MIDDLE, _MIDDLE),
    (151936, 1024): (_TALL_WIDE, _TALL_WIDE, _TALL_WIDE),
    (576, 1152): (MatvecTile(1, 1024, 4), MatvecTile(1, 512, 2), _NARROW),
    (576, 1536): (MatvecTile(2, 1024, 4), MatvecTile(1, 512, 2), _MIDDLE),
    (1024, 2048): (MatvecTile(1, 1024, 4), MatvecTile(2, 1024, 4), _LONG),
    (1024, 3072): (MatvecTile(1, 1024, 4), MatvecTile(2, 1024, 4), _LIBRARY),
}


@cache  # a model has five shapes, and a step without a graph asks for each of them in every layer
def choose_few_tokens(num_rows: int, width: int, num_tokens: int) -> MatvecTile | SkinnyTile | None:
    """The tile, and with it the kernel, for a matrix [num_rows, width] of two-byte numbers; ``None``: the library.

    A shape that was not measured takes the entry of the nearest one, by the ratios of rows and of columns.
    """
    if not 2 <= num_tokens <= TOKENS[-1]:
        raise ValueError(f"{num_tokens} tokens are not a few: this table serves 2 to {TOKENS[-1]}")

    def distance(shape: tuple[int, int]) -> float:
        return log2(shape[0] / num_rows) ** 2 + log2(shape[1] / width) ** 2

    return MEASURED[min(MEASURED, key=distance)][bisect_left(TOKENS, num_tokens)]
