"""The n-gram drafter of a device: a kernel on a GPU, torch elsewhere, or a search of one's own on the host.

Owns the choice. Does not know requests, nor how a search works (``ngram``, ``ngram_kernel``).

vLLM: ``v1/spec_decode/ngram_proposer.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from stage1.interfaces import Drafts
from stage3.spec import ngram
from stage3.spec.drafter import TokenDrafter
from stage3.spec.ngram import NgramRules

ProposeOne = Callable[[Sequence[int], NgramRules, int], list[int]]  # tokens, rules, room


def ngram_drafter(
    token_ids: torch.Tensor, rules: NgramRules, max_model_len: int, propose_one: ProposeOne = ngram.propose
) -> TokenDrafter:
    """The drafter over the request table's ``token_ids`` [rows, W].

    A ``propose_one`` that is not the stage's own is asked for each request, on the host.
    """
    if propose_one is not ngram.propose:

        def on_host(tokens: torch.Tensor, rows: torch.Tensor, lengths: torch.Tensor) -> Drafts:
            return propose_on_host(propose_one, tokens, rows, lengths, rules, max_model_len)

        return TokenDrafter(token_ids, on_host, capturable=False)
    propose_rows: Callable[..., Drafts] = ngram.propose_rows
    if token_ids.is_cuda:
        from stage3.spec import ngram_kernel  # Triton is imported where there is a GPU

        propose_rows = ngram_kernel.propose_rows

    def on_device(tokens: torch.Tensor, rows: torch.Tensor, lengths: torch.Tensor) -> Drafts:
        return propose_rows(tokens, rows, lengths, rules, max_model_len)

    return TokenDrafter(token_ids, on_device, capturable=True)


def propose_on_host(
    propose_one: ProposeOne,
    token_ids: torch.Tensor,
    rows: torch.Tensor,
    lengths: torch.Tensor,
    rules: NgramRules,
    max_model_len: int,
) -> Drafts:
    """``ngram.propose_rows`` by asking ``propose_one`` for each request. Waits for the device."""
    ids = torch.zeros(len(rows), rules.num_speculative_tokens, dtype=torch.int64)  # [R, k]
    counts = torch.zeros(len(rows), dtype=torch.int64)  # [R]
    for place, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        if length:
            tokens = token_ids[row, :length].tolist()
            drafts = propose_one(tokens, rules, max_model_len - 1 - length)[: ids.shape[1]]
            ids[place, : len(drafts)] = torch.tensor(drafts, dtype=torch.int64)
            counts[place] = len(drafts)
    return Drafts(ids.to(rows.device), counts.to(rows.device))
