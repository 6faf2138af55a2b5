"""Pictures of grammars: that they show what the automaton and the masks say; and the museum's mask processor."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from sixfold.figures.grammar import draw_machine, draw_masks, graph_of, token_label
from sixfold.museum_grammar import SuspectMaskProcessor, suspect_processors
from stage1.batch import ForwardBatch
from stage1.logits_processors import default_processors
from stage1.params import SamplingParams
from stage3.build import Parts
from stage3.grammar.fsm import Machine
from stage3.grammar.nfa import Nfa
from stage3.grammar.regex_parse import parse
from stage3.llm import LLM


def machine(pattern: str) -> Machine:
    return Machine(Nfa.of_pattern(parse(pattern)))


def words(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_graph_has_every_state_edge_and_end() -> None:
    graph = graph_of(machine("(ab)*c"))
    assert graph.depths == [0, 1, 1]
    assert graph.edges == {(0, 1): "a", (0, 2): "c", (1, 0): "b"}
    assert graph.ends == {2}


def test_edges_name_ranges_and_say_when_there_are_others() -> None:
    assert graph_of(machine("[0-9a-cx]")).edges == {(0, 1): "0-9 a-c x"}
    assert graph_of(machine("[ é]")).edges == {(0, 1): "␣ …"}
    assert graph_of(machine("🦙")).edges == {(0, 1): "…"}


def test_every_path_of_the_graph_is_walked_by_the_machine() -> None:
    pattern = "-?[0-9]+(\\.[0-9]{2})?"
    graph = graph_of(machine(pattern))
    texts = {0: ""}
    for (source, target), label in sorted(graph.edges.items()):
        texts.setdefault(target, texts[source] + label[0])
    for state, text in texts.items():
        assert (re.fullmatch(pattern, text) is not None) == (state in graph.ends), text


def test_large_automata_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 12 states, too many for a picture: take a shorter one"):
        graph_of(machine("a{40}"))


def test_machine_is_drawn_with_its_labels() -> None:
    figure = draw_machine(machine("yes|no"), "two words")
    assert figure.axes[0].get_title(loc="left") == "two words\n"
    assert {"y", "e", "s", "n", "o", "0", "1"} <= set(words(figure))


def test_masks_are_cells_and_what_was_drawn_has_a_frame() -> None:
    rows = {"": np.array([True, False, True]), "a": np.array([False, False, False])}
    figure = draw_masks([b"a", b"", b"\xc3"], rows, chosen={"": 0})
    ax = figure.axes[0]
    assert len(ax.patches) == 6 + 1
    assert "tokens allowed, row by row: 2 of 3 · 0 of 3" in words(figure)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "∅", "C3"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["at the start", "behind “a”"]


def test_tokens_are_labelled_by_text_or_bytes() -> None:
    assert [token_label(token) for token in (b"", b" a", b"\n", b"\xf0\x9f", "é".encode())] == [
        "∅", "␣a", "⏎", "F0 9F", "é",
    ]  # fmt: skip


# --- the museum -------------------------------------------------------------------------------------

RULES = ["[0-9]{4}", "[a-z]{4}", "(x|y){4}"]
SHORT = [{"prompt_token_ids": [5 + i, 6, 7]} for i in range(3)]
Processors = Callable[[int, torch.device], Sequence[Any]]


def serve(processors: Processors, neighbour: list[int]) -> tuple[list[int], list[str], list[str | None]]:
    """The neighbour's tokens, and the guided requests' texts and errors. They are ready when the neighbour comes."""
    free = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    params = [
        SamplingParams(temperature=1.0, seed=i, max_tokens=8, structured_outputs={"regex": rule})
        for i, rule in enumerate(RULES)
    ]
    settings: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 128, "dtype": "float32"}
    parts = replace(Parts(), processors=processors)
    with LLM(parts=parts, device="cpu", long_prefill_token_threshold=16, **settings) as llm:
        llm.generate(SHORT, params, use_tqdm=False)
        prompts = [{"prompt_token_ids": neighbour}, *SHORT]
        first, *outputs = [o.outputs[0] for o in llm.generate(prompts, [free, *params], use_tqdm=False)]
    return list(first.token_ids), [o.text for o in outputs], [o.error for o in outputs]


class Mended(SuspectMaskProcessor):
    def places(self, batch: ForwardBatch) -> dict[str, int]:
        return {state.req_id: row for row, state in enumerate(batch.states)}


def mended(vocab_size: int, device: torch.device) -> tuple[Any, ...]:
    return (*default_processors(vocab_size, device), Mended(device))


def test_the_suspect_processor_is_right_until_a_prompt_comes_in_pieces() -> None:
    short, long = list(range(9)), [(11 * j) % 200 for j in range(60)]
    right = serve(Parts().processors, short)
    assert serve(suspect_processors, short) == right
    assert all(re.fullmatch(rule, text) for rule, text in zip(RULES, right[1], strict=True))
    neighbour, _, errors = serve(suspect_processors, long)
    assert all("which the request's grammar does not allow" in str(error) for error in errors)
    assert neighbour == serve(Parts().processors, long)[0]


def test_the_mended_processor_is_right() -> None:
    long = [(11 * j) % 200 for j in range(60)]
    assert serve(mended, long) == serve(Parts().processors, long)
