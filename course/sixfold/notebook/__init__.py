"""The course inside a notebook: ``%load_ext sixfold.notebook``.

Brings the cell magic ``%%exercise ID`` and the functions below into the notebook's names.
"""

from __future__ import annotations

from typing import Any

from sixfold.notebook.api import (
    answer,
    banner,
    check,
    hint,
    llm,
    predict,
    progress,
    quiz,
    reset,
    reveal,
    show,
    solution,
)

__all__ = [
    "answer",
    "banner",
    "check",
    "hint",
    "llm",
    "load_ipython_extension",
    "predict",
    "progress",
    "quiz",
    "reset",
    "reveal",
    "show",
    "solution",
]


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext`` calls."""
    from sixfold.figures import inline
    from sixfold.notebook.magic import register

    register(shell)
    inline.register(shell)
    functions = (answer, banner, check, hint, llm, predict, progress, quiz, reset, reveal, show, solution)
    shell.push({function.__name__: function for function in functions})
