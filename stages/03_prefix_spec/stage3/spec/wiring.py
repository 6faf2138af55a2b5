"""Which proposer and which verifier a device gets.

Owns the choice, and how a search on the host serves all requests. Does not know requests.

vLLM: ``v1/worker/gpu_model_runner.py`` (``__init__``, where the drafter is made).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from stage1.config import DeviceConfig, Settings
from stage1.interfaces import Drafts
from stage1.model.source import resolve_device
from stage2.runner import PagedRunner
from stage3.config import SpeculativeConfig
from stage3.grammar.mask_processor import ApplyMasks, apply_masks
from stage3.spec import ngram, rejection
from stage3.spec.ngram import NgramRules
from stage3.spec.rejection import Accept
from stage3.spec.runner import DraftingRunner, Verify

ProposeOne = Callable[[Sequence[int], NgramRules, int], list[int]]  # tokens, rules, room
ProposeRows = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, NgramRules, int], Drafts]


def drafting_runner(
    runner: Callable[..., PagedRunner],
    rules: NgramRules,
    settings: Settings,
    propose_one: ProposeOne = ngram.propose,
    accept: Accept = rejection.accept_matching,
) -> Callable[..., PagedRunner]:
    """The runner that guesses by ``rules``: kernels on a GPU, torch elsewhere. A replaced ``runner`` is refused.

    ``propose_one`` and ``accept`` run in the engine where they are not the stage's own, which have faster versions.

    Raises:
        ValueError: ``runner`` is not stage 2's.
    """
    if runner is not PagedRunner:
        raise ValueError("the runner was replaced: leave it as it is, or leave --speculative-config out")
    propose: ProposeRows = ngram.propose_rows
    verify: Verify = rejection.verify_by_match
    masks: ApplyMasks = apply_masks
    if resolve_device(settings[DeviceConfig]).type == "cuda":  # Triton is imported where there is a GPU
        from stage3.grammar import mask_kernel
        from stage3.spec import ngram_kernel, rejection_kernel

        propose, verify = ngram_kernel.propose_rows, rejection_kernel.verify_by_match
        masks = mask_kernel.apply_masks
    if propose_one is not ngram.propose:
        propose = partial(propose_on_host, propose_one)
    if accept is not rejection.accept_matching:
        verify = partial(rejection.verify_by_match, accept=accept)

    def by_rules(token_ids: torch.Tensor, rows: torch.Tensor, lengths: torch.Tensor, max_model_len: int) -> Drafts:
        return propose(token_ids, rows, lengths, rules, max_model_len)

    max_batch = settings[SpeculativeConfig].max_batch
    return partial(DraftingRunner, propose=by_rules, verify=verify, max_batch=max_batch, apply_masks=masks)


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
