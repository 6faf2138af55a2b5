"""How many splits a launch of decode attention gets, and when."""

from stage2.kernels.decode_splits import CAREFUL_TILES, MAX_SPLITS, OUTLIERS, choose_splits, worth_cutting

SMS = 132


def test_few_requests_fill_the_gpu_without_a_cliff() -> None:
    assert choose_splits(1, 8, SMS) == (32, 2)
    assert choose_splits(1, 1, SMS, 64).number == MAX_SPLITS
    assert choose_splits(8, 8, SMS) == (4, 2)
    for max_reqs in range(1, 600):
        number, _ = choose_splits(max_reqs, 8, SMS)
        assert number in (1, 2, 4, 8, 16, 32)
        assert number * max_reqs * 8 >= SMS, "a program for each multiprocessor"


def test_many_requests_are_cut_as_the_host_says() -> None:
    assert choose_splits(64, 8, SMS, cut=True) == (OUTLIERS, 2)
    assert choose_splits(64, 8, SMS, cut=False) == (1, 2)
    assert choose_splits(64, 8, SMS, cut=None) == (OUTLIERS, CAREFUL_TILES), "nobody knows: only long ones"
    assert choose_splits(256, 8, SMS, cut=None) == (1, 2), "as many hide each other's tails"
    assert choose_splits(256, 8, SMS, cut=True) == (OUTLIERS, 2)
    assert choose_splits(1, 8, SMS, cut=False) == (1, 2)


def test_it_pays_to_cut_few_requests_and_those_that_stand_out() -> None:
    def pays(*lengths: int, kv_heads: int = 8, head_dim: int = 128) -> bool:
        return worth_cutting(sum(lengths), max(lengths), kv_heads, SMS, head_dim)

    assert pays(4096)
    assert not pays(200), "short ones are read before splits would have been joined"
    assert not pays(*[200] * 64)
    assert pays(*[4096] * 16)
    assert not pays(*[4096] * 64), "the memory is busy anyhow"
    assert pays(*[4096] * 64, kv_heads=3, head_dim=64), "small heads ask for more programs"
    assert pays(16_384, *[500] * 255), "others would wait for the long one"
    assert not pays(1000, *[500] * 255)


def test_a_longer_request_never_makes_cutting_worse() -> None:
    for number in (1, 16, 64, 256):
        answers = [worth_cutting(number * 300 + more, 300 + more, 8, SMS) for more in range(0, 40_000, 500)]
        assert answers == sorted(answers)
