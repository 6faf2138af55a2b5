"""Random memory that all cases share, so that a case costs no time to fill and no launch finds its inputs in the L2.

Owns one long buffer of normal numbers and how many copies of a case's inputs are wanted. Does not know kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

COLD_BYTES = 256 << 20  # a round over a case's inputs touches more than this; the L2 of an H200 holds 60 MB
MOST_SETS = 128
BLOCK = 16  # tokens a page


@dataclass
class Case:
    """One kernel with inputs in several places of memory."""

    launches: list[Callable[[], Any]]  # the same work on other inputs
    num_bytes: int  # the fewest that a launch must move
    check: Callable[[], float]  # relative error of the first launch, against a reference in float32
    flops: int = 0


class Arena:
    """``size`` random numbers on ``device``; ``most_sets`` 1 makes cases that are only run, not timed."""

    def __init__(self, size: int, device: str = "cuda", most_sets: int = MOST_SETS) -> None:
        self.device = device
        self.most_sets = most_sets
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32  # the interpreter multiplies no bfloat16
        self._numbers = torch.empty(size, dtype=self.dtype, device=device).normal_()
        self._tables: dict[tuple[int, ...], list[torch.Tensor]] = {}  # a sweep asks for the same ones again and again

    def sets(self, num_bytes: int) -> int:
        """How many copies of inputs of ``num_bytes`` it takes to leave the cache cold."""
        return max(1, min(self.most_sets, -(-COLD_BYTES // num_bytes)))

    def take(self, sets: int, *shape: int) -> torch.Tensor:
        """[sets, *shape] numbers from the start of the buffer: cases share them."""
        count = sets * torch.Size(shape).numel()
        if count > len(self._numbers):
            raise ValueError(f"a case wants {count:,} numbers, the arena has {len(self._numbers):,}: make it larger")
        return self._numbers[:count].view(sets, *shape)

    def cache(self, kv_heads: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [blocks, 16, kv_heads, dim]: the two halves of the buffer."""
        blocks = len(self._numbers) // (2 * BLOCK * kv_heads * dim)
        keys, values = self.take(2, blocks, BLOCK, kv_heads, dim)
        return keys, values

    def tables(self, lengths: torch.Tensor, num_blocks: int, sets: int) -> list[torch.Tensor]:
        """Block tables [R, B] int32 of random pages; no page is in two of them as long as there are enough."""
        counts = -(-lengths // BLOCK)  # [R]
        total = int(counts.sum())
        if total > num_blocks:
            raise ValueError(f"a case wants {total:,} blocks, the arena has {num_blocks:,}: make it larger")
        key = (num_blocks, sets, *lengths.tolist())
        if key not in self._tables:
            self._tables[key] = self._make_tables(counts, total, num_blocks, sets)
        return self._tables[key]

    def _make_tables(self, counts: torch.Tensor, total: int, num_blocks: int, sets: int) -> list[torch.Tensor]:
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0)).int()
        used = torch.arange(int(counts.max()))[None] < counts[:, None]  # [R, B]
        tables = []
        for i in range(min(sets, num_blocks // total)):
            table = torch.zeros(used.shape, dtype=torch.int32)
            table[used] = order[i * total : (i + 1) * total]
            tables.append(table.to(self.device))
        return tables


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """‖out - reference‖ / ‖reference‖ in float64; not-a-number stays one."""
    difference = (out.double() - reference.double()).norm() / reference.double().norm()
    return float(difference)
