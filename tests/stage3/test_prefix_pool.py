"""The pool that remembers: what it finds, what it forgets, and in which order, against lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage2.block_pool import BlockPool
from stage3.prefix.cached_pool import CachedBlockPool


def make(num_blocks: int) -> tuple[CachedBlockPool, BlockPool]:
    blocks = BlockPool(num_blocks)
    return CachedBlockPool(blocks), blocks


def test_content_stays_until_its_block_is_handed_out():
    pool, blocks = make(3)
    a, b = pool.take(2)
    pool.publish(a, b"a")
    pool.publish(b, b"b")
    pool.give_back(b)
    pool.give_back(a)
    assert (pool.find(b"a"), pool.find(b"b"), pool.num_free) == (a, b, 3)
    assert pool.take(2) == [2, b]
    assert (pool.find(b"a"), pool.find(b"b")) == (a, None)
    assert list(blocks.free_blocks()) == [a]


def test_a_hit_leaves_the_free_list_and_comes_back_as_the_last():
    pool, blocks = make(3)
    for block, key in zip(pool.take(3), (b"a", b"b", b"c"), strict=True):
        pool.publish(block, key)
        pool.give_back(block)
    pool.share(1)
    assert list(blocks.free_blocks()) == [0, 2]
    pool.give_back(1)
    assert list(blocks.free_blocks()) == [0, 2, 1]
    assert pool.take(2) == [0, 2]
    assert [pool.find(key) for key in (b"a", b"b", b"c")] == [None, 1, None]


def test_of_two_blocks_with_the_same_content_the_other_stays():
    pool, _ = make(3)
    for block in pool.take(3):
        pool.publish(block, b"same")
    pool.give_back(0)
    assert pool.take(1) == [0]
    assert pool.find(b"same") == 1
    pool.forget(2)
    assert pool.find(b"same") == 1
    pool.forget(1)
    assert pool.find(b"same") is None
    assert list(pool.cached_blocks()) == []
    assert pool._twins == {}  # or every name that two blocks once had would be kept for ever


def test_forgetting_what_is_not_known_does_nothing():
    pool, blocks = make(2)
    pool.forget(0)
    assert list(blocks.free_blocks()) == [0, 1]


def test_refusals():
    pool, _ = make(2)
    with pytest.raises(ValueError, match="block 0 has no owner"):
        pool.publish(0, b"a")
    pool.take(1)
    pool.publish(0, b"a")
    with pytest.raises(ValueError, match="block 0 has been published"):
        pool.publish(0, b"b")
    assert pool.find(b"a") == 0
    with pytest.raises(ValueError, match="2 blocks are asked for"):
        pool.take(2)
    with pytest.raises(ValueError, match="no owner"):
        pool.give_back(1)


def test_reset_waits_until_nobody_owns_anything():
    pool, blocks = make(2)
    pool.take(2)
    pool.publish(0, b"a")
    pool.publish(1, b"a")
    pool.give_back(0)
    assert pool.reset() is False
    assert pool.find(b"a") == 0
    pool.give_back(1)
    assert pool.reset() is True
    assert pool.find(b"a") is None
    assert list(pool.cached_blocks()) == []
    assert list(blocks.free_blocks()) == [0, 1]
    pool.take(2)
    pool.publish(1, b"a")
    assert pool.find(b"a") == 1
    pool.forget(1)
    assert pool.find(b"a") is None


ACTIONS = st.tuples(
    st.sampled_from(["take", "share", "back", "publish", "publish", "forget", "reset"]),
    st.integers(0, 8),
    st.sampled_from([b"a", b"b", b"c"]),
)


@given(st.integers(1, 9), st.lists(ACTIONS, max_size=100))
def test_any_order_of_operations_against_lists(num_blocks: int, actions: list[tuple[str, int, bytes]]):
    pool, blocks = make(num_blocks)
    free, owners = list(range(num_blocks)), [0] * num_blocks
    content: dict[int, bytes] = {}  # in the order in which they were published
    for action, number, key in actions:
        block = number % num_blocks
        if action == "take" and number <= len(free):
            taken, free = free[:number], free[number:]
            assert pool.take(number) == taken
            for new in taken:
                owners[new] = 1
                content.pop(new, None)
        elif action == "share":
            pool.share(block)
            if owners[block] == 0:
                free.remove(block)
            owners[block] += 1
        elif action == "back" and owners[block]:
            pool.give_back(block)
            owners[block] -= 1
            if owners[block] == 0:
                free.append(block)
        elif action == "publish" and owners[block] and block not in content:
            pool.publish(block, key)
            content[block] = key
        elif action == "forget":
            pool.forget(block)
            content.pop(block, None)
        elif action == "reset":
            assert pool.reset() is (not any(owners))
            if not any(owners):
                content.clear()
        assert list(blocks.free_blocks()) == free
        assert pool.num_free == len(free)
        assert [blocks.ref_count(b) for b in range(num_blocks)] == owners
        assert {b: pool.key_of(b) for b in pool.cached_blocks()} == content
        for name in (b"a", b"b", b"c"):
            holders = [b for b, held in content.items() if held == name]
            assert pool.find(name) == (holders[0] if holders else None)
