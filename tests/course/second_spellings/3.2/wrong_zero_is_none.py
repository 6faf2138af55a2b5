"""With takewhile, and no predicate to speak of."""

from itertools import takewhile


def longest_hit(keys, find):
    return list(takewhile(bool, map(find, keys)))
