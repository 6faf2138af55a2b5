"""Which kernel the ops pick for a few tokens, and with which tile: what was fastest there, else the nearest one's."""

import pytest
import torch
import torch.nn.functional as F

from stage2 import ops as stage2_ops
from stage2.kernels.few_tokens import MEASURED, TOKENS, choose_few_tokens
from stage2.kernels.matvec import MAX_TOKENS
from stage2.ops import TritonOps


class OnGpu(torch.Tensor):
    """Says that it lies on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(
    ("num_tokens", "shape", "dtype", "expected"),
    [
        (1, (8192, 4096), torch.bfloat16, "matvec"),
        (2, (960, 576), torch.bfloat16, "matvec"),
        (4, (1024, 3072), torch.float16, "matvec"),
        (8, (1024, 3072), torch.float16, "linear"),
        (8, (1024, 3072), torch.float32, "matvec"),
        (8, (960, 576), torch.float16, "skinny_matmul"),
        (8, (960, 576), torch.float32, "matvec"),
        (9, (960, 576), torch.bfloat16, "linear"),
        (2, (49152, 576), torch.bfloat16, "skinny_matmul"),
        (8, (49152, 576), torch.float32, "matvec"),
        (9, (49152, 576), torch.bfloat16, "linear"),
        (2, (2048, 2048), torch.bfloat16, "skinny_matmul"),
        (16, (2048, 2048), torch.bfloat16, "skinny_matmul"),
        (17, (2048, 2048), torch.bfloat16, "linear"),
        (2, (2048, 2048), torch.float32, "linear"),
        (0, (960, 576), torch.bfloat16, "linear"),
    ],
)
def test_which_kernel_the_ops_use(num_tokens, shape, dtype, expected, monkeypatch) -> None:
    assert [name for name, _ in used(num_tokens, shape, dtype, monkeypatch)] == [expected]


def used(num_tokens, shape, dtype, monkeypatch) -> list[tuple[str, tuple[int, ...] | None]]:
    """What the ops call for a product on a GPU, and with which tile."""
    called = []
    monkeypatch.setattr(F, "linear", lambda *args: called.append(("linear", None)))
    for name in ("matvec", "skinny_matmul"):
        monkeypatch.setattr(stage2_ops, name, lambda *args, name=name, tile=None: called.append((name, tile)))
    x = torch.empty(num_tokens, shape[1], dtype=dtype, device="meta").as_subclass(OnGpu)
    TritonOps().linear(x, torch.empty(shape, dtype=dtype, device="meta"))
    return called


# What was fastest on the H200: (kernel, tile) for 2 tokens, for 4 and for 8.
NARROW, MIDDLE = ("skinny_matmul", (8, 64, 1, 8)), ("skinny_matmul", (16, 128, 2, 4))
TALL, TALL_WIDE = ("skinny_matmul", (64, 64, 4, 4)), ("skinny_matmul", (64, 128, 4, 4))
FASTEST = {
    (576, 576): (("matvec", (2, 512, 1, 1)), ("matvec", (2, 1024, 4, 1)), NARROW),
    (960, 576): (("matvec", (1, 512, 1, 1)), NARROW, NARROW),
    (3072, 576): (NARROW, NARROW, NARROW),
    (49152, 576): (TALL, TALL, TALL),
    (4096, 1024): (MIDDLE, MIDDLE, MIDDLE),
    (6144, 1024): (MIDDLE, MIDDLE, MIDDLE),
    (151936, 1024): (TALL_WIDE, TALL_WIDE, TALL_WIDE),
    (576, 1152): (("matvec", (1, 1024, 4, 1)), ("matvec", (1, 512, 2, 1)), NARROW),
    (576, 1536): (("matvec", (2, 1024, 4, 1)), ("matvec", (1, 512, 2, 1)), MIDDLE),
    (1024, 2048): (("matvec", (1, 1024, 4, 1)), ("matvec", (2, 1024, 4, 1)), ("skinny_matmul", (16, 256, 2, 3))),
    (1024, 3072): (("matvec", (1, 1024, 4, 1)), ("matvec", (2, 1024, 4, 1)), ("linear", None)),
}


@pytest.mark.parametrize("num_tokens", range(2, MAX_TOKENS + 1))
@pytest.mark.parametrize("shape", FASTEST, ids=str)
def test_a_measured_matrix_gets_what_was_fastest(shape, num_tokens, monkeypatch) -> None:
    expected = FASTEST[shape][0 if num_tokens == 2 else 1 if num_tokens <= 4 else 2]
    assert used(num_tokens, shape, torch.bfloat16, monkeypatch) == [expected]
    assert used(1, shape, torch.bfloat16, monkeypatch) == [("matvec", None)]


@pytest.mark.parametrize(
    ("shape", "nearest"),
    [
        ((1, 1), (576, 576)),
        ((800, 600), (960, 576)),
        ((1152, 576), (960, 576)),
        ((32000, 700), (49152, 576)),
        ((2304, 768), (3072, 576)),
        ((1000, 14336), (1024, 3072)),
        ((2**20, 1536), (151936, 1024)),
    ],
)
def test_any_other_matrix_gets_what_the_nearest_one_gets(shape, nearest) -> None:
    for num_tokens in range(2, MAX_TOKENS + 1):
        tile = choose_few_tokens(*shape, num_tokens)
        assert tile is choose_few_tokens(*nearest, num_tokens)


def test_the_table_is_whole() -> None:
    assert TOKENS[-1] == MAX_TOKENS
    assert set(MEASURED) == set(FASTEST)
    assert all(len(tiles) == len(TOKENS) for tiles in MEASURED.values())


@pytest.mark.parametrize("num_tokens", [0, 1, 9])
def test_other_numbers_of_tokens_are_not_in_the_table(num_tokens) -> None:
    with pytest.raises(ValueError, match=f"{num_tokens} tokens are not a few: this table serves 2 to 8"):
        choose_few_tokens(960, 576, num_tokens)
