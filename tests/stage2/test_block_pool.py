"""The block pool against a slow oracle, a list of free blocks and a dictionary of owners; and the tables over it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage1.params import SamplingParams
from stage1.request import Request
from stage2.block_pool import BlockPool
from stage2.kv_manager import PagedKVManager


def test_blocks_come_in_order_and_return_at_the_tail():
    pool = BlockPool(4)
    assert pool.take(3) == [0, 1, 2]
    pool.give_back(1)
    pool.give_back(0)
    assert list(pool.free_blocks()) == [3, 1, 0]
    assert pool.take(2) == [3, 1]


def test_a_free_block_can_be_shared_out_of_the_middle():
    pool = BlockPool(5)
    pool.share(2)
    assert list(pool.free_blocks()) == [0, 1, 3, 4]
    pool.share(2)
    pool.give_back(2)
    assert pool.ref_count(2) == 1
    pool.give_back(2)
    assert list(pool.free_blocks()) == [0, 1, 3, 4, 2]


def test_refusals_change_nothing():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match=r"3 blocks.*2 of 2"):
        pool.take(3)
    with pytest.raises(ValueError, match="no owner"):
        pool.give_back(0)
    assert list(pool.free_blocks()) == [0, 1]
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(0)


ACTIONS = st.tuples(st.sampled_from(["take", "share", "back"]), st.integers(0, 8))


@given(st.integers(1, 9), st.lists(ACTIONS, max_size=80))
def test_any_order_of_operations_keeps_the_lists_right(num_blocks: int, actions: list[tuple[str, int]]):
    pool = BlockPool(num_blocks)
    free, owners = list(range(num_blocks)), dict.fromkeys(range(num_blocks), 0)
    for action, number in actions:
        block = number % num_blocks
        if action == "take" and number <= len(free):
            taken = pool.take(number)
            assert taken == free[:number]
            free = free[number:]
            owners.update(dict.fromkeys(taken, 1))
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
        assert list(pool.free_blocks()) == free
        assert pool.num_free == len(free)
        assert [pool.ref_count(b) for b in range(num_blocks)] == [owners[b] for b in range(num_blocks)]


CALLS = st.tuples(st.sampled_from("abcd"), st.sampled_from(["allocate", "free"]), st.integers(0, 30), st.integers(0, 3))


@given(st.integers(1, 12), st.integers(1, 5), st.lists(CALLS, max_size=60))
def test_tables_hold_what_their_tokens_need_and_a_refusal_takes_nothing(num_blocks, block_size, calls):
    pool = BlockPool(num_blocks)
    kv = PagedKVManager(pool, block_size)
    requests = {name: Request(name, [1], SamplingParams(), 100) for name in "abcd"}
    tables: dict[str, list[int]] = {name: [] for name in "abcd"}
    for name, call, upto, lookahead in calls:
        before = list(pool.free_blocks())
        if call == "allocate":
            new = kv.allocate_slots(requests[name], upto, lookahead)
            needed = max(-(-(upto + lookahead) // block_size) - len(tables[name]), 0)
            if needed > len(before):
                assert new is None
                assert list(pool.free_blocks()) == before
            else:
                assert new == before[:needed]
                tables[name] += new
        else:
            kv.free(requests[name])
            assert list(pool.free_blocks()) == before + tables[name][::-1]
            tables[name] = []
        owned = [block for table in tables.values() for block in table]
        assert sorted(owned + list(pool.free_blocks())) == list(range(num_blocks))
        assert kv.usage == pytest.approx(len(owned) / num_blocks)
