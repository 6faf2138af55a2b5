"""What guided decoding sends along with a plan.

Owns the record. Does not know how masks are made or applied.

vLLM: ``v1/core/sched/output.py`` (``grammar_bitmask``).
"""

from __future__ import annotations

from stage1.records import Extra


class GrammarMasks(Extra, tag="grammar_masks"):
    """What the guided rows of a step may draw; rows that are free are not mentioned.

    A request has a mask for its next token and one behind each of its drafts: ``counts[i]`` masks for ``req_ids[i]``.
    """

    req_ids: list[str]
    counts: list[int]
    num_words: int  # of a mask: 32-bit words, little end first
    data: bytes  # sum(counts) * num_words * 4 bytes
