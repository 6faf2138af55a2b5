"""A whole number as the name."""


def hash_block(parent, token_ids):
    value = hash(parent)
    return hash((value, *token_ids))
