"""The rules of the prefix cache, one by one: what is found, by whom, and when it is forgotten."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.request import Status
from stage2.block_pool import BlockPool
from stage3.prefix.block_hash import chain_start, hash_block
from stage3.prefix.kv_manager import PrefixKVManager, longest_hit

steps = load_file(Path(__file__).with_name("prefix_steps.py"))
admit, compute, end, request, run = steps.admit, steps.compute, steps.end, steps.request, steps.run

# --- hits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12)])
def test_a_hit_is_full_blocks_and_never_the_last_token(size, cached):
    kv = PrefixKVManager(BlockPool(16), 4)
    prompt = list(range(size))
    assert run(kv, "cold", prompt) == 0
    assert run(kv, "warm", prompt) == cached


def test_a_hit_ends_where_prompts_part():
    kv = PrefixKVManager(BlockPool(16), 4)
    run(kv, "a", list(range(16)))
    assert run(kv, "b", [*range(10), 99, *range(11, 16)]) == 8
    assert run(kv, "c", [99, *range(1, 16)]) == 0


def test_output_is_found_by_the_next_turn():
    kv = PrefixKVManager(BlockPool(16), 4)
    req = request("first", [5, 6, 7])
    admit(kv, req)
    for _ in range(6):
        compute(kv, req)
        kv.allocate_slots(req, req.num_tokens)
    end(kv, req)
    assert run(kv, "second", [*req.prompt_ids, *req.output_ids, 8, 9]) == 8


@pytest.mark.parametrize("size", [2, 4, 6, 8])
@pytest.mark.parametrize("chunk", [3, 5, 20])
def test_names_are_those_of_the_text_wherever_prompt_and_output_meet(size, chunk):
    pool = BlockPool(32)
    kv = PrefixKVManager(pool, 4)
    req = request("a", list(range(50, 50 + size)))
    admit(kv, req)
    for _ in range(3):  # several tokens at once, as drafts give them
        req.num_computed_tokens, req.output_ids = req.num_tokens, req.output_ids + list(range(chunk))
        assert kv.allocate_slots(req, req.num_tokens) is not None
        kv.commit(req)
    req.num_computed_tokens = req.num_tokens - 1
    kv.commit(req)
    names, text = [chain_start({})], req.prompt_ids + req.output_ids
    for start in range(0, len(text) - 4, 4):  # not with the last token, which is not computed
        names.append(hash_block(names[-1], text[start : start + 4]))
    hit = kv.lookup(request("b", text))
    assert [kv._pool.key_of(block) for block in hit.block_ids] == names[1:]


def test_looking_up_takes_nothing():
    pool = BlockPool(16)
    kv = PrefixKVManager(pool, 4)
    run(kv, "a", list(range(16)))
    before = list(pool.free_blocks())
    req = request("b", list(range(16)))
    assert kv.lookup(req) == kv.lookup(req)
    assert list(pool.free_blocks()) == before
    assert kv.usage == 0.0


def test_what_is_still_computed_by_another_is_shared_once_its_result_is_read():
    kv = PrefixKVManager(BlockPool(16), 4)
    a, b = request("a", list(range(12))), request("b", list(range(12)))
    admit(kv, a)
    a.num_computed_tokens += 4  # a step that has not returned
    assert kv.lookup(b).num_tokens == 0
    kv.commit(a)
    assert kv.lookup(b).num_tokens == 4
    assert admit(kv, b) == 4
    assert kv.usage == 5 / 16


def test_tokens_on_their_way_are_not_published():
    kv = PrefixKVManager(BlockPool(16), 4)
    req = request("a", [1, 2, 3])
    admit(kv, req)
    req.num_computed_tokens, req.num_in_flight = 3, 1
    kv.allocate_slots(req, 8)
    req.num_computed_tokens, req.num_in_flight = 4, 2  # the second of two steps computes the block's last token
    req.output_ids, req.num_in_flight = [9], 1
    kv.commit(req)
    assert kv.lookup(request("b", [1, 2, 3, 9, 5])).num_tokens == 0
    req.output_ids, req.num_in_flight = [9, 9], 0
    kv.commit(req)
    assert kv.lookup(request("b", [1, 2, 3, 9, 5])).num_tokens == 4


def test_keys_and_values_of_rejected_drafts_are_not_published():
    """The step computed two drafts behind the last token; one was kept, and the next token is another one."""
    kv = PrefixKVManager(BlockPool(16), 4)
    req = request("a", [1, 2])
    admit(kv, req)
    req.num_computed_tokens, req.output_ids = 4, [3, 7]
    kv.commit(req)
    assert kv.lookup(request("b", [1, 2, 3, 7, 5])).num_tokens == 0


def test_log_probabilities_of_a_prompt_are_computed_and_shared_with_others():
    kv = PrefixKVManager(BlockPool(16), 4)
    prompt = list(range(12))
    assert run(kv, "a", prompt, prompt_logprobs=0) == 0
    assert run(kv, "b", prompt, prompt_logprobs=1) == 0
    assert run(kv, "c", prompt) == 8
    assert (kv.num_queried_tokens, kv.num_hit_tokens) == (12, 8)


@pytest.mark.parametrize(("again", "cached"), [(1, (8, 0, 0)), (2, (4, 0, 0)), (3, (0, 0, 0)), (5, (0, 0, 0))])
def test_blocks_to_recompute_are_taken_off_every_hit(again, cached):
    kv = PrefixKVManager(BlockPool(32), 4, blocks_to_recompute=again)
    prompt = list(range(13))
    run(kv, "a", prompt)
    assert (run(kv, "b", prompt), run(kv, "c", prompt[:6]), run(kv, "d", [99, *prompt])) == cached


def test_a_hit_stops_at_the_first_block_that_is_gone():
    assert longest_hit([b"a", b"b", b"c"], {b"a": 4, b"c": 2}.get) == [4]
    assert longest_hit([b"a"], {b"a": 0}.get) == [0]
    assert longest_hit([], {}.get) == []


def test_room_is_made_for_what_may_come_behind_the_tokens():
    kv = PrefixKVManager(BlockPool(3), 4)
    req = request("a", [1, 2, 3])
    assert kv.allocate_slots(req, 3, lookahead=2) == [0, 1]
    assert kv.allocate_slots(req, 4, lookahead=4) == []
    assert kv.allocate_slots(req, 8, lookahead=5) is None
    assert kv.allocate_slots(req, 8, lookahead=4) == [2]


def test_what_counts_is_the_hit_that_a_request_comes_in_with():
    kv = PrefixKVManager(BlockPool(4), 4)
    a, b = request("a", list(range(12))), request("b", list(range(13)))
    admit(kv, a)
    assert admit(kv, b) is None
    assert (kv.num_cached_tokens("b"), kv.num_queried_tokens) == (None, 12)
    compute(kv, a)
    end(kv, a)
    assert admit(kv, b) == 12
    assert (kv.num_cached_tokens("b"), kv.num_queried_tokens, kv.num_hit_tokens) == (12, 25, 12)


# --- salts -----------------------------------------------------------------------------------------


def test_only_the_same_salt_shares():
    kv = PrefixKVManager(BlockPool(32), 4)
    prompt = list(range(12))
    assert run(kv, "1", prompt, salt="a") == 0
    assert run(kv, "2", prompt, salt="a") == 8
    assert run(kv, "3", prompt, salt="b") == 0
    assert run(kv, "4", prompt) == 0
    kv.set_extra_keys("5", {"adapter": "a"})
    assert run(kv, "5", prompt) == 0
    assert run(kv, "6", prompt, salt="b") == 8


def test_extra_keys_come_before_the_first_look():
    kv = PrefixKVManager(BlockPool(4), 4)
    kv.lookup(request("a", [1, 2]))
    with pytest.raises(ValueError, match="'a' has been looked up"):
        kv.set_extra_keys("a", {"cache_salt": "x"})


def test_an_id_that_is_used_again_starts_without_a_salt():
    kv = PrefixKVManager(BlockPool(16), 4)
    run(kv, "a", list(range(12)), salt="x")
    assert run(kv, "a", list(range(12))) == 0
    assert run(kv, "a", list(range(12))) == 8


# --- forgetting ------------------------------------------------------------------------------------


def test_the_tail_of_a_chain_goes_first_and_the_older_chain_before_the_younger():
    pool = BlockPool(6)
    kv = PrefixKVManager(pool, 4)
    run(kv, "a", list(range(12)))  # blocks 0 1 2
    run(kv, "b", list(range(50, 58)))  # blocks 3 4
    assert list(pool.free_blocks()) == [5, 2, 1, 0, 4, 3]
    req = request("c", [90, 91, 92, 93, 94])
    admit(kv, req)
    assert kv.lookup(request("a", list(range(13)))).block_ids == (0, 1)
    end(kv, req, Status.ABORTED)
    run(kv, "a", list(range(9)))
    assert list(pool.free_blocks())[-2:] == [1, 0]  # found again, and now behind b


@pytest.mark.parametrize(("status", "cached"), [(Status.STOPPED, 12), (Status.ABORTED, 12), (Status.FAILED, 4)])
def test_of_a_failed_request_only_what_others_computed_is_kept(status, cached):
    kv = PrefixKVManager(BlockPool(16), 4)
    run(kv, "first", list(range(5)))
    req = request("second", list(range(13)))
    assert admit(kv, req) == 4
    compute(kv, req)
    end(kv, req, status)
    assert run(kv, "third", list(range(13))) == cached


def test_reset_forgets_when_nothing_is_held():
    kv = PrefixKVManager(BlockPool(16), 4)
    req = request("a", list(range(12)))
    admit(kv, req)
    compute(kv, req)
    assert kv.reset() is False
    end(kv, req)
    assert kv.reset() is True
    assert run(kv, "b", list(range(12))) == 0
    assert run(kv, "c", list(range(12))) == 8


def test_a_preempted_request_finds_its_own_blocks_and_they_do_not_count():
    kv = PrefixKVManager(BlockPool(16), 4)
    req = request("a", list(range(12)))
    admit(kv, req)
    compute(kv, req)
    req.status = Status.PREEMPTED
    kv.free(req)
    req.num_computed_tokens = 0
    assert admit(kv, req) == 12
    assert (kv.num_queried_tokens, kv.num_hit_tokens, kv.num_cached_tokens("a")) == (12, 0, 0)
    end(kv, req)
    assert kv.num_cached_tokens("a") is None


def test_names_are_made_once_for_each_block():
    asked = []

    def hash_block(parent, token_ids):
        asked.append(tuple(token_ids))
        return parent + bytes(token_ids)

    kv = PrefixKVManager(BlockPool(16), 2, hash_block=hash_block)
    req = request("a", [1, 2, 3, 4, 5])
    for _ in range(3):
        kv.lookup(req)
    admit(kv, req)
    compute(kv, req)
    kv.allocate_slots(req, 8)
    for _ in range(2):
        compute(kv, req)
    req.status = Status.PREEMPTED
    kv.free(req)
    kv.lookup(req)
    assert asked == [(1, 2), (3, 4), (5, 1), (1, 1)]
