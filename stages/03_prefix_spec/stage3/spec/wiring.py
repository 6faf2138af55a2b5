"""Which drafter and which verifier an engine gets.

Owns how the parts meet; ``drafters`` makes the drafter, ``kernels`` chooses by device. Does not know requests.

    strict          the likeliest tokens are guessed       verified by match
    probabilistic   drafts are drawn                       verified by rejection

vLLM: ``v1/worker/gpu_model_runner.py`` (``__init__``, where the drafter is made).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from stage1.batch import Sampled
from stage1.config import DeviceConfig, Settings
from stage1.interfaces import KVCacheManager
from stage1.model.source import resolve_device
from stage2.config import BatchConfig
from stage2.inputs import StepBatch
from stage2.runner import PagedRunner
from stage3.parts import Parts
from stage3.spec import rejection
from stage3.spec.choose import ChooseBest, ChooseDrawn
from stage3.spec.drafters import DrafterMaker
from stage3.spec.kernels import Kernels, kernels_for
from stage3.spec.lookahead import LookaheadKV
from stage3.spec.rules import Rules
from stage3.spec.runner import Drafting, DraftingRunner, Verify
from stage3.spec.steps import Places
from stage3.warm_up import warm_up_plans

logger = logging.getLogger(__name__)


def speculating(parts: Parts, rules: Rules, settings: Settings) -> Parts:
    """``parts`` with a runner that speculates by ``rules``, and the cache that its drafter needs.

    Where the method has a use for it, a replaced ``propose``, ``accept_matching`` or ``draw_residual`` runs in place of
    the stage's faster versions, and outside of graphs.

    Raises:
        ValueError: the runner was replaced, or what drafts is missing or does not fit the model.
    """
    if parts.runner is not PagedRunner:
        raise ValueError("the runner was replaced: leave it as it is, or leave --speculative-config out")
    batch = settings[BatchConfig]
    if batch.max_num_batched_tokens <= batch.max_num_seqs:
        logger.warning(
            "--max-num-batched-tokens %d leaves no token for drafts beside one for each of --max-num-seqs %d: nothing "
            "is verified; raise the one or lower the other",
            *(batch.max_num_batched_tokens, batch.max_num_seqs),
        )
    kernels = kernels_for(resolve_device(settings[DeviceConfig]))
    choose = ChooseDrawn(rules.num_speculative_tokens, kernels.keep) if rules.draws else ChooseBest(kernels.best)
    make_drafter, further = DrafterMaker(parts, rules, settings, kernels, choose).by_method()
    verify, is_replaced = _verifier(parts, choose, kernels)
    drafting = Drafting(
        num_drafts=rules.num_speculative_tokens,
        max_batch=rules.max_batch,
        make_drafter=make_drafter,
        verify=verify,
        steps=kernels.steps,
        apply_masks=kernels.apply_masks,
        capturable=not is_replaced,
    )
    runner, warm_up = partial(DraftingRunner, drafting=drafting), partial(warm_up_plans, rules=rules)
    return replace(parts, runner=runner, warm_up=warm_up, further_shapes=further)


def with_lookahead(manager: KVCacheManager, rules: Rules | None) -> KVCacheManager:
    """``manager``, with room for the guesses of a drafter that stores keys and values."""
    if rules is None or not rules.has_cache:
        return manager
    return LookaheadKV(manager, rules.num_speculative_tokens)


def by_match(verify_each: Callable[..., Sampled]) -> Verify:
    """Drafts that are not drawn, verified by match."""

    def verify(logits: torch.Tensor, places: Places, batch: StepBatch, has_filters: bool) -> Sampled:
        return verify_each(logits, places.drafts, places.rules, has_filters)

    return verify


def by_rejection(choose: ChooseDrawn, verify_drawn: Callable[..., Sampled]) -> Verify:
    """Drafts that ``choose`` drew, verified by rejection."""

    def verify(logits: torch.Tensor, places: Places, batch: StepBatch, has_filters: bool) -> Sampled:
        width = logits.shape[1]
        probs = choose.probs(batch, width - 1)
        return verify_drawn(logits, places.drafts, probs, places.rules.first_of(width))

    return verify


def _verifier(parts: Parts, choose: ChooseBest | ChooseDrawn, kernels: Kernels) -> tuple[Verify, bool]:
    """What verifies the drafts that ``choose`` makes, and whether a part of it was replaced."""
    if isinstance(choose, ChooseDrawn):
        if parts.draw_residual is rejection.draw_residual:
            return by_rejection(choose, kernels.verify_by_rejection), False
        drawn = partial(rejection.verify_by_rejection, keep=kernels.keep, residual=parts.draw_residual)
        return by_rejection(choose, drawn), True
    if parts.accept_matching is rejection.accept_matching:
        return by_match(kernels.verify_each), False
    return by_match(partial(rejection.verify_each, accept=parts.accept_matching)), True
