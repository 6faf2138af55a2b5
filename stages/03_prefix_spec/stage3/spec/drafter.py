"""The socket of a drafter: what guesses, and what must see every token to be able to.

Owns the protocol, and the drafter that needs nothing but the tokens. Does not know models.

    n-gram         looks at the tokens                                   sees nothing between two guesses
    Medusa         looks at the hidden state behind the newest token     sees nothing
    EAGLE, model   have keys and values of their own                     see every token, also in steps without guesses

vLLM: ``v1/spec_decode/`` (one proposer a file).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from stage1.interfaces import AttentionBackend, Drafts
from stage1.model.transformer import Transformer
from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.steps import Known

ProposeRows = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Drafts]  # token_ids, rows, lengths


class Drafter(Protocol):
    """Guesses the tokens that the next step verifies, on the device and without waiting for it."""

    capturable: bool  # whether its launches can be part of a graph
    sees_all: bool  # whether ``follow`` must be called for steps without guesses

    def propose(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> Drafts:
        """At most k drafts behind the newest token of each request.

        Args:
            batch: the step whose tokens were drawn.
            hidden: [T, hidden], the model's final hidden state of its tokens.
            known: what was drawn; requests of length 0 get no drafts.

        Returns:
            ids [R, k] and counts [R] int64; ids behind the counts are any.
        """

    def follow(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> None:
        """See the step's tokens and guess nothing; args are those of ``propose``."""


MakeDrafter = Callable[[Transformer, AttentionBackend, RequestTable], Drafter]


class TokenDrafter:
    """A ``Drafter`` that looks at the tokens alone.

    Args:
        token_ids: [rows, W], the request table's.
        propose_rows: from table, rows and lengths to drafts.
        capturable: whether ``propose_rows`` can be part of a graph.
    """

    sees_all = False

    def __init__(self, token_ids: torch.Tensor, propose_rows: ProposeRows, capturable: bool) -> None:
        self.capturable = capturable
        self._token_ids = token_ids
        self._propose_rows = propose_rows

    def propose(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> Drafts:
        """See ``Drafter``."""
        return self._propose_rows(self._token_ids, batch.rows, known.lengths)

    def follow(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> None:
        """Nothing: the tokens are in the table."""
