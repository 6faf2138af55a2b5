"""Cases for everything but attention: matrix-vector products, norms, activation, rotation and store, sampling.

Owns their inputs, their references and what they must move. Matrix products of the vendor's library are cases too.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from bench_kernels.arena import BLOCK, Arena, Case, relative_error
from bench_kernels.attention_cases import SHAPES
from stage1.model.ops import TorchOps
from stage1.model.rope import apply_rope
from stage1.sampler import filter_logits
from stage2.kernels.activation import silu_and_mul
from stage2.kernels.matvec import MatvecTile, matvec
from stage2.kernels.norm import add_rms_norm
from stage2.kernels.rope_store import rope_and_store
from stage2.kernels.sampling import sample
from stage2.kernels.sampling_filters import filter_thresholds
from stage2.kernels.skinny_matmul import SkinnyTile, skinny_matmul
from stage2.ops import TritonOps

# temperature, top-k, top-p, min-p
SAMPLING = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "temperature": (0.7, 0, 1.0, 0.0),
    "top-k 50": (0.7, 50, 1.0, 0.0),
    "top-p 0.9": (0.7, 0, 0.9, 0.0),
    "top-k 50, top-p 0.9": (0.7, 50, 0.9, 0.0),
    "min-p 0.05": (0.7, 0, 1.0, 0.05),
}
CHECKED_ROWS = 8


def matrix_vector(
    arena: Arena, num_rows: int, width: int, *, tokens: int = 1, tile: tuple[int, int, int, int] | None = None
) -> Case:
    """The kernel for one to eight tokens."""
    num_bytes = num_rows * width * arena.dtype.itemsize
    weights = arena.take(arena.sets(num_bytes), num_rows, width)
    x = torch.randn(tokens, width, device=arena.device).to(arena.dtype)
    out = torch.full((tokens, num_rows), torch.nan, dtype=arena.dtype, device=arena.device)
    cut = None if tile is None else MatvecTile(*tile)

    def check() -> float:
        return relative_error(matvec(x, weights[0], out=out, tile=cut), x.float() @ weights[0].float().T)

    return Case([partial(matvec, x, w, out=out, tile=cut) for w in weights], num_bytes, check)


def library(arena: Arena, tokens: int, num_rows: int, width: int, *, chosen: bool = False) -> Case:
    """The same product, for any number of tokens, by the vendor's library; ``chosen``: by what the model's ops pick."""
    product = TritonOps().linear if chosen else F.linear
    num_bytes = num_rows * width * arena.dtype.itemsize
    weights = arena.take(arena.sets(num_bytes), num_rows, width)
    x = torch.randn(tokens, width, device=arena.device).to(arena.dtype)

    def check() -> float:
        return relative_error(product(x, weights[0]), x.float() @ weights[0].float().T)

    return Case([partial(product, x, w) for w in weights], num_bytes, check, 2 * tokens * num_rows * width)


def skinny(
    arena: Arena, tokens: int, num_rows: int, width: int, *, tile: tuple[int, int, int, int] | None = None
) -> Case:
    """The kernel for a few tokens that uses the matrix units."""
    num_bytes = num_rows * width * arena.dtype.itemsize
    weights = arena.take(arena.sets(num_bytes), num_rows, width)
    x = torch.randn(tokens, width, device=arena.device).to(arena.dtype)
    out = torch.full((tokens, num_rows), torch.nan, dtype=arena.dtype, device=arena.device)
    cut = None if tile is None else SkinnyTile(*tile)

    def check() -> float:
        return relative_error(skinny_matmul(x, weights[0], out=out, tile=cut), x.float() @ weights[0].float().T)

    return Case(
        [partial(skinny_matmul, x, w, out=out, tile=cut) for w in weights],
        num_bytes,
        check,
        2 * tokens * num_rows * width,
    )


def norm(arena: Arena, tokens: int, hidden: int) -> Case:
    """Residual addition and norm: two tensors in, two out."""
    num_bytes = 4 * tokens * hidden * arena.dtype.itemsize
    inputs = arena.take(arena.sets(num_bytes), 2, tokens, hidden)
    weight = torch.randn(hidden, device=arena.device).to(arena.dtype)
    out, total = torch.full_like(inputs[0], torch.nan)

    def launch(i: int) -> None:
        add_rms_norm(inputs[i, 0], inputs[i, 1], weight, 1e-6, out, total)

    def check() -> float:
        launch(0)
        reference = TorchOps().add_rms_norm(inputs[0, 0].float(), inputs[0, 1].float(), weight.float(), 1e-6)
        return relative_error(torch.stack((out, total)), torch.stack(reference))

    return Case([partial(launch, i) for i in range(len(inputs))], num_bytes, check)


def activation(arena: Arena, tokens: int, inner: int) -> Case:
    """SwiGLU: two halves in, one out."""
    num_bytes = 3 * tokens * inner * arena.dtype.itemsize
    inputs = arena.take(arena.sets(num_bytes), tokens, 2 * inner)
    out = torch.full((tokens, inner), torch.nan, dtype=arena.dtype, device=arena.device)

    def check() -> float:
        return relative_error(silu_and_mul(inputs[0], out), TorchOps().activation(inputs[0].float()))

    return Case([partial(silu_and_mul, x, out) for x in inputs], num_bytes, check)


def rope_store(arena: Arena, tokens: int, *, shape: str = "8b", head_norm: bool = True) -> Case:
    """Head norms, rotation and store: qkv in, as much out."""
    heads, kv_heads, dim = SHAPES[shape]
    width = (heads + 2 * kv_heads) * dim
    num_bytes = 2 * tokens * width * arena.dtype.itemsize
    inputs = arena.take(arena.sets(num_bytes), tokens, width)
    blocks = -(-tokens // BLOCK) + 1
    cache = torch.full((2, blocks, BLOCK, kv_heads, dim), torch.nan, dtype=arena.dtype, device=arena.device)
    slots = torch.randperm(blocks * BLOCK, generator=torch.Generator().manual_seed(0))[:tokens].to(arena.device)
    positions = torch.arange(tokens, device=arena.device)
    cos, sin = torch.randn(2, tokens, dim // 2, device=arena.device).unbind()
    q_norm, k_norm = torch.randn(2, dim, device=arena.device).to(arena.dtype).unbind()
    q = torch.full((tokens, heads, dim), torch.nan, dtype=arena.dtype, device=arena.device)
    norms = (q_norm, k_norm) if head_norm else (None, None)

    def launch(i: int) -> None:
        rope_and_store(
            inputs[i], q, cache[0], cache[1], slots, positions, cos, sin, norms[0], norms[1], 1e-6, heads, kv_heads
        )

    def check() -> float:
        launch(0)
        split = inputs[0].float().view(tokens, -1, dim).split((heads, kv_heads, kv_heads), dim=1)
        normed = [rms(x, w) if head_norm else x for x, w in zip(split, (q_norm, k_norm), strict=False)]
        turned = [apply_rope(x, cos[positions], sin[positions]) for x in normed]
        stored = [part.flatten(0, 1)[slots] for part in cache]
        return relative_error(torch.cat((q, *stored), 1), torch.cat((*turned, split[2]), 1))

    return Case([partial(launch, i) for i in range(len(inputs))], num_bytes, check)


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Each head over its root mean square, in float32."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()


def sampling(arena: Arena, rows: int, vocab_size: int, mode: str) -> Case:
    """From logits, normal numbers times 3, to ids; the filters' thresholds are part of it."""
    num_bytes = rows * vocab_size * arena.dtype.itemsize
    logits = arena.take(arena.sets(num_bytes), rows, vocab_size) * 3
    values = [torch.full((rows,), value, device=arena.device) for value in SAMPLING[mode]]
    temperature, top_k, top_p, min_p = (values[0], values[1].long(), values[2], values[3])
    seeds, positions = torch.arange(2 * rows, device=arena.device).view(2, rows)
    has_filter = SAMPLING[mode][1:] != (0, 1.0, 0.0)
    floor = torch.full((rows,), torch.nan, device=arena.device) if has_filter else None
    ids = torch.full((rows,), -1, device=arena.device)
    bad = torch.ones(rows, dtype=torch.bool, device=arena.device)

    def launch(i: int) -> None:
        if floor is not None:
            filter_thresholds(logits[i], temperature, top_k, top_p, min_p, floor)
        sample(logits[i], temperature, seeds, positions, floor, ids, bad)

    def check() -> float:
        """Share of tokens that are in though they should be out, or out though in; or of wrong greedy ids."""
        launch(0)
        if floor is None:
            right = logits[0].argmax(1) if mode == "greedy" else ids.clamp(0, vocab_size - 1)
            return float((ids != right).float().mean() + bad.float().mean())
        few = logits[0][:CHECKED_ROWS].float()
        k = torch.where(top_k > 0, top_k, vocab_size)[:CHECKED_ROWS, None]
        p = torch.where(top_p < 1, top_p, 2.0)[:CHECKED_ROWS, None]
        scaled = few.double() / temperature[:CHECKED_ROWS, None].double()
        kept = filter_logits(scaled, k, p, min_p[:CHECKED_ROWS, None].double()) > -torch.inf
        return float((kept != (few >= floor[:CHECKED_ROWS, None])).sum() / kept.sum() + bad.float().mean())

    return Case([partial(launch, i) for i in range(len(logits))], num_bytes, check)
