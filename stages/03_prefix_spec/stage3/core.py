"""The engine core with what this stage's users ask of it between two steps.

vLLM: ``v1/engine/core.py`` (``reset_prefix_cache``).
"""

from __future__ import annotations

from collections.abc import Callable

from stage1.core import EngineCore
from stage1.interfaces import Executor, Scheduler
from stage1.records import StepStats


class ResettableCore(EngineCore):
    """``EngineCore`` whose prefix cache can be emptied, and whose statistics tell of drafts."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        on_shutdown: Callable[[], None] = lambda: None,
        reset: Callable[[], bool] = lambda: True,
        fill: Callable[[StepStats], None] = lambda stats: None,
    ) -> None:
        super().__init__(scheduler, executor, on_shutdown)
        self._reset = reset
        self._fill = fill

    def stats(self) -> StepStats:
        """The engine's state after the last step, with the figures of speculation."""
        stats = super().stats()
        self._fill(stats)
        return stats

    def reset_prefix_cache(self) -> bool:
        """Forget what all blocks hold; ``False`` and nothing is forgotten while a request holds one."""
        return self._reset()
