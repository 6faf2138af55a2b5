"""The engine core with what this stage's users ask of it between two steps.

vLLM: ``v1/engine/core.py`` (``reset_prefix_cache``).
"""

from __future__ import annotations

from collections.abc import Callable

from stage1.core import EngineCore
from stage1.interfaces import Executor, Scheduler


class ResettableCore(EngineCore):
    """``EngineCore`` whose prefix cache can be emptied."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        on_shutdown: Callable[[], None] = lambda: None,
        reset: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(scheduler, executor, on_shutdown)
        self._reset = reset

    def reset_prefix_cache(self) -> bool:
        """Forget what all blocks hold; ``False`` and nothing is forgotten while a request holds one."""
        return self._reset()
