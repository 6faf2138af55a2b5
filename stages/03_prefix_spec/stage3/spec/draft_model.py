"""A small model guesses for a large one: any model with the same vocabulary.

Owns its chain. Does not know requests.

Its keys and values lie in the request's blocks, behind the large model's layers, so the prefix cache, preemption and
the memory budget cover both. In every step it first computes the step's own tokens; then the newest token and each of
its guesses, one pass for each.

    step      … a6 a7 → x drawn       the model computes a6 a7
    pass 0    x                       → d0
    pass 1    d0                      → d1

vLLM: ``v1/spec_decode/draft_model.py`` in later versions.
"""

from __future__ import annotations

import torch

from stage1.interfaces import AttentionBackend, Drafts
from stage1.model.transformer import Transformer
from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.chain import ChainLimits, PlanChain
from stage3.spec.choose import Choose
from stage3.spec.steps import Known


class ModelDrafter:
    """``Drafter`` with a chain of guesses by ``model``, whose layers' indices follow the target's.

    Args:
        model: guesses.
        attention: over the shared cache, with the model's own rotation.
        table: the request table.
        limits: of a chain with a pass for each guess; ``max_model_len`` is the target's.
        choose: makes drafts of logits.
        plan_chain: ``chain.plan_chain`` or what does the same.
    """

    capturable = True
    sees_all = True

    def __init__(
        self,
        model: Transformer,
        attention: AttentionBackend,
        table: RequestTable,
        limits: ChainLimits,
        choose: Choose,
        plan_chain: PlanChain,
    ) -> None:
        self._model, self._attention = model, attention
        self._table = table
        self._limits = limits
        self._choose, self._plan_chain = choose, plan_chain

    def propose(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> Drafts:
        """See ``Drafter``."""
        self.follow(batch, hidden, known)
        chain = self._plan_chain(batch, known, self._limits, self._table)
        newest = self._table.token_ids[batch.rows, (known.lengths - 1).clamp(min=0)].long()  # [R]
        ids = [newest]
        for number in range(self._limits.num_drafts):
            step = chain.batch(batch, number, ids[-1])
            self._attention.plan(step)
            logits = self._model.lm_head(self._model(ids[-1], step, self._attention))  # [R, vocab]
            ids += self._choose(logits[None], number, batch, known)
        return Drafts(torch.stack(ids[1:], dim=1), chain.counts)

    def follow(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> None:
        """See ``Drafter``: keys and values of the step's tokens."""
        self._attention.plan(batch)
        self._model(batch.input_ids, batch, self._attention)
