"""The fused split, head norm, rotation and store against the plain functions, one after another."""

from dataclasses import dataclass, replace

import pytest
import torch

from stage1.model.ops import rms_norm
from stage1.model.rope import apply_rope
from stage2.kernels.rope_store import rope_and_store

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEP = {torch.float32: 4e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}  # see assert_same
EPS = 1e-6
MAX_LEN = 40


@dataclass
class Case:
    """Inputs of one launch, and the memory that it writes, full of not-a-numbers."""

    qkv: torch.Tensor
    q_out: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    slot_mapping: torch.Tensor
    positions: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    eps: float
    num_heads: int
    num_kv_heads: int


def make_case(
    slots: list[int], heads=(4, 2), dim=64, block_size=16, num_blocks=4, dtype=torch.float32, norm=False, seed=0
) -> Case:
    rng = torch.Generator().manual_seed(seed)
    num_heads, num_kv_heads = heads
    angles = 10 * torch.rand(MAX_LEN, dim // 2, generator=rng)
    weights = (2 * torch.rand(2, dim, generator=rng)).to(DEVICE, dtype)
    cache = torch.full((2, num_blocks, block_size, num_kv_heads, dim), torch.nan, device=DEVICE, dtype=dtype)
    return Case(
        qkv=(3 * torch.randn(len(slots), (num_heads + 2 * num_kv_heads) * dim, generator=rng)).to(DEVICE, dtype),
        q_out=torch.full((len(slots), num_heads, dim), torch.nan, device=DEVICE, dtype=dtype),
        k_cache=cache[0],
        v_cache=cache[1],
        slot_mapping=torch.tensor(slots, device=DEVICE),
        positions=torch.randint(MAX_LEN, (len(slots),), generator=rng).to(DEVICE),
        cos=angles.cos().to(DEVICE),
        sin=angles.sin().to(DEVICE),
        q_norm=weights[0] if norm else None,
        k_norm=weights[1] if norm else None,
        eps=EPS,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
    )


def run(case: Case) -> None:
    rope_and_store(**{name: getattr(case, name) for name in Case.__dataclass_fields__})


def expected_of(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the written memory holds afterwards, by slot: a token at a time, padding left out."""
    q_out, keys, values = case.q_out.clone(), case.k_cache.clone().flatten(0, -3), case.v_cache.clone().flatten(0, -3)
    counts = (case.num_heads, case.num_kv_heads, case.num_kv_heads)
    for token, slot in enumerate(case.slot_mapping.tolist()):
        if slot < 0:
            continue
        q, k, v = case.qkv[token].unflatten(-1, (-1, keys.shape[-1])).split(counts)  # [heads, dim]
        if case.q_norm is not None:
            q, k = rms_norm(q, case.q_norm, case.eps), rms_norm(k, case.k_norm, case.eps)
        at = case.positions[token]
        q_out[token] = apply_rope(q[None], case.cos[at][None], case.sin[at][None])[0]
        keys[slot] = apply_rope(k[None], case.cos[at][None], case.sin[at][None])[0]
        values[slot] = v
    return q_out, keys.view_as(case.k_cache), values.view_as(case.v_cache)


def assert_same(out: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to a rounding step of the numbers turned; in a narrow dtype nearly all to the bit.

    Triton's interpreter cuts bfloat16 off where a GPU rounds it, once a rounding: there, float16 shows their order.
    """
    cut_off = out.dtype == torch.bfloat16 and DEVICE == "cpu"
    step = STEP[out.dtype] * (4 if cut_off else 1)
    torch.testing.assert_close(out.float(), expected.float(), rtol=step, atol=12 * step, equal_nan=True)
    if out.dtype != torch.float32 and not cut_off:
        written = ~expected.isnan()
        assert (out != expected)[written].sum() <= 0.01 * written.sum()


def check(case: Case) -> None:
    """Everything that was to be written is right, and everything else is as it was."""
    expected, qkv = expected_of(case), case.qkv.clone()
    run(case)
    q_out, keys, values = expected
    assert_same(case.q_out, q_out)
    assert_same(case.k_cache, keys)
    assert torch.equal(case.v_cache.nan_to_num(nan=-7.0), values.nan_to_num(nan=-7.0))  # values are only moved
    assert torch.equal(case.qkv, qkv)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("norm", [False, True])
def test_equals_the_plain_functions(dtype, dim, norm):
    check(make_case([33, 0, 15, 16, 63], dim=dim, dtype=dtype, norm=norm))


@pytest.mark.parametrize("heads", [(1, 1), (3, 1), (4, 4), (9, 3), (8, 1), (32, 8), (25, 5)])
@pytest.mark.parametrize("norm", [False, True])
def test_any_number_of_heads(heads, norm):
    check(make_case([5, 62], heads=heads, norm=norm, dtype=torch.float16))


@pytest.mark.parametrize(("block_size", "num_blocks"), [(16, 5), (64, 2), (256, 2), (1, 70)])
def test_any_block_size(block_size, num_blocks):
    last = block_size * num_blocks - 1
    check(make_case([last, 0, block_size - 1, block_size], block_size=block_size, num_blocks=num_blocks))


def test_a_cache_by_slot_is_the_same_memory():
    case = make_case([17, 3], norm=True)
    check(replace(case, k_cache=case.k_cache.flatten(0, 1), v_cache=case.v_cache.flatten(0, 1)))
    assert not case.k_cache[1, 1].isnan().any()


@pytest.mark.parametrize("norm", [False, True])
def test_padding_is_neither_read_nor_written(norm):
    case = make_case([-1, 20, -1, 21, -1, -1], norm=norm)
    case.qkv[case.slot_mapping < 0] = 5.0
    check(case)
    assert case.q_out[[0, 2, 4, 5]].isnan().all()
    assert case.k_cache.isnan().sum() == case.k_cache.numel() - 2 * 2 * 64


def test_a_bad_token_stays_alone():
    case = make_case([1, 2, 3], norm=True)
    case.qkv[1] = torch.nan
    run(case)
    written = [*case.q_out[[0, 2]], *case.k_cache[0, [1, 3]], *case.v_cache[0, [1, 3]]]
    assert all(tensor.isfinite().all() for tensor in written)
    assert case.q_out[1].isnan().all()


def test_a_bad_head_stays_alone():
    case = make_case([1], heads=(4, 2), norm=True)
    case.qkv[0, 64:128] = torch.nan  # query head 1
    run(case)
    assert case.q_out[0, 1].isnan().all()
    assert case.q_out[0, [0, 2, 3]].isfinite().all()
    assert case.k_cache[0, 1].isfinite().all()


def test_rows_may_lie_apart_and_integers_be_narrow():
    case = make_case([40, 7, 8], heads=(3, 1), norm=True)
    wide = torch.full((3, 5 * 64 + 8), torch.nan, device=DEVICE)
    wide[:, : 5 * 64] = case.qkv
    check(replace(case, qkv=wide[:, : 5 * 64], slot_mapping=case.slot_mapping.int(), positions=case.positions.int()))


def test_no_tokens_write_nothing():
    case = make_case([])
    check(case)
    assert case.k_cache.isnan().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda case: {"num_heads": 5}, "qkv is 512 wide; 5 query and 2 . 2 KV heads of 64 make 576"),
        (lambda case: {"q_norm": None}, "only one of q_norm and k_norm"),
        (lambda case: {"k_cache": case.k_cache.transpose(1, 2)}, "k_cache .* is not contiguous"),
        (lambda case: {"v_cache": case.v_cache[:, ::2]}, "v_cache .* is not contiguous"),
        (lambda case: {"q_out": case.q_out[..., ::2]}, "q_out .* is not contiguous"),
    ],
)
def test_refuses_what_would_be_written_elsewhere(change, message):
    case = make_case([0], norm=True)
    with pytest.raises(ValueError, match=message):
        run(replace(case, **change(case)))


@pytest.mark.gpu
def test_reaches_slots_beyond_32_bits():
    num_slots = (1 << 31) // 128 + 3
    case = make_case([0], heads=(1, 1), dim=128, dtype=torch.bfloat16)
    cache = torch.zeros(2, num_slots, 1, 128, device=DEVICE, dtype=torch.bfloat16)  # 2 * 4.3 GB
    case.slot_mapping += num_slots - 1
    run(replace(case, k_cache=cache[0], v_cache=cache[1]))
    assert torch.equal(cache[1, -1, 0], case.qkv[0, -128:])
    assert cache[:, :-1].count_nonzero() == 0


@pytest.mark.gpu
def test_can_be_captured_and_follows_new_inputs():
    case = make_case([33, -1, 16], dtype=torch.bfloat16, norm=True)
    run(case)  # compiles outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(case)
    after = make_case([2, 3, -1], dtype=torch.bfloat16, norm=True, seed=1)
    expected = expected_of(replace(after, q_norm=case.q_norm, k_norm=case.k_norm, cos=case.cos, sin=case.sin))
    for name in ("qkv", "q_out", "k_cache", "v_cache", "slot_mapping", "positions"):
        getattr(case, name).copy_(getattr(after, name))
    graph.replay()
    for out, right in zip((case.q_out, case.k_cache, case.v_cache), expected, strict=True):
        assert_same(out, right)
