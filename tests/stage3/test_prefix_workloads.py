"""The prefix cache under any workload: every output is the lone one's, and a name that says too little is noticed."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage2.waiting import FcfsQueue, PriorityQueue
from stage3.prefix.block_hash import hash_block

bed = load_file(Path(__file__).with_name("prefix_bed.py"))
PrefixBed, alone = bed.PrefixBed, bed.alone

PROMPT = [(7 * i) % 23 for i in range(40)]


def misread(hash_block) -> int:
    """How often 60 requests read something else than they mean to, if blocks are named by ``hash_block``."""
    rng = random.Random(0)
    parts = [[1, 2, 3, 4], [4, 3, 2, 1], [5, 5, 5, 5], [6, 7, 8, 9]]
    bed = PrefixBed(num_blocks=40, block_size=4, kv_parts={"hash_block": hash_block}, checks=False)
    prompts = {str(i): [*rng.choice(parts), *rng.choice(parts), *rng.choice(parts), i % 23] for i in range(60)}
    for name, prompt in prompts.items():
        bed.add(name, prompt, max_tokens=4, ignore_eos=True)
    bed.run()
    assert bed.scheduler.stats().prefix_hits > 0
    return bed.runner.num_misread


def test_two_different_blocks_are_never_taken_for_each_other():
    assert misread(hash_block) == 0


@pytest.mark.parametrize(
    "weak",
    [
        lambda parent, token_ids: hash_block(parent, token_ids)[:1],
        lambda parent, token_ids: b"constant",
        lambda parent, token_ids: hash_block(b"", token_ids),  # the chain is forgotten
        lambda parent, token_ids: hash_block(parent, sorted(token_ids)),
    ],
    ids=["one byte", "constant", "no parent", "no order"],
)
def test_weak_names_would_be_noticed(weak):
    """Nothing compares tokens on a hit: that two blocks are equal rests on SHA-256 over everything before them."""
    assert misread(weak) > 0


STEMS = (PROMPT[:20], PROMPT[:8] + [5] * 12, [3] * 20)
ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 2),  # stem
        st.integers(1, 20),  # tokens of it
        st.integers(0, 6),  # own tokens
        st.integers(1, 20),  # max_tokens
        st.sampled_from([None, None, None, "salt"]),
        st.integers(-1, 1),  # priority
        st.integers(0, 12),  # step of arrival
        st.one_of(st.none(), st.integers(0, 20)),  # step of an abort
        st.sampled_from([None, None, None, 0]),  # prompt_logprobs
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=250, deadline=None)
@given(
    ARRIVALS,
    st.integers(1, 5),
    st.integers(0, 12),
    st.sampled_from([FcfsQueue, PriorityQueue]),
    st.integers(1, 3),
    st.integers(4, 24),
    st.sampled_from([0, 0, 1]),
)
def test_any_workload_gives_every_request_its_lone_output(arrivals, size, spare, queue, depth, budget, recomputed):
    """Shared beginnings, salts, small caches, several plans in flight, aborts: the bed checks every step."""
    num_blocks = -(-46 // size) + spare
    parts = {"blocks_to_recompute": recomputed}
    bed = PrefixBed(num_blocks, size, 4, budget, 0, queue, depth, kv_parts=parts)
    prompts = [
        [*STEMS[stem][:shared], *[(i * 5 + j) % 23 for j in range(own)]]
        for i, (stem, shared, own, *_) in enumerate(arrivals)
    ]
    for step in range(3000):
        for i, (_, _, _, max_tokens, salt, priority, arrival, abort, logprobs) in enumerate(arrivals):
            if arrival == step:
                bed.add(str(i), prompts[i], priority, float(i), salt, max_tokens=max_tokens, prompt_logprobs=logprobs)
            if abort is not None and arrival + abort == step:
                bed.scheduler.abort([str(i)])
        if step > 40 and not bed.scheduler.has_work and not bed.in_flight:
            break
        bed.step() if bed.scheduler.has_work or bed.in_flight else None
    for i, arrival in enumerate(arrivals):
        output = alone(prompts[i], max_tokens=arrival[3])
        got = bed.received[str(i)]
        assert got == (output if str(i) in bed.reasons else output[: len(got)])
        assert str(i) in bed.reasons or arrival[7] is not None
        if arrival[8] is not None:
            assert bed.told.get(str(i), 0) == 0
    stats = bed.scheduler.stats()
    assert stats.prefix_hits >= sum(bed.told.values())
    if not any(arrival[7] is not None for arrival in arrivals):  # who is aborted may have been told nothing
        assert stats.prefix_hits == sum(bed.told.values())
    bed.assert_clean()
    assert bed.scheduler.reset_prefix_cache()
    assert not list(bed.cached_pool.cached_blocks())


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_busy_engine_really_shares(depth):
    bed = PrefixBed(num_blocks=30, block_size=4, seats=6, budget=24, depth=depth)
    rng = random.Random(1)
    prompts = {str(i): [*STEMS[i % 3], *[rng.randrange(23) for _ in range(i % 7)]] for i in range(60)}
    for name, prompt in prompts.items():
        bed.add(name, prompt, max_tokens=8, ignore_eos=True)
    bed.run()
    for name, prompt in prompts.items():
        assert bed.received[name] == alone(prompt, max_tokens=8, ignore_eos=True)
    stats = bed.scheduler.stats()
    assert stats.prefix_queries == sum(map(len, prompts.values()))
    assert stats.prefix_hits == sum(bed.told.values()) > stats.prefix_queries // 2
    bed.assert_clean()
