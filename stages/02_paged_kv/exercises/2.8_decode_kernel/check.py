"""Decoding over a paged cache: one query token a request, requests of different lengths."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage2.kernels.decode_attention import DecodeKernels, paged_decode

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {"float32": 1e-4}
BLOCK_SIZE = 16
SPARE_BLOCKS = 16  # of a row of the table, which no request owns: more than the longest tile


def cases(rng: random.Random) -> list[Case]:
    """From one request in one block to several in many; from the third case on, what nobody owns is poison."""
    generator = torch.Generator().manual_seed(rng.getrandbits(31))

    def case(name: str, words: str, lens: list[int], heads: int, kv: int, dim: int, **given: Any) -> Case:
        counts = [-(-length // BLOCK_SIZE) for length in lens]
        order = torch.randperm(sum(counts) + 2, generator=generator).tolist()
        spare = order.pop()
        cache = torch.randn(2, len(order) + 1, BLOCK_SIZE, kv, dim, generator=generator)
        table = torch.full((len(lens), max(counts) + SPARE_BLOCKS), spare)
        for row, (length, count) in enumerate(zip(lens, counts, strict=True)):
            blocks = [order.pop() for _ in range(count)]
            table[row, :count] = torch.tensor(blocks, dtype=torch.long)
            if given.get("poison", True) and length % BLOCK_SIZE:
                cache[:, blocks[-1], length % BLOCK_SIZE :] = math.nan
        for position in given.get("loud", []):  # of the first request: keys with a large score, for some heads
            cache[0, table[0, position // BLOCK_SIZE], position % BLOCK_SIZE] *= 200
        if given.get("poison", True):
            cache[:, [spare, *order]] = math.nan
        q = torch.randn(len(lens), heads, dim, generator=generator) * 2
        return Case(
            name,
            words,
            {"q": q, "k_cache": cache[0], "v_cache": cache[1], "block_table": table, "seq_lens": torch.tensor(lens)}
            | {"num_splits": given.get("splits", 1)},
        )

    return [
        case("one block", "one request of 5 keys; 3 query heads share a KV head", [5], 3, 1, 4, poison=False),
        case("a few blocks", "the table says where a key lies: block ids are in disorder", [40], 3, 1, 4, poison=False),
        case("several tiles", "the largest score may come in any tile", [150], 6, 2, 5),
        case("a large score", "the largest score stands in the first tile", [150], 3, 1, 4, loud=[3]),
        case("ragged", "requests of 1, 17, 0 and 70 keys; no keys give zeros", [1, 17, 0, 70], 6, 2, 5),
        case(
            "splits",
            "splits begin and end at their own tiles, and say how much they weigh",
            [300, 33],
            3,
            1,
            6,
            splits=3,
        ),
    ]


def run(subject: Any, case: Case) -> Any:
    """What the launch returns, splits joined by the engine's own kernel."""
    inputs = {name: x.clone() for name, x in case.inputs.items() if isinstance(x, torch.Tensor)}
    return paged_decode(
        *inputs.values(),
        num_splits=case.inputs["num_splits"],
        scale=inputs["q"].shape[-1] ** -0.5,
        kernels=DecodeKernels(attend=subject),
    )


def expected(case: Case) -> Any:
    """Every head of every request from the specification."""
    q, lens = case.inputs["q"], case.inputs["seq_lens"].tolist()
    keys, values = case.inputs["k_cache"].tolist(), case.inputs["v_cache"].tolist()
    group = q.shape[1] // case.inputs["k_cache"].shape[2]
    out = torch.empty_like(q)
    for r, blocks in enumerate(case.inputs["block_table"].tolist()):
        for h in range(q.shape[1]):
            k, v = (spec.read(cache, blocks, lens[r], h // group) for cache in (keys, values))
            out[r, h] = torch.tensor(spec.attend(q[r, h].tolist(), k, v, q.shape[-1] ** -0.5))
    return out
