"""How many drafts would stay: drafting simulated at every position of texts that the target wrote.

Owns the counting. Greedy drafts of greedy texts: a draft stays where it is the token that came, and all before it
stayed. Each start p of a chain is looked at once, while an engine looks only where its last step ended; so the figures
are near an engine's and not the same.

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

NUM_DRAFTS = 4
LENGTH_AT = 3  # drafts of which the acceptance length is given


@dataclass(frozen=True)
class Acceptance:
    """Counts over the starts of chains whose drafts all lie inside their sequence."""

    starts: int
    accepted: tuple[int, ...]  # [k]: chains of which the drafts up to this position all stayed

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

    def length(self, num_drafts: int = LENGTH_AT) -> float:
        """Tokens a step with ``num_drafts`` drafts: 1 and the drafts that stay, on average."""
        return 1 + sum(self.cumulative[:num_drafts])

    def as_json(self) -> dict[str, object]:
        """All of it, rounded."""
        return {
            "positions": self.starts,
            "conditional": [round(x, 4) for x in self.conditional],
            "cumulative": [round(x, 4) for x in self.cumulative],
            f"acceptance_length_at_{LENGTH_AT}": round(self.length(), 4),
        }


def count_accepted(drafts: torch.Tensor, batch: Batch) -> Acceptance:
    """Compare ``drafts`` [k, B, S], indexed by the chain's start, with what came.

    Draft d behind start p is right where it is token p + 2 + d. A start counts from the prompt's last token on, as
    long as token p + 1 + k is in the sequence.
    """
    num_drafts, length = len(drafts), batch.tokens.shape[1]
    p = torch.arange(length, device=drafts.device)
    counts = (p >= batch.prompt_lens[:, None] - 1) & (p + 1 + num_drafts < batch.lengths[:, None])  # [B, S]
    steps = torch.arange(num_drafts, device=drafts.device)[:, None]
    came = batch.tokens[:, (p + 2 + steps).clamp(max=length - 1)].transpose(0, 1)  # [k, B, S]
    stayed = (drafts == came).cumprod(dim=0).bool() & counts
    return Acceptance(int(counts.sum()), tuple(stayed.sum(dim=(1, 2)).tolist()))


@torch.no_grad()
def measure(
    heads: DraftHeads, target: Target, held_out: Mapping[str, Corpus], batch_tokens: int, num_drafts: int = NUM_DRAFTS
) -> dict[str, Acceptance]:
    """The acceptance on texts by kind, and on all of them as ``overall``; each held-out text is greedy output."""
    result: dict[str, Acceptance] = {}
    for kind, corpus in held_out.items():
        found = Acceptance(0, (0,) * num_drafts)
        for rows in in_order(corpus, batch_tokens):
            batch = make_batch(corpus, rows, target.device)
            hidden = target.hidden(batch.tokens)
            with torch.autocast(target.device.type, dtype=torch.bfloat16, enabled=target.device.type == "cuda"):
                found += count_accepted(heads.draft(target, hidden, batch, num_drafts), batch)
        result[kind] = found
    result["overall"] = sum(result.values(), Acceptance(0, (0,) * num_drafts))
    return result
