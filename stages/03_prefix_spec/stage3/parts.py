"""The replaceable parts of stage 3: those of stage 2, what finds computed blocks again, and what makes masks.

vLLM: ``v1/core/kv_cache_utils.py`` (``hash_block_tokens``), ``v1/core/block_pool.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from stage1.core import EngineCore
from stage1.interfaces import LogitsProcessor
from stage1.logits_processors import default_processors
from stage2.block_pool import BlockPool
from stage2.parts import Parts as PagedParts
from stage2.warm_up import WarmUp
from stage3.core import ResettableCore
from stage3.grammar.fsm import Machine
from stage3.grammar.mask_processor import GrammarMaskProcessor
from stage3.grammar.masks import Words, pack
from stage3.grammar.matcher import Matcher, Walk
from stage3.grammar.token_fsm import Place, allowed_tokens
from stage3.grammar.vocabulary import Vocabulary
from stage3.prefix.block_hash import BlockKey, hash_block
from stage3.prefix.cached_pool import CachedBlockPool
from stage3.prefix.kv_manager import PrefixKVManager, longest_hit
from stage3.spec.ngram import propose
from stage3.spec.ngram_drafter import ProposeOne
from stage3.spec.rejection import Accept, Residual, accept_matching, draw_residual
from stage3.warm_up import warm_up_plans


def guided_processors(vocab_size: int, device: torch.device) -> tuple[LogitsProcessor, ...]:
    """Stage 1's processors, and the masks of grammars behind them."""
    if device.type != "cuda":
        return (*default_processors(vocab_size, device), GrammarMaskProcessor(device))
    from stage3.grammar.mask_kernel import apply_masks  # Triton is imported where there is a GPU

    return (*default_processors(vocab_size, device), GrammarMaskProcessor(device, apply_masks))


@dataclass(frozen=True)
class Parts(PagedParts):
    """``kv_manager`` is used without a prefix cache, ``prefix_manager`` with one."""

    processors: Callable[[int, torch.device], Sequence[LogitsProcessor]] = guided_processors
    cached_pool: Callable[[BlockPool], CachedBlockPool] = CachedBlockPool
    hash_block: Callable[[BlockKey, Sequence[int]], BlockKey] = hash_block
    longest_hit: Callable[[Iterable[BlockKey], Callable[[BlockKey], int | None]], list[int]] = longest_hit
    prefix_manager: Callable[..., PrefixKVManager] = PrefixKVManager
    allowed_tokens: Callable[[Machine, Vocabulary, Place], npt.NDArray[np.bool_]] = allowed_tokens
    pack: Callable[[npt.NDArray[np.bool_]], Words] = pack
    matcher: Callable[[Walk, frozenset[int]], Matcher] = Matcher
    warm_up: WarmUp = warm_up_plans
    core: Callable[..., EngineCore] = ResettableCore
    propose: ProposeOne = propose
    accept_matching: Accept = accept_matching
    draw_residual: Residual = draw_residual
