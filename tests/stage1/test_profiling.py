"""A profile's sums, from made-up launches: what is recorded on a GPU is added up right."""

from stage1.profiling import MOST, NAME, short, summed


def test_a_profile_adds_up_launches_by_kernel():
    report = summed({"a": [2.0, 4.0], "b": [30.0, 10.0, 20.0, 40.0]}, steps=2, wall=60.0)
    assert report["kernels"] == [
        {"kernel": "b", "launches": 2.0, "us": 50.0, "us_each": 25.0},
        {"kernel": "a", "launches": 1.0, "us": 3.0, "us_each": 3.0},
    ]
    assert (report["kernels_us"], report["idle_us"], report["launches"]) == (53.0, 7.0, 3.0)


def test_a_profile_lists_what_takes_longest_and_counts_the_rest():
    times = {str(n): [float(n)] for n in range(2 * MOST)}
    report = summed(times, steps=1, wall=0.0)
    assert [row["us"] for row in report["kernels"]] == [float(2 * MOST - 1 - n) for n in range(MOST)]
    assert report["kernels_us"] == sum(range(2 * MOST))


def test_names_lose_what_says_nothing():
    assert short("void at::native::(anonymous namespace)::copy<float>()") == "copy<float>()"
    assert len(short("x" * 500)) == NAME
