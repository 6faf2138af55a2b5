"""The frozen target of the training: its hidden states, its embedding and its output projection.

Owns the model in memory. No gradient ever reaches its weights. Does not know heads, losses or text.

vLLM: none (it does not train).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stage1.config import DeviceConfig, ModelConfig, Settings
from stage1.model.load import load_model
from stage1.model.ops import TorchOps
from stage1.model.rope import rope_tables
from stage1.model.source import resolve, resolve_device, resolve_dtype
from stage1.model.transformer import Transformer
from stage3.training.dense import DenseAttention, rectangle


class Target:
    """A transformer with angles for ``max_len`` positions; bfloat16 on a GPU and float32 on a CPU by default."""

    def __init__(self, name: str, model: Transformer, max_len: int) -> None:
        self.name = name
        self.model = model.requires_grad_(False)
        self.shape = model.shape
        weight = model.lm_head.weight
        assert isinstance(weight, torch.Tensor)
        self.lm_head = weight  # [vocab, hidden]
        self.device, self.dtype = weight.device, weight.dtype
        self.cos, self.sin = rope_tables(model.shape, max_len, self.device)  # float32 [max_len, dim / 2]
        self.max_len = max_len

    @classmethod
    def load(cls, settings: Settings, max_len: int) -> Target:
        """The model that an engine with ``settings`` runs, with the same weights.

        Raises:
            ValueError: it is not found, not supported or does not fit.
        """
        config, device = settings[ModelConfig], resolve_device(settings[DeviceConfig])
        source = resolve(config)
        model = load_model(source, TorchOps(), resolve_dtype(config, device), device, config.seed, cache_bytes=0)
        return cls(source.name, model, max_len)

    @torch.no_grad()
    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """``tokens`` [B, S] int64, padded at the end → hidden states after the final norm, [B, S, hidden].

        Raises:
            ValueError: S is above ``max_len``.
        """
        if tokens.shape[1] > self.max_len:
            raise ValueError(f"a sequence has {tokens.shape[1]:,} tokens; the angles reach {self.max_len:,}: cut it")
        batch, attention = rectangle(tokens), DenseAttention(self.cos, self.sin)
        attention.plan(batch)
        hidden: torch.Tensor = self.model(batch.input_ids, batch, attention)
        return hidden.unflatten(0, tokens.shape)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows of the embedding, without gradients: [...] → [..., hidden]."""
        weight = self.model.embed_tokens.weight
        assert isinstance(weight, torch.Tensor)
        return F.embedding(tokens, weight)

    @torch.no_grad()
    def best_tokens(self, states: torch.Tensor, rows: int = 4096) -> torch.Tensor:
        """The likeliest token behind each state: [..., hidden] → [...] int64, ``rows`` at a time."""
        flat = states.flatten(0, -2).to(self.dtype)
        best = [F.linear(part, self.lm_head).argmax(dim=1) for part in flat.split(rows)]
        return torch.cat(best).view(states.shape[:-1])
