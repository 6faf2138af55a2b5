"""The pictures of a trace: ``from stage1.trace.draw import draw_steps, draw_blocks, draw_life``.

Owns the list of them; each has its own module. Nothing in the engine imports these: matplotlib is loaded only by who
wants a picture. Each function returns a ``matplotlib.figure.Figure``, which a notebook shows and
``figure.savefig(path)`` writes.
"""

from __future__ import annotations

from stage1.trace.draw_blocks import draw_blocks
from stage1.trace.draw_life import draw_life
from stage1.trace.draw_steps import draw_steps

__all__ = ["draw_blocks", "draw_life", "draw_steps"]
