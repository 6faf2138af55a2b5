"""Several plans in flight: the next step is planned before the last one's tokens are known."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage2.waiting import FcfsQueue, PriorityQueue

bed = load_file(Path(__file__).with_name("scheduler_bed.py"))
Bed, EOS, expected_output, next_token = bed.Bed, bed.EOS, bed.expected_output, bed.next_token


def prompt_that_ends_after(count: int) -> list[int]:
    """A prompt whose output is ``count`` tokens long and ends with EOS."""
    for first in range(23):
        for second in range(23):
            output = expected_output([first, second], SamplingParams(max_tokens=40))
            if len(output) == count and output[-1] == EOS:
                return [first, second]
    raise AssertionError("there is none")


@pytest.mark.parametrize("depth", [2, 3])
def test_one_request_keeps_every_place_in_flight_busy(depth):
    bed = Bed(depth=depth)
    bed.add("a", [1, 2, 3], max_tokens=10, ignore_eos=True)
    bed.run()
    assert [plan.num_scheduled.get("a", 0) for plan in bed.plans[:10]] == [3] + [1] * 9
    assert not any(plan.num_scheduled for plan in bed.plans[10:])  # none beyond max_tokens
    bed.assert_clean()


@pytest.mark.parametrize("depth", [2, 3])
def test_an_end_that_is_seen_late_drops_what_came_after_it(depth):
    prompt = prompt_that_ends_after(4)
    bed = Bed(depth=depth)
    bed.add("a", prompt, max_tokens=40)
    bed.run()
    assert bed.received["a"] == expected_output(prompt, SamplingParams(max_tokens=40))
    assert bed.reasons["a"] == "stop"
    assert sum(bool(plan.num_scheduled) for plan in bed.plans) == 4 + depth - 1  # computed for nothing
    bed.assert_clean()


def test_a_victim_with_a_token_on_its_way_goes_when_that_token_is_known():
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, depth=2)
    bed.add("a", [1] * 10, max_tokens=14, ignore_eos=True)
    bed.add("b", [2] * 8, max_tokens=12, ignore_eos=True)
    while not bed.plans or not bed.plans[-1].preempted:
        bed.step()
        assert len(bed.plans) < 30
    chosen = next(i for i, plan in enumerate(bed.plans) if i and "b" not in plan.num_scheduled)
    last = bed.plans[chosen]
    assert last.preempted == []
    assert set(last.num_scheduled) < {"a", "b"}  # b gets no more
    assert bed.plans[chosen + 1].preempted == ["b"]
    bed.run()
    for name, prompt, size in (("a", [1] * 10, 14), ("b", [2] * 8, 12)):
        assert bed.received[name] == expected_output(prompt, SamplingParams(max_tokens=size, ignore_eos=True))
    bed.assert_clean()


def test_nobody_overtakes_a_victim_that_has_not_left_yet():
    """While b's last results are on their way, a ends and c would fit: b was there first."""
    bed = Bed(num_blocks=6, block_size=2, seats=3, budget=24, depth=3)
    for name, length, max_tokens in (("a", 5, 2), ("b", 4, 4), ("c", 3, 2)):
        bed.add(name, [1] * length, max_tokens=max_tokens, ignore_eos=True)
    bed.run()
    assert bed.admissions == ["a", "b", "b", "c"]
    bed.assert_clean()


@pytest.mark.parametrize("end", ["abort", "error", "stop"])
def test_a_victim_that_ends_before_it_has_left(end):
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, depth=2)
    bed.add("a", [1] * 10, max_tokens=14, ignore_eos=True)
    bed.add("b", [2] * 8, max_tokens=12, ignore_eos=True, stop_token_ids=[99])
    while not any(bed.is_leaving(req) for req in bed.lifecycle.requests.values()):
        bed.schedule() if len(bed.in_flight) < 2 else bed.update()
        assert len(bed.plans) < 30
    out = next(out for plan, out in bed.in_flight if "b" in plan.num_scheduled)
    if end == "abort":
        bed.scheduler.abort(["b"])
    elif end == "error":
        out.failed["b"] = "planted"
    else:
        out.sampled[out.req_ids.index("b")] = [99]
    bed.run()
    assert not [req_id for plan in bed.plans for req_id in plan.preempted]
    assert bed.reasons == {"a": "length", **({} if end == "abort" else {"b": end})}
    bed.assert_clean()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_lone_request_that_outgrows_the_cache_gets_all_its_tokens_first(depth):
    """The token on its way may end it properly: only when it is known, the request is refused."""
    bed = Bed(num_blocks=3, block_size=4, seats=2, depth=depth)
    bed.add("grows", [1] * 8, max_tokens=20, ignore_eos=True)
    bed.run(limit=50)
    whole = expected_output([1] * 8, SamplingParams(max_tokens=20, ignore_eos=True))
    assert bed.received["grows"] == whole[:5]  # twelve tokens have room, and a thirteenth is sampled from them
    assert bed.reasons["grows"] == "error"
    assert "13 tokens and the whole KV cache holds 12" in bed.errors["grows"]
    bed.assert_clean()


def test_a_lone_request_whose_last_token_is_on_its_way_is_not_refused():
    bed = Bed(num_blocks=3, block_size=4, seats=2, depth=2)
    bed.add("fits", [1] * 8, max_tokens=5, ignore_eos=True)
    bed.run(limit=50)
    assert bed.reasons["fits"] == "length"
    bed.assert_clean()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_late_result_does_not_go_to_a_new_request_of_the_same_id(depth):
    bed = Bed(depth=depth)
    bed.add("x", [1, 2, 3], max_tokens=9, ignore_eos=True)
    for _ in range(depth):
        bed.schedule()
    bed.scheduler.abort(["x"])
    bed.add("x", [9, 8, 7, 6], max_tokens=6, ignore_eos=True)
    bed.run()
    assert bed.received["x"] == expected_output([9, 8, 7, 6], SamplingParams(max_tokens=6, ignore_eos=True))
    assert bed.lifecycle.requests == {}
    assert bed.kv.usage == 0.0


def test_a_step_that_raises_late_does_not_end_a_new_request_of_the_same_id():
    bed = Bed()
    bed.add("x", [1, 2, 3], max_tokens=9)
    plan = bed.scheduler.schedule()
    bed.scheduler.abort(["x"])
    bed.add("x", [4, 5], max_tokens=2, ignore_eos=True)
    assert bed.scheduler.fail(plan, "too late").req_ids == []
    bed.run()
    assert bed.reasons == {"x": "length"}


@settings(max_examples=600, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 26), st.integers(-1, 1), st.integers(0, 20)),
        min_size=2,
        max_size=6,
    ),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([FcfsQueue, PriorityQueue]),
    st.integers(2, 4),
    st.data(),
)
def test_any_order_of_plans_results_and_aborts_in_a_small_cache(arriving, block_size, spare, queue, depth, data):
    """The driver plans or reads as it likes, up to ``depth`` plans ahead; the cache holds one request and a bit."""
    bed = Bed(-(-46 // block_size) + spare, block_size, 4, 24, 0, queue, depth)
    for i, (length, max_tokens, priority, _) in enumerate(arriving):
        bed.add(str(i), [(i + j) % 23 for j in range(length)], priority, float(i), max_tokens=max_tokens)
    aborted = {i for i, arrival in enumerate(arriving) if arrival[3] < 4}
    for turn in range(1500):
        if not bed.scheduler.has_work and not bed.in_flight:
            break
        may_plan, may_read = len(bed.in_flight) < depth and bed.scheduler.has_work, bool(bed.in_flight)
        plans = may_plan and (not may_read or turn > 60 or data.draw(st.booleans()))
        bed.schedule() if plans else bed.update()
        for i in aborted:
            if turn == 3 * arriving[i][3]:
                bed.scheduler.abort([str(i)])
    for i, (length, max_tokens, *_) in enumerate(arriving):
        output = expected_output([(i + j) % 23 for j in range(length)], SamplingParams(max_tokens=max_tokens))
        got = bed.received[str(i)]
        assert got == (output[: len(got)] if i in aborted else output)
    bed.assert_clean()
