"""The checks of ``SamplingParams`` that need nothing but the parameters (written in full by the sampling part)."""

from __future__ import annotations

from typing import Any

MIN_TEMPERATURE = 0.01  # a smaller positive one is lifted to it: dividing by 1e-30 overflows


def check_params(params: Any) -> None:
    """Raise ``ValueError`` for the first value that is out of range."""
