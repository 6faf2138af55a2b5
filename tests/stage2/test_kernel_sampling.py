"""The sampling kernels against stage 1's sampler: the same integers, the same kept sets, the same tokens."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from stage1 import philox
from stage1.sampler import filter_logits
from stage2.kernels.philox_noise import exponential, exponential_noise, random_words
from stage2.kernels.sampling import sample
from stage2.kernels.sampling_filters import filter_thresholds

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Params = tuple[float, int, float, float]  # temperature, top_k, top_p, min_p
INF, NAN = float("inf"), float("nan")


def on(values: object, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def random_logits(rows: int, vocab: int, dtype: torch.dtype = torch.float32, spread: float = 3.0) -> torch.Tensor:
    """[rows, vocab] whose rows lie apart, with not-a-numbers between them that nobody may read."""
    values = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(rows * vocab)) * spread
    wide = torch.full((rows, vocab + 8), NAN, dtype=dtype, device=DEVICE)
    wide[:, :vocab] = values.to(dtype)
    return wide[:, :vocab]


def random_seeds(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-(2**63), 2**63 - 1, (rows,), generator=generator).to(DEVICE)


def plain_ids(
    logits: torch.Tensor, temperature: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, whether the two best scores are within rounding of each other), as stage 1 draws."""
    logits = logits.float()
    noise = philox.exponential_noise(seeds, positions, logits.shape[1])
    scores = logits / temperature.clamp(min=0.01)[:, None] - noise.log()
    first, second = scores.topk(2, dim=1).values.unbind(dim=1)
    near = (first - second) <= 1e-5 * first.abs().clamp(min=1.0)
    greedy = temperature == 0
    return torch.where(greedy, logits.argmax(dim=1), scores.argmax(dim=1)), near & ~greedy


def agree(ids: torch.Tensor, wanted: torch.Tensor, near: torch.Tensor) -> None:
    print(f"near ties: {near.nonzero().flatten().tolist()}")
    assert near.sum() <= len(ids) // 16  # otherwise this says nothing
    assert torch.equal(ids[~near], wanted[~near])


@triton.jit  # type: ignore[untyped-decorator]
def _words_kernel(
    seed_ptr: tl.tensor, position_ptr: tl.tensor, out_ptr: tl.tensor, start: int, block: tl.constexpr
) -> None:
    words = random_words(tl.load(seed_ptr), tl.load(position_ptr), start, block)
    tl.store(out_ptr + tl.arange(0, block), words.to(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def _exponential_kernel(words_ptr: tl.tensor, out_ptr: tl.tensor, block: tl.constexpr) -> None:
    i = tl.arange(0, block)
    tl.store(out_ptr + i, exponential(tl.load(words_ptr + i).to(tl.uint32)))


@pytest.mark.parametrize("seed", [1, -1, -(2**63), 0x0123_4567_89AB_CDEF])
@pytest.mark.parametrize(("position", "start"), [(0, 0), (7, 131_072), (2**31, 0), (2**32 + 5, 1024)])
def test_the_integers_are_those_of_stage_1(seed: int, position: int, start: int) -> None:
    words = torch.empty(64, dtype=torch.int64, device=DEVICE)
    seeds, positions = on([seed], torch.int64), on([position], torch.int64)
    _words_kernel[(1,)](seeds, positions, words, start, block=64)
    mask = 0xFFFFFFFF
    group = torch.arange(start // 4, start // 4 + 16, device=DEVICE)
    counter = (group, positions & mask, positions >> 32 & mask, torch.zeros_like(group))
    lanes = philox.philox4x32(*counter, seeds & mask, seeds >> 32 & mask)
    assert torch.equal(words, torch.stack(lanes, dim=1).flatten())


def test_exponential_is_accurate_for_every_size_of_word() -> None:
    edges = [2**power + step for power in range(1, 32) for step in (-1, 0, 1)]
    words = on([0, 0, 2**32 - 1, 2**32 - 128, 2**32 - 129, *edges], torch.int64)
    words = torch.cat([words, words.new_full((128 - len(words),), 12345)])
    made = torch.empty(128, dtype=torch.float32, device=DEVICE)
    _exponential_kernel[(1,)](words, made, block=128)
    uniform = ((words.float() + 0.5) * 2.0**-32).clamp(max=1.0 - 2.0**-24).double()
    torch.testing.assert_close(made.double(), -torch.log1p(-uniform), rtol=2e-6, atol=0.0)


@pytest.mark.parametrize("vocab", [1, 5, 1023, 2050])
def test_noise_is_that_of_stage_1(vocab: int) -> None:
    seeds, positions = random_seeds(3), on([0, 3, 2**32], torch.int64)
    wanted = philox.exponential_noise(seeds, positions, vocab)
    torch.testing.assert_close(exponential_noise(seeds, positions, vocab), wanted, rtol=2e-6, atol=0.0)
    out = torch.empty_like(wanted)
    assert exponential_noise(seeds, positions, vocab, out=out) is out


@pytest.mark.parametrize(
    ("dtype", "vocab"),
    [
        *((torch.float32, vocab) for vocab in (1, 3, 1000)),
        *((torch.bfloat16, vocab) for vocab in (1024, 4100)),
        (torch.float16, 1001),
    ],
)
def test_ids_are_those_of_stage_1(dtype: torch.dtype, vocab: int) -> None:
    rows = 16
    logits = random_logits(rows, vocab, dtype)
    temperature = on([0.0, 1.0, 0.7, 1e-4, 2.0, 100.0, 1.0, 0.3] * 2)
    seeds, positions = random_seeds(rows), torch.arange(rows, device=DEVICE) * 1000
    ids, bad = sample(logits, temperature, seeds, positions)
    assert ids.dtype == torch.int64
    assert not bad.any()
    agree(ids, *(plain_ids(logits, temperature, seeds, positions) if vocab > 1 else (ids * 0, ids < 0)))


def test_greedy_takes_the_first_maximum_in_a_chunk_and_across_chunks() -> None:
    logits = torch.zeros(5, 9001, device=DEVICE)
    for row, places in enumerate([(8200, 4095, 4096), (6024, 5000), (0, 9000), (9000,), (8192, 8191, 8200)]):
        logits[row, list(places)] = 1.0
    zeros = torch.zeros(5, dtype=torch.int64, device=DEVICE)
    assert sample(logits, zeros.float(), zeros, zeros)[0].tolist() == [4095, 5000, 0, 9000, 8191]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_rows_are_flagged_and_their_ids_can_be_looked_up(temperature: float) -> None:
    logits = random_logits(6, 4200).clone()
    logits[0, 4100] = NAN
    logits[1, 7] = INF
    logits[2] = -INF
    logits[3] = NAN
    logits[4, :4199] = -INF  # fine: one token is left
    zeros = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    ids, bad = sample(logits, zeros + temperature, zeros, zeros)
    assert bad.tolist() == [True, True, True, True, False, False]
    assert ((ids >= 0) & (ids < 4200)).all()
    assert ids[4] == 4199


def test_rows_do_not_see_each_other() -> None:
    rows = 6
    logits, seeds = random_logits(rows, 4200, torch.bfloat16), random_seeds(rows)
    temperature, positions = on([1.0, 0.0, 2.0, 0.5, 1.0, 1.0]), torch.arange(rows, device=DEVICE)
    ids, _ = sample(logits, temperature, seeds, positions)
    order = [3, 1, 5, 0]
    flags = torch.empty(4, dtype=torch.bool, device=DEVICE)
    out = torch.empty(4, dtype=torch.int64, device=DEVICE)
    moved = sample(logits[order], temperature[order], seeds[order], positions[order], out=out, bad=flags)
    assert moved[0] is out
    assert moved[1] is flags
    assert torch.equal(out, ids[order])


FILTERS: list[Params] = [
    (1.0, 0, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (0.7, 50, 1.0, 0.0),
    (1.0, -1, 0.9, 0.0),
    (1.0, 0, 0.05, 0.0),
    (1.5, 0, 0.999, 0.0),
    (1.0, 0, 1.0, 0.1),
    (0.8, 40, 0.8, 0.05),
    (1.0, 10_000_000, 0.5, 0.0),
    (3.0, 300, 0.95, 0.0),
    (0.005, 20, 0.9, 0.0),
    (1.0, 3, 1e-40, 1.0),
]


def plain_kept(logits: torch.Tensor, params: Params) -> torch.Tensor:
    temperature, top_k, top_p, min_p = params
    vocab = logits.shape[1]
    kept = filter_logits(
        logits.float() / max(temperature, 0.01),
        on([[top_k if 0 < top_k < vocab else vocab]], torch.int64),
        on([[top_p if top_p < 1 else 2.0]]),
        on([[min_p]]),
    )
    return kept > -INF


def columns(params: list[Params]) -> tuple[torch.Tensor, ...]:
    temperature, top_k, top_p, min_p = zip(*params, strict=True)
    return on(temperature), on(top_k, torch.int64), on(top_p), on(min_p)


@pytest.mark.parametrize(
    ("dtype", "vocab", "spread"),
    [
        (torch.float32, 1, 1.0),
        (torch.float32, 4099, 3.0),
        (torch.float32, 600, 400.0),
        (torch.bfloat16, 4099, 3.0),
        (torch.bfloat16, 600, 0.02),
        (torch.float16, 333, 3.0),
    ],
)
def test_filters_keep_what_the_sort_keeps(dtype: torch.dtype, vocab: int, spread: float) -> None:
    logits = random_logits(len(FILTERS), vocab, dtype, spread)
    floor = filter_thresholds(logits, *columns(FILTERS))
    assert floor.dtype == torch.float32
    different = 0
    for row, params in enumerate(FILTERS):
        kept = logits[row].float() >= floor[row]
        tokens = (kept ^ plain_kept(logits[row][None], params)[0]).nonzero().flatten().tolist()
        if tokens:
            different += 1
            assert within_rounding(logits[row], params, tokens), (params, tokens)
    assert different <= 1


def within_rounding(logits: torch.Tensor, params: Params, tokens: list[int]) -> bool:
    """Whether ``tokens`` are equal logits at the edge of top-p, where a sum in another order may fall either side."""
    values = logits[tokens]
    kept = plain_kept(logits[None], (*params[:2], 1.0, params[3]))[0]  # before top-p
    probs = (logits.double() / max(params[0], 0.01)).masked_fill(~kept, -INF).softmax(dim=0)
    above = probs[logits > values[0]].sum()
    return bool((values == values[0]).all() and (above - params[2]).abs() < 1e-5)


@pytest.mark.parametrize(
    ("row", "params", "kept"),
    [
        ([9.0, 7.0, 7.0, 3.0, 1.0], (1.0, 2, 1.0, 0.0), 3),  # equal logits stay together
        ([5.0, 5.0, 5.0, 5.0, 1.0], (1.0, 1, 1.0, 0.0), 4),
        ([5.0, 5.0, 5.0, 5.0, -9.0], (1.0, 0, 0.1, 0.0), 4),
        ([2.0, 1.0, -INF, -INF, -INF], (1.0, 4, 1.0, 0.0), 2),  # fewer than k are left: -inf does not come back
        ([-3.4e38, -3.4e38, 1.0, 0.5, -3.4e38], (1.0, 2, 0.99, 0.0), 2),
        ([-3.4e38, 3.4e38, 1.0, 0.5, -3.4e38], (1.0, 2, 1.0, 0.0), 2),
        ([1e-30, 1e-38, 0.0, -1e-38, -1e-30], (1.0, 3, 1.0, 0.0), 3),
        ([1.0, NAN, 3.0, 2.0, NAN], (1.0, 2, 1.0, 0.0), 2),
    ],
)
def test_filters_of_small_rows(row: list[float], params: Params, kept: int) -> None:
    logits = on([row])
    floor = filter_thresholds(logits, *columns([params]))
    assert int(((logits >= floor[:, None]) & (logits > -INF)).sum()) == kept


def test_rows_that_cannot_be_filtered_keep_all() -> None:
    logits = random_logits(4, 50).clone()
    logits[0] = -INF
    logits[1, 3] = INF
    logits[2] = NAN
    floor = torch.empty(4, device=DEVICE)
    temperature, top_k, top_p, min_p = columns([(1.0, 5, 0.5, 0.1)] * 3 + [(0.0, 5, 0.5, 0.1)])
    made = filter_thresholds(logits, temperature, top_k, top_p, min_p, out=floor)
    assert made is floor
    assert floor.tolist() == [-INF] * 4


def test_filtered_ids_are_those_of_stage_1() -> None:
    params = FILTERS * 2
    rows = len(params)
    logits, seeds = random_logits(rows, 1500, torch.bfloat16), random_seeds(rows)
    positions = torch.arange(rows, device=DEVICE)
    filters = columns(params)
    ids, bad = sample(logits, filters[0], seeds, positions, floor=filter_thresholds(logits, *filters))
    assert not bad.any()
    kept = torch.cat([plain_kept(logits[row : row + 1], params[row]) for row in range(rows)])
    masked = logits.float().masked_fill(~kept, -INF)
    agree(ids, *plain_ids(masked, filters[0], seeds, positions))
    assert not torch.equal(ids, sample(logits, filters[0], seeds, positions)[0])  # the filters matter here
