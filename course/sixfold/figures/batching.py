"""Steps by their size: what a decoding request waits for between two of its tokens.

Owns the layout, and the counts. Reads a trace.

vLLM: none; its log prints tokens a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stage1.trace import palette
from stage1.trace.reader import Step, Trace


def mean_rows(trace: Trace) -> float:
    """Requests in a step, on average."""
    return sum(len(step.tokens) for step in trace.steps.values()) / len(trace.steps)


def longest_wait(trace: Trace, req_id: str) -> int:
    """Tokens of the largest step that gave ``req_id`` a token after its first one."""
    steps = [step for step in trace.steps.values() if req_id in step.sampled]
    return max((step.num_tokens for step in steps[1:]), default=0)


def steps_to_first_token(trace: Trace, req_id: str) -> int:
    """Steps from the one that first computes ``req_id`` to the one that gives its first token, both included."""
    begin = trace.requests[req_id].steps[0]
    return next(step.step for step in trace.steps.values() if req_id in step.sampled) - begin + 1


def draw_step_sizes(traces: Mapping[str, Trace], first: int = 1, last: int | None = None) -> Figure:
    """A panel a trace, a bar a step: its tokens, those of decodes below, those of prompts above."""
    shown = {
        name: [step for step in trace.steps.values() if step.step >= first and (last is None or step.step <= last)]
        for name, trace in traces.items()
    }
    figure = palette.new_figure(9.5, 2.2 + 1.1 * len(traces))
    panels = figure.subplots(len(traces), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for ax, (name, steps) in zip(panels, shown.items(), strict=True):
        numbers = [step.step for step in steps]
        decodes = [_decode_tokens(step) for step in steps]
        prompts = [step.num_tokens - low for step, low in zip(steps, decodes, strict=True)]
        ax.bar(numbers, decodes, width=0.9, color=palette.SINGLE, label="one token of a request")
        ax.bar(numbers, prompts, bottom=decodes, width=0.9, color=palette.PROMPT, label="several (prompt)")
        largest = max(step.num_tokens for step in steps)
        palette.title(ax, name, f"{len(steps)} steps, the largest of {largest} tokens")
        ax.set_ylabel("tokens", fontsize=palette.SMALL, color=palette.INK)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        palette.bare(ax)
    panels[-1].set_xlabel("step", fontsize=palette.NORMAL, color=palette.INK)
    panels[0].legend(fontsize=palette.SMALL, frameon=False, loc="upper right")
    return figure


def _decode_tokens(step: Step) -> int:
    return sum(n for _, n in step.tokens.values() if n == 1)
