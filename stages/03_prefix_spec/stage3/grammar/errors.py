"""What is wrong with a grammar, and where.

Owns the one error of guided decoding. Does not know who shows it.

vLLM: ``v1/structured_output/`` raises ``ValueError`` likewise.
"""

from __future__ import annotations


class GrammarError(ValueError):
    """A constraint that cannot be understood, or is too large to be followed; the message says how to mend it."""
