"""Guided requests with drafts: a mask for every position, drafts cut where they leave the grammar, exact steps back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.records import CachedRequests, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.request import Request, Status
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.errors import GrammarError
from stage3.grammar.hook import GrammarHook

grammar_bed = load_file(Path(__file__).with_name("grammar_bed.py"))
EOS, VOCABULARY, masks_of = grammar_bed.EOS, grammar_bed.VOCABULARY, grammar_bed.masks_of


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(VOCABULARY)
    yield made
    made.shutdown()


def guided_request(hook: GrammarHook, asked: dict[str, Any], **params: Any) -> Request:
    core = EngineCoreRequest("a", [1, 2], SamplingParams(structured_outputs=asked, eos_token_ids=[EOS], **params))
    req = Request.from_core_request(core, 64)
    req.first_step = 1
    if not hook.admit(req):
        hook._compiler._pool.submit(lambda: None).result(timeout=60)
        assert hook.released() == ["a"]
    req.status = Status.RUNNING
    return req


def plan_of(hook: GrammarHook, req: Request, drafts: list[int], budget: int = 99) -> list[list[int]]:
    """The masks of a plan that verifies the first ``budget`` of ``drafts``, whichever of the hooks comes first."""
    req.num_computed_tokens = req.num_tokens + min(len(drafts), budget)
    plan = SchedulerOutput(1, [], CachedRequests(), {"a": 1 + len(drafts)}, drafts={"a": drafts[:budget]})
    hook.annotate(plan)
    later = SchedulerOutput(1, [], CachedRequests(), {"a": 1 + len(drafts)})
    req.draft_ids = drafts
    hook.annotate(later)
    req.draft_ids = []
    assert masks_of(later) == masks_of(plan)
    return masks_of(plan)["a"]


@pytest.mark.parametrize(
    "asked", [{"regex": "(ab|ac){2}d?"}, {"grammar": 'start: ("ab"|"ac") ("ab"|"ac") "d"?'}], ids=str
)
def test_every_draft_position_has_its_own_mask(compiler: GrammarCompiler, asked: dict[str, Any]) -> None:
    hook = GrammarHook(compiler)
    req = guided_request(hook, asked)
    everything = list(range(32))
    assert plan_of(hook, req, []) == [[0]]
    assert plan_of(hook, req, [0, 1, 0, 2, 3, EOS]) == [[0], [1, 2], [0], [1, 2], [3, EOS], [EOS], [EOS]]
    assert plan_of(hook, req, [0, 1, 0, 2], budget=2) == [[0], [1, 2], [0]]
    assert plan_of(hook, req, [0, 5, 0]) == [[0], [1, 2], everything, everything]
    assert plan_of(hook, req, [EOS, 0]) == [[0], everything, everything]
    out = ModelRunnerOutput(["a"], [[0, 1, 0]], drafts={"a": [2, 3, EOS, 0], "other": [9]})
    hook.on_result(SchedulerOutput(1, [], CachedRequests(), {"a": 3}), out)
    assert (out.drafts, out.failed) == ({"a": [2, 3, EOS], "other": [9]}, {})
    req.output_ids += [0, 1, 0]
    assert plan_of(hook, req, [2]) == [[1, 2], [3, EOS]]
    out = ModelRunnerOutput(["a"], [[2]], drafts={"a": [1, 3]})
    hook.on_result(SchedulerOutput(2, [], CachedRequests(), {"a": 1}), out)
    assert out.drafts == {"a": []}
    req.output_ids += [2]
    assert plan_of(hook, req, []) == [[3, EOS]]


@pytest.mark.parametrize("accepted", [False, True])
def test_a_draft_into_a_dead_end_is_no_error_unless_it_is_right(compiler: GrammarCompiler, accepted: bool) -> None:
    """Behind "a" the text needs a token that this vocabulary lacks."""
    hook = GrammarHook(compiler)
    req = guided_request(hook, {"choice": ["a\u0436", "bc"]})
    everything = list(range(32))
    assert plan_of(hook, req, [0, 5]) == [[0, 1], everything, everything]
    drawn = [0, 7] if accepted else [1]
    out = ModelRunnerOutput(["a"], [drawn])
    hook.on_result(SchedulerOutput(1, [], CachedRequests(), {"a": 3}), out)
    assert out.failed == ({"a": "no token of this model can follow in the request's grammar"} if accepted else {})
    if not accepted:
        req.output_ids += [1]
        assert plan_of(hook, req, []) == [[2]]


def test_what_is_drawn_behind_an_accepted_end_is_no_error(compiler: GrammarCompiler) -> None:
    hook = GrammarHook(compiler)
    guided_request(hook, {"choice": ["a"]})
    out = ModelRunnerOutput(["a"], [[0, EOS, 4]])
    hook.on_result(SchedulerOutput(1, [], CachedRequests(), {"a": 3}), out)
    assert out.failed == {}


def test_min_tokens_counts_drafts_too(compiler: GrammarCompiler) -> None:
    hook = GrammarHook(compiler)
    req = guided_request(hook, {"regex": "a*"}, min_tokens=2)
    assert plan_of(hook, req, [0, 0]) == [[0], [0], [0, EOS]]


def test_pieces_of_prompts_and_results_of_earlier_requests_are_left_alone(compiler: GrammarCompiler) -> None:
    hook = GrammarHook(compiler)
    req = guided_request(hook, {"choice": ["ab"]})
    req.num_computed_tokens, req.first_step = 1, 5
    plan = SchedulerOutput(4, [], CachedRequests(), {"a": 1})
    hook.annotate(plan)
    assert plan.extras == []
    out = ModelRunnerOutput(["a"], [[9]])
    hook.on_result(plan, out)
    assert out.failed == {}
    hook.on_result(SchedulerOutput(5, [], CachedRequests(), {"a": 1}), ModelRunnerOutput(["a"], [[]]))
    assert plan_of(hook, req, []) == [[0]]


def test_grammar_error_is_a_value_error() -> None:
    assert issubclass(GrammarError, ValueError)  # so that servers answer 400


def test_following_what_was_drawn_may_be_too_much_work(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = GrammarHook(compiler)
    guided_request(hook, {"regex": "[ab]{9}c"})
    monkeypatch.setattr("stage3.grammar.fsm.FUEL", 1)
    out = ModelRunnerOutput(["a"], [[0, 1, 0]], drafts={"a": [1]})
    hook.on_result(SchedulerOutput(1, [], CachedRequests(), {"a": 3}), out)
    assert "more than 1 visits" in out.failed["a"]


def test_of_drawn_drafts_the_first_forbidden_one_is_verified_too(compiler: GrammarCompiler) -> None:
    """It is rejected by its mask; had it been left out because of its value, the distribution would be another."""
    hook = GrammarHook(compiler, drafts_are_drawn=True)
    guided_request(hook, {"regex": "a*b"})
    out = ModelRunnerOutput(["a"], [[0]], drafts={"a": [0, 2, 0]})
    hook.on_result(SchedulerOutput(2, [], CachedRequests(), {"a": 1}), out)
    assert out.drafts == {"a": [0, 2]}
