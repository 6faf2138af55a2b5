"""Kernels as replaceable parts: who brings one sees it run, or is told why not."""

from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import Any

import pytest
import torch
import triton

from stage1.attention import TorchAttention
from stage1.model.rope import apply_rope
from stage1.params import SamplingParams
from stage2.build import Parts
from stage2.kernels import split_attention
from stage2.kernels.decode_attention import DecodeKernels, paged_decode, paged_verify
from stage2.kernels.merge_splits import merge_kernel, merge_splits
from stage2.kernels.split_attention import attend_kernel
from stage2.llm import LLM
from stage2.parts import with_kernels

CPU = torch.device("cpu")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TINY: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 256, "dtype": "float32"}


def copy_of(kernel: Any) -> Any:
    """Another kernel that computes the same."""
    old = kernel.fn
    new = FunctionType(old.__code__, dict(old.__globals__), old.__name__, old.__defaults__)
    new.__annotations__ = old.__annotations__
    return triton.jit(new)


class Counting:
    """A kernel that counts its launches."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.launches = kernel, 0

    def __getitem__(self, grid: Any) -> Any:
        self.launches += 1
        return self.kernel[grid]


def attention_of(parts: Parts) -> Any:
    """The attention that an engine would get."""
    return getattr(parts.attention, "func", parts.attention)


@pytest.mark.parametrize("given", [{}, {"attention_backend": "triton"}])
def test_engine_launches_the_kernels_that_it_is_given(given: dict[str, str]) -> None:
    counting = Counting(attend_kernel), Counting(merge_kernel)
    parts = Parts(attend_kernel=counting[0], merge_kernel=counting[1])
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    with LLM(parts=parts, **TINY, **given) as llm:
        replaced = llm.generate([[5, 9, 3]], params)
    with LLM(**TINY, attention_backend="triton") as llm:
        own = llm.generate([[5, 9, 3]], params)
    assert replaced[0].outputs[0].token_ids == own[0].outputs[0].token_ids
    assert min(kernel.launches for kernel in counting) >= 2  # two decode steps follow the prompt, if none is replayed


@pytest.mark.parametrize("part", ["attend_kernel", "merge_kernel"])
def test_auto_follows_a_replaced_kernel_and_torch_refuses_it(part: str) -> None:
    parts = Parts(**{part: copy_of(attend_kernel)})
    assert with_kernels(Parts(), "auto", CPU) == Parts()
    for backend in ("auto", "triton"):
        assert attention_of(with_kernels(parts, backend, torch.device(DEVICE))).__name__ == "TritonAttention"
    with pytest.raises(ValueError, match=f"the {part.removesuffix('_kernel')} kernel .*--attention-backend triton"):
        with_kernels(parts, "torch", CPU)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"rotate": lambda *args: apply_rope(*args)}, "rotate"), ({"attention": lambda *args: None}, "attention")],
)
def test_a_kernel_and_a_plain_part_in_its_place_are_refused(changes: dict[str, Any], name: str) -> None:
    parts = Parts(**changes)
    assert with_kernels(parts, "triton", torch.device(DEVICE)).attention is parts.attention
    with pytest.raises(ValueError, match=f"so is {name}"):
        with_kernels(dataclasses.replace(parts, attend_kernel=copy_of(attend_kernel)), "auto", torch.device(DEVICE))


def test_a_cpu_without_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_attention, "INTERPRETED", triton.language.constexpr(False))
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        with_kernels(Parts(), "triton", CPU)
    assert with_kernels(Parts(), "torch", CPU).attention is TorchAttention


def test_launchers_take_other_kernels() -> None:
    q, cache = torch.randn(2, 3, 64, device=DEVICE), torch.randn(2, 20, 16, 1, 64, device=DEVICE)
    table, lens = torch.randperm(20, device=DEVICE).view(2, 10), torch.tensor([150, 140], device=DEVICE)
    settings: dict[str, Any] = {"num_splits": 2, "scale": 0.125}
    for launch, more, name in (
        (paged_decode, (), {}),
        (paged_verify, (torch.tensor([0, 1, 2], device=DEVICE),), {"max_query_len": 1}),
    ):
        kernels = DecodeKernels(Counting(attend_kernel), Counting(merge_kernel))
        args = (q, cache[0], cache[1], table, lens, *more)
        got = launch(*args, kernels=kernels, **name, **settings)
        assert torch.equal(got, launch(*args, **name, **settings))
        assert (kernels.attend.launches, kernels.merge.launches) == (1, 1)


def test_merge_takes_another_kernel() -> None:
    partial, lse = torch.randn(1, 2, 2, 4, device=DEVICE), torch.randn(1, 2, 2, device=DEVICE)
    args = (partial, lse, torch.tensor([40], device=DEVICE))
    kernel = Counting(merge_kernel)
    got = merge_splits(*args, torch.zeros(1, 2, 4, device=DEVICE), tile=16, kernel=kernel)
    assert torch.equal(got, merge_splits(*args, torch.zeros(1, 2, 4, device=DEVICE), tile=16))
    assert kernel.launches == 1
