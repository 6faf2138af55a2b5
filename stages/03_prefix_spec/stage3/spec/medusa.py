"""Medusa: a few small heads guess several tokens ahead from one hidden state, all at once.

Owns the heads and how drafts are made of them. Does not know requests.

    hidden state behind the newest token's predecessor ─┬─ lm_head           the newest token itself, drawn already
                                                        ├─ head 0 ─ lm_head  the token behind it
                                                        └─ head 1 ─ lm_head  the one after that

A head is a residual block or two: it turns the hidden state into the one that the model might have further on, and the
model's own projection makes logits of it. No head sees what the others guessed, nor the token that was drawn: that
makes them cheap, one product for all of them, and their guesses fall off quickly.

vLLM: ``v1/spec_decode/medusa.py``, ``vllm/model_executor/models/medusa.py``; the paper is arXiv:2401.10774.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from stage1.interfaces import Drafts
from stage1.model.layers import unallocated
from stage1.model.transformer import Transformer
from stage2.inputs import StepBatch
from stage3.spec.choose import Choose
from stage3.spec.heads import HeadsFile
from stage3.spec.steps import Known


class _Blocks(nn.Module):
    def __init__(self, num_layers: int, num_heads: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = unallocated(num_layers, num_heads, hidden_size, hidden_size)
        self.bias = unallocated(num_layers, num_heads, hidden_size)


class MedusaHeads(nn.Module):
    """``num_heads`` heads of ``num_layers`` residual blocks each, on the meta device."""

    def __init__(self, num_layers: int, num_heads: int, hidden_size: int) -> None:
        super().__init__()
        self.blocks = _Blocks(num_layers, num_heads, hidden_size)

    @classmethod
    def like(cls, file: HeadsFile) -> MedusaHeads:
        """The heads that ``file`` holds.

        Raises:
            ValueError: it holds none.
        """
        size = file.shapes.get("blocks.weight", ())
        if len(size) != 4:
            raise ValueError(f"{file.path} has blocks.weight of size {size}; [layers, heads, hidden, hidden] is wanted")
        return cls(*size[:3])

    @property
    def num_heads(self) -> int:
        """Tokens that can be guessed."""
        return self.blocks.weight.shape[1]

    def forward(self, hidden: torch.Tensor, num_heads: int) -> torch.Tensor:
        """[R, hidden] → the first ``num_heads`` heads' states, [heads, R, hidden]."""
        x = hidden.expand(num_heads, *hidden.shape)
        for weight, bias in zip(self.blocks.weight, self.blocks.bias, strict=True):
            x = x + F.silu(torch.baddbmm(bias[:num_heads, None], x, weight[:num_heads].transpose(1, 2)))
        return x


class MedusaDrafter:
    """``Drafter`` that asks the first ``num_drafts`` of ``heads``; see the module.

    Raises:
        ValueError: there are fewer heads.
    """

    capturable = True
    sees_all = False

    def __init__(
        self, heads: MedusaHeads, model: Transformer, num_drafts: int, max_model_len: int, choose: Choose
    ) -> None:
        if num_drafts > heads.num_heads:
            raise ValueError(
                f"num_speculative_tokens is {num_drafts}; there are {heads.num_heads} Medusa heads: lower it, or train "
                "more of them"
            )
        self._heads, self._model = heads, model
        self._num_drafts = num_drafts
        self._max_model_len = max_model_len
        self._choose = choose

    def propose(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> Drafts:
        """See ``Drafter``."""
        states = self._heads(hidden[known.last_rows], self._num_drafts)  # [k, R, hidden]
        logits = self._model.lm_head(states.flatten(0, 1)).view(*states.shape[:2], -1)  # [k, R, vocab]
        ids = self._choose(logits, 0, batch, known)  # [k, R]
        # A token follows the last draft.
        room = (self._max_model_len - 1 - known.lengths).clamp(0, self._num_drafts)
        return Drafts(ids.T, torch.where(known.lengths > 0, room, 0))

    def follow(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> None:
        """Nothing: the heads look at one hidden state."""
