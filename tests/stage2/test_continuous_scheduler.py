"""Continuous batching: every request gets its own tokens, whatever the pool, the budget and the arrivals."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage2.waiting import FcfsQueue, PriorityQueue

bed = load_file(Path(__file__).with_name("scheduler_bed.py"))
Bed, MAX_LEN, EOS, expected_output = bed.Bed, bed.MAX_LEN, bed.EOS, bed.expected_output

arrivals = st.lists(
    st.tuples(
        st.lists(st.integers(0, 22), min_size=1, max_size=MAX_LEN - 1),
        st.fixed_dictionaries(
            {
                "max_tokens": st.integers(1, 30) | st.none(),
                "ignore_eos": st.booleans(),
                "stop_token_ids": st.lists(st.integers(0, 22), max_size=1),
            }
        ),
        st.integers(0, 12),  # added after this many steps
        st.integers(0, 40) | st.none(),  # aborted after this many
        st.integers(-1, 1),  # priority
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=1000, deadline=None)
@given(
    arrivals,
    st.integers(1, 5),  # block size
    st.integers(0, 40),  # blocks beyond what one request of MAX_LEN needs
    st.integers(1, 6),  # seats
    st.integers(1, 40),  # budget
    st.integers(0, 12),  # long prefill threshold
    st.sampled_from([FcfsQueue, PriorityQueue]),
    st.sampled_from([1, 1, 2, 3]),  # plans in flight
)
def test_any_pool_budget_and_arrivals_give_every_request_its_own_tokens(
    arriving, block_size, spare, seats, budget, long_prefill, queue, depth
):
    bed = Bed(-(-MAX_LEN // block_size) + spare, block_size, seats, max(budget, seats), long_prefill, queue, depth)
    aborted = set()
    for now in range(42):
        for i, (prompt, params, start, stop, priority) in enumerate(arriving):
            if start == now:
                bed.add(str(i), prompt, priority, float(i), **params)
            if stop == now and str(i) in bed.received and str(i) not in bed.reasons:
                bed.scheduler.abort([str(i)])
                aborted.add(str(i))
        bed.step() if bed.scheduler.has_work else None
    bed.run()
    for i, (prompt, params, *_) in enumerate(arriving):
        output = expected_output(prompt, SamplingParams(**params))
        got = bed.received[str(i)]
        assert got == (output[: len(got)] if str(i) in aborted else output)
    if queue is FcfsQueue:
        firsts = [req_id for req_id in dict.fromkeys(bed.admissions) if req_id not in aborted]
        assert firsts == sorted(firsts, key=lambda req_id: (arriving[int(req_id)][2], int(req_id)))
    bed.assert_clean()


def test_a_long_prompt_is_computed_in_pieces_beside_decodes():
    bed = Bed(num_blocks=32, budget=8)
    for name in "ab":
        bed.add(name, [1, 2], max_tokens=12, ignore_eos=True)
    bed.step()
    bed.add("c", list(range(20)), max_tokens=2, ignore_eos=True)
    assert [dict(bed.step().num_scheduled) for _ in range(4)] == [{"a": 1, "b": 1, "c": n} for n in (6, 6, 6, 2)]
    bed.run()
    bed.assert_clean()


def test_the_long_prefill_threshold_caps_a_piece():
    bed = Bed(num_blocks=32, budget=16, long_prefill=5)
    bed.add("c", list(range(12)), max_tokens=1)
    bed.run()
    assert [plan.num_scheduled["c"] for plan in bed.plans] == [5, 5, 2]


@pytest.mark.parametrize("budget", [1, 7, 16, 17, 40])
@pytest.mark.parametrize("depth", [1, 2])
def test_pieces_of_a_prompt_change_no_token(budget, depth):
    prompt = [(7 * i) % 23 for i in range(40)]
    bed = Bed(num_blocks=12, budget=budget, seats=1, depth=depth)
    bed.add("p", prompt, max_tokens=8, ignore_eos=True)
    bed.run()
    assert bed.received["p"] == expected_output(prompt, SamplingParams(max_tokens=8, ignore_eos=True))
    pieces = [plan.num_scheduled["p"] for plan in bed.plans[: -(-40 // budget)]]
    assert pieces == [budget] * (40 // budget) + [40 % budget] * (40 % budget > 0)


def test_a_seat_is_filled_in_the_step_after_it_became_free():
    bed = Bed(seats=2, num_blocks=32)
    for name, length in (("a", 6), ("b", 2), ("c", 3)):
        bed.add(name, [1, 2], max_tokens=length, ignore_eos=True)
    bed.run()
    assert [set(plan.num_scheduled) for plan in bed.plans] == [set("ab")] * 2 + [set("ac")] * 3 + [set("a")]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_preempted_request_is_the_first_to_return_and_loses_nothing(depth):
    """First come first served: the last admitted gives way, and goes to the front of the queue."""
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, depth=depth)
    bed.add("a", [1] * 10, max_tokens=14, ignore_eos=True)
    bed.add("b", [2] * 8, max_tokens=12, ignore_eos=True)
    bed.add("c", [3] * 3, max_tokens=2, ignore_eos=True)
    bed.run()
    assert next(req_id for plan in bed.plans for req_id in plan.preempted) == "b"
    assert bed.admissions == ["a", "b", "b", "c"]
    assert bed.received["b"] == expected_output([2] * 8, SamplingParams(max_tokens=12, ignore_eos=True))
    bed.assert_clean()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_priority_orders_waiting_and_preempted_alike(depth):
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, queue=PriorityQueue, depth=depth)
    bed.add("late", [1] * 8, 5, 1.0, max_tokens=10, ignore_eos=True)
    bed.add("soon", [2] * 8, 0, 2.0, max_tokens=14, ignore_eos=True)
    bed.run()
    assert {req_id for plan in bed.plans for req_id in plan.preempted} == {"late"}
    assert [new.req_id for new in bed.plans[0].new] == ["soon", "late"]
    bed.assert_clean()


def test_a_more_urgent_request_waits_for_a_seat_and_gets_the_next():
    """Priority decides who comes in and who gives way for blocks; a seat that is taken stays taken."""
    bed = Bed(num_blocks=40, seats=1, queue=PriorityQueue)
    bed.add("first", [1, 2], 9, 0.0, max_tokens=5, ignore_eos=True)
    bed.step()
    bed.add("idle", [3, 4], 9, 1.0, max_tokens=2, ignore_eos=True)
    bed.add("urgent", [5, 6], -3, 2.0, max_tokens=2, ignore_eos=True)
    bed.run()
    assert bed.admissions == ["first", "urgent", "idle"]
    assert bed.scheduler.stats().preemptions == 0


@pytest.mark.parametrize("queue", [FcfsQueue, PriorityQueue])
def test_a_step_does_not_walk_the_waiting_queue(queue):
    """However many wait, a step looks at no more of them than it admits."""
    looks = []

    class Counting(queue):
        def peek(self):
            looks.append(1)
            return super().peek()

    bed = Bed(num_blocks=64, seats=2, queue=Counting)
    for i in range(500):
        bed.add(str(i), [1, 2], max_tokens=3, ignore_eos=True)
    bed.scheduler.schedule()
    assert len(looks) <= 3


@pytest.mark.parametrize("queue", [FcfsQueue, PriorityQueue])
def test_ended_requests_do_not_pile_up_in_the_queue(queue):
    """Users who give up while the cache is full leave nothing behind."""
    waiting = queue()
    bed = Bed(num_blocks=2, seats=1, queue=lambda: waiting)
    bed.add("runs", [1, 2], max_tokens=5, ignore_eos=True)
    bed.step()
    for i in range(300):
        bed.add(str(i), [1, 2], max_tokens=5)
        bed.scheduler.abort([str(i)])
        assert len(waiting) <= 4
    bed.add("last", [1, 2], max_tokens=1)
    bed.run()
    assert bed.reasons == {"runs": "length", "last": "length"}
    bed.assert_clean()
