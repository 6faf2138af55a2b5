"""What drafts bring, and what they never cost: blocks, budget, length, ends, and other requests' tokens."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.records import CachedRequests, Logprobs, ModelRunnerOutput, SchedulerOutput
from stage1.request import Request, Status
from stage2.block_pool import BlockPool
from stage2.kv_manager import PagedKVManager
from stage3.spec.accept import AcceptanceCounter
from stage3.spec.scheduling import DraftLimits, Speculation

bed = load_file(Path(__file__).with_name("spec_bed.py"))
SpecBed, EOS, alone = bed.SpecBed, bed.EOS, bed.alone


def prompt_that_ends_after(count: int) -> list[int]:
    """A prompt whose output is ``count`` tokens long and ends with EOS."""
    for first in range(23):
        for second in range(23):
            output = alone([first, second], max_tokens=40)
            if len(output) == count and output[-1] == EOS:
                return [first, second]
    raise AssertionError("there is none")


@pytest.mark.parametrize("k", [1, 3, 5])
def test_right_drafts_bring_several_tokens_a_step(k):
    bed = SpecBed(num_drafts=k)
    bed.add("a", [1, 2, 3], max_tokens=20, ignore_eos=True)
    bed.run()
    assert bed.received["a"] == alone([1, 2, 3], max_tokens=20, ignore_eos=True)
    assert len(bed.plans) == 1 + -(-19 // (k + 1))
    assert bed.counter.num_accepted == bed.num_drafted()
    bed.assert_clean()


def test_wrong_drafts_are_computed_and_taken_back():
    bed = SpecBed(p=0.0, seed=3)
    bed.add("a", [1, 2, 3], max_tokens=12, ignore_eos=True)
    bed.step()
    bed.step()
    req = bed.lifecycle.requests["a"]
    assert bed.plans[1].num_scheduled == {"a": 4}
    assert bed.plans[1].drafts["a"] == bed.plans[1].drafts["a"][:3]
    assert (req.num_tokens, req.num_computed_tokens, req.num_in_flight) == (5, 4, 0)
    bed.run()
    assert bed.received["a"] == alone([1, 2, 3], max_tokens=12, ignore_eos=True)
    assert bed.runner.num_computed > 14


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_no_draft_passes_the_longest_length(k):
    """14 tokens of 24 that a request may have: exactly 10 more, and no position from 23 on is computed."""
    bed = SpecBed(num_drafts=k, max_len=24)
    prompt = list(range(14))
    bed.add("a", prompt, ignore_eos=True)
    bed.run()
    plain = SpecBed(max_batch=1, max_len=24, num_drafts=1, p=0.0)
    plain.add("a", prompt, ignore_eos=True)
    plain.run()
    assert len(bed.received["a"]) == 10
    assert bed.received["a"] == plain.received["a"]
    assert bed.reasons["a"] == "length"
    bed.assert_clean()


def test_a_drafter_that_stops_early_changes_nothing():
    """It may know less context than the target: then there are no drafts, and the request goes on."""
    bed = SpecBed(num_drafts=5)
    whole = bed.runner.propose
    bed.runner.propose = lambda tokens: whole(tokens) if len(tokens) < 16 else []
    bed.add("a", list(range(10)), max_tokens=20, ignore_eos=True)
    bed.run()
    assert bed.received["a"] == alone(list(range(10)), max_tokens=20, ignore_eos=True)
    late = [plan for plan in bed.plans if plan.cached.num_computed and plan.cached.num_computed[0] > 22]
    assert late
    assert not any(plan.drafts for plan in late)


def test_an_accepted_end_cuts_what_follows_it():
    prompt = prompt_that_ends_after(3)
    bed = SpecBed(num_drafts=5)
    bed.add("a", prompt, max_tokens=40)
    bed.run()
    assert bed.received["a"] == alone(prompt, max_tokens=40)
    assert bed.received["a"][-1] == EOS
    assert bed.reasons["a"] == "stop"
    assert len(bed.plans) == 2
    assert bed.counter.accepted_per_position == [1, 1, 0, 0, 0]  # the second is the end
    assert bed.counter.acceptance_length == 2.0
    bed.assert_clean()


def test_log_probabilities_are_cut_with_their_tokens():
    prompt = prompt_that_ends_after(3)
    bed = SpecBed(num_drafts=5)
    execute, update = bed.runner.execute, bed.scheduler.update
    received = []

    def with_logprobs(plan):
        out = execute(plan)
        ids = out.sampled[0]
        out.logprobs["a"] = Logprobs([[token] for token in ids], [[-1.0] for _ in ids], [1] * len(ids))
        return out

    def noting(plan, out):
        outputs = update(plan, out)
        received.extend(row[0] for row in outputs.logprobs["a"].ids)
        return outputs

    bed.runner.execute, bed.scheduler.update = with_logprobs, noting
    bed.add("a", prompt, max_tokens=40)
    bed.run()
    assert received == bed.received["a"] == alone(prompt, max_tokens=40)


def test_an_end_before_min_tokens_is_none():
    prompt = prompt_that_ends_after(3)
    bed = SpecBed(num_drafts=5)
    bed.add("a", prompt, max_tokens=20, min_tokens=6)
    bed.run()
    assert bed.received["a"] == alone(prompt, max_tokens=20, min_tokens=6)
    assert len(bed.received["a"]) >= 6


def test_requests_with_and_without_drafts_keep_their_own_tokens():
    """Eight of different lengths over several steps, half of them well guessed; results in an order of their own."""
    bed = SpecBed(num_blocks=64, seats=8, budget=64, num_drafts=4)
    whole = bed.runner.propose
    bed.runner.propose = lambda tokens: whole(tokens) if tokens[0] % 2 else []
    execute = bed.runner.execute

    def shuffled(plan):
        out = execute(plan)
        order = sorted(range(len(out.req_ids)), key=lambda i: (i * 5) % 7)
        drafts = dict(reversed(out.drafts.items()))
        return ModelRunnerOutput([out.req_ids[i] for i in order], [out.sampled[i] for i in order], drafts=drafts)

    bed.runner.execute = shuffled
    for i in range(8):
        bed.add(str(i), [i, *range(i)], max_tokens=5 + 2 * i, ignore_eos=True)
        bed.step()
    bed.run()
    for i in range(8):
        assert bed.received[str(i)] == alone([i, *range(i)], max_tokens=5 + 2 * i, ignore_eos=True)
    assert {req_id for plan in bed.plans for req_id in plan.drafts} == {"1", "3", "5", "7"}
    bed.assert_clean()


@pytest.mark.parametrize("num_requests", [2, 3, 4])
def test_drafts_push_nobody_out(num_requests):
    """Two blocks each are all that they come to fill. Drafts would reach into four, and nobody knows the end."""
    prompt = prompt_that_ends_after(3)
    for num_blocks in range(2 * num_requests, 4 * num_requests):
        bed = SpecBed(num_blocks, block_size=2, seats=num_requests, budget=40, num_drafts=5)
        for i in range(num_requests):
            bed.add(str(i), prompt, max_tokens=40)
        bed.run()
        assert not any(plan.preempted for plan in bed.plans)
        assert set(bed.reasons.values()) == {"stop"}
        bed.assert_clean()


def test_a_request_that_just_fits_the_cache_is_not_refused_for_its_drafts():
    prompt = prompt_that_ends_after(3)
    bed = SpecBed(num_blocks=1, block_size=5, seats=1, num_drafts=5)
    bed.add("a", prompt, max_tokens=40)
    bed.run()
    assert bed.reasons == {"a": "stop"}
    assert bed.received["a"] == alone(prompt, max_tokens=40)
    assert bed.num_drafted() == 2  # as many as its block has room for
    bed.assert_clean()


def test_drafts_have_all_the_room_that_is_free():
    bed = SpecBed(num_blocks=9, block_size=4, seats=1, num_drafts=6)
    bed.add("a", [1, 2, 3], max_tokens=28, ignore_eos=True)
    bed.run()
    assert [len(plan.drafts.get("a", [])) for plan in bed.plans] == [0, 6, 6, 6, 5]


def test_drafts_leave_every_running_request_its_token():
    bed = SpecBed(num_blocks=64, seats=4, budget=6, num_drafts=5)
    for i in range(4):
        bed.add(str(i), [i], max_tokens=40, ignore_eos=True)
    for _ in range(4):
        bed.step()
    for _ in range(5):
        assert len(bed.step().num_scheduled) == 4
        assert sum(len(ids) for ids in bed.plans[-1].drafts.values()) <= 2
    bed.run()
    bed.assert_clean()


def test_drafts_that_the_budget_cuts_still_end_in_a_token():
    """A prompt's piece takes the budget: of 1 + 5 tokens two have room, and the request gets its token all the same."""
    bed = SpecBed(num_blocks=64, seats=2, budget=8, num_drafts=5, long_prefill=6)
    bed.add("long", [3] * 30, max_tokens=3, ignore_eos=True)
    bed.step()
    bed.add("a", [1, 2], max_tokens=12, ignore_eos=True)
    bed.step()
    plan = bed.step()
    assert plan.num_scheduled == {"long": 6, "a": 2}
    assert len(plan.drafts["a"]) == 1
    bed.run()
    assert bed.received["a"] == alone([1, 2], max_tokens=12, ignore_eos=True)
    bed.assert_clean()


def test_nothing_is_drafted_in_a_batch_that_is_too_large():
    bed = SpecBed(num_blocks=64, seats=4, budget=64, max_batch=2)
    for i in range(4):
        bed.add(str(i), [i], max_tokens=6 + 6 * (i < 2), ignore_eos=True)
    while len(bed.lifecycle.requests) == 4:
        bed.step()
        assert not bed.plans[-1].drafts
    bed.run()
    assert bed.num_drafted() > 0
    assert all(len(plan.num_scheduled) <= 2 for plan in bed.plans if plan.drafts)


def test_a_preempted_request_loses_its_drafts():
    bed = SpecBed(num_blocks=9, block_size=2, seats=2, num_drafts=1, max_tokens=1)
    bed.add("a", [1] * 5, max_tokens=10, ignore_eos=True)
    bed.add("b", [2] * 4, max_tokens=10, ignore_eos=True)
    bed.run()
    assert sum(plan.preempted.count("b") for plan in bed.plans) >= 1
    for plan in bed.plans:
        assert not set(plan.preempted) & set(plan.drafts)
        assert not {new.req_id for new in plan.new} & set(plan.drafts)
    bed.assert_clean()


def test_nothing_is_drafted_from_half_a_prompt():
    """Not even if a drafter hands something in."""
    bed = SpecBed(seats=2, budget=4)
    execute = bed.runner.execute

    def eager(plan):
        out = execute(plan)
        out.drafts = {req_id: out.drafts.get(req_id, [5, 5, 5]) for req_id in out.req_ids}
        return out

    bed.runner.execute = eager
    bed.add("a", list(range(14)), max_tokens=6, ignore_eos=True)
    for _ in range(4):
        assert not bed.step().drafts
    bed.run()
    assert bed.received["a"] == alone(list(range(14)), max_tokens=6, ignore_eos=True)


def result_for(status=Status.RUNNING, num_in_flight=1, failed=False, sampled=(4,)):
    """What a hook makes of a result with three drafts for a request of five tokens."""
    hook = Speculation(PagedKVManager(BlockPool(20), 4), DraftLimits(3, 8, 9), AcceptanceCounter(3))
    req = Request("a", [1] * 5, SamplingParams(max_tokens=40), 45)
    req.status, req.num_in_flight, req.num_computed_tokens = status, num_in_flight, 5
    assert hook.admit(req)
    plan = SchedulerOutput(1, [], CachedRequests(["a"], [4]), {"a": 1})
    out = ModelRunnerOutput(["a"], [list(sampled)], drafts={"a": [7, 8, 9]}, failed={"a": "why"} if failed else {})
    hook.on_result(plan, out)
    return req.draft_ids


def test_who_gets_drafts():
    assert result_for() == [7, 8, 9]
    assert result_for(status=Status.PREEMPTED) == []  # a victim that waited for this result
    assert result_for(num_in_flight=2) == []  # its next token is on its way: the drafts come too late
    assert result_for(failed=True) == []
    assert result_for(sampled=()) == []  # half a prompt


@pytest.mark.parametrize("wrong", [{"num_drafts": 0}, {"max_batch": 0}, {"max_tokens": 0}])
def test_limits_under_which_nothing_is_verified_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is 0"):
        DraftLimits(**{"num_drafts": 1, "max_batch": 1, "max_tokens": 1, **wrong})
