"""Pictures of the notebooks: that each shows what the run did, and that watching changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from sixfold.exercises.variants import sampler_with
from sixfold.figures import inline
from sixfold.figures.batch import draw_flat_batch, draw_mask, draw_padding, padded_share
from sixfold.figures.cache import draw_block_bytes, draw_block_list
from sixfold.figures.engine import draw_components, draw_loop
from sixfold.figures.heads import draw_heads
from sixfold.figures.names import label
from sixfold.figures.observe import AttentionWatch, BatchWatch, Stopwatch
from sixfold.figures.rope import draw_error_by_position, draw_turning_pairs
from sixfold.figures.sampling import draw_filters
from sixfold.figures.waste import draw_waste, empty_share
from sixfold.museum import SuspectKVManager
from stage1.build import Parts
from stage1.kv_cache import kv_cache_bytes
from stage1.llm import LLM
from stage1.model.rope import apply_rope
from stage1.model.shape import PRESETS
from stage1.params import SamplingParams
from stage1.sampler import filter_logits
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink

LIMITS = [6, 2, 3]
PROMPTS = ["one", "to be or", "cat"]


@dataclass
class Run:
    trace: Trace
    tokens: list[list[int]]
    components: Figure


def serve(parts: Parts, seats: int = 2, temperature: float = 0.0) -> Run:
    sink = MemorySink()
    settings: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32"}
    with LLM(parts=parts, sinks=[sink], device="cpu", max_num_seqs=seats, **settings) as engine:
        params = [
            SamplingParams(temperature=temperature, seed=5, top_p=0.8, max_tokens=n, ignore_eos=True) for n in LIMITS
        ]
        outputs = engine.generate(PROMPTS, params, use_tqdm=False)
        components = draw_components(engine.core, {"sampler": "yours"})
    return Run(Trace(sink.events), [list(output.outputs[0].token_ids) for output in outputs], components)


@dataclass
class Watched:
    batches: BatchWatch
    attention: AttentionWatch
    clock: Stopwatch
    run: Run


@pytest.fixture(scope="module")
def watched() -> Watched:
    batches, attention, clock = BatchWatch(), AttentionWatch(), Stopwatch()
    parts = clock.beside(attention.beside(batches.beside(Parts())))
    return Watched(batches, attention, clock, serve(parts))


def texts(figure: Figure) -> str:
    """All words of a picture, with those of its axes' titles and ticks."""
    found = [text.get_text() for text in figure.texts]
    for ax in figure.axes:
        found += [text.get_text() for text in ax.texts]
        found += [ax.get_title(loc="left"), ax.get_title(), *(tick.get_text() for tick in ax.get_yticklabels())]
    return "\n".join(found)


def test_watching_changes_no_token(watched: Watched) -> None:
    assert watched.run.tokens == serve(Parts()).tokens


def test_flat_batch_shows_ids_positions_and_slots(watched: Watched) -> None:
    batch = watched.batches.batches[0]
    words = texts(draw_flat_batch(batch, 64)).split("\n")
    for values in (batch.input_ids, batch.positions, batch.slot_mapping):
        assert {str(value) for value in values.tolist()} <= set(words)
    assert words.count("▲ logits") == 2
    assert "req 1: [4, 13)" in words


def test_mask_fills_one_cell_for_each_key_that_is_seen(watched: Watched) -> None:
    batch = watched.batches.batches[0]
    seen = sum(position + 1 for position in batch.positions.tolist())
    assert len(draw_mask(batch).axes[0].patches) == seen + batch.num_reqs


def test_padding_counts_what_is_computed_for_nothing() -> None:
    assert padded_share([1, 3, 2]) == pytest.approx(1 / 3)
    assert "9 positions are computed, 33% of them for nothing" in texts(draw_padding([1, 3, 2]))


def test_watched_attention_weights_are_weights(watched: Watched) -> None:
    prompt = watched.attention.weights[0]  # [R, heads, Q, S] of layer 0
    assert prompt.shape == (2, 8, 9, 9)
    torch.testing.assert_close(prompt.sum(-1), torch.ones(2, 8, 9))
    assert prompt[1].triu(1).abs().max() == 0
    figure = draw_heads(prompt[1], 2, list("<to be or"))
    assert "head 3 · KV head 0" in texts(figure)
    assert "head 4 · KV head 1" in texts(figure)


def test_shares_of_the_stopwatch_add_up(watched: Watched) -> None:
    shares = watched.clock.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"matrix products", "norms", "activations", "attention, rotation, cache", "sampling"}
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_components_carry_the_names_of_the_objects() -> None:
    class Mine(Parts().sampler):  # type: ignore[name-defined, misc]
        """A learner's sampler."""

    assert "Mine" in texts(serve(replace(Parts(), sampler=Mine)).components)


def test_loop_shows_the_plan_and_the_tokens_of_its_step(watched: Watched) -> None:
    words = texts(draw_loop(watched.run.trace, 2))
    assert "req 0: 1, req 1: 1" in words
    assert f"req 1: [{watched.run.tokens[1][1]}]" in words
    assert "ended: req 1" in words


def test_waste_is_the_share_of_empty_seats(watched: Watched) -> None:
    # 6 steps with two seats, of which request 1 uses two, then three steps of request 2 alone.
    assert empty_share(watched.run.trace) == pytest.approx(1 - 11 / 18)
    assert "39% of the seats stood empty" in texts(draw_waste(watched.run.trace))


def test_block_list_shows_holders_and_free_blocks(watched: Watched) -> None:
    words = texts(draw_block_list(watched.run.trace, [1, 3, 7]))
    assert "free: none   (1 waiting)" in words
    assert "free: 1   (1 waiting)" in words
    assert "req 2" in words


def test_bytes_of_a_block_are_those_of_the_cache() -> None:
    shape = PRESETS["smollm2-135m"]
    assert kv_cache_bytes(shape, 1, 512, torch.float32) == 45 * 1024 * 512
    words = texts(draw_block_bytes(shape, 512, torch.float32))
    assert "22.5 MiB" in words
    assert "45 KiB" in words


def test_turning_pairs_do_not_see_where_a_distance_begins() -> None:
    figure = draw_turning_pairs(PRESETS["tiny"], apply_rope)
    one, two, three = (line.get_ydata() for line in figure.axes[3].lines)
    torch.testing.assert_close(torch.tensor(one), torch.tensor(two), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(torch.tensor(one), torch.tensor(three), rtol=1e-3, atol=1e-2)


def test_filters_say_how_many_tokens_are_left() -> None:
    figure = draw_filters(torch.tensor([1.0, 3.0, 2.0]), filter_logits, [{}, {"top_k": 2}], str)
    assert "no filter\n3 tokens left" in texts(figure)
    assert "top_k = 2\n2 tokens left" in texts(figure)


def test_figure_becomes_a_png() -> None:
    assert inline.to_png(draw_error_by_position(torch.tensor([0.0, 1.0]), "words")).startswith(b"\x89PNG")


@pytest.mark.parametrize(("req_id", "name"), [("3-0-17", "req 3"), ("3-1-17", "3-1-17"), ("a", "a")])
def test_label(req_id: str, name: str) -> None:
    assert label(req_id) == name


def test_a_variant_of_the_sampler_draws_the_engines_tokens() -> None:
    variant = replace(Parts(), sampler=lambda processors: sampler_with(filter_logits)(processors))
    assert serve(variant, temperature=0.9).tokens == serve(Parts(), temperature=0.9).tokens


def test_the_suspect_manager_is_right_alone_and_wrong_in_company() -> None:
    suspect = replace(Parts(), kv_manager=SuspectKVManager)
    right = serve(Parts()).tokens
    alone, together = serve(suspect, seats=1), serve(suspect, seats=2)
    assert alone.tokens == right
    assert together.tokens != right
    assert not check_trace(alone.trace)
    assert "takes block 0 while" in check_trace(together.trace)[0]
