"""Continues instead of ending."""


def longest_hit(keys, find):
    blocks = []
    for key in keys:
        block = find(key)
        if block is None:
            continue
        blocks.append(block)
    return blocks
