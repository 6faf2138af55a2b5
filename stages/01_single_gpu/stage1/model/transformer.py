"""The whole decoder: embed → layers → norm, and the projection to logits.

Owns the composition. Does not know ranks, requests or files, and has no state but its parameters.

Three rules let parallel versions reuse it unchanged. Sizes held locally are constructor arguments (``LocalSizes``).
Between its parts travel only a hidden state and its residual, so a pipeline stage swaps the parts that it lacks
(``embed_tokens``, entries of ``layers``, ``norm``, ``lm_head``) for identities. And it is made on the meta device, so
all of that happens before a byte is allocated.

vLLM: ``vllm/model_executor/models/llama.py`` (``LlamaModel``, ``LlamaForCausalLM``).
"""

from __future__ import annotations

import torch
from torch import nn

from stage1.batch import ForwardBatch
from stage1.interfaces import AttentionBackend, Ops
from stage1.model.layers import DecoderLayer, Embedding, Linear, LocalSizes, Norm
from stage1.model.shape import ModelShape


class Transformer(nn.Module):
    """A Llama, Mistral, Qwen2 or Qwen3 model on the meta device; see ``allocate``."""

    def __init__(self, shape: ModelShape, ops: Ops, local: LocalSizes | None = None) -> None:
        super().__init__()
        local = local or LocalSizes.whole(shape)
        self.shape = shape  # of the whole model, whatever part of it is held here
        self.embed_tokens: nn.Module = Embedding(local.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(i, shape, local, ops) for i in range(shape.num_layers))
        self.norm: nn.Module = Norm(shape.hidden_size, shape.rms_eps, ops)
        self.lm_head: nn.Module = Linear(shape.hidden_size, local.vocab_size, False, ops)
        if shape.tie_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, x: torch.Tensor, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Input ids [T] (a hidden state in a later pipeline stage) → final hidden state [T, hidden].

        ``attention.plan(batch)`` has been called. Writes the KV cache through ``attention``.
        """
        hidden: torch.Tensor = self.embed_tokens(x)  # [T, hidden]
        residual: torch.Tensor | None = None
        for layer in self.layers:
            hidden, residual = layer(hidden, residual, batch, attention)
        hidden, _ = self.norm(hidden, residual)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[L, hidden] → scores of every token, [L, vocab] float32."""
        scores: torch.Tensor = self.lm_head(hidden)
        return scores.float()


def build_model(shape: ModelShape, ops: Ops, dtype: torch.dtype, device: torch.device) -> Transformer:
    """A model with memory on ``device`` that holds no weights yet."""
    model = Transformer(shape, ops)
    allocate(model, dtype, device)
    return model


def allocate(model: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Give every parameter uninitialised memory; parameters that were one stay one (tied embeddings)."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if old not in made:
                made[old] = nn.Parameter(torch.empty(old.shape, dtype=dtype, device=device), requires_grad=False)
            setattr(module, name, made[old])
