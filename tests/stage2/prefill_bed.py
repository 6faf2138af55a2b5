"""A ragged batch over a paged cache whose unused slots are poisoned, and its attention one query and head at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from stage2.kernels.prefill_attention import paged_prefill
from stage2.kernels.prefill_tiles import PrefillTile

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SMALL = PrefillTile(rows=16, keys=16, num_warps=4, num_stages=2)  # crosses many tiles with few tokens
HALF = [torch.float16, torch.bfloat16] if DEVICE.type == "cuda" else [torch.float16]


@dataclass
class Case:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    query_start: torch.Tensor
    seq_lens: torch.Tensor

    def run(self, **changes: object) -> torch.Tensor:
        arguments = {"scale": self.scale, "tile": SMALL} | changes
        tensors = (self.q, self.k, self.v, self.table, self.query_start, self.seq_lens)
        return paged_prefill(*tensors, **arguments)  # type: ignore[arg-type]

    @property
    def scale(self) -> float:
        return self.q.shape[-1] ** -0.5

    def expected(self) -> torch.Tensor:
        """In float32; rows that belong to no request are not-a-number."""
        out = torch.full(self.q.shape, math.nan, device=DEVICE)
        block_size, group = self.k.shape[1], self.q.shape[1] // self.k.shape[2]
        starts = self.query_start.tolist()
        for r, length in enumerate(self.seq_lens.tolist()):
            slots = [(int(self.table[r, p // block_size]), p % block_size) for p in range(length)]
            for i, token in enumerate(range(starts[r], starts[r + 1])):
                seen = slots[: length - (starts[r + 1] - starts[r]) + i + 1]
                for head in range(self.q.shape[1]):
                    keys = torch.stack([self.k[b, s, head // group] for b, s in seen]).float()
                    values = torch.stack([self.v[b, s, head // group] for b, s in seen]).float()
                    weights = torch.softmax(keys @ self.q[token, head].float() * self.scale, 0)
                    out[token, head] = weights @ values
        return out


def make_case(
    chunks: list[tuple[int, int]],
    *,
    heads: int = 2,
    kv_heads: int = 1,
    dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    index_dtype: torch.dtype = torch.int64,
    num_padding: int = 0,
    seed: int = 0,
) -> Case:
    """``chunks`` are (queries, sequence length). Blocks are dealt in random order; all other slots are not-a-number."""
    random = torch.Generator().manual_seed(seed)
    lengths = [length for _, length in chunks]
    counts = [-(-length // block_size) for length in lengths]
    order = torch.randperm(sum(counts) + 2, generator=random).tolist()
    unused = order.pop()
    kv = torch.full((2, sum(counts) + 2, block_size, kv_heads, dim), math.nan)
    table = torch.full((len(chunks), max(counts) + 1), unused)
    for r, length in enumerate(lengths):
        for b in range(counts[r]):
            table[r, b] = order.pop()
            filled = min(block_size, length - b * block_size)
            kv[:, table[r, b], :filled] = torch.randn(2, filled, kv_heads, dim, generator=random)
    query_start = torch.tensor([0, *(n for n, _ in chunks)]).cumsum(0)
    q = torch.randn(int(query_start[-1]) + num_padding, heads, dim, generator=random)
    kv = kv.to(DEVICE, dtype)
    return Case(
        q.to(DEVICE, dtype),
        kv[0],
        kv[1],
        table.to(DEVICE, index_dtype),
        query_start.to(DEVICE, index_dtype),
        torch.tensor(lengths).to(DEVICE, index_dtype),
    )


def assert_near(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    torch.testing.assert_close(got.float(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
