"""What speculation gained: counters of drafts and of accepted ones.

Owns the sums. Does not know requests. Only tokens that reach the output count: what was accepted behind the token that
ends a request is thrown away, and would flatter every figure.

    drafts d0 d1 d2 d3, all accepted, d1 ends the request:   2 tokens, accepted at positions 0 and 1

vLLM: ``v1/spec_decode/metrics.py``.
"""

from __future__ import annotations

from stage1.records import StepStats


class AcceptanceCounter:
    """Totals since the start, for up to ``num_drafts`` drafts a step and request."""

    def __init__(self, num_drafts: int) -> None:
        self.num_verifications = 0  # requests verified, each step anew
        self.num_drafts = 0  # tokens
        self.num_tokens = 0  # that came out, the one behind the accepted drafts included
        self._by_number = [0] * (num_drafts + 1)  # verifications by how many drafts stayed

    def observe(self, num_drafts: int, num_sampled: int, num_kept: int) -> None:
        """One request's verification.

        Args:
            num_drafts: drafts that were verified, at least 1.
            num_sampled: tokens that came of it, the accepted drafts and one more.
            num_kept: how many of these the request keeps.
        """
        self.num_verifications += 1
        self.num_drafts += num_drafts
        self.num_tokens += num_kept
        self._by_number[min(num_kept, num_sampled - 1)] += 1

    @property
    def accepted_per_position(self) -> list[int]:
        """How often the first draft stayed, the second one, …: a draft stays with all before it."""
        return [sum(self._by_number[position + 1 :]) for position in range(len(self._by_number) - 1)]

    @property
    def num_accepted(self) -> int:
        """Drafts that became output."""
        return sum(self.accepted_per_position)

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a request and verification: from 1, all rejected, to 1 + drafts; ``None`` before the first."""
        return self.num_tokens / self.num_verifications if self.num_verifications else None

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the drafts that became output; ``None`` before the first."""
        return self.num_accepted / self.num_drafts if self.num_drafts else None

    def fill(self, stats: StepStats) -> None:
        """Write the totals into ``stats``."""
        stats.verifications = self.num_verifications
        stats.drafts = self.num_drafts
        stats.accepted_per_position = self.accepted_per_position
