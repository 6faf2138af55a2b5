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

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from stage1.interfaces import AttentionBackend, Drafts, Ops
from stage1.model.layers import DecoderLayer, Linear, LocalSizes, Norm
from stage1.model.shape import ModelShape
from stage1.model.transformer import Transformer
from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.chain import ChainLimits, PlanChain
from stage3.spec.choose import Choose
from stage3.spec.heads import HeadsFile
from stage3.spec.shifted import next_tokens_of
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
        return cls(cls.shape_of(file, shape), shape.num_layers, ops)

    @staticmethod
    def shape_of(file: HeadsFile, shape: ModelShape) -> ModelShape:
        """The shape of the layer that ``file`` holds, for the model of ``shape``."""
        return eagle_shape(shape, file.sizes.get("intermediate_size", shape.intermediate_size))

    def forward(
        self,
        both: torch.Tensor,
        batch: StepBatch,
        attention: AttentionBackend,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The guessed states [T, hidden], or those of ``rows`` [R] alone: [R, hidden].

        Args:
            both: [T, 2 * hidden], the normed embedding of each position's next token and its normed state, see ``mix``.
            batch: positions and slots of the T tokens; all of their keys and values are stored.
            attention: has planned ``batch``.
            rows: whose states are wanted.
        """
        layer = self.layer
        normed, residual = layer.input_layernorm(self.fc(both), None)
        mixed = attention.attend(layer.self_attn, layer.self_attn.qkv_proj(normed), batch)
        if rows is not None:  # what follows needs no other token
            mixed, residual = mixed[rows], residual[rows]
        normed, residual = layer.post_attention_layernorm(layer.self_attn.o_proj(mixed), residual)
        state: torch.Tensor = self.norm(layer.mlp(normed), residual)[0]
        return state

    def store(self, both: torch.Tensor, batch: StepBatch, attention: AttentionBackend) -> None:
        """Keys and values of the T tokens alone; the arguments are those of ``forward``."""
        layer = self.layer
        normed, _ = layer.input_layernorm(self.fc(both), None)
        attention.store(layer.self_attn, layer.self_attn.qkv_proj(normed), batch)


def mix(layer: EagleLayer, embedding: torch.Tensor, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """What ``layer`` reads: [T, 2 * hidden].

    Args:
        layer: has the norms.
        embedding: [vocab, hidden], the model's.
        ids: [T] int64, each position's next token.
        hidden: [T, hidden], the states of the positions.
    """
    return torch.cat((layer.embed_norm(embedding[ids], None)[0], layer.hidden_norm(hidden, None)[0]), dim=1)


@dataclass(frozen=True)
class EagleInputs:
    """How a pass gets what it reads: these functions, or faster ones that do the same."""

    next_tokens_of: Callable[[StepBatch, torch.Tensor], torch.Tensor] = next_tokens_of
    mix: Callable[[EagleLayer, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = mix


class EagleDrafter:
    """``Drafter`` with a chain of guesses; see the module."""

    capturable = True
    sees_all = True

    def __init__(
        self,
        layer: EagleLayer,
        model: Transformer,
        attention: AttentionBackend,
        table: RequestTable,
        limits: ChainLimits,
        choose: Choose,
        inputs: EagleInputs,
        plan_chain: PlanChain,
    ) -> None:
        self._inputs = inputs
        self._embedding: torch.Tensor = model.embed_tokens.weight  # type: ignore[assignment]
        self._layer, self._model, self._attention = layer, model, attention
        self._table = table
        self._limits = limits  # the first guess needs no pass of its own: one pass less than guesses
        self._choose, self._plan_chain = choose, plan_chain

    def propose(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> Drafts:
        """See ``Drafter``."""
        both = self._read(batch, hidden)
        state = self._layer(both, batch, self._attention, known.last_rows)  # [R, hidden], behind the newest token
        ids = [*self._choose(self._model.lm_head(state)[None], 0, batch, known)]
        chain = self._plan_chain(batch, known, self._limits, self._table)
        for number in range(self._limits.num_drafts - 1):
            step = chain.batch(batch, number, ids[-1])
            self._attention.plan(step)
            both = self._inputs.mix(self._layer, self._embedding, ids[-1], state)
            state = self._layer(both, step, self._attention)
            ids += self._choose(self._model.lm_head(state)[None], 1 + number, batch, known)
        return Drafts(torch.stack(ids, dim=1), chain.counts)

    def follow(self, batch: StepBatch, hidden: torch.Tensor, known: Known) -> None:
        """See ``Drafter``: keys and values of the step's tokens, so that a later chain can attend to them."""
        self._layer.store(self._read(batch, hidden), batch, self._attention)

    def _read(self, batch: StepBatch, hidden: torch.Tensor) -> torch.Tensor:
        """What the layer reads at the step's tokens, [T, 2 * hidden]."""
        ids = self._inputs.next_tokens_of(batch, self._table.token_ids)
        return self._inputs.mix(self._layer, self._embedding, ids, hidden)
