"""Pictures in a notebook: a ``Figure`` that a cell ends with is shown as an image.

Owns how a figure becomes bytes. The course makes figures without pyplot, which notebooks would show by their name
alone.

vLLM: none; it belongs to the course.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

from matplotlib.figure import Figure

DOTS_PER_INCH = 100


def register(shell: Any) -> None:
    """Teach a notebook's shell to show figures; also silence a wish for widgets, which the course does without."""
    warnings.filterwarnings("ignore", message="IProgress not found")
    shell.display_formatter.formatters["image/png"].for_type(Figure, to_png)


def to_png(figure: Figure) -> bytes:
    """The picture, cut to what is drawn."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
    return buffer.getvalue()
