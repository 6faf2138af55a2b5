"""The drafter of each method, and the loading of what it needs.

Owns the table below. Does not know requests, nor how drafts are verified.

    method        drafter          weights                    layers in the cache
    ngram         TokenDrafter     none                       none
    medusa        MedusaDrafter    heads/medusa.safetensors   none
    eagle         EagleDrafter     heads/eagle.safetensors    one more
    draft_model   ModelDrafter     another model's            its own

vLLM: ``v1/worker/gpu_model_runner.py`` (``__init__``, where the drafter is made).
"""

from __future__ import annotations

from typing import cast

from stage1.config import DeviceConfig, ModelConfig, Settings
from stage1.interfaces import AttentionBackend
from stage1.model.layers import DecoderLayer
from stage1.model.load import load_model
from stage1.model.rope import rope_tables
from stage1.model.shape import ModelShape
from stage1.model.source import resolve, resolve_device, resolve_dtype
from stage1.model.transformer import Transformer
from stage2.config import CacheConfig, KernelConfig
from stage2.parts import Parts as PagedParts
from stage2.parts import with_kernels
from stage2.state import RequestTable
from stage3.parts import Parts
from stage3.spec.chain import ChainLimits
from stage3.spec.choose import Choose, ChooseDrawn
from stage3.spec.draft_model import ModelDrafter
from stage3.spec.draft_source import resolve_draft
from stage3.spec.drafter import Drafter, MakeDrafter
from stage3.spec.eagle import EagleDrafter, EagleLayer
from stage3.spec.heads import find_heads, load_into, open_heads
from stage3.spec.kernels import Kernels
from stage3.spec.medusa import MedusaDrafter, MedusaHeads
from stage3.spec.ngram_drafter import ngram_drafter
from stage3.spec.rules import Rules

Made = tuple[MakeDrafter, tuple[ModelShape, ...]]


class DrafterMaker:
    """Loads the weights once, for every runner that asks for a drafter.

    Args:
        parts: those of the engine.
        rules: the method and its numbers.
        settings: the engine's.
        kernels: of the device.
        choose: makes drafts of logits.
    """

    def __init__(self, parts: Parts, rules: Rules, settings: Settings, kernels: Kernels, choose: Choose) -> None:
        self._device = resolve_device(settings[DeviceConfig])
        self._rules, self._config = rules, settings[ModelConfig]
        self._propose_one = parts.propose
        self._source = resolve(self._config)
        self._dtype = resolve_dtype(self._config, self._device)
        self._parts: PagedParts = with_kernels(parts, settings[KernelConfig].attention_backend, self._device)
        self._block_size = settings[CacheConfig].block_size
        self._kernels = kernels
        self._choose = choose

    def by_method(self) -> Made:
        """What makes the drafter, and the shapes of the layers that it has in the cache.

        Raises:
            ValueError: what drafts is missing, or does not fit the model.
        """
        methods = {"ngram": self._ngram, "medusa": self._medusa, "eagle": self._eagle, "draft_model": self._draft_model}
        make, further = methods[self._rules.method]()

        def make_with_room(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            if isinstance(self._choose, ChooseDrawn):
                self._choose.allocate(table, self._source.shape.vocab_size)
            return make(model, attention, table)

        return make_with_room, further

    def _limits(self, num_passes: int, own_len: int | None = None) -> ChainLimits:
        """``own_len``: positions of a drafter that has fewer than the model; behind them nothing is drafted."""
        longest = min(self._source.max_model_len, own_len or self._source.max_model_len)
        return ChainLimits(self._rules.num_speculative_tokens, num_passes, self._block_size, longest)

    def _ngram(self) -> Made:
        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            return ngram_drafter(table.token_ids, self._rules.ngram, self._source.max_model_len, self._propose_one)

        return make, ()

    def _medusa(self) -> Made:
        file = open_heads(find_heads(self._rules.model, "medusa"), "medusa", self._source.shape)
        heads = MedusaHeads.like(file)
        load_into(heads, file, self._dtype, self._device)
        count, max_model_len = self._rules.num_speculative_tokens, self._source.max_model_len

        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            return MedusaDrafter(heads, model, count, max_model_len, self._choose)

        return make, ()

    def _eagle(self) -> Made:
        file = open_heads(find_heads(self._rules.model, "eagle"), "eagle", self._source.shape)
        layer = EagleLayer.like(file, self._source.shape, self._parts.ops())
        load_into(layer, file, self._dtype, self._device)
        limits = self._limits(max(self._rules.num_speculative_tokens - 1, 1))

        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            kernels = self._kernels
            return EagleDrafter(layer, model, attention, table, limits, self._choose, kernels.eagle, kernels.plan_chain)

        return make, (EagleLayer.shape_of(file, self._source.shape),)

    def _draft_model(self) -> Made:
        source = resolve_draft(str(self._rules.model), self._config, self._source)
        draft = load_model(source, self._parts.ops(), self._dtype, self._device, self._config.seed, cache_bytes=0)
        for number, layer in enumerate(draft.layers, self._source.shape.num_layers):
            cast(DecoderLayer, layer).self_attn.index = number  # behind the model's own in the cache
        tables = rope_tables(source.shape, self._source.max_model_len, self._device)
        limits = self._limits(self._rules.num_speculative_tokens, source.max_model_len)

        def make(model: Transformer, attention: AttentionBackend, table: RequestTable) -> Drafter:
            own = self._parts.attention(attention.kv_cache, *tables, self._parts.rotate)  # type: ignore[attr-defined]
            return ModelDrafter(draft, own, table, limits, self._choose, self._kernels.plan_chain)

        return make, (source.shape,)
