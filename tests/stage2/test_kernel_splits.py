"""How many splits a launch of decode attention gets."""

from stage2.kernels.decode_attention import MAX_SPLITS, choose_splits


def test_choice_of_splits_fills_the_gpu_without_a_cliff() -> None:
    assert choose_splits(1, 8, 132) == (32, 2)
    assert choose_splits(1, 1, 132, 64).number == MAX_SPLITS
    assert choose_splits(8, 8, 132) == (4, 2)
    assert choose_splits(64, 8, 132) == (4, 64), "long requests only"
    assert choose_splits(64, 8, 132, max_len=4096) == (1, 2), "none can be long"
    assert choose_splits(10_000, 8, 132).number == 1
    for max_reqs in range(1, 600):
        number, min_tiles = choose_splits(max_reqs, 8, 132)
        assert number in (1, 2, 4, 8, 16, 32, 64)
        if min_tiles == 2:
            assert number * max_reqs * 8 >= 132, "a program for each multiprocessor"
