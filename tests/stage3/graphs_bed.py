"""Graphs without a GPU: a replay launches the same views again, in Triton's interpreter, and overwrites what it left.

So everything about them is tried but the recording itself: which graph a step takes, what padding it reads, what is
queued behind it. Whatever a graph got from the host when it was captured would be seen, as it is never asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stage1.config import Settings
from stage1.core import EngineCore
from stage2 import graphs as stage2_graphs
from stage3 import build as wiring
from stage3.spec import graphs as stage3_graphs
from stage3.spec import wiring as spec_wiring
from stage3.spec.kernels import kernels_for


class Imitation:
    """A graph of ``launch``."""

    num_replays = 0

    def __init__(self, launch: Callable[[], Any]) -> None:
        self._launch = launch
        self.left = launch()

    def replay(self) -> None:
        type(self).num_replays += 1
        overwrite(self.left, self._launch())


def overwrite(old: Any, new: Any) -> None:
    """Bring the numbers of ``new`` into the tensors of ``old``."""
    if isinstance(old, torch.Tensor):
        old.copy_(new)
    elif is_dataclass(old):
        for field in fields(old):
            overwrite(getattr(old, field.name), getattr(new, field.name))


def imitate(monkeypatch: pytest.MonkeyPatch, mixed_step: int) -> None:
    """From now on engines of this test capture imitations, and speculate with the kernels of a GPU.

    Args:
        monkeypatch: puts everything back.
        mixed_step: tokens of the smallest graph with prompts; the interpreter takes a second for 64.
    """

    def capture(launch: Callable[[], Any], pool: Any) -> tuple[Imitation, Any]:
        made = Imitation(launch)
        return made, made.left

    monkeypatch.setattr(stage2_graphs, "capture", capture)
    monkeypatch.setattr(stage3_graphs, "capture", capture)
    monkeypatch.setattr(stage2_graphs, "MIXED_STEP", mixed_step)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(spec_wiring, "kernels_for", lambda device: kernels_for(SimpleNamespace(type="cuda")))


def core_with_graphs(**settings: Any) -> EngineCore:
    """An engine whose runner has captured its graphs; kernels run in the interpreter."""
    chosen = {"attention_backend": "triton", "device": "cpu", "dtype": "float32", **settings}
    core: EngineCore = wiring.build(Settings.from_keywords(wiring.CONFIGS, chosen))
    with torch.inference_mode():
        assert core.executor._runner._capture() > 0  # type: ignore[attr-defined]
    return core
