"""A text of the tokens, and nothing else."""

from hashlib import sha256


def hash_block(parent, token_ids):
    return sha256(",".join(str(token) for token in token_ids).encode()).digest()
