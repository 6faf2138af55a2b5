"""Faults that engines of this kind have had in scheduler, cache and admission, each as the right behaviour."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage2.waiting import FcfsQueue, PriorityQueue

bed = load_file(Path(__file__).with_name("scheduler_bed.py"))
Bed, MAX_LEN, expected_output = bed.Bed, bed.MAX_LEN, bed.expected_output


def alone(prompt, **params):
    return expected_output(prompt, SamplingParams(**params))


# --- blocks run out ------------------------------------------------------------------------------------


def test_a_lone_request_that_outgrows_the_pool_ends_with_an_error_and_serving_goes_on():
    bed = Bed(num_blocks=3, block_size=16, seats=2, budget=64, max_len=100)
    bed.add("big", [1] * 40, max_tokens=32, ignore_eos=True)
    bed.run(limit=100)
    assert bed.reasons["big"] == "error"
    assert len(bed.received["big"]) <= 9
    bed.add("next", [1, 2], max_tokens=2, ignore_eos=True)
    bed.run(limit=100)
    assert bed.reasons["next"] == "length"
    bed.assert_clean()


def test_what_can_never_fit_does_not_block_the_queue():
    bed = Bed(num_blocks=2, block_size=4, seats=2, budget=64)
    for i in range(3):
        bed.add(f"huge{i}", [1] * 20, max_tokens=2)
    bed.add("small", [1, 2], max_tokens=2, ignore_eos=True)
    assert set(bed.step().num_scheduled) == {"small"}
    bed.run(limit=100)
    assert bed.reasons == {"huge0": "error", "huge1": "error", "huge2": "error", "small": "length"}
    assert "20 tokens and the whole KV cache holds 8" in bed.errors["huge0"]
    bed.assert_clean()


@pytest.mark.parametrize(("size", "fits"), [(8, True), (9, False)])
def test_a_prompt_that_fills_the_whole_cache_is_served(size, fits):
    bed = Bed(num_blocks=2, block_size=4, seats=2)
    bed.add("a", [1] * size, max_tokens=1)
    bed.run(limit=20)
    assert bed.reasons["a"] == ("length" if fits else "error")
    bed.assert_clean()


def test_a_resumed_request_is_not_pushed_out_again_and_again():
    """It comes back only when all of its known length has room, not its first piece alone."""
    bed = Bed(num_blocks=8, block_size=4, seats=4, budget=16)
    bed.add("a", [1] * 18, max_tokens=20, ignore_eos=True)
    bed.add("b", [2] * 4, max_tokens=24, ignore_eos=True)
    bed.run(limit=80)
    assert sum(plan.preempted.count("b") for plan in bed.plans) == 1
    bed.assert_clean()


def test_whoever_is_half_way_through_a_prompt_can_give_way():
    """Nothing was sampled yet: it starts over, and its prompt is computed once more from the first token."""
    bed = Bed(num_blocks=8, block_size=4, seats=2, budget=8)
    bed.add("a", [1] * 7, max_tokens=12, ignore_eos=True)
    bed.step()
    bed.add("b", [2] * 22, max_tokens=2, ignore_eos=True)
    bed.run()
    assert [req_id for plan in bed.plans for req_id in plan.preempted] == ["b"]
    assert bed.received["b"] == alone([2] * 22, max_tokens=2, ignore_eos=True)
    bed.assert_clean()


def test_a_victim_leaves_the_very_plan_that_it_is_in():
    """By priority the victim may stand before the one that needs room: its tokens and blocks of this step go too."""
    bed = Bed(num_blocks=5, block_size=2, seats=2, budget=2, queue=PriorityQueue)
    bed.add("mild", [1, 1], 5, 0.0, max_tokens=8, ignore_eos=True)
    bed.step()
    bed.add("urgent", [2], 0, 1.0, max_tokens=8, ignore_eos=True)
    bed.run(limit=60)
    step = next(plan for plan in bed.plans if plan.preempted)
    assert step.preempted == ["mild"]
    assert list(step.num_scheduled) == step.cached.req_ids == ["urgent"]
    assert "mild" not in step.cached.new_block_ids
    assert bed.received["mild"] == alone([1, 1], max_tokens=8, ignore_eos=True)
    bed.assert_clean()


def test_the_least_urgent_gives_way_even_if_it_is_the_one_that_needs_room():
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, queue=PriorityQueue)
    bed.add("urgent", [1] * 10, 0, 1.0, max_tokens=10, ignore_eos=True)
    bed.add("mild", [2] * 12, 1, 0.0, max_tokens=9, ignore_eos=True)
    plan = bed.step()
    while not plan.preempted:
        plan = bed.step()
    assert plan.preempted == ["mild"]
    assert list(plan.num_scheduled) == ["urgent"]
    bed.run()
    bed.assert_clean()


def test_counters_tell_of_every_request_and_every_preemption():
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32)
    for name in "abc":
        bed.add(name, [1] * 9, max_tokens=8, ignore_eos=True)
    bed.step()
    stats = bed.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.scheduled_tokens) == (2, 1, 18)
    assert stats.kv_usage == 1.0
    bed.run()
    stats = bed.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_usage) == (0, 0, 0.0)
    assert stats.preemptions == sum(len(plan.preempted) for plan in bed.plans) > 0


# --- requests end in between -----------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_a_result_for_a_request_that_ended_meanwhile_is_dropped_alone(depth):
    bed = Bed(depth=depth)
    bed.add("r1", [1, 2, 3], max_tokens=4, ignore_eos=True)
    bed.add("r2", [4, 5], max_tokens=4, ignore_eos=True)
    for _ in range(depth):
        bed.schedule()
    bed.scheduler.abort(["r1"])
    free = bed.pool.num_free
    bed.update()
    assert bed.received == {"r1": [], "r2": alone([4, 5], max_tokens=4, ignore_eos=True)[:1]}
    assert bed.pool.num_free == free
    bed.run()
    assert bed.reasons == {"r2": "length"}
    bed.assert_clean()


@pytest.mark.parametrize("queue", [FcfsQueue, PriorityQueue])
def test_aborts_are_harmless_whenever_they_come(queue):
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, queue=queue)
    bed.scheduler.abort(["never"])
    for name in "abc":
        bed.add(name, [1] * 10, max_tokens=14, ignore_eos=True)
    for _ in range(6):
        bed.step()
    bed.scheduler.abort(["a", "b", "c", "a", "unknown"])
    bed.scheduler.abort(["b"])
    assert bed.kv.usage == 0.0
    assert not bed.scheduler.has_work
    bed.assert_clean()


@pytest.mark.parametrize("queue", [FcfsQueue, PriorityQueue])
def test_an_id_may_be_used_again_while_its_first_owner_still_stands_in_the_queue(queue):
    bed = Bed(num_blocks=2, block_size=4, seats=1, queue=queue)
    bed.add("runs", [1] * 5, max_tokens=3, ignore_eos=True)
    bed.step()
    for prompt in ([2, 3], [4, 5], [6, 7]):
        bed.scheduler.abort(["x"])
        bed.add("x", prompt, max_tokens=2, ignore_eos=True)
    bed.run()
    assert bed.received["x"] == alone([6, 7], max_tokens=2, ignore_eos=True)
    bed.assert_clean()


def test_a_live_id_is_refused_and_its_owner_goes_on():
    bed = Bed()
    bed.add("x", [1, 2], max_tokens=3, ignore_eos=True)
    bed.step()
    with pytest.raises(ValueError, match="'x' is in use"):
        bed.scheduler.add(EngineCoreRequest("x", [5], SamplingParams()))
    bed.run()
    assert bed.received["x"] == alone([1, 2], max_tokens=3, ignore_eos=True)
    bed.assert_clean()


def test_a_failed_result_ends_its_request_and_no_other():
    bed = Bed()
    bed.runner.failing.add("bad")
    bed.add("bad", [1, 2], max_tokens=5)
    bed.add("good", [3, 4], max_tokens=5, ignore_eos=True)
    bed.run()
    assert bed.reasons == {"bad": "error", "good": "length"}
    assert bed.errors == {"bad": "planted"}
    bed.assert_clean()


def test_a_step_that_raises_ends_its_requests_and_keeps_those_it_sent_back():
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32)
    bed.add("a", [1] * 10, max_tokens=14, ignore_eos=True)
    bed.add("b", [2] * 8, max_tokens=12, ignore_eos=True)
    plan = bed.scheduler.schedule()
    while not plan.preempted:
        bed.deliver(bed.scheduler.update(plan, bed.runner.execute(plan)))
        plan = bed.scheduler.schedule()
    bed.deliver(bed.scheduler.fail(plan, "the device has a cold"))
    assert bed.errors == {"a": "the device has a cold"}
    bed.run()
    assert bed.received["b"] == alone([2] * 8, max_tokens=12, ignore_eos=True)


def test_a_refusal_in_a_step_that_raises_is_told_with_its_failures():
    bed = Bed(num_blocks=4, block_size=4)
    bed.add("small", [1, 2], max_tokens=3)
    bed.add("large", [3] * 20, max_tokens=3)
    bed.deliver(bed.scheduler.fail(bed.scheduler.schedule(), "the device has a cold"))
    assert bed.errors["small"] == "the device has a cold"
    assert "20" in bed.errors["large"]
    assert not bed.scheduler.has_work


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("size", [MAX_LEN - 1, MAX_LEN - 2])
def test_the_longest_prompts_get_the_tokens_that_have_room(size, depth):
    bed = Bed(num_blocks=MAX_LEN // 4, depth=depth)
    bed.add("a", [1] * size, max_tokens=None, ignore_eos=True)
    bed.run()
    assert len(bed.received["a"]) == MAX_LEN - size
    assert bed.reasons["a"] == "length"
    bed.assert_clean()


def test_of_several_tokens_those_behind_the_end_are_dropped():
    """A step may give a request more than one token: the first that ends it is its last."""
    bed = Bed()
    for name, params in (("stop", {"stop_token_ids": [98]}), ("full", {"max_tokens": 3}), ("min", {"min_tokens": 3})):
        bed.add(name, [1, 2], **{"max_tokens": 9, "eos_token_ids": [99], **params})
    plan = bed.scheduler.schedule()
    ids = [[5, 98, 6, 99], [5, 5, 5, 99], [99, 99, 99, 99]]
    outputs = bed.scheduler.update(plan, ModelRunnerOutput(["stop", "full", "min"], ids))
    assert outputs.new_ids == [[5, 98], [5, 5, 5], [99, 99, 99]]
    assert outputs.finish_reason == {"stop": "stop", "full": "length", "min": "stop"}
    assert outputs.stop_reason == {"stop": 98}
    assert bed.kv.usage == 0.0


def test_milestones_are_those_of_the_first_and_last_token():
    ticks = iter(range(1, 100))
    bed = Bed(clock=lambda: float(next(ticks)))
    bed.add("a", [1, 2], max_tokens=3, ignore_eos=True)  # at 1
    outputs = []
    while bed.scheduler.has_work:  # each step asks the clock twice: planned at 2, read at 3, and so on
        plan = bed.scheduler.schedule()
        outputs.append(bed.scheduler.update(plan, bed.runner.execute(plan)))
    assert [bool(out.timings) for out in outputs] == [False, False, True]
    seen = outputs[-1].timings["a"]
    assert (seen.queued, seen.scheduled, seen.first_token, seen.last_token) == (1.0, 2.0, 3.0, 7.0)
