"""How many drafts would stay: drafting simulated on texts that the target wrote.

Owns the counting. Greedy drafts of greedy texts: a draft stays where it is the token that came, and all before it
stayed. There are two figures, of the same drafts:

    walked                an engine's way: a verification at position p of which a drafts stay gives a + 1 tokens, and
                          the next one is at p + 1 + a. This is what an engine's steps come to.
    at every position     each position counts once, wherever an engine would look.

The second is higher. Text is part easy and part hard, and an engine passes the easy parts in few steps, so most of its
steps lie in the hard ones:

    drafts that stay, by position    3 3 3 3 0 0 0 0       at every position: 1 + 12 / 8 = 2.5 tokens a step
    an engine looks at               ^       ^ ^ ^ ^       walked: 1 + 3 / 5 = 1.6

vLLM: none (it counts while it serves, ``v1/spec_decode/metrics.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from stage3.training.batches import Batch, in_order, make_batch
from stage3.training.corpus import Corpus
from stage3.training.heads import DraftHeads
from stage3.training.target import Target

NUM_DRAFTS = 4  # looked at, at every position
WALKED_DRAFTS = 3  # in each verification of the walk


@dataclass(frozen=True)
class Acceptance:
    """Counts over the starts of chains whose drafts all lie inside their sequence."""

    starts: int
    accepted: tuple[int, ...]  # [k]: chains of which the drafts up to this position all stayed

    @classmethod
    def nothing(cls, num_drafts: int) -> Acceptance:
        """Of no text."""
        return cls(0, (0,) * num_drafts)

    def __add__(self, other: Acceptance) -> Acceptance:
        pairs = zip(self.accepted, other.accepted, strict=True)
        return Acceptance(self.starts + other.starts, tuple(a + b for a, b in pairs))

    @property
    def cumulative(self) -> list[float]:
        """Share of the chains of which the drafts up to each position stayed, [k]."""
        return [n / max(1, self.starts) for n in self.accepted]

    @property
    def conditional(self) -> list[float]:
        """Share of the drafts at each position that stayed, of those whose predecessors did, [k]."""
        before = (self.starts, *self.accepted[:-1])
        return [n / max(1, m) for n, m in zip(self.accepted, before, strict=True)]

    def length(self, num_drafts: int | None = None) -> float:
        """Tokens a step with ``num_drafts`` drafts (``None`` = all): 1 and the drafts that stay, on average."""
        return 1 + sum(self.cumulative[:num_drafts])


@dataclass(frozen=True)
class Measured:
    """Both figures of the same drafts; the walk has at most ``WALKED_DRAFTS`` of them."""

    walked: Acceptance
    everywhere: Acceptance

    @classmethod
    def nothing(cls, num_drafts: int) -> Measured:
        """Of no text."""
        return cls(Acceptance.nothing(min(WALKED_DRAFTS, num_drafts)), Acceptance.nothing(num_drafts))

    def __add__(self, other: Measured) -> Measured:
        return Measured(self.walked + other.walked, self.everywhere + other.everywhere)

    def as_json(self) -> dict[str, dict[str, object]]:
        """All of it, rounded; the lengths of both are those of the walk's number of drafts."""
        walked, everywhere, num_drafts = self.walked, self.everywhere, len(self.walked.accepted)
        return {
            "walked": {
                "drafts": num_drafts,
                "verifications": walked.starts,
                "shares": [round(x, 4) for x in walked.cumulative],
                "acceptance_length": round(walked.length(), 4),
            },
            "at_every_position": {
                "positions": everywhere.starts,
                "conditional": [round(x, 4) for x in everywhere.conditional],
                "cumulative": [round(x, 4) for x in everywhere.cumulative],
                "acceptance_length": round(everywhere.length(num_drafts), 4),
            },
        }


def count_accepted(drafts: torch.Tensor, batch: Batch) -> Acceptance:
    """Compare ``drafts`` [k, B, S], indexed by the chain's start, with what came, at every position.

    Draft d behind start p is right where it is token p + 2 + d. A start counts from the prompt's last token on, as
    long as token p + 1 + k is in the sequence.
    """
    p = torch.arange(batch.tokens.shape[1], device=drafts.device)
    counts = (p >= batch.prompt_lens[:, None] - 1) & (p + 1 + len(drafts) < batch.lengths[:, None])  # [B, S]
    stayed = _stayed(drafts, batch) & counts
    return Acceptance(int(counts.sum()), tuple(stayed.sum(dim=(1, 2)).tolist()))


def walk_accepted(drafts: torch.Tensor, batch: Batch) -> Acceptance:
    """The same, where an engine would look: from the prompt's last token on, p + 1 + a behind p with a accepted.

    A walk ends at the first start of which some draft lies behind the sequence's end.
    """
    num_drafts = len(drafts)
    lengths = _stayed(drafts, batch).sum(dim=0).tolist()  # a, [B, S]
    firsts, ends = (batch.prompt_lens - 1).tolist(), (batch.lengths - 1 - num_drafts).tolist()
    steps_with = [0] * (num_drafts + 1)  # [a]: verifications of which a drafts stayed
    for row, p, end in zip(lengths, firsts, ends, strict=True):
        while p < end:
            steps_with[row[p]] += 1
            p += 1 + row[p]
    return Acceptance(sum(steps_with), tuple(sum(steps_with[d + 1 :]) for d in range(num_drafts)))


def _stayed(drafts: torch.Tensor, batch: Batch) -> torch.Tensor:
    """[k, B, S] bool: this draft and all before it are the tokens that came."""
    length = batch.tokens.shape[1]
    p = torch.arange(length, device=drafts.device)
    steps = torch.arange(len(drafts), device=drafts.device)[:, None]
    came = batch.tokens[:, (p + 2 + steps).clamp(max=length - 1)].transpose(0, 1)  # [k, B, S]
    return (drafts == came).cumprod(dim=0).bool()


@torch.no_grad()
def measure(
    heads: DraftHeads, target: Target, held_out: Mapping[str, Corpus], batch_tokens: int, num_drafts: int = NUM_DRAFTS
) -> dict[str, Measured]:
    """The acceptance on texts by kind, and on all of them as ``overall``; each held-out text is greedy output.

    Heads that guess fewer than ``num_drafts`` tokens are asked for as many as they guess.
    """
    num_drafts = num_drafts if heads.max_drafts is None else min(num_drafts, heads.max_drafts)
    result: dict[str, Measured] = {}
    for kind, corpus in held_out.items():
        found = Measured.nothing(num_drafts)
        for rows in in_order(corpus, batch_tokens):
            batch = make_batch(corpus, rows, target.device)
            hidden = target.hidden(batch.tokens)
            with torch.autocast(target.device.type, dtype=torch.bfloat16, enabled=target.device.type == "cuda"):
                drafts = heads.draft(target, hidden, batch, num_drafts)
            found += Measured(walk_accepted(drafts[:WALKED_DRAFTS], batch), count_accepted(drafts, batch))
        result[kind] = found
    result["overall"] = sum(result.values(), Measured.nothing(num_drafts))
    return result
