"""The name of a block's content: a SHA-256 over everything that its keys and values depend on.

Owns the bytes that are hashed. Does not know blocks, requests or the cache.

A token's keys and values depend on every token before it, so the name of a block includes the name of the block before
it: equal names mean equal tokens from the first one on. The chain starts with what else must be equal, such as a salt.

    start = H("start", salt)    a = H("block", start, tokens [0, 16))    b = H("block", a, tokens [16, 32))

The bytes are the same in every process and on every platform, so stores outside of this process can use the names, and
nobody can choose tokens whose names clash: a weaker hash would let one user be answered from another one's cache.

vLLM: ``v1/core/kv_cache_utils.py``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence

BlockKey = bytes  # 32 of them
HashBlock = Callable[[BlockKey, Sequence[int]], BlockKey]
ExtendChain = Callable[[list[BlockKey], Sequence[int]], None]


def chain_start(extra_keys: Mapping[str, str]) -> BlockKey:
    """The name before the first block, from what else must be equal: kind → value, ``{"cache_salt": "…"}``.

    Every string is preceded by its length, and a value by its kind, so no two different mappings give the same bytes.
    """
    parts = [b"start"]
    for kind in sorted(extra_keys):
        for text in (kind, extra_keys[kind]):
            data = text.encode("utf-8", "surrogatepass")  # JSON can hold half a surrogate pair
            parts += [struct.pack("<q", len(data)), data]
    return hashlib.sha256(b"".join(parts)).digest()


def hash_block(parent: BlockKey, token_ids: Sequence[int]) -> BlockKey:
    """The name of a full block with ``token_ids``, behind the block named ``parent``.

    Eight bytes a token, lowest first: ``[1, 23]`` and ``[12, 3]`` differ, whatever the machine's own order is.
    """
    return hashlib.sha256(b"block" + parent + struct.pack(f"<{len(token_ids)}q", *token_ids)).digest()


def chain_hasher(block_size: int, hash_one: HashBlock = hash_block) -> ExtendChain:
    """A function that appends the names of further blocks to ``names``, each behind the one before it.

    It gets the tokens of these blocks, all of them full. A name is what ``hash_one`` says; for ``hash_block`` the same
    bytes are made with less work, since this is done for every block that any request fills.
    """
    pack, sha256 = struct.Struct(f"<{block_size}q").pack, hashlib.sha256

    def hash_each(names: list[BlockKey], token_ids: Sequence[int]) -> None:
        if len(token_ids) == block_size:  # nearly always, of a request that decodes
            names.append(sha256(b"block" + names[-1] + pack(*token_ids)).digest())
            return
        name = names[-1]
        for tokens in zip(*[iter(token_ids)] * block_size, strict=True):  # one iterator many times: block by block
            name = sha256(b"block" + name + pack(*tokens)).digest()
            names.append(name)

    def call_for_each(names: list[BlockKey], token_ids: Sequence[int]) -> None:
        for start in range(0, len(token_ids), block_size):
            names.append(hash_one(names[-1], token_ids[start : start + block_size]))

    return hash_each if hash_one is hash_block else call_for_each
