"""The prefix cache under the scheduler, case by case: what is reused, told, preempted, evicted and reset."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest
from stage2.waiting import FcfsQueue, PriorityQueue

bed = load_file(Path(__file__).with_name("prefix_bed.py"))
PrefixBed, alone = bed.PrefixBed, bed.alone

PROMPT = [(7 * i) % 23 for i in range(40)]


# --- what is reused --------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [64, 16, 5])
def test_only_what_the_hit_leaves_is_scheduled(budget):
    bed = PrefixBed(num_blocks=20, block_size=4, budget=budget)
    assert bed.serve("cold", PROMPT) == 0
    first = len(bed.plans)
    assert bed.serve("warm", PROMPT) == 36
    assert [plan.num_scheduled for plan in bed.plans[first:]] == [{"warm": 4}]
    assert bed.plans[first].new[0].num_computed == 36
    bed.assert_clean()


def test_a_conversation_computes_only_its_last_turn():
    bed = PrefixBed(num_blocks=20, block_size=4)
    asked = PROMPT[:10]
    cached = []
    for turn in range(3):
        cached.append(bed.serve(f"turn {turn}", asked, max_tokens=4))
        asked = [*asked, *bed.received[f"turn {turn}"], 1, 2, 3]
    assert cached == [0, 12, 20]  # of 10, 17 and 24 tokens; an output's last token was never computed
    bed.assert_clean()


def test_requests_that_run_share_their_blocks():
    bed = PrefixBed(num_blocks=20, block_size=4, budget=64)
    bed.add("a", PROMPT[:16], max_tokens=9, ignore_eos=True)
    bed.step()
    for name in "bc":
        bed.add(name, PROMPT[:16], max_tokens=9, ignore_eos=True)
    plan = bed.step()
    assert plan.num_scheduled == {"a": 1, "b": 4, "c": 4}
    assert bed.kv.usage == (5 + 1 + 1) / 20  # a's five, and b and c their fourth each
    bed.run()
    for name in "abc":
        assert bed.received[name] == alone(PROMPT[:16], max_tokens=9, ignore_eos=True)
    bed.assert_clean()


def test_first_outputs_and_statistics_say_what_was_cached():
    bed = PrefixBed(num_blocks=20, block_size=4)
    bed.serve("a", PROMPT[:17], max_tokens=3)
    bed.serve("b", PROMPT[:17], max_tokens=3)
    bed.serve("c", PROMPT[:5], salt="x")
    assert bed.told == {"a": 0, "b": 16, "c": 0}
    stats = bed.scheduler.stats()
    assert (stats.prefix_queries, stats.prefix_hits) == (17 + 17 + 5, 16)
    assert stats.step == len(bed.plans)
    bed.assert_clean()


def test_who_never_comes_in_is_told_nothing():
    bed = PrefixBed(num_blocks=4, block_size=4, seats=1)
    bed.add("huge", PROMPT, max_tokens=2)
    bed.add("runs", PROMPT[:5], max_tokens=2, ignore_eos=True)
    bed.add("gone", PROMPT[:5], max_tokens=2)
    bed.step()
    bed.scheduler.abort(["gone", "never"])
    bed.run()
    assert bed.reasons == {"huge": "error", "runs": "length"}
    assert bed.told == {"runs": 0}
    assert bed.scheduler.stats().prefix_queries == 5
    bed.assert_clean()


def test_who_is_aborted_before_its_first_token_is_forgotten():
    bed = PrefixBed(num_blocks=20, block_size=4, budget=5)
    bed.add("x", PROMPT, max_tokens=2)
    bed.step()
    bed.scheduler.abort(["x"])
    assert bed.serve("x", PROMPT[:9]) == 4
    bed.assert_clean()


def test_a_step_that_raises_leaves_nothing_to_find():
    bed = PrefixBed(num_blocks=20, block_size=4, budget=8)
    bed.add("a", PROMPT, max_tokens=2)
    bed.step()
    plan = bed.scheduler.schedule()
    bed.deliver(bed.scheduler.fail(plan, "the device has a cold"))
    assert bed.errors == {"a": "the device has a cold"}
    assert bed.serve("b", PROMPT) == 0
    bed.assert_clean()


def test_numbers_that_failed_one_request_are_not_given_to_the_next():
    bed = PrefixBed(num_blocks=20, block_size=4)
    assert bed.serve("before", PROMPT[:9]) == 0
    bed.runner.failing.add("bad")
    bed.add("bad", PROMPT, max_tokens=2)
    bed.run()
    assert bed.reasons["bad"] == "error"
    assert bed.serve("after", PROMPT) == 8
    bed.assert_clean()


# --- preemption, aborts, refusals ------------------------------------------------------------------


@pytest.mark.parametrize("queue", [FcfsQueue, PriorityQueue])
def test_a_preempted_request_finds_its_own_blocks_and_statistics_do_not_count_them(queue):
    bed = PrefixBed(num_blocks=8, block_size=4, seats=2, budget=32, queue=queue)
    bed.add("a", [1] * 10, 0, 0.0, max_tokens=14, ignore_eos=True)
    bed.add("b", [2] * 14, 1, 1.0, max_tokens=12, ignore_eos=True)
    bed.run()
    back = [new for plan in bed.plans for new in plan.new if new.req_id == "b"]
    assert len(back) > 1
    assert back[-1].num_computed > 0
    stats = bed.scheduler.stats()
    assert stats.preemptions > 0
    assert (stats.prefix_queries, stats.prefix_hits) == (24, 0)
    assert bed.told == {"a": 0, "b": 0}
    assert bed.received["b"] == alone([2] * 14, max_tokens=12, ignore_eos=True)
    bed.assert_clean()


def test_who_waits_with_a_hit_and_is_aborted_leaves_everything_as_it_was():
    bed = PrefixBed(num_blocks=10, block_size=4, seats=3, budget=64)
    bed.serve("first", PROMPT[:9])
    bed.add("large", [9] * 27, max_tokens=6, ignore_eos=True)
    bed.step()
    for _ in range(2):
        bed.step()
    before = (
        sorted(bed.pool.free_blocks()),
        [bed.pool.ref_count(block) for block in range(10)],
        {block: bed.cached_pool.key_of(block) for block in bed.cached_pool.cached_blocks()},
    )
    bed.add("waits", PROMPT[:21], max_tokens=2)
    for _ in range(3):
        assert "waits" not in bed.scheduler.schedule().num_scheduled
    bed.scheduler.abort(["waits", "waits", "unknown"])
    assert before == (
        sorted(bed.pool.free_blocks()),
        [bed.pool.ref_count(block) for block in range(10)],
        {block: bed.cached_pool.key_of(block) for block in bed.cached_pool.cached_blocks()},
    )
    assert bed.plain_kv.num_chains == 1


def test_a_refused_request_does_not_touch_the_live_one_of_its_id():
    bed = PrefixBed(num_blocks=20, block_size=4)
    bed.add("x", PROMPT[:9], max_tokens=3, ignore_eos=True)
    with pytest.raises(ValueError, match="'x' is in use"):
        bed.scheduler.add(EngineCoreRequest("x", [5], SamplingParams(), cache_salt="other"))
    bed.run()
    assert bed.serve("y", PROMPT[:9]) == 8  # without a salt, as x was
    bed.assert_clean()


def test_reset_waits_for_the_running_and_keeps_the_waiting():
    bed = PrefixBed(num_blocks=20, block_size=4, seats=1)
    bed.serve("first", PROMPT)
    bed.add("runs", PROMPT, max_tokens=2, ignore_eos=True)
    bed.add("waits", PROMPT, max_tokens=2, ignore_eos=True)
    bed.step()
    assert bed.scheduler.reset_prefix_cache() is False
    bed.run()
    assert bed.told == {"first": 0, "runs": 36, "waits": 36}
    assert bed.scheduler.reset_prefix_cache() is True
    assert bed.serve("cold", PROMPT) == 0
    bed.assert_clean()


# --- eviction --------------------------------------------------------------------------------------


def test_blocks_that_were_handed_out_again_are_not_found():
    bed = PrefixBed(num_blocks=4, block_size=4, budget=64)
    prompts = [[i] * 9 for i in (1, 2, 3, 4)]
    for i, prompt in enumerate(prompts):
        assert bed.serve(f"p{i}", prompt) == 0
    assert bed.serve("again", prompts[0]) == 0
    assert bed.serve("still there", prompts[0]) == 8
    bed.assert_clean()


def test_of_two_copies_computed_at_once_one_may_go():
    bed = PrefixBed(num_blocks=6, block_size=4, seats=2, budget=64)
    for name in ("a", "b"):
        bed.add(name, PROMPT[:9], max_tokens=1)
    plan = bed.step()
    assert plan.num_scheduled == {"a": 9, "b": 9}
    assert sorted(bed.cached_pool.cached_blocks()) == [0, 1, 3, 4]
    bed.serve("other", [3] * 9)  # takes a's blocks
    assert bed.serve("c", PROMPT[:9]) == 8
    bed.assert_clean()


def test_a_hit_is_not_taken_away_to_make_room_for_the_rest_of_its_own_request():
    bed = PrefixBed(num_blocks=6, block_size=4, budget=64)
    bed.serve("a", PROMPT[:12])
    bed.serve("other", [3] * 9)
    assert list(bed.pool.free_blocks())[:3] == [2, 1, 0]  # the hit is what would be handed out first
    assert bed.serve("b", PROMPT[:22]) == 12
    bed.assert_clean()
