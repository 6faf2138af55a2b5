"""Names of blocks: what must tell them apart does, and they are the same everywhere."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage3.prefix.block_hash import chain_hasher, chain_start, hash_block

START = chain_start({})
# Computed once: a change of the bytes makes every store outside of this process useless.
FIRST = "9c24a7763dc5d28f0bac125b8dd0363229f4a2592d0690bb9d4bf6771c48c1a9"
SALTED = "7e3a8f4313ebe72a5448c9b23c96f28abb07642fbd276f0c63564314d7d5fbd9"


def test_names_are_the_same_in_every_process():
    code = (
        "from stage3.prefix.block_hash import chain_start, hash_block\n"
        "a = hash_block(chain_start({}), range(16))\n"
        "b = hash_block(chain_start({'cache_salt': 'é', 'adapter': 'x'}), [0, 2**40])\n"
        "print(a.hex(), hash_block(a, [1, 2]).hex(), b.hex())\n"
    )
    seen = set()
    for seed in ("0", "1", "random"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        seen.add(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout.decode())
    a = hash_block(START, range(16))
    b = hash_block(chain_start({"adapter": "x", "cache_salt": "é"}), [0, 2**40])
    assert seen == {f"{a.hex()} {hash_block(a, [1, 2]).hex()} {b.hex()}\n"}


def test_names_never_change():
    assert hash_block(START, range(16)).hex() == FIRST
    assert hash_block(chain_start({"cache_salt": "secret"}), [1, 23]).hex() == SALTED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 23], [12, 3]),
        ([1, 2], [2, 1]),
        ([0], [0, 0]),
        ([256], [1]),
        ([1, 0], [256, 0]),
        ([2**32], [0]),
        ([-1], [2**32 - 1]),
    ],
)
def test_tokens_that_look_alike_get_different_names(one, other):
    assert hash_block(START, one) != hash_block(START, other)


def test_the_parent_is_part_of_the_name():
    a, b = hash_block(START, [1, 2]), hash_block(START, [3, 4])
    assert hash_block(a, [5, 6]) != hash_block(b, [5, 6]) != hash_block(START, [5, 6])


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"cache_salt": ""},
        {"cache_salt": "b"},
        {"adapter": "a"},  # another kind with the same text
        {"cache_salta": ""},
        {"cache_sal": "ta"},
        {"cache_salt": "a", "adapter": "a"},
    ],
)
def test_extra_keys_do_not_clash(other):
    salted = chain_start({"cache_salt": "a"})
    assert salted != chain_start(other)
    assert hash_block(salted, [1]) != hash_block(chain_start(other), [1])


def test_half_a_character_is_a_salt_like_any_other():
    assert chain_start({"cache_salt": "\ud800"}) != chain_start({"cache_salt": "\udc00"})


def test_a_salt_cannot_pretend_to_be_a_block():
    """The start of a chain and a block are hashed with different first bytes."""
    assert chain_start({}) != hash_block(b"", [])


CHAINS = st.tuples(
    st.dictionaries(st.sampled_from(["cache_salt", "adapter"]), st.sampled_from(["", "a", "aa"]), max_size=2),
    st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), max_size=3),
)


@given(CHAINS, CHAINS)
def test_two_names_are_equal_just_when_everything_before_is(one, other):
    def name(chain):
        key = chain_start(chain[0])
        for tokens in chain[1]:
            key = hash_block(key, tokens)
        return key

    assert (name(one) == name(other)) == (one == other)


@given(st.integers(1, 5), st.lists(st.lists(st.integers(0, 2**63 - 1), max_size=30), max_size=4))
def test_a_chain_has_the_name_of_each_block_behind_the_one_before(block_size, pieces):
    """Whether one block or many come at once, and whether the names are made here or by a function that was given."""
    fast, called, one_by_one = [START], [START], [START]
    for piece in pieces:
        tokens = piece[: len(piece) // block_size * block_size]
        chain_hasher(block_size)(fast, tokens)
        chain_hasher(block_size, lambda parent, token_ids: hash_block(parent, token_ids))(called, tokens)
        for start in range(0, len(tokens), block_size):
            one_by_one.append(hash_block(one_by_one[-1], tokens[start : start + block_size]))
    assert fast == called == one_by_one


def test_a_function_that_is_given_is_called_once_for_each_block():
    calls = []

    def hash_one(parent, token_ids):
        calls.append((parent, token_ids))
        return bytes([len(calls)])

    names = [b"start"]
    chain_hasher(2, hash_one)(names, [1, 2, 3, 4, 5, 6])
    assert calls == [(b"start", [1, 2]), (b"\x01", [3, 4]), (b"\x02", [5, 6])]
    assert names == [b"start", b"\x01", b"\x02", b"\x03"]
