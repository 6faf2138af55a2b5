"""Which proposer and which verifier a device gets.

Owns the choice. Does not know requests.

vLLM: ``v1/worker/gpu_model_runner.py`` (``__init__``, where the drafter is made).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from stage1.config import DeviceConfig, Settings
from stage1.interfaces import Drafts
from stage1.model.source import resolve_device
from stage2.runner import PagedRunner
from stage3.spec import ngram, rejection
from stage3.spec.ngram import NgramRules
from stage3.spec.runner import DraftingRunner, Verify


def drafting_runner(
    runner: Callable[..., PagedRunner], rules: NgramRules, settings: Settings
) -> Callable[..., PagedRunner]:
    """The runner that guesses by ``rules``: kernels on a GPU, torch elsewhere. A replaced ``runner`` is refused.

    Raises:
        ValueError: ``runner`` is not stage 2's.
    """
    if runner is not PagedRunner:
        raise ValueError("the runner was replaced: leave it as it is, or leave --speculative-config out")
    propose: Callable[..., Drafts] = ngram.propose_rows
    verify: Verify = rejection.verify_by_match
    if resolve_device(settings[DeviceConfig]).type == "cuda":
        from stage3.spec import ngram_kernel, rejection_kernel

        propose, verify = ngram_kernel.propose_rows, rejection_kernel.verify_by_match

    def by_rules(token_ids: torch.Tensor, rows: torch.Tensor, lengths: torch.Tensor, max_model_len: int) -> Drafts:
        return propose(token_ids, rows, lengths, rules, max_model_len)

    return partial(DraftingRunner, propose=by_rules, verify=verify)
