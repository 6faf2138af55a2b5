"""From the qkv projection to attention in one launch: split, norm the heads, rotate, store.

Owns what happens to a token's queries, keys and values before attention reads them. Does not know requests, block
tables or how attention is computed.

    [q | k | v] of a token  = the heads of a row of qkv, one behind another
    q, k                    = rms_norm(q, q_norm), rms_norm(k, k_norm)     over each head, where the model has them
    q, k                    = turned by the angles of the token's position, number i with number i + dim / 2
    q_out[token], k_cache[slot], v_cache[slot] = q, k, v

Example: 4 query and 2 KV heads are 8 heads a token; head 3 goes to ``q_out[t, 3]``, head 5 to ``k_cache[slot, 1]``,
head 6 to ``v_cache[slot, 0]``.

The plain versions are ``stage1.model.ops.rms_norm``, ``stage1.model.rope.apply_rope`` and two ``index_copy_``: some
twenty launches, 36 with head norms; the roundings are the same. vLLM has three kernels: ``csrc/layernorm_kernels.cu``,
``csrc/pos_encoding_kernels.cu`` and ``csrc/cache_kernels.cu`` (``reshape_and_cache_flash``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 1024  # numbers a program: 8 heads of 128, so one decode token of 32 + 2 * 8 heads makes 6 programs
NUM_WARPS = 2


def rope_and_store(
    qkv: torch.Tensor,
    q_out: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    """Write every token's rotated queries into ``q_out`` and its keys and values into their slots.

    A token with slot -1 is padding: nothing of it is read or written, not even its row of ``q_out``, and its position
    may be anything.

    Args:
        qkv: [T, (num_heads + 2 * num_kv_heads) * dim], float32, bfloat16 or float16; rows may lie apart.
        q_out: [T, num_heads, dim], contiguous.
        k_cache: [num_blocks, block_size, num_kv_heads, dim], or by slot, [num_slots, num_kv_heads, dim]; contiguous.
        v_cache: like ``k_cache``.
        slot_mapping: [T] int64 or int32, ``block_id * block_size + position % block_size``, or -1. No slot twice.
        positions: [T] int64 or int32, below the length of ``cos``.
        cos: [max_len, dim / 2] float32, contiguous.
        sin: like ``cos``.
        q_norm: [dim] in the dtype of ``qkv``, or ``None`` for a model without head norms.
        k_norm: likewise; both or none.
        eps: of the head norms.
        num_heads: query heads held here.
        num_kv_heads: KV heads held here.

    Raises:
        ValueError: only one norm was given, the widths do not fit, or a tensor is not contiguous.
    """
    num_tokens, width = qkv.shape
    dim = k_cache.shape[-1]
    _check(width, q_out, k_cache, v_cache, q_norm, k_norm, num_heads, num_kv_heads)
    half = triton.next_power_of_2(dim // 2)
    heads = max(1, TILE // (2 * half))
    _rope_and_store_kernel[(num_tokens, triton.cdiv(num_heads + 2 * num_kv_heads, heads))](
        qkv, q_out, k_cache, v_cache, slot_mapping, positions, cos, sin, q_norm, k_norm,
        qkv.stride(0), eps, num_q=num_heads, num_kv=num_kv_heads, dim=dim, heads=heads, half=half,
        num_warps=NUM_WARPS,
    )  # fmt: skip


def _check(
    width: int,
    q_out: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    """Refuse what would make the kernel write elsewhere; it looks at shapes alone, which costs no synchronisation."""
    dim = k_cache.shape[-1]
    if width != (num_heads + 2 * num_kv_heads) * dim:
        raise ValueError(
            f"qkv is {width:,} wide; {num_heads} query and 2 * {num_kv_heads} KV heads of {dim} make "
            f"{(num_heads + 2 * num_kv_heads) * dim:,}: pass this layer's head counts and cache"
        )
    if (q_norm is None) != (k_norm is None):
        raise ValueError("only one of q_norm and k_norm was given: pass both, or None for both")
    for name, tensor in (("q_out", q_out), ("k_cache", k_cache), ("v_cache", v_cache)):
        if not tensor.is_contiguous():
            raise ValueError(f"{name} {list(tensor.shape)} is not contiguous: pass the memory itself, not a view of it")


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["slot_mapping", "positions"]  # a slice of a buffer must not compile a variant
)
def _rope_and_store_kernel(
    qkv: tl.tensor,  # [T, (num_q + 2 * num_kv) * dim]
    q_out: tl.tensor,  # [T, num_q, dim]
    k_cache: tl.tensor,  # [num_slots, num_kv, dim]
    v_cache: tl.tensor,
    slot_mapping: tl.tensor,  # [T]
    positions: tl.tensor,  # [T]
    cos: tl.tensor,  # [max_len, dim / 2]
    sin: tl.tensor,
    q_norm: tl.tensor | None,  # [dim]
    k_norm: tl.tensor | None,
    qkv_stride: int,
    eps: float,
    num_q: tl.constexpr,
    num_kv: tl.constexpr,
    dim: tl.constexpr,
    heads: tl.constexpr,
    half: tl.constexpr,  # dim / 2 padded to a power of two
) -> None:
    """A program is ``heads`` heads of a token, whatever they are; values are turned too, and the result dropped."""
    # 1. Which heads
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    if slot < 0:
        return
    head = (tl.program_id(1) * heads + tl.arange(0, heads))[:, None]  # [heads, 1]
    pair = tl.arange(0, half)[None, :]  # [1, half]
    real_pair = pair < dim // 2
    real = (head < num_q + 2 * num_kv) & real_pair  # [heads, half]
    is_q, is_v = head < num_q, head >= num_q + num_kv  # [heads, 1]

    # 2. Read, and norm each head
    source = qkv + token * qkv_stride + head * dim + pair
    first = tl.load(source, mask=real, other=0.0)  # [heads, half]
    second = tl.load(source + dim // 2, mask=real, other=0.0)
    x, y = first.to(tl.float32), second.to(tl.float32)
    if q_norm is not None:
        inverse = tl.rsqrt((tl.sum(x * x, axis=1) + tl.sum(y * y, axis=1)) / dim + eps)[:, None]  # [heads, 1]
        x = _scale(x * inverse, first.dtype, q_norm + pair, k_norm + pair, real_pair, is_q)
        at = pair + dim // 2
        y = _scale(y * inverse, first.dtype, q_norm + at, k_norm + at, real_pair, is_q)

    # 3. Turn
    angle = tl.load(positions + token).to(tl.int64) * (dim // 2) + pair  # [1, half]
    c = tl.load(cos + angle, mask=real_pair, other=0.0)
    s = tl.load(sin + angle, mask=real_pair, other=0.0)
    turned_first = (x * c - y * s).to(first.dtype)  # [heads, half]
    turned_second = (y * c + x * s).to(first.dtype)

    # 4. Write each head where it belongs
    to_q = q_out + (token * num_q + head) * dim + pair
    to_k = k_cache + (slot * num_kv + head - num_q) * dim + pair
    to_v = v_cache + (slot * num_kv + head - num_q - num_kv) * dim + pair
    is_k = (head >= num_q) & (head < num_q + num_kv)
    _store(to_q, turned_first, turned_second, real & is_q, dim)
    _store(to_k, turned_first, turned_second, real & is_k, dim)
    _store(to_v, first, second, real & is_v, dim)


@triton.jit  # type: ignore[untyped-decorator]
def _scale(
    x: tl.tensor,  # [heads, half] float32, normalised
    dtype: tl.constexpr,
    q_norm: tl.tensor,  # [1, half] addresses
    k_norm: tl.tensor,
    real: tl.tensor,  # [1, half]
    is_q: tl.tensor,  # [heads, 1]
) -> tl.tensor:
    """Apply the norm's weights: those of the queries to query heads, those of the keys to all others."""
    q_weight = tl.load(q_norm, mask=real, other=0.0)
    k_weight = tl.load(k_norm, mask=real, other=0.0)
    weight = tl.where(is_q, q_weight, k_weight).to(tl.float32)  # [heads, half]
    return (x.to(dtype).to(tl.float32) * weight).to(dtype).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _store(to: tl.tensor, first: tl.tensor, second: tl.tensor, mask: tl.tensor, dim: tl.constexpr) -> None:
    """Write both halves of some heads: ``to`` [heads, half] are the addresses of the first."""
    tl.store(to, first, mask=mask)
    tl.store(to + dim // 2, second, mask=mask)
