"""An EAGLE layer: one decoder layer that continues the target's hidden states by itself.

Owns its parameters and arithmetic in training; attention is ``ChainAttention``'s. At position i

    x   = fc([rms(embed(token i + 1)) | rms(h_i)])          what is known of the next token, and the state before it
    g_i = rms(decoder layer(x))                              stands for h_(i+1)
    lm_head(g_i) (the target's) → token i + 2

and the next step of a chain takes g_i in place of h_(i+1), with the drafted token i + 2.

vLLM: ``vllm/model_executor/models/llama_eagle.py``; the papers are arXiv:2401.15077 and, for the unrolled training,
arXiv:2503.01840.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from stage1.model.layers import DecoderLayer, Linear, LocalSizes, Norm
from stage1.model.ops import TorchOps
from stage1.model.shape import ModelShape
from stage3.training.batches import Batch
from stage3.training.chain_attention import ChainAttention, shifted
from stage3.training.dense import rectangle
from stage3.training.target import Target

NextTokens = Callable[[torch.Tensor], torch.Tensor]  # g of a step [B, S, H] → the tokens [B, S] that it predicts


class EagleLayer(nn.Module):
    """The layer for a target of ``shape``, without biases, unrolled over ``num_steps`` in training."""

    method = "eagle"
    max_drafts: int | None = None  # a chain goes on for as long as it is asked to

    def __init__(self, shape: ModelShape, intermediate_size: int | None = None, num_steps: int = 3) -> None:
        super().__init__()
        self.num_steps = num_steps
        inner = shape.intermediate_size if intermediate_size is None else intermediate_size
        own = replace(
            shape, qkv_bias=False, o_bias=False, mlp_bias=False, qk_norm=False, intermediate_size=inner
        )  # the heads and angles of the target
        ops, hidden = TorchOps(), shape.hidden_size
        self.shape = own
        self.embed_norm = Norm(hidden, shape.rms_eps, ops)
        self.hidden_norm = Norm(hidden, shape.rms_eps, ops)
        self.fc = Linear(2 * hidden, hidden, False, ops)
        self.layer = DecoderLayer(0, own, LocalSizes.whole(own), ops)
        self.norm = Norm(hidden, shape.rms_eps, ops)
        self.to_empty(device="cpu")
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(True)
            nn.init.ones_(parameter) if name.endswith("norm.weight") else nn.init.normal_(parameter, std=0.02)

    @staticmethod
    def count_parameters(shape: ModelShape, intermediate_size: int | None = None) -> int:
        """How many parameters the layer of these sizes has; nothing is made."""
        hidden = shape.hidden_size
        inner = shape.intermediate_size if intermediate_size is None else intermediate_size
        attention = 2 * (shape.num_heads + shape.num_kv_heads) * shape.head_dim  # q and o, k and v
        return hidden * (2 * hidden + attention + 3 * inner + 5)  # fc, attention, MLP, five norms

    @torch.no_grad()
    def start_from(self, target: Target) -> None:
        """Take over the target's last layer and final norm, as far as sizes agree: it is quicker."""
        theirs = {f"layer.{name}": value for name, value in target.model.layers[-1].named_parameters()}
        theirs["norm.weight"] = target.model.norm.get_parameter("weight")
        for name, parameter in self.named_parameters():
            if name in theirs and theirs[name].shape == parameter.shape:
                parameter.copy_(theirs[name].float())

    def unroll(
        self, target: Target, hidden: torch.Tensor, tokens: torch.Tensor, num_steps: int, next_tokens: NextTokens | None
    ) -> list[torch.Tensor]:
        """g of every step, each [B, S, H], indexed by the position of the query.

        Args:
            hidden: [B, S, H], the target's states.
            tokens: [B, S] int64.
            num_steps: at least 1.
            next_tokens: what the chain takes for the tokens that a step predicts; ``None`` = the true ones.
        """
        batch, attention = rectangle(tokens), ChainAttention(target.cos, target.sin)
        attention.plan(batch)
        state, following = hidden, shifted(tokens, -1)  # following: token i + 1 at i
        steps: list[torch.Tensor] = []
        for _ in range(num_steps):
            known, _ = self.embed_norm(target.embed(following), None)
            before, _ = self.hidden_norm(state, None)
            x = self.fc(torch.cat((known, before), dim=-1).flatten(0, 1))  # [T, H]
            out, residual = self.layer(x, None, batch, attention)
            g, _ = self.norm(out, residual)
            steps.append(g.unflatten(0, tokens.shape))
            # g at q stands for the state at q + 1, and predicts the token behind that.
            state = shifted(steps[-1], 1)
            if next_tokens is not None and len(steps) < num_steps:
                following = shifted(next_tokens(steps[-1]), 1)
        return steps

    def states(self, target: Target, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Aligned states [J, B, S, H]: g at q stands at t = q + 1, in every step."""
        steps = self.unroll(target, hidden, batch.tokens, self.num_steps, None)
        return torch.stack([shifted(g, 1) for g in steps])

    def draft(self, target: Target, hidden: torch.Tensor, batch: Batch, num_drafts: int) -> torch.Tensor:
        """Guesses [num_drafts, B, S] of the true chain: its own states and its own tokens."""
        steps = self.unroll(target, hidden, batch.tokens, num_drafts, target.best_tokens)
        return torch.stack([shifted(target.best_tokens(g), -d) for d, g in enumerate(steps)])

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters by their names in this module, which are those of the file."""
        return {name: value.detach() for name, value in self.named_parameters()}
