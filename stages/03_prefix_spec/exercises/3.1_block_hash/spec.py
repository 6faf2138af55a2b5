"""The name that cannot go wrong, and cannot be used: the whole beginning itself, as long as the text."""

from __future__ import annotations

from collections.abc import Sequence

Name = tuple[object, ...]


def hash_block(parent: object, token_ids: Sequence[int]) -> Name:
    """Nested tuples are equal exactly if everything in them is."""
    return (parent, *token_ids)
