"""The generator against its published vectors, a plain version and Triton's; the noise against its distribution."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.philox import exponential_noise, philox4x32

# From Random123's table of known answers: counter, key, result.
ZEROS = (0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
ONES = (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
PI = (
    (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
    (0xA4093822, 0x299F31D0),
    (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
)


def draw(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    words = philox4x32(*(torch.tensor([c]) for c in counter), *(torch.tensor([k]) for k in key))
    assert all(word.dtype == torch.int64 for word in words)
    return tuple(int(word) for word in words)


def plain(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


@pytest.mark.parametrize(("counter", "key", "expected"), [ZEROS, ONES, PI], ids=["zeros", "ones", "pi"])
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert draw(counter, key) == expected
    assert plain(counter, key) == expected


words = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=60)
@given(st.tuples(words, words, words, words), st.tuples(words, words))
def test_equals_the_plain_version(counter: tuple[int, ...], key: tuple[int, ...]) -> None:
    assert draw(counter, key) == plain(counter, key)


def noise_of(seed: int, position: int, token: int) -> float:
    """The definition, one token at a time."""
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    counter = (token >> 2, position & 0xFFFFFFFF, position >> 32, 0)
    word = torch.tensor(plain(counter, key)[token & 3], dtype=torch.float32)
    uniform = torch.minimum((word + 0.5) * 2.0**-32, torch.tensor(1 - 2.0**-24))
    return float(-torch.log1p(-uniform))


def test_noise_is_a_function_of_seed_position_and_token() -> None:
    seeds = [0, 5, -1, 2**63 - 1, -(2**63)]
    positions = [0, 1, 7, 2**33, 5]
    noise = exponential_noise(torch.tensor(seeds), torch.tensor(positions), 11)
    assert noise.shape == (5, 11)
    assert noise.dtype == torch.float32
    expected = [[noise_of(s, p, t) for t in range(11)] for s, p in zip(seeds, positions, strict=True)]
    torch.testing.assert_close(noise, torch.tensor(expected), rtol=1e-6, atol=0)


def test_noise_does_not_depend_on_the_vocabulary_or_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, positions = torch.arange(9) - 4, torch.arange(9) * 3
    whole = exponential_noise(seeds, positions, 50)
    assert torch.equal(exponential_noise(seeds[5:6], positions[5:6], 50), whole[5:6])
    assert torch.equal(exponential_noise(seeds, positions, 33), whole[:, :33])
    assert torch.equal(exponential_noise(seeds.flip(0), positions.flip(0), 50), whole.flip(0))
    monkeypatch.setattr("stage1.philox._MAX_COUNTERS", 26)  # two rows at a time, the last one alone
    assert torch.equal(exponential_noise(seeds, positions, 50), whole)


def test_noise_differs_between_seeds_positions_and_tokens() -> None:
    seeds = torch.tensor([1, 2, 1, 1 + 2**32, 1])
    positions = torch.tensor([0, 0, 1, 0, 2**32])
    assert len(set(exponential_noise(seeds, positions, 100).flatten().tolist())) == 500


def test_noise_is_exponential() -> None:
    noise = exponential_noise(torch.arange(40), torch.zeros(40, dtype=torch.int64), 5000).double().flatten()
    n = noise.numel()
    assert noise.min() > 0
    assert noise.isfinite().all()
    assert abs(float(noise.mean()) - 1) < 4 / n**0.5
    cumulative = 1 - (-noise.sort().values).exp()
    distance = (cumulative - (torch.arange(n, dtype=torch.float64) + 0.5) / n).abs().max()  # Kolmogorov-Smirnov
    assert float(distance) < 1.95 / n**0.5  # p = 0.001


@pytest.mark.parametrize("word", [0, 2**32 - 1])
def test_extreme_words_give_positive_finite_noise(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either would turn a forbidden token's -inf into a not-a-number once its logarithm is taken."""
    monkeypatch.setattr("stage1.philox.philox4x32", lambda c0, *rest: (torch.full_like(c0, word),) * 4)
    noise = exponential_noise(torch.tensor([1]), torch.tensor([0]), 4)
    assert noise.tolist() == [[pytest.approx(2.0**-33 if word == 0 else 24 * 0.6931472)] * 4]


def test_smallest_noise_is_finer_than_a_float32_near_one() -> None:
    """Where the winner of a draw is decided, values closer than 2**-24 are told apart."""
    noise = exponential_noise(torch.arange(40), torch.zeros(40, dtype=torch.int64), 50_000).flatten()
    small = noise[noise < 2.0**-17]
    assert small.numel() > 5
    steps = small.double() * 2**24
    assert float((steps - steps.round()).abs().max()) > 0.1


TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(out, seed, n: tl.constexpr):
    at = tl.arange(0, n)
    a, b, c, d = tl.philox(seed, at, at * 0 + 7, at * 0, at * 0)
    tl.store(out + at * 4 + 0, a.to(tl.uint32, bitcast=True).to(tl.int64))
    tl.store(out + at * 4 + 1, b.to(tl.uint32, bitcast=True).to(tl.int64))
    tl.store(out + at * 4 + 2, c.to(tl.uint32, bitcast=True).to(tl.int64))
    tl.store(out + at * 4 + 3, d.to(tl.uint32, bitcast=True).to(tl.int64))

out = torch.zeros(32, dtype=torch.int64)
kernel[(1,)](out, 0x123456789ABCDEF, 8)
print(*out.tolist())
"""


def test_equals_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    script = tmp_path / "kernel.py"  # Triton reads the source of a kernel from its file
    script.write_text(TRITON)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    key = (0x89ABCDEF, 0x1234567)
    assert [int(x) for x in run.stdout.split()] == [w for t in range(8) for w in plain((t, 7, 0, 0), key)]
