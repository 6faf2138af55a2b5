"""Looks for the end first."""


def longest_hit(keys, find):
    keys = list(keys)
    length = max((i + 1 for i, key in enumerate(keys) if find(key) is not None), default=0)
    return [find(key) for key in keys[:length]]
