"""How many blocks the cache gets: the arithmetic of a GPU's memory, told what a GPU would say."""

import logging
from types import SimpleNamespace

import pytest
import torch

from stage1.model.shape import PRESETS
from stage2.config import CacheConfig
from stage2.kv_memory import CONTEXT, GIB, SEGMENT, count_blocks

SHAPE = PRESETS["tiny"]
BLOCK_BYTES = 16 * SHAPE.kv_bytes_per_token(torch.float32)
CUDA = torch.device("cuda")


class Gpu:
    """What torch says of a GPU of 100 GiB, on which other programs hold ``others`` and this one ``held`` bytes."""

    def __init__(
        self, monkeypatch, others: int = 0, held: int = 0, peak: int = 0, pools: int = 0, kernels: int = 0
    ) -> None:
        self.total, self.others, self.reserved = 100 * GIB, others, held
        self.peak, self.pools, self.kernels = peak, pools, kernels
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda _: (self.total - self.others - self.reserved, self.total)
        )
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: self.reserved)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: self.peak)
        for name in ("empty_cache", "reset_peak_memory_stats", "synchronize"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: None)

    def profile(self, num_blocks: int = 0, error: Exception | None = None) -> SimpleNamespace:
        def run() -> object:
            if error is not None:
                raise error
            return object()

        def capture(_: object) -> None:
            self.reserved += self.pools

        def warm_up(_: object) -> None:
            self.others += self.kernels

        return SimpleNamespace(run=run, capture=capture, warm_up=warm_up, num_blocks=num_blocks)


def count(config: CacheConfig, profile, max_model_len: int = 256) -> int:
    return count_blocks(config, [SHAPE], torch.float32, CUDA, max_model_len, profile)


def test_weights_activations_graphs_and_kernels_are_left_free(monkeypatch) -> None:
    gpu = Gpu(monkeypatch, others=2 * GIB, held=5 * GIB, peak=9 * GIB, pools=GIB, kernels=3 * GIB)
    blocks = count(CacheConfig(gpu_memory_utilization=0.5), gpu.profile(num_blocks=7))
    room = 50 * GIB - 2 * GIB - 3 * GIB - (9 * GIB - 7 * BLOCK_BYTES) - GIB - SHAPE.num_layers * SEGMENT
    assert blocks == room // BLOCK_BYTES


def test_less_free_memory_than_the_setting_asks_for_is_refused_with_both_numbers(monkeypatch) -> None:
    gpu = Gpu(monkeypatch, others=30 * GIB, held=5 * GIB)
    with pytest.raises(
        ValueError, match=r"70\.00 GiB of the GPU's 100\.00 are free .* 0\.9 asks for 90\.00 GiB: .*lower it"
    ):
        count(CacheConfig(), gpu.profile())
    assert count(CacheConfig(gpu_memory_utilization=0.7), gpu.profile()) > 0


def test_a_step_that_does_not_fit_names_the_flag(monkeypatch) -> None:
    gpu = Gpu(monkeypatch)
    with pytest.raises(ValueError, match="lower --max-num-batched-tokens"):
        count(CacheConfig(), gpu.profile(error=torch.OutOfMemoryError()))


def test_a_cache_without_room_for_the_longest_request_is_refused_with_the_numbers(monkeypatch) -> None:
    gpu = Gpu(monkeypatch, peak=89 * GIB)
    with pytest.raises(
        ValueError, match=r"room for [\d,]+ blocks .* \(9,000,000 tokens\) needs 562,500 .*lower --max-model-len"
    ):
        count(CacheConfig(), gpu.profile(), max_model_len=9_000_000)


def test_an_override_is_taken_and_warned_of(monkeypatch, caplog) -> None:
    gpu = Gpu(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert count(CacheConfig(num_gpu_blocks_override=3), gpu.profile(error=AssertionError())) == 3
    assert "longer ones end with an error" in caplog.text


def test_bytes_override_the_share(monkeypatch) -> None:
    gpu = Gpu(monkeypatch)
    config = CacheConfig(kv_cache_memory_bytes=100 * BLOCK_BYTES + 1)
    assert count(config, gpu.profile(error=AssertionError())) == 100


def test_what_other_programs_hold_is_not_taken_from_the_share(monkeypatch) -> None:
    """Two engines of 0.45 fit a GPU: the share is of the whole of it, and each one's own."""
    gpu = Gpu(monkeypatch, others=47 * GIB, held=5 * GIB, peak=6 * GIB, pools=GIB, kernels=GIB)
    blocks = count(CacheConfig(gpu_memory_utilization=0.45), gpu.profile())
    room = 45 * GIB - CONTEXT - GIB - 6 * GIB - GIB - SHAPE.num_layers * SEGMENT
    assert blocks == room // BLOCK_BYTES


@pytest.mark.parametrize(
    ("setting", "value"), [("kv_cache_memory_bytes", 70 * GIB), ("num_gpu_blocks_override", 70 * GIB // BLOCK_BYTES)]
)
def test_more_than_there_is_is_refused_by_name_with_both_numbers(monkeypatch, setting, value) -> None:
    gpu = Gpu(monkeypatch, others=40 * GIB)
    flag = setting.replace("_", "-")
    with pytest.raises(ValueError, match=rf"--{flag} asks for 70\.00 GiB .* 60\.00 GiB are available"):
        count(CacheConfig(**{setting: value}), gpu.profile(error=AssertionError()))


@pytest.mark.parametrize("setting", ["kv_cache_memory_bytes", "num_gpu_blocks_override"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_cache_of_nothing_is_refused_by_name(setting, value) -> None:
    with pytest.raises(ValueError, match=f"{setting} is {value}.*leave --"):
        CacheConfig(**{setting: value})
