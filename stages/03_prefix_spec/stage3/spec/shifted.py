"""The tokens that a drafting layer reads: each position's next token.

Owns one lookup. EAGLE's layer takes the target's hidden state of position i together with token i + 1, the token that
the target drew or was given there. Does not know layers.

    prompt p0 … p5 in steps of 4 + 2, x is drawn     p1 p2 p3 p4 | p5 x

Within a prompt the next token is the prompt's own, never the target's guess, also at the end of a step; the request
table has both kinds in one row, and behind rejected drafts it has the token that took their place.

vLLM: ``v1/spec_decode/eagle.py``.
"""

from __future__ import annotations

import torch

from stage2.inputs import StepBatch


def next_tokens(token_ids: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """[T] int64: the token behind each of the T positions of a step.

    Args:
        token_ids: [rows, W] integers, the request table's, after this step's tokens were written to it.
        rows: [T] int64, each token's row of the table.
        positions: [T] int64, below W - 1.
    """
    return token_ids[rows, positions + 1].long()


def next_tokens_of(batch: StepBatch, token_ids: torch.Tensor) -> torch.Tensor:
    """[T] int64: the token behind each of the tokens of ``batch``; of padding any.

    Args:
        batch: positions below W - 1.
        token_ids: [rows, W] integers, as for ``next_tokens``.
    """
    token = torch.arange(batch.num_tokens, device=token_ids.device)
    request = torch.bucketize(token, batch.query_start[1:], right=True).clamp(max=batch.num_reqs - 1)  # [T]
    return next_tokens(token_ids, batch.rows[request], batch.positions)
