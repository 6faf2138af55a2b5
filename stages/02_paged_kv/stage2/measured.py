"""The engine that this stage's scripts measure: random weights, 256 seats, room for long prompts.

Owns its sizes, which later stages take for theirs. What it is given to do is ``stage1.workloads``, the clock
``stage1.measuring``.

vLLM: none; its benchmarks take every setting from the command line.
"""

from __future__ import annotations

from typing import Any

from stage1 import workloads
from stage1.core import EngineCore
from stage2 import build as wiring

MAX_LEN = 4608
BUDGET = 8192  # tokens of a step


def make_core(shape: str, **settings: Any) -> EngineCore:
    """This stage's engine for a model's ``shape``; ``settings`` are added, or replace what is chosen here."""
    chosen = {"max_model_len": MAX_LEN, "max_num_batched_tokens": BUDGET, **settings}
    return workloads.make_core(wiring, shape, **chosen)
