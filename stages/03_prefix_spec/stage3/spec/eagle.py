"""EAGLE: one layer of its own continues the model's hidden states, a token at a time.

Owns the layer and its chain. Does not know requests.

    position i      the model's hidden state of i, and token i + 1      → a guess of the state of i + 1 → token i + 2
    position i + 1  that guess, and the token guessed from it           → …

It knows what the model thought and which token was drawn, so it guesses better than heads that look at the state alone.
Its keys and values lie in the request's blocks, as one more layer of the model's cache. Every step runs the layer over
the step's own tokens first, with the model's real hidden states: whatever a chain has left at those positions is
overwritten, also when all drafts were accepted.

The entry of a position depends on the token behind it. So of a prefix hit the last block is computed again
(``PrefixKVManager.blocks_to_recompute``): what stood behind it may have been another token.

vLLM: ``v1/spec_decode/eagle.py``, ``vllm/model_executor/models/llama_eagle.py``; the paper is arXiv:2401.15077.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from stage1.interfaces import AttentionBackend, Drafts, Ops
from stage1.model.layers import DecoderLayer, Linear, LocalSizes, Norm
from stage1.model.shape import ModelShape
from stage1.model.transformer import Transformer
from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.best import Best
from stage3.spec.chain import Chain
from stage3.spec.heads import HeadsFile
from stage3.spec.shifted import next_tokens
from stage3.spec.steps import Known


def eagle_shape(shape: ModelShape, intermediate_size: int) -> ModelShape:
    """The layer's own shape: one plain layer with the model's heads."""
    return replace(
        shape,
        num_layers=1,
        intermediate_size=intermediate_size,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )


class EagleLayer(nn.Module):
    """The layer, on the meta device.

    Args:
        shape: of the layer, see ``eagle_shape``.
        index: of its keys and values in the cache: behind the model's layers.
        ops: what computes.
    """

    def __init__(self, shape: ModelShape, index: int, ops: Ops) -> None:
        super().__init__()
        hidden_size, eps = shape.hidden_size, shape.rms_eps
        self.embed_norm = Norm(hidden_size, eps, ops)
        self.hidden_norm = Norm(hidden_size, eps, ops)
        self.fc = Linear(2 * hidden_size, hidden_size, False, ops)
        self.layer = DecoderLayer(index, shape, LocalSizes.whole(shape), ops)
        self.norm = Norm(hidden_size, eps, ops)

    @classmethod
    def like(cls, file: HeadsFile, shape: ModelShape, ops: Ops) -> EagleLayer:
        """The layer that ``file`` holds, for the model of ``shape``."""
        inner = file.sizes.get("intermediate_size", shape.intermediate_size)
        return cls(eagle_shape(shape, inner), shape.num_layers, ops)

    def forward(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        batch: StepBatch,
        attention: AttentionBackend,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The guessed states [T, hidden], or those of ``rows`` [R] alone: [R, hidden].

        Args:
            embedded: [T, hidden], the embeddings of each position's next token.
            hidden: [T, hidden], the states of the positions.
            batch: positions and slots of the T tokens; all of their keys and values are stored.
            attention: has planned ``batch``.
            rows: whose states are wanted.
        """
        both = torch.cat((self.embed_norm(embedded, None)[0], self.hidden_norm(hidden, None)[0]), dim=1)
        attend, layer = self.layer.self_attn, self.layer
        normed, residual = layer.input_layernorm(self.fc(both), None)
        mixed = attention.attend(attend, attend.qkv_proj(normed), batch)  # [T, q heads * dim]
        if rows is not None:  # what follows needs no other token
            mixed, residual = mixed[rows], residual[rows]
        normed, residual = layer.post_attention_layernorm(attend.o_proj(mixed), residual)
        state: torch.Tensor = self.norm(layer.mlp(normed), residual)[0]
        return state


class EagleDrafter:
    """``Drafter`` with a chain of ``num_drafts`` guesses; see the module."""

    capturable = True
    sees_all = True

    def __init__(
        self,
        layer: EagleLayer,
        model: Transformer,
        attention: AttentionBackend,
        table: RequestTable,
        num_drafts: int,
        block_size: int,
        max_model_len: int,
        best: Best,
    ) -> None:
        self._layer, self._model, self._attention = layer, model, attention
        self._table = table
        self._num_drafts = num_drafts
        self._block_size, self._max_model_len = block_size, max_model_len
        self._best = best

    def propose(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> Drafts:
        """See ``Drafter``."""
        state = self._see(batch, hidden, known)  # [R, hidden], behind the newest token
        ids = [self._best(self._model.lm_head(state))]
        most = self._num_drafts
        chain = Chain(batch, known, max(most - 1, 1), self._table, self._block_size, self._max_model_len)
        for number in range(most - 1):
            step = chain.batch(number, ids[-1])
            self._attention.plan(step)
            state = self._layer(self._model.embed_tokens(ids[-1]), state, step, self._attention)
            ids.append(self._best(self._model.lm_head(state)))
        # The first guess needs no slot; a token follows the last.
        room = (self._max_model_len - 1 - known.lengths).clamp(min=0)
        counts = torch.minimum(1 + chain.num_fitting, room).clamp(max=most)
        return Drafts(torch.stack(ids, dim=1), torch.where(known.lengths > 0, counts, 0))

    def follow(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> None:
        """See ``Drafter``: keys and values of the step's tokens, so that a later chain can attend to them."""
        self._see(batch, hidden, known)

    def _see(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> torch.Tensor:
        """Run the layer over the step's tokens; the state behind each request's newest one, [R, hidden]."""
        token = torch.arange(batch.num_tokens, device=hidden.device)
        request = torch.bucketize(token, batch.query_start[1:], right=True).clamp(max=batch.num_reqs - 1)  # [T]
        ids = next_tokens(self._table.token_ids, batch.rows[request], batch.positions)
        return self._layer(self._model.embed_tokens(ids), hidden, batch, self._attention, known.last_rows)
