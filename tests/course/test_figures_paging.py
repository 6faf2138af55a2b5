"""Pictures of paging: that they show what the trace says; and the museum's paged manager."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from sixfold.figures.paging import draw_block_table, draw_room, empty_room, most_running, rooms
from sixfold.museum_paging import SuspectPagedKVManager
from stage1.params import SamplingParams
from stage1.trace.events import BlocksFreed, BlocksTaken, RequestAdded, RequestFinished, StepScheduled, TraceStart
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.build import Parts
from stage2.llm import LLM

PROMPTS = [{"prompt_token_ids": [(13 * i + 7 * j) % 250 for j in range(5 + 7 * i)]} for i in range(5)]
PARAMS = [SamplingParams(temperature=0, max_tokens=4 + 11 * i % 31, ignore_eos=True) for i in range(5)]


def made() -> Trace:
    """Two requests in blocks of 4: a fills 6 slots of the blocks 3 and 0, then 7; b has 2 tokens in block 1."""
    return Trace(
        [
            TraceStart(0.0, 0.0, 2, "tiny", block_size=4, num_blocks=5, max_num_seqs=8),
            RequestAdded(0.1, "a", 6),
            RequestAdded(0.1, "b", 2),
            BlocksTaken(0.2, "a", [3, 0]),
            BlocksTaken(0.2, "b", [1]),
            StepScheduled(0.3, 1, {"a": (0, 6), "b": (0, 2)}, num_running=2, num_waiting=0),
            RequestFinished(0.4, "b", "length", 1),
            BlocksFreed(0.4, "b", [1]),
            StepScheduled(0.5, 2, {"a": (6, 1)}, num_running=1, num_waiting=0),
        ]
    )


def words(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_room_is_counted_in_tokens() -> None:
    assert [(room.step, room.held, room.taken) for room in rooms(made())] == [(1, 8, 12), (2, 7, 8)]
    assert empty_room(made()) == pytest.approx(1 - 15 / 20)
    assert most_running(made()) == 2


def test_room_of_two_engines_has_a_panel_each() -> None:
    figure = draw_room({"one": made(), "two": made()})
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["one\n", "two\n"]
    assert words(figure) == ["25% of what is taken is empty · at most 2 run at once"] * 2


def test_table_names_each_block_and_what_lies_in_it() -> None:
    found = words(draw_block_table(made(), 1))
    assert {"a: [0, 4)", "a: [4, 6)", "b: [0, 2)"} <= set(found)
    first_table = found[: found.index("b")]
    assert first_table[first_table.index("a") :][:3] == ["a", "3", "0"]  # in the order of the tokens


def test_table_of_a_block_with_two_owners_names_both() -> None:
    events = made().events
    events.insert(5, BlocksTaken(0.25, "b", [3]))
    assert "a: [0, 4) + b: [4, 4)" in words(draw_block_table(Trace(events), 1))


# --- the museum -------------------------------------------------------------------------------------


def serve(parts: Parts, num_blocks: int) -> tuple[Trace, list[list[int]]]:
    sink = MemorySink()
    settings: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32"}
    with LLM(
        parts=parts, sinks=[sink], device="cpu", block_size=4, num_gpu_blocks_override=num_blocks, **settings
    ) as llm:
        outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    return Trace(sink.events), [list(output.outputs[0].token_ids) for output in outputs]


def test_the_suspect_manager_is_right_until_blocks_run_out() -> None:
    suspect = replace(Parts(), kv_manager=SuspectPagedKVManager)
    _, right = serve(Parts(), 60)
    trace, tokens = serve(suspect, 60)
    assert tokens == right
    assert check_trace(trace) == []
    trace, tokens = serve(suspect, 18)
    assert tokens != right
    assert "which it holds already" in check_trace(trace)[0]
    reference, tokens = serve(Parts(), 18)
    assert tokens == right
    assert check_trace(reference) == []
    assert any(life.preempted for life in reference.requests.values())
