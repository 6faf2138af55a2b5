"""Digits, one number at a time."""

from hashlib import sha256


def hash_block(parent, token_ids):
    state = sha256(parent)
    for token in token_ids:
        state.update(b"%d" % token)
    return state.digest()
