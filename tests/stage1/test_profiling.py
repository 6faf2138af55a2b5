"""A profile's sums, from made-up launches: what is recorded on a GPU is added up right."""

from stage1.profiling import MOST, NAME, Launch, short, summed


def test_a_profile_adds_up_launches_by_kernel_and_the_time_before_them():
    launches = [Launch("b", 50, 80), Launch("a", 0, 2), Launch("b", 3, 43), Launch("a", 43, 47)]
    report = summed(launches, steps=2, wall=60.0)
    assert report["kernels"] == [
        {"kernel": "b", "launches": 1.0, "us": 35.0, "us_each": 35.0, "gap_us": 2.0, "gap_us_each": 2.0},
        {"kernel": "a", "launches": 1.0, "us": 3.0, "us_each": 3.0, "gap_us": 0.0, "gap_us_each": 0.0},
    ]
    assert (report["kernels_us"], report["idle_us"], report["launches"]) == (38.0, 22.0, 2.0)


def test_kernels_that_run_beside_each_other_have_no_gap():
    report = summed([Launch("a", 0, 10), Launch("b", 2, 4), Launch("c", 6, 12)], steps=1, wall=12.0)
    assert [row["gap_us"] for row in report["kernels"]] == [0.0, 0.0, 0.0]


def test_a_profile_lists_what_takes_longest_and_counts_the_rest():
    launches = [Launch(str(n), 100 * n, 101 * n) for n in range(2 * MOST)]
    report = summed(launches, steps=1, wall=0.0)
    assert [row["us"] for row in report["kernels"]] == [float(2 * MOST - 1 - n) for n in range(MOST)]
    assert report["kernels_us"] == sum(range(2 * MOST))


def test_names_lose_what_says_nothing():
    assert short("void at::native::(anonymous namespace)::copy<float>()") == "copy<float>()"
    assert len(short("x" * 500)) == NAME
