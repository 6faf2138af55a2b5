"""What a step's time goes into, from a profile that was measured on a GPU.

Owns the grouping of kernels by what they do, and the layout. Profiles are read by ``measured``.

vLLM: ``vllm/profiler/layerwise_profile.py`` prints such tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from stage1.trace import palette

# What a kernel does → how the names of such kernels begin, ours and those of the vendor's library.
KINDS: dict[str, tuple[str, ...]] = {
    "matrix products": ("_matvec", "_skinny", "_few_tokens", "nvjet", "cublas", "gemm", "cutlass"),
    "attention": ("attend_kernel", "merge_kernel", "_merge_kernel", "_prefill_kernel"),
    "norms": ("_add_rms_norm",),
    "rotation and store": ("_rope_and_store",),
    "activation": ("_silu_and_mul",),
}
OTHERS, IDLE = "all else", "no kernel runs"
COLOURS = (palette.PROMPT, palette.MARK, "#009E73", "#CC79A7", palette.SINGLE, palette.WAITING, "#F2F2F2")


def by_kind(profile: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds of a step by what its kernels do, in the order of ``KINDS``; all of them together are the step."""
    found = dict.fromkeys(KINDS, 0.0)
    for row in profile["kernels"]:
        for kind, names in KINDS.items():
            if row["kernel"].startswith(names):
                found[kind] += row["us"]
    found[OTHERS] = max(profile["kernels_us"] - sum(found.values()), 0.0)
    found[IDLE] = max(profile["wall_us"] - profile["kernels_us"], 0.0)
    return found


def draw_step_time(profiles: Sequence[tuple[str, Mapping[str, Any]]], where: str) -> Figure:
    """A bar for each profile, as long as 1, in the shares of what its time goes into.

    Args:
        profiles: a name, and the profile of a step.
        where: it was measured.
    """
    figure = palette.new_figure(9.5, 1.2 + 0.5 * len(profiles))
    ax = figure.subplots()
    for place, (_, profile) in enumerate(profiles):
        shares, start = by_kind(profile), 0.0
        total = sum(shares.values())
        for colour, (kind, us) in zip(COLOURS, shares.items(), strict=True):
            width = us / total
            label = kind if place == 0 else None
            ax.barh(place, width, left=start, height=0.72, color=colour, label=label, edgecolor="white", linewidth=0.8)
            if width > 0.05:
                style: dict[str, Any] = {
                    "ha": "center",
                    "va": "center",
                    "fontsize": palette.SMALL,
                    "color": palette.ink_on(colour),
                }
                ax.text(start + width / 2, place, f"{us:,.0f}", **style)
            start += width
        ax.text(1.01, place, f"{total:,.0f} µs", va="center", fontsize=palette.SMALL)
    ax.set_yticks(range(len(profiles)), [name for name, _ in profiles], fontsize=palette.NORMAL)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.1)
    ax.set_xticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    ax.legend(ncols=4, loc="upper left", bbox_to_anchor=(0, -0.02), frameon=False, fontsize=palette.SMALL)
    palette.title(ax, "What a step's time goes into", f"{where}: microseconds, each bar in shares of its step")
    return figure
