"""Guided requests in the scheduler: parked, masked, followed, ended; free requests never notice."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage1.request import Request
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.hook import GrammarHook
from stage3.grammar.matcher import Grammar
from stage3.grammar.structured_outputs import Constraint
from stage3.grammar.vocabulary import Vocabulary

grammar_bed = load_file(Path(__file__).with_name("grammar_bed.py"))
bed, EOS, VOCABULARY = grammar_bed.bed, grammar_bed.EOS, grammar_bed.VOCABULARY
World, masks_of, text = grammar_bed.World, grammar_bed.masks_of, grammar_bed.text


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(VOCABULARY)
    yield made
    made.shutdown()


@pytest.fixture
def world(compiler: GrammarCompiler) -> World:
    return World(compiler)


# --- the whole way ------------------------------------------------------------------------------------

ASKED: list[tuple[dict[str, Any], str]] = [
    ({"choice": ["abc", "abd", "b"]}, "abc|abd|b"),
    ({"regex": "[a-d]{2,5}(x|v)?"}, "[a-d]{2,5}(x|v)?"),
    ({"regex": "a*b"}, "a*b"),
    ({"grammar": 'start: "a" start "b" | "c"'}, "a*cb*"),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=7),
    st.integers(6, 14),
    st.integers(3, 9),
)
def test_guided_and_free_requests_through_chunks_and_preemptions(
    wanted: list[tuple[int, int, int]], num_blocks: int, budget: int
) -> None:
    compiler = GrammarCompiler(VOCABULARY)
    world = World(compiler, num_blocks=num_blocks, block_size=3, seats=3, budget=budget, max_len=18)
    prompts = {}
    for i, (kind, length, max_tokens) in enumerate(wanted):
        prompts[f"{i}"] = tuple((i * 5 + j * 3) % 23 for j in range(length))
        world.add(f"{i}", None if kind < 0 else ASKED[kind][0], prompts[f"{i}"], max_tokens=max_tokens)
    world.run()
    compiler.shutdown()
    for i, (kind, length, max_tokens) in enumerate(wanted):
        ids, reason = world.bed.received[f"{i}"], world.bed.reasons[f"{i}"]
        if kind < 0:
            params = SamplingParams(max_tokens=max_tokens, eos_token_ids=[EOS], seed=0)
            if length + max_tokens <= 18:
                assert ids == bed.expected_output(list(prompts[f"{i}"]), params)
            continue
        assert reason in ("stop", "length")
        whole = re.fullmatch(ASKED[kind][1], text(ids)) is not None
        assert whole or reason == "length"
        assert (ids[-1] == EOS) == (reason == "stop")


def test_chosen_text_then_the_end(world: World) -> None:
    for name, params in (("plain", {}), ("ignoring", {"ignore_eos": True}), ("short", {"max_tokens": 2})):
        world.add(name, {"choice": ["fabcd"]}, **{"max_tokens": 20, **params})
    world.run()
    assert world.bed.reasons == {"plain": "stop", "ignoring": "stop", "short": "length"}
    assert [world.received(name) for name in ("plain", "ignoring", "short")] == ["fabcd", "fabcd", "fa"]
    assert world.bed.received["ignoring"][-1] == EOS


def test_min_tokens_cannot_force_text_behind_the_end_and_is_kept_before_it(world: World) -> None:
    world.add("fixed", {"choice": ["ab"]}, min_tokens=8, max_tokens=9)
    world.add("open", {"regex": "a{0,9}"}, min_tokens=6, max_tokens=12)
    world.run()
    assert world.bed.reasons == {"fixed": "stop", "open": "stop"}
    assert world.bed.received["fixed"] == [0, 1, EOS]
    assert 6 <= len(world.received("open")) <= 9


def test_stop_tokens_are_masked_until_the_grammar_may_end(world: World) -> None:
    world.add("a", {"regex": "[a-c]{3}c?"}, stop_token_ids=[2, 9, 1000], max_tokens=9)
    world.compile_all()
    masks = [masks_of(world.bed.step())["a"][0] for _ in range(4)]
    assert masks == [[0, 1]] * 3 + [[2, EOS, 9]]  # 2 is c, and ends
    world.run()
    assert world.bed.reasons == {"a": "stop"}


# --- parked -----------------------------------------------------------------------------------------


class HeldCompiler(GrammarCompiler):
    """Compiles nothing before it is told to."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.go = threading.Event()

    def compile(self, constraint: Constraint) -> Grammar:
        assert self.go.wait(timeout=60)
        return super().compile(constraint)


class NotWalked(dict[str, Request]):
    """Counts who goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def keys(self) -> Any:
        self.walks += 1
        return super().keys()

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def values(self) -> Any:
        self.walks += 1
        return super().values()


@pytest.fixture
def held() -> Iterator[HeldCompiler]:
    made = HeldCompiler(VOCABULARY)
    yield made
    made.go.set()
    made.shutdown()


def test_ten_thousand_parked_requests_change_nothing(held: HeldCompiler) -> None:
    crowded, empty = World(held, max_len=40), World(held, max_len=40)
    for i in range(10_000):
        crowded.add(f"parked{i}", {"choice": ["a"]}, max_tokens=3)
    parked = crowded.hook._parked = NotWalked(crowded.hook._parked)
    for world in (crowded, empty):
        world.add("free", max_tokens=30, ignore_eos=True)
        for _ in range(31):
            world.bed.step()
    assert crowded.bed.received["free"] == empty.bed.received["free"]
    assert len(crowded.bed.received["free"]) == 30
    for one, other in zip(crowded.bed.plans, empty.bed.plans, strict=False):
        assert one.num_scheduled == other.num_scheduled
    assert not any(plan.extras for plan in crowded.bed.plans)
    assert (parked.walks, len(parked)) == (0, 10_000)
    assert crowded.hook.num_parked == 10_000
    crowded.bed.scheduler.abort([f"parked{i}" for i in range(1, 10_000)])
    held.go.set()
    crowded.run()
    assert crowded.received("parked0") == "a"


def test_whoever_leaves_while_parked_is_forgotten_and_its_id_is_free(held: HeldCompiler) -> None:
    world = World(held)
    world.add("a", {"choice": ["aa"]}, max_tokens=9)
    assert not world.bed.step().num_scheduled
    world.bed.scheduler.abort(["a"])
    world.add("a", {"choice": ["bb"]}, max_tokens=9)
    held.go.set()
    world.run()
    assert world.received("a") == "bb"


def test_nothing_is_compiled_for_those_who_left(held: HeldCompiler) -> None:
    world = World(held)
    world.add("first", {"choice": ["a"]}, max_tokens=3)  # is being compiled
    for i in range(4):
        world.add(f"early{i}", {"choice": [f"{'ab' * (i + 1)}"]}, max_tokens=3)
    for name in ("twin", "other"):
        world.add(name, {"choice": ["bb"]}, max_tokens=3)
    world.bed.scheduler.abort([*(f"early{i}" for i in range(4)), "twin"])
    assert len(held) == 2, "the first, and what the other twin waits for"
    held.go.set()
    world.run()
    assert (world.received("first"), world.received("other")) == ("a", "bb")
    assert not world.hook._waiting
    world.add("early0", {"choice": ["ab"]}, max_tokens=3)
    world.run()
    assert world.received("early0") == "ab"


def test_a_grammar_that_is_known_already_is_not_waited_for(world: World) -> None:
    world.add("a", {"choice": ["ab"]}, max_tokens=9)
    world.run()
    world.add("b", {"choice": ["ab"]}, max_tokens=9)
    assert world.hook.num_parked == 0
    assert list(world.bed.step().num_scheduled) == ["b"]
    world.run()
    assert world.received("b") == "ab"


# --- what goes wrong ----------------------------------------------------------------------------------


class FailingCompiler(GrammarCompiler):
    """Fails in ways that a compiler must not."""

    def compile(self, constraint: Constraint) -> Grammar:
        if constraint.kind == "regex":
            raise MemoryError("planted")
        return super().compile(constraint)


def test_a_grammar_that_cannot_be_compiled_ends_its_request_alone() -> None:
    compiler = FailingCompiler(VOCABULARY)
    world = World(compiler)
    world.add("free", max_tokens=9, ignore_eos=True)
    world.add("crashes", {"regex": "a"}, max_tokens=3)
    world.add("invalid", {"regex": "a", "choice": []}, max_tokens=3)
    world.add("foreign", {"choice": ["é"]}, max_tokens=3)
    world.add("fine", {"choice": ["ab"]}, max_tokens=3)
    world.run()
    compiler.shutdown()
    assert {name: reason for name, reason in world.bed.reasons.items() if reason == "error"}.keys() == {
        "crashes", "invalid", "foreign"
    }  # fmt: skip
    assert world.bed.errors["crashes"] == "the request's grammar cannot be compiled: planted"
    assert "choice and regex are given" in world.bed.errors["invalid"]
    assert "no token of this model" in world.bed.errors["foreign"]
    assert (len(world.bed.received["free"]), world.received("fine")) == (9, "ab")


def test_the_last_request_that_is_refused_is_told(world: World) -> None:
    world.add("a", {"choice": ["é"]}, max_tokens=3)
    world.compile_all()
    world.bed.step()
    assert world.bed.reasons == {"a": "error"}
    assert not world.bed.scheduler.has_work


def test_a_token_that_the_grammar_refuses_ends_the_request_in_the_same_step(world: World) -> None:
    world.add("a", {"choice": ["ab"]}, max_tokens=9)
    world.add("b", {"choice": ["ab"]}, max_tokens=9)
    world.compile_all()
    plan = world.bed.scheduler.schedule()
    out = ModelRunnerOutput(["a", "b"], [[5], [0]])
    outputs = world.bed.scheduler.update(plan, out)
    assert outputs.finish_reason == {"a": "error"}
    assert "token 5 was drawn" in outputs.error["a"]
    assert outputs.new_ids[outputs.req_ids.index("b")] == [0]


def test_a_place_where_nothing_can_follow_or_following_is_too_much_ends_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("stuck", {"regex": "aé"}, max_tokens=9)
    world.add("fine", {"regex": "ab"}, max_tokens=9)
    world.run()
    assert world.bed.reasons == {"stuck": "error", "fine": "stop"}
    assert "no token of this model can follow" in world.bed.errors["stuck"]
    world.add("heavy", {"regex": "[ab]{9}c"}, max_tokens=12)
    world.compile_all()
    monkeypatch.setattr("stage3.grammar.fsm.FUEL", 1)
    world.run()
    assert world.bed.reasons["heavy"] == "error"
    assert "more than 1 visits" in world.bed.errors["heavy"]


def test_without_a_way_to_end_requests_the_hook_says_so(compiler: GrammarCompiler) -> None:
    hook = GrammarHook(compiler)
    request = EngineCoreRequest("a", [1], SamplingParams(structured_outputs={"choice": []}))
    assert not hook.admit(Request.from_core_request(request, 9))
    with pytest.raises(RuntimeError, match="set its doom"):
        hook.released()
