"""Attention of a draft layer that is unrolled over its own chain, for every start of a chain at once.

Owns which key a query sees. Does not know what the layer's input is made of.

A chain that starts behind position p: step 1 is computed from the target's states at all positions up to p; step j
sits at position q = p + j - 1 and has the layer's own output for a state. It sees step 1's keys up to p, and one key of
each of the chain's own later steps. With steps indexed by their position q:

    step 3 at q = 6 (p = 4)      step 1's keys 0 1 2 3 4   (positions <= q - 2)
                                 step 2's key  5           (its diagonal, 1 back)
                                 step 3's key  6           (its diagonal, 0 back)

So step j's scores are those against step 1 with the causal mask shifted by j - 1, and j - 1 columns more, one for each
later step's diagonal; one softmax goes over all. Training every start costs no more than this.

vLLM: none (it does not train). The method is the training-time test of EAGLE-3 (arXiv:2503.01840).
"""

from __future__ import annotations

import torch

from stage1.batch import ForwardBatch
from stage1.model.layers import Attention
from stage3.training.dense import split_and_turn


class ChainAttention:
    """``AttentionBackend`` of one layer that is called once a step, on the same rectangle each time.

    It remembers the keys and values of the steps so far: a new chain needs a new object. ``cos`` and ``sin`` are
    float32 [positions, dim / 2].
    """

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self._cos, self._sin = cos, sin
        self._keys: list[torch.Tensor] = []  # of each step, [B, S, kv heads, dim]
        self._values: list[torch.Tensor] = []

    def plan(self, batch: ForwardBatch) -> None:
        """Look up the angles of every token."""
        batch.attn = (self._cos[batch.positions], self._sin[batch.positions])

    def attend(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """The next step's attention. ``qkv`` [B * S, (q + 2 kv heads) * dim] → [B * S, q heads * dim]."""
        q, k, v = (x.unflatten(0, (batch.num_reqs, -1)) for x in split_and_turn(layer, qkv, *batch.attn))
        self._keys.append(k)
        self._values.append(v)
        kv_heads, scale = layer.num_kv_heads, layer.head_dim**-0.5
        q = q.unflatten(2, (kv_heads, -1)) * scale  # [B, S, kv, group, dim]
        later = [*zip(self._keys[1:], self._values[1:], strict=True)]
        back = [*range(len(later) - 1, -1, -1)]  # of each later step, how far behind the query its key is

        scores = torch.einsum("bqkgd,bskd->bkgqs", q, self._keys[0]).float()  # [B, kv, group, S, S]
        places = torch.arange(scores.shape[-1], device=q.device)
        scores = scores.masked_fill(places > places[:, None] - len(later), -torch.inf)
        own = [(q * shifted(key, n)[:, :, :, None]).sum(-1).float() for (key, _), n in zip(later, back, strict=True)]
        columns = [x.permute(0, 2, 3, 1)[..., None] for x in own]  # each [B, kv, group, S, 1]
        shares = torch.cat((scores, *columns), dim=-1).softmax(dim=-1)  # [B, kv, group, S, S + later]

        length = scores.shape[-1]
        out = torch.einsum("bkgqs,bskd->bqkgd", shares[..., :length].to(v.dtype), self._values[0])
        for i, ((_, value), n) in enumerate(zip(later, back, strict=True)):
            share = shares[..., length + i].permute(0, 3, 1, 2)[..., None]  # [B, S, kv, group, 1]
            out = out + share.to(v.dtype) * shifted(value, n)[:, :, :, None]
        return out.flatten(0, 1).flatten(1)

    def capture_buffers(self, max_reqs: int) -> None:
        """Nothing is captured."""

    def refresh(self, batch: ForwardBatch) -> None:
        """Nothing is captured, so nothing is refreshed."""


def shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """Entry s becomes entry s + ``places`` of dimension 1, whose first ones become 0; a negative number shifts back.

    Example: [[1, 2, 3]] by 1 → [[0, 1, 2]], by -1 → [[2, 3, 0]].
    """
    if places == 0:
        return x
    gap = torch.zeros_like(x[:, : abs(places)])
    return torch.cat((gap, x[:, :-places]), dim=1) if places > 0 else torch.cat((x[:, -places:], gap), dim=1)
