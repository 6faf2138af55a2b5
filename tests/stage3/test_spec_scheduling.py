"""Drafts in the schedule: with any drafts, pool and arrivals every request gets the tokens of plain decoding."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage2.waiting import FcfsQueue, PriorityQueue
from stage3.spec.scheduling import Speculation

bed = load_file(Path(__file__).with_name("spec_bed.py"))
SpecBed, MAX_LEN, alone = bed.SpecBed, bed.MAX_LEN, bed.alone


arrivals = st.lists(
    st.tuples(
        st.lists(st.integers(0, 22), min_size=1, max_size=MAX_LEN - 1),
        st.fixed_dictionaries(
            {
                "max_tokens": st.integers(1, 30) | st.none(),
                "ignore_eos": st.booleans(),
                "stop_token_ids": st.lists(st.integers(0, 22), max_size=1),
                "min_tokens": st.sampled_from([0, 0, 1, 5]),
            }
        ).map(lambda params: params | {"min_tokens": min(params["min_tokens"], params["max_tokens"] or 5)}),
        st.integers(0, 12),  # added after this many steps
        st.integers(0, 40) | st.none(),  # aborted after this many
        st.integers(-1, 1),  # priority
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=700, deadline=None)
@given(
    arrivals,
    st.integers(1, 5),  # block size
    st.integers(0, 40),  # blocks beyond what one request of MAX_LEN needs
    st.integers(1, 6),  # seats
    st.integers(1, 40),  # budget
    st.integers(0, 12),  # long prefill threshold
    st.sampled_from([FcfsQueue, PriorityQueue]),
    st.sampled_from([1, 1, 1, 2, 3]),  # plans in flight
    st.integers(1, 6),  # drafts
    st.sampled_from([0.0, 0.5, 0.8, 1.0]),  # how often they are right
    st.sampled_from([1, 2, 100]),  # largest batch
    st.sampled_from([0, 0, 4]),  # lookahead
)
def test_any_drafts_pool_budget_and_arrivals_give_every_request_its_own_tokens(
    arriving, block_size, spare, seats, budget, long_prefill, queue, depth, num_drafts, p, max_batch, lookahead
):
    bed = SpecBed(
        -(-MAX_LEN // block_size) + spare, block_size, seats, max(budget, seats), long_prefill, queue, depth,
        num_drafts=num_drafts, p=p, max_batch=max_batch, max_tokens=max(budget, seats), lookahead=lookahead,
    )  # fmt: skip
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
        output, got = alone(prompt, **params), bed.received[str(i)]
        assert got == (output[: len(got)] if str(i) in aborted else output)
    assert not bed.errors
    bed.assert_clean()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 26), st.integers(-1, 1)), min_size=2, max_size=6),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([FcfsQueue, PriorityQueue]),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([0.7, 1.0]),
    st.data(),
)
def test_any_order_of_plans_and_results_in_a_small_cache(arriving, block_size, spare, queue, depth, k, p, data):
    """The cache holds one request and a bit: whoever drafts pushes nobody out, and preemption loses no token."""
    bed = SpecBed(-(-46 // block_size) + spare, block_size, 4, 24, 0, queue, depth, num_drafts=k, p=p)
    for i, (length, max_tokens, priority) in enumerate(arriving):
        bed.add(str(i), [(i + j) % 23 for j in range(length)], priority, float(i), max_tokens=max_tokens)
    for turn in range(1500):
        if not bed.scheduler.has_work and not bed.in_flight:
            break
        may_plan, may_read = len(bed.in_flight) < depth and bed.scheduler.has_work, bool(bed.in_flight)
        plans = may_plan and (not may_read or turn > 60 or data.draw(st.booleans()))
        bed.schedule() if plans else bed.update()
    for i, (length, max_tokens, _) in enumerate(arriving):
        assert bed.received[str(i)] == alone([(i + j) % 23 for j in range(length)], max_tokens=max_tokens)
    bed.assert_clean()


# --- requests that end while their drafts are on the way -------------------------------------------------


def test_drafts_of_a_failed_or_aborted_request_go_with_it():
    bed = SpecBed(num_blocks=64, seats=3, budget=30)
    for name in "abc":
        bed.add(name, [1, 2, 3], max_tokens=30, ignore_eos=True)
    bed.step()
    bed.scheduler.abort(["a"])
    bed.runner.failing.add("b")
    bed.step()
    bed.run()
    assert bed.reasons == {"b": "error", "c": "length"}
    assert bed.received["c"] == alone([1, 2, 3], max_tokens=30, ignore_eos=True)
    bed.assert_clean()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_late_result_with_drafts_does_not_go_to_a_new_request_of_the_same_id(depth):
    bed = SpecBed(depth=depth)
    bed.add("x", [1, 2, 3], max_tokens=9, ignore_eos=True)
    bed.step()
    bed.schedule()
    bed.scheduler.abort(["x"])
    bed.add("x", [9, 8, 7, 6], max_tokens=6, ignore_eos=True)
    bed.run()
    assert bed.received["x"] == alone([9, 8, 7, 6], max_tokens=6, ignore_eos=True)
    assert bed.lifecycle.requests == {}
    assert bed.kv.usage == 0.0


def test_a_step_that_raises_ends_its_requests_alone():
    bed = SpecBed(seats=2, budget=16)
    bed.add("a", [1, 2, 3], max_tokens=9, ignore_eos=True)
    bed.step()
    plan = bed.scheduler.schedule()
    assert plan.drafts
    assert bed.scheduler.fail(plan, "planted").finish_reason == {"a": "error"}
    bed.add("b", [4, 5], max_tokens=9, ignore_eos=True)
    bed.run()
    assert bed.received["b"] == alone([4, 5], max_tokens=9, ignore_eos=True)


# --- planted faults ------------------------------------------------------------------------------------


class KeepsRejected(Speculation):
    """Does not take rejected drafts back."""

    def on_result(self, plan, out):
        before = {req_id: req.num_computed_tokens for req_id, req in self._requests.items()}
        super().on_result(plan, out)
        for req_id in plan.drafts:
            if req_id in self._requests:
                self._requests[req_id].num_computed_tokens = before[req_id]


class TakesBackOneTooFew(Speculation):
    """Forgets that the last token is not computed yet."""

    def on_result(self, plan, out):
        super().on_result(plan, out)
        for req_id in plan.drafts:
            if req_id in self._requests:
                self._requests[req_id].num_computed_tokens += 1


class KeepsWhatFollowsTheDrafts(Speculation):
    """Hands the drafts on although they were not scheduled whole."""

    def annotate(self, plan):
        drafts = {req_id: self._requests[req_id].draft_ids for req_id in self._taken}
        super().annotate(plan)
        plan.drafts = {req_id: drafts[req_id] for req_id in plan.drafts}


def serve_two(hook):
    """One request beside a long prompt, whose pieces leave little budget: its drafts are cut, and some are wrong."""
    bed = SpecBed(num_blocks=64, seats=2, budget=8, num_drafts=5, long_prefill=6, p=0.7, hook=hook)
    bed.add("long", [3] * 30, max_tokens=3, ignore_eos=True)
    bed.step()
    bed.add("a", [1, 2], max_tokens=12, ignore_eos=True)
    bed.run(limit=60)
    assert bed.received["a"] == alone([1, 2], max_tokens=12, ignore_eos=True)
    bed.assert_clean()


@pytest.mark.parametrize("fault", [KeepsRejected, TakesBackOneTooFew, KeepsWhatFollowsTheDrafts])
def test_planted_faults_show(fault):
    serve_two(Speculation)
    with pytest.raises((AssertionError, KeyError)):
        serve_two(fault)
