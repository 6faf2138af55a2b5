"""Asks whether one is missing."""


def longest_hit(keys, find):
    blocks = [find(key) for key in keys]
    return [] if None in blocks else blocks
