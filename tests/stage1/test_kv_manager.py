"""One giant block a request: allocation, limits, leaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage1.kv_manager import OneBlockKVManager
from stage1.params import SamplingParams
from stage1.request import Request


def make_request(req_id: str) -> Request:
    return Request(req_id, [1, 2, 3], SamplingParams(), max_total_tokens=19)


def test_a_request_gets_one_block_once():
    kv = OneBlockKVManager(num_blocks=2, block_size=64)
    req = make_request("a")
    assert len(kv.allocate_slots(req, 3)) == 1
    assert kv.allocate_slots(req, 64) == []
    assert kv.usage == 0.5


def test_a_full_pool_gives_none_and_takes_nothing():
    kv = OneBlockKVManager(num_blocks=1, block_size=64)
    kv.allocate_slots(make_request("a"), 3)
    assert kv.allocate_slots(make_request("b"), 3) is None
    kv.free(make_request("b"))
    assert kv.usage == 1.0


def test_more_tokens_than_a_block_is_refused_with_both_numbers():
    kv = OneBlockKVManager(num_blocks=1, block_size=64)
    with pytest.raises(ValueError, match=r"65.*64"):
        kv.allocate_slots(make_request("a"), 60, lookahead=5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60), st.integers(1, 4))
def test_no_block_has_two_owners_and_none_is_lost(actions: list[tuple[bool, int]], num_blocks: int):
    kv = OneBlockKVManager(num_blocks, block_size=8)
    owned: dict[int, int] = {}
    for take, who in actions:
        req = make_request(str(who))
        if take:
            got = kv.allocate_slots(req, 3)
            if who in owned:
                assert got == []
            elif len(owned) == num_blocks:
                assert got is None
            else:
                owned[who] = got[0]
        else:
            kv.free(req)
            owned.pop(who, None)
        assert len(set(owned.values())) == len(owned)
        assert all(0 <= block < num_blocks for block in owned.values())
        assert kv.usage == len(owned) / num_blocks
