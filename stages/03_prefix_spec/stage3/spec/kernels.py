"""The functions of speculation that have a kernel, as a device gets them.

Owns the choice. Does not know what they compute: each plain version says it, and each kernel's module names it.

vLLM: ``vllm/platforms/`` makes such choices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from stage1.batch import Sampled
from stage3.grammar.mask_processor import ApplyMasks, apply_masks
from stage3.spec import rejection
from stage3.spec.chain import PlanChain, plan_chain
from stage3.spec.choose import Best, best_tokens
from stage3.spec.eagle import EagleInputs
from stage3.spec.rejection import DrawRules
from stage3.spec.steps import StepOperations


@dataclass(frozen=True)
class Kernels:
    """The plain versions, unless others are given."""

    steps: StepOperations = field(default_factory=StepOperations)
    verify_each: Callable[..., Sampled] = rejection.verify_each
    verify_by_rejection: Callable[..., Sampled] = rejection.verify_by_rejection
    keep: Callable[[torch.Tensor, DrawRules], torch.Tensor] = rejection.kept_logits
    best: Best = best_tokens
    eagle: EagleInputs = field(default_factory=EagleInputs)
    plan_chain: PlanChain = plan_chain
    apply_masks: ApplyMasks = apply_masks


def kernels_for(device: torch.device) -> Kernels:
    """Triton's on a GPU, where alone it is imported; the plain ones elsewhere."""
    if device.type != "cuda":
        return Kernels()
    from stage3.grammar import mask_kernel
    from stage3.spec import chain_kernel, eagle_kernel, rejection_kernel, step_kernel

    return Kernels(
        step_kernel.OPERATIONS,
        rejection_kernel.verify_each,
        rejection_kernel.verify_by_rejection,
        rejection_kernel.kept_logits,
        step_kernel.best_tokens,
        EagleInputs(eagle_kernel.next_tokens_of, eagle_kernel.mix),
        chain_kernel.plan_chain,
        mask_kernel.apply_masks,
    )
