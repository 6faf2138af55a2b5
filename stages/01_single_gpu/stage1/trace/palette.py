"""The look that all pictures share: colours, text sizes, and how a long name is cut.

Owns nothing but style. The colours are those of Okabe and Ito (2008), which people with any of the common colour
deficiencies can tell apart; where more are needed they come again in lighter tints. Figures are made
without pyplot, so servers, threads and notebooks can draw at the same time.
"""

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

PROMPT = "#0072B2"  # blue: several tokens in one step
SINGLE = "#9BD0EE"  # light blue: one token
WAITING = "#B8B8B8"
LOST = "#D55E00"  # vermilion: preempted
MARK = "#E69F00"  # orange: the first token, medians
INK = "#262626"
PALE = "#6F6F6F"
GRID = "#E4E4E4"

SMALL, NORMAL, TITLE = 8, 9, 11  # points

_OWNERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B5A800", "#7A7A7A")
NUM_OWNER_COLOURS = 3 * len(_OWNERS)

Colour = tuple[float, float, float]


def owner_colour(index: int) -> Colour:
    """The colour of the request that arrived as number ``index``: eight hues, then two lighter rounds of them."""
    hue, rounds = index % len(_OWNERS), index // len(_OWNERS) % 3
    return lighter(_OWNERS[hue], 0.3 * rounds)


def lighter(colour: str | Colour, share: float) -> Colour:
    """``colour`` mixed with ``share`` (0..1) of white."""
    red, green, blue = to_rgb(colour)
    return (red + (1 - red) * share, green + (1 - green) * share, blue + (1 - blue) * share)


def ink_on(colour: str | Colour) -> str:
    """Black or white, whichever reads better on ``colour``."""
    red, green, blue = to_rgb(colour)
    return INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """An empty white figure; inches. ``compressed`` suits axes whose cells must stay square."""
    return Figure(figsize=(width, height), layout=layout, facecolor="white")


def title(ax: Axes, text: str, detail: str) -> None:
    """A bold title over ``ax``, and one line of detail in grey below it."""
    ax.set_title(f"{text}\n", loc="left", fontsize=TITLE, fontweight="bold", color=INK)
    ax.annotate(
        detail, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=NORMAL, color=PALE
    )


def bare(ax: Axes) -> None:
    """Take away the frame, keep a thin line below."""
    for side in ("top", "left", "right"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(PALE)
    ax.tick_params(labelsize=SMALL, color=PALE, labelcolor=INK, length=3)


def short(req_id: str, most: int = 16) -> str:
    """``req_id``, cut in the middle where it is long."""
    if len(req_id) <= most:
        return req_id
    head = (most - 1) // 2
    return f"{req_id[:head]}…{req_id[len(req_id) - (most - 1 - head) :]}"


def count(number: int, noun: str) -> str:
    """``number`` with ``noun`` in the singular or plural: 1 step, 2,000 steps."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
