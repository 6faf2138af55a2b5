"""Pictures of prefix caching: that they show what the trace says; and the museum's names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sixfold.figures.prefix import computed_tokens, draw_sharing, draw_work, hit_rate, work, writers_at
from sixfold.museum_prefix import suspect_hash_block
from stage1.params import SamplingParams
from stage1.trace import palette
from stage1.trace.events import (
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    RequestAdded,
    RequestFinished,
    StepScheduled,
    TraceStart,
)
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage3.build import Parts
from stage3.llm import LLM


def made() -> Trace:
    """Blocks of 4: a computes 10 tokens, one more, and ends; b takes over 8 of them and computes 3; c comes later."""
    return Trace(
        [
            TraceStart(0.0, 0.0, 3, "tiny", block_size=4, num_blocks=10, max_num_seqs=8),
            RequestAdded(0.1, "a", 10),
            BlocksTaken(0.2, "a", [3, 0, 5]),
            StepScheduled(0.3, 1, {"a": (0, 10)}, num_running=1, num_waiting=0),
            StepScheduled(0.4, 2, {"a": (10, 1)}, num_running=1, num_waiting=0),
            RequestAdded(0.5, "b", 11),
            BlocksShared(0.6, "b", [3, 0], 8),
            BlocksTaken(0.6, "b", [7]),
            StepScheduled(0.7, 3, {"a": (11, 1), "b": (8, 3)}, num_running=2, num_waiting=0),
            RequestFinished(0.8, "a", "length", 2),
            BlocksFreed(0.8, "a", [3, 0, 5]),
            RequestAdded(0.9, "c", 3),
            BlocksTaken(1.0, "c", [5]),
            StepScheduled(1.1, 4, {"b": (11, 1), "c": (0, 3)}, num_running=2, num_waiting=0),
        ]
    )


def boxes(figure: Figure, panel: int) -> list[tuple[str, Any, bool]]:
    """Text, colour and frame of every box, in order."""
    ax = figure.axes[panel]
    texts = [text.get_text() for text in ax.texts if text.get_ha() == "center"]
    found = zip(texts, ax.patches, strict=True)
    return [(text, patch.get_facecolor()[:3], patch.get_linewidth() > 1) for text, patch in found]


def test_work_is_what_was_computed_and_what_was_not() -> None:
    assert {req_id: (each.computed, each.reused) for req_id, each in work(made()).items()} == {
        "a": (12, 0), "b": (4, 8), "c": (3, 0)
    }  # fmt: skip
    assert computed_tokens(made()) == 19
    assert hit_rate(made()) == pytest.approx(8 / 24)


def test_writer_is_who_got_a_block_last() -> None:
    assert writers_at(made(), 3) == {3: "a", 0: "a", 5: "a", 7: "b"}
    assert writers_at(made(), 4) == {3: "a", 0: "a", 5: "c", 7: "b"}


def test_work_of_two_engines_has_a_panel_each() -> None:
    figure = draw_work({"one": made(), "two": made()})
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["one\n", "two\n"]
    heights = [patch.get_height() for patch in figure.axes[1].patches]
    assert heights == [12, 4, 3, 0, 8, 0]
    assert figure.axes[0].texts[0].get_text() == "19 tokens computed, 8 reused"


def test_table_has_the_colour_of_the_writer_and_a_frame_around_what_was_taken_over() -> None:
    a, b = palette.owner_colour(0), palette.owner_colour(1)
    rows = boxes(draw_sharing(made(), 3), 0)
    assert rows == [("3", a, False), ("0", a, False), ("5", a, False), ("3", a, True), ("0", a, True), ("7", b, False)]


def test_memory_counts_owners_and_keeps_the_pale_colour_of_what_was_written() -> None:
    trace = made()
    a, c = palette.owner_colour(0), palette.owner_colour(2)
    before = dict(enumerate(boxes(draw_sharing(trace, 3), 1)))
    assert before[3] == ("3 × 2", a, True)
    assert before[5] == ("5", a, False)
    assert before[9] == ("9", pytest.approx(to_rgb("white")), False)
    assert before[7][0] == "7"
    trace.events.insert(-3, StepScheduled(0.85, 9, {"b": (11, 1)}, num_running=1, num_waiting=0))
    after = dict(enumerate(boxes(draw_sharing(Trace(trace.events), 9), 1)))
    assert after[5] == ("5", pytest.approx(palette.lighter(a, 0.75)), False)
    assert dict(enumerate(boxes(draw_sharing(made(), 4), 1)))[5] == ("5", c, False)


# --- the museum -------------------------------------------------------------------------------------

ONE, TWO, OTHER = ([(17 * i + 13 * j + 3) % 240 for j in range(16)] for i in range(3))
FORM = [(31 * j + 7) % 240 for j in range(16)]
LETTERS = {"a": [*ONE, *FORM, 1, 2, 3], "b": [*TWO, *OTHER, 4, 5], "c": [*TWO, *FORM, 1, 2, 3]}


def post(parts: Parts, names: str) -> tuple[Trace, list[int]]:
    sink = MemorySink()
    settings: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32"}
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    with LLM(parts=parts, sinks=[sink], device="cpu", num_gpu_blocks_override=16, **settings) as llm:
        for name in names:
            answer = llm.generate([{"prompt_token_ids": LETTERS[name]}], params, use_tqdm=False)[0]
    return Trace(sink.events), list(answer.outputs[0].token_ids)


def test_the_suspect_name_is_right_alone_and_wrong_behind_two_others() -> None:
    suspect = replace(Parts(), hash_block=suspect_hash_block)
    _, right = post(Parts(), "c")
    for names in ("c", "ac", "bc", "cc"):
        assert post(suspect, names)[1] == right
    trace, tokens = post(suspect, "abc")
    assert tokens != right
    assert check_trace(trace) == []
    assert list(work(trace).values())[-1].reused == 32
    trace, tokens = post(Parts(), "abc")
    assert tokens == right
    assert list(work(trace).values())[-1].reused == 16
