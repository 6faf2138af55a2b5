"""Which drafter and which verifier an engine gets.

Owns the choice by method and device, and the loading of what drafts. Does not know requests.

    method        drafter                      weights                    layers in the cache
    ngram         TokenDrafter                 none                       none
    medusa        MedusaDrafter                heads/medusa.safetensors   none
    eagle         EagleDrafter                 heads/eagle.safetensors    one more
    draft_model   ModelDrafter                 another model's            its own

vLLM: ``v1/worker/gpu_model_runner.py`` (``__init__``, where the drafter is made).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import torch

from stage1.config import DeviceConfig, ModelConfig, Settings
from stage1.interfaces import AttentionBackend, KVCacheManager
from stage1.model.layers import DecoderLayer
from stage1.model.load import load_model
from stage1.model.rope import rope_tables
from stage1.model.shape import ModelShape
from stage1.model.source import ModelSource, resolve, resolve_device, resolve_dtype
from stage1.model.transformer import Transformer
from stage2.config import CacheConfig, KernelConfig
from stage2.parts import Parts as PagedParts
from stage2.parts import with_kernels
from stage2.runner import PagedRunner
from stage2.state import RequestTable
from stage3.grammar.mask_processor import apply_masks
from stage3.parts import Parts
from stage3.spec import rejection, steps
from stage3.spec.best import best_tokens
from stage3.spec.draft_model import ModelDrafter
from stage3.spec.draft_source import resolve_draft
from stage3.spec.drafter import Drafter
from stage3.spec.eagle import EagleDrafter, EagleLayer
from stage3.spec.heads import find_heads, load_into, open_heads
from stage3.spec.lookahead import LookaheadKV
from stage3.spec.medusa import MedusaDrafter, MedusaHeads
from stage3.spec.ngram_drafter import ngram_drafter
from stage3.spec.rules import Rules
from stage3.spec.runner import Drafting, DraftingRunner, MakeDrafter


def speculating(parts: Parts, rules: Rules, settings: Settings) -> Parts:
    """``parts`` with a runner that speculates by ``rules``, and the cache that its drafter needs.

    A replaced ``propose`` or ``accept_matching`` runs on the host, in place of the stage's faster versions.

    Raises:
        ValueError: the runner was replaced, or what drafts is missing or does not fit the model.
    """
    if parts.runner is not PagedRunner:
        raise ValueError("the runner was replaced: leave it as it is, or leave --speculative-config out")
    maker = _Maker(parts, rules, settings)
    make_drafter, further = maker.by_method()
    drafting = _drafting(parts, rules, maker.device, make_drafter)
    return replace(parts, runner=partial(DraftingRunner, drafting=drafting), further_shapes=further)


def with_lookahead(manager: KVCacheManager, rules: Rules | None) -> KVCacheManager:
    """``manager``, with room for the guesses of a drafter that stores keys and values."""
    if rules is None or not rules.has_cache:
        return manager
    return LookaheadKV(manager, rules.num_speculative_tokens)


def _drafting(parts: Parts, rules: Rules, device: torch.device, make_drafter: MakeDrafter) -> Drafting:
    own = Drafting(
        num_drafts=rules.num_speculative_tokens,
        max_batch=rules.max_batch,
        make_drafter=make_drafter,
        verify=rejection.verify_by_match,
        remember=steps.remember,
        apply_masks=apply_masks,
        capturable=True,
    )
    if device.type == "cuda":  # Triton is imported where there is a GPU
        from stage3.grammar import mask_kernel
        from stage3.spec import rejection_kernel, step_kernel

        own = replace(
            own,
            verify=rejection_kernel.verify_by_match,
            remember=step_kernel.remember,
            apply_masks=mask_kernel.apply_masks,
        )
    if parts.accept_matching is not rejection.accept_matching:
        verify = partial(rejection.verify_by_match, accept=parts.accept_matching)
        own = replace(own, verify=verify, capturable=False)
    return own


class _Maker:
    """Makes the drafter of a method; weights are loaded once, for every runner that asks."""

    def __init__(self, parts: Parts, rules: Rules, settings: Settings) -> None:
        self.device = resolve_device(settings[DeviceConfig])
        self._rules, self._settings = rules, settings
        self._propose_one = parts.propose
        self._source: ModelSource = resolve(settings[ModelConfig])
        self._dtype = resolve_dtype(settings[ModelConfig], self.device)
        self._parts: PagedParts = with_kernels(parts, settings[KernelConfig].attention_backend, self.device)
        self._sizes = (rules.num_speculative_tokens, settings[CacheConfig].block_size, self._source.max_model_len)
        self._best = best_tokens
        if self.device.type == "cuda":
            from stage3.spec.step_kernel import best_tokens as best_by_kernel

            self._best = best_by_kernel

    def by_method(self) -> tuple[MakeDrafter, tuple[ModelShape, ...]]:
        """What makes the drafter, and the shapes of the layers that it has in the cache."""
        return {"ngram": self.ngram, "medusa": self.medusa, "eagle": self.eagle, "draft_model": self.draft_model}[
            self._rules.method
        ]()

    def ngram(self) -> tuple[MakeDrafter, tuple[ModelShape, ...]]:
        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            return ngram_drafter(table.token_ids, self._rules.ngram, self._source.max_model_len, self._propose_one)

        return make, ()

    def medusa(self) -> tuple[MakeDrafter, tuple[ModelShape, ...]]:
        file = open_heads(find_heads(self._rules.model, "medusa"), "medusa", self._source.shape)
        heads = MedusaHeads.like(file)
        load_into(heads, file, self._dtype, self.device)
        count, _, max_model_len = self._sizes

        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            return MedusaDrafter(heads, model, count, max_model_len, self._best)

        return make, ()

    def eagle(self) -> tuple[MakeDrafter, tuple[ModelShape, ...]]:
        file = open_heads(find_heads(self._rules.model, "eagle"), "eagle", self._source.shape)
        layer = EagleLayer.like(file, self._source.shape, self._parts.ops())
        load_into(layer, file, self._dtype, self.device)

        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            return EagleDrafter(layer, model, attention, table, *self._sizes, self._best)

        return make, (replace(self._source.shape, num_layers=1),)

    def draft_model(self) -> tuple[MakeDrafter, tuple[ModelShape, ...]]:
        source = resolve_draft(str(self._rules.model), self._settings[ModelConfig], self._source)
        seed = self._settings[ModelConfig].seed
        draft = load_model(source, self._parts.ops(), self._dtype, self.device, seed, cache_bytes=0)
        for number, layer in enumerate(draft.layers, self._source.shape.num_layers):
            cast(DecoderLayer, layer).self_attn.index = number  # behind the model's own in the cache
        tables = rope_tables(source.shape, self._source.max_model_len, self.device)

        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            own = self._parts.attention(attention.kv_cache, *tables, self._parts.rotate)  # type: ignore[attr-defined]
            return ModelDrafter(draft, own, table, *self._sizes, self._best)

        return make, (source.shape,)
