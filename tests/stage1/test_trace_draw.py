"""The pictures: what is drawn, read from the artists; not what it looks like."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Rectangle

from stage1.trace import palette
from stage1.trace.draw import draw_blocks, draw_life, draw_steps
from stage1.trace.events import (
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    Event,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
    TraceStart,
)
from stage1.trace.reader import Trace


def batch(num_requests: int, num_outputs: int, num_blocks: int = 8, block_size: int = 100) -> Trace:
    """Static batches of up to 8 requests with 10 prompt tokens each; request i arrives at i ms, a step takes 10 ms."""
    events: list[Event] = [TraceStart(0.0, 0.0, 1, "tiny", block_size, num_blocks, 8)]
    names = [f"request-{i}" for i in range(num_requests)]
    t = 0.0
    for name in names:
        t += 0.001
        events.append(RequestAdded(t, name, 10, num_outputs))
    step = 0
    for first in range(0, num_requests, 8):
        seats = names[first : first + 8]
        events += [BlocksTaken(t, name, [i]) for i, name in enumerate(seats)]
        for output in range(num_outputs):
            step += 1
            span = (0, 10) if output == 0 else (9 + output, 1)
            waiting = max(num_requests - first - 8, 0)
            events.append(StepScheduled(t, step, dict.fromkeys(seats, span), len(seats), waiting))
            t += 0.010
            events.append(TokensSampled(t, step, {name: [output] for name in seats}))
        for i, name in enumerate(seats):
            events += [RequestFinished(t, name, "length", num_outputs), BlocksFreed(t, name, [i])]
    return Trace(events)


def preempted() -> Trace:
    """A runs; B shares a block of A, loses its place in step 3 and gets it back in step 5."""
    return Trace(
        [
            TraceStart(0.0, 0.0, 3, "tiny", 4, 32, 64),
            RequestAdded(0.0, "a", 6, 9),
            RequestAdded(0.5, "b", 7, 9),
            BlocksTaken(1.0, "a", [0, 1]),
            StepScheduled(1.0, 1, {"a": (0, 6)}, 1, 1),
            TokensSampled(2.0, 1, {"a": [1]}),
            BlocksShared(2.0, "b", [0], 4),
            BlocksTaken(2.0, "b", [30]),
            StepScheduled(2.0, 2, {"a": (6, 1), "b": (4, 3)}, 2, 0),
            TokensSampled(3.0, 2, {"a": [1], "b": [2]}),
            BlocksFreed(3.0, "b", [0, 30]),
            RequestPreempted(3.0, 3, "b"),
            StepScheduled(3.0, 3, {"a": (7, 1)}, 1, 1),
            TokensSampled(4.0, 3, {"a": [1]}),
            StepScheduled(4.0, 4, {"a": (8, 1)}, 1, 1),
            TokensSampled(5.0, 4, {"a": [1]}),
            BlocksTaken(5.0, "b", [3, 30]),
            StepScheduled(5.0, 5, {"b": (0, 8)}, 2, 0),
            TokensSampled(6.0, 5, {"b": [3]}),
        ]
    )


def spans(ax: Axes, gid: str) -> list[tuple[float, float]]:
    """(left, right) of every rectangle of the collection named ``gid``."""
    found = [collection for collection in ax.collections if collection.get_gid() == gid]
    return [tuple(path.get_extents().intervalx) for collection in found for path in collection.get_paths()]


def boxes(ax: Axes, gid: str) -> list[Rectangle]:
    return [p for p in ax.patches if isinstance(p, Rectangle) and str(p.get_gid()).startswith(gid)]


def names(legend: Legend | None) -> list[str]:
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def render(figure: Figure) -> None:
    """Everything can be laid out and drawn without a warning."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=30)
    assert out.getvalue().startswith(b"\x89PNG")


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_requests", [1, 9, 64])
def test_a_lane_a_request_and_a_cell_a_step(num_requests: int) -> None:
    trace = batch(num_requests, 4)
    figure = draw_steps(trace)
    render(figure)
    _, lanes = figure.axes
    assert [label.get_text() for label in lanes.get_yticklabels()] == list(trace.requests)
    for i, name in enumerate(trace.requests):
        first = 4 * (i // 8) + 1
        assert spans(lanes, f"several {name}") == [pytest.approx((first - 0.47, first + 0.47))]
        assert len(spans(lanes, f"one {name}")) == 3
    texts = [text.get_text() for text in lanes.texts]
    assert texts.count("10") == num_requests
    assert texts.count("1") == 3 * num_requests
    assert texts.count("length") == num_requests


def test_a_long_run_has_no_numbers_and_its_cells_join() -> None:
    figure = draw_steps(batch(2, 100))
    render(figure)
    _, lanes = figure.axes
    assert spans(lanes, "several request-0") == [(0.5, 1.5)]
    assert spans(lanes, "one request-0") == [(1.5, 100.5)]
    assert [text.get_text() for text in lanes.texts] == ["length", "length"]


def test_waiting_and_preemption_are_lines_up_to_the_next_step() -> None:
    queue, lanes = draw_steps(preempted()).axes
    lines = [c for c in lanes.collections if isinstance(c, LineCollection) and c.get_gid() == "waits b"]
    ends = [tuple(line.get_segments()[0][:, 0]) for line in lines]
    assert ends == [(0.5, 1.5), (2.5, 4.5)]
    assert "waits after a preemption" in names(lanes.figure.legends[0])
    assert "seats (64)" not in names(queue.get_legend())  # far out of sight


def test_queue_depths_are_stacked_and_seats_shown_when_near() -> None:
    queue, _ = draw_steps(batch(9, 2)).axes
    waiting, running = (patch.get_data() for patch in queue.patches)  # type: ignore[attr-defined]
    assert list(running.values) == [8, 8, 1, 1]
    assert list(waiting.values) == [9, 9, 1, 1]
    assert "seats (8)" in names(queue.get_legend())


def test_a_part_of_the_steps_shows_only_who_lives_then() -> None:
    trace = batch(16, 4)
    _, lanes = draw_steps(trace, first=6, last=7).axes
    assert [label.get_text() for label in lanes.get_yticklabels()] == list(trace.requests)[8:]
    assert spans(lanes, "one request-9") == [pytest.approx((5.53, 6.47)), pytest.approx((6.53, 7.47))]
    with pytest.raises(ValueError, match="no step between 50 and None; the trace has 8 steps"):
        draw_steps(trace, first=50)


# --- blocks ---------------------------------------------------------------------------------------


def test_few_blocks_are_bars_as_long_as_a_block() -> None:
    figure = draw_blocks(batch(3, 4), step=2)
    render(figure)
    (ax,) = figure.axes
    assert [box.get_width() for box in boxes(ax, "block")] == [100] * 8
    assert [box.get_width() for box in boxes(ax, "fill")] == [11] * 3
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("free") == 5
    assert "request-1 · 11 of 100 tokens" in texts
    assert any("3 of 8 blocks in use" in text and "33 tokens held, 11.0%" in text for text in texts)


def test_many_blocks_are_a_grid_coloured_by_owner_with_shared_ones_hatched() -> None:
    figure = draw_blocks(preempted(), step=2)
    render(figure)
    (ax,) = figure.axes
    assert len(boxes(ax, "block")) == 32
    fills = {str(box.get_gid()): box for box in boxes(ax, "fill")}
    assert {name: box.get_width() / 0.94 for name, box in fills.items()} == pytest.approx(
        {"fill of block 0": 1.0, "fill of block 1": 0.75, "fill of block 30": 0.75}
    )
    colours = [fills[f"fill of block {block}"].get_facecolor()[:3] for block in (0, 1, 30)]
    assert colours == [palette.owner_colour(0), palette.owner_colour(0), palette.owner_colour(1)]
    assert [box.get_gid() for box in boxes(ax, "shared")] == ["shared block 0"]
    assert names(figure.legends[0]) == ["a (2)", "b (2)", "shared", "free"]
    assert any("3 of 32 blocks in use" in text.get_text() for text in ax.texts)


def test_of_a_huge_cache_only_the_first_blocks_are_drawn_and_the_rest_is_said() -> None:
    figure = draw_blocks(batch(1, 2, num_blocks=100_000, block_size=16), step=1)
    (ax,) = figure.axes
    assert len(boxes(ax, "block")) == 2048
    assert any("blocks [2,048, 100,000) not drawn" in text.get_text() for text in ax.texts)


def test_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no step 9"):
        draw_blocks(batch(1, 2), step=9)


# --- life -----------------------------------------------------------------------------------------


def test_a_life_has_its_phases_arrivals_and_latencies() -> None:
    figure = draw_life(batch(9, 5), "request-8")  # arrives at 9 ms, starts at 59 ms
    render(figure)
    bar, gaps = figure.axes
    phases = {str(box.get_gid()): (box.get_x(), box.get_x() + box.get_width()) for box in bar.patches}  # type: ignore[attr-defined]
    assert phases["waits"] == pytest.approx((0, 50))
    assert phases["prompt"] == pytest.approx((50, 60))
    assert phases["tokens"] == pytest.approx((60, 100))
    (arrivals,) = (c for c in bar.collections if c.get_gid() == "arrivals")
    assert len(arrivals.get_paths()) == 5
    assert any(text.get_text() == "TTFT 60 ms" for text in bar.texts)
    (dots,) = (line for line in gaps.lines if line.get_gid() == "itl")
    assert dots.get_xydata() == pytest.approx(np.array([[70, 10], [80, 10], [90, 10], [100, 10]]))
    assert "milliseconds" in gaps.get_xlabel()


def test_a_preempted_life_shows_the_gap_and_long_ones_count_in_seconds() -> None:
    figure = draw_life(preempted(), "b")
    bar, gaps = figure.axes
    phases = {str(box.get_gid()): (box.get_x(), box.get_width()) for box in bar.patches}  # type: ignore[attr-defined]
    assert phases["preempted"] == pytest.approx((2500, 2000))
    assert any("not ended" in text.get_text() for text in bar.texts)
    long = Trace([TraceStart(0.0, 0.0, 1, "tiny", 4, 4, 4), RequestAdded(0.0, "a", 1), RequestAdded(60.0, "b", 1)])
    _, gaps = draw_life(long, "a").axes
    assert "seconds" in gaps.get_xlabel().split()
    render(draw_life(long, "b"))  # a life of no length


def test_a_request_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no request 'x' in the trace; it has 1 requests: request-0"):
        draw_life(batch(1, 1), "x")


# --- style ----------------------------------------------------------------------------------------


def test_names_numbers_and_colours() -> None:
    assert palette.short("abc") == "abc"
    assert palette.short("chatcmpl-0123456789abcdef") == "chatcmp…89abcdef"
    assert len(palette.short("x" * 99)) == 16
    assert (palette.count(1, "step"), palette.count(2000, "step")) == ("1 step", "2,000 steps")
    colours = [palette.owner_colour(i) for i in range(palette.NUM_OWNER_COLOURS + 1)]
    assert len(set(colours)) == palette.NUM_OWNER_COLOURS
    assert palette.ink_on("#000000") == "white"


def test_pictures_need_no_pyplot_and_the_trace_no_matplotlib() -> None:
    """Neither global figure state in a server, nor matplotlib in an engine."""
    stage = Path(palette.__file__).parents[2]
    code = (
        "import sys; import stage1.trace.tracer, stage1.trace.traced_kv, stage1.trace.reader, stage1.trace.invariants\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import stage1.trace.draw\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=stage, check=True, timeout=120)
