"""Drafters in pictures: what reads what, bars from an engine's counters, and the arithmetic of when drafts pay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from sixfold.figures import drafters
from sixfold.figures.drafters import DRAFT, DRAFTER, INPUTS, OUTPUTS, STATE, Payoff, Place, Scene
from stage1.records import StepStats

NEWEST = (2, INPUTS)  # the token that was just drawn
SCENES = [drafters.draft_model_scene, drafters.medusa_scene, drafters.eagle_scene]
each = pytest.mark.parametrize("make", SCENES, ids=lambda make: make.__name__)


def seen_by(scene: Scene, place: Place) -> set[Place]:
    """All that ``place`` reads, and what that reads; a guess is read where it stands as an input."""
    found: set[Place] = set()
    waiting = [place]
    while waiting:
        reader = waiting.pop()
        for source, target in scene.arrows:
            if target == reader and source not in found:
                found.add(source)
                waiting.append(source)
                if scene.boxes[source][1] == DRAFT:  # an input that was guessed
                    word = scene.boxes[source][0]
                    waiting += [p for p, box in scene.boxes.items() if p[1] == OUTPUTS and box[0] == word]
    return found


def outputs(scene: Scene) -> list[Place]:
    return sorted(place for place in scene.boxes if place[1] == OUTPUTS)


@each
def test_three_guesses_and_every_arrow_joins_two_boxes(make: Callable[[], Scene]) -> None:
    scene = make()
    assert [scene.boxes[place][0] for place in outputs(scene)] == ["mat", "and", "slept"]
    assert all(source in scene.boxes and target in scene.boxes for source, target in scene.arrows)
    for place in outputs(scene):
        assert [scene.boxes[source][1] for source, target in scene.arrows if target == place] == [DRAFTER]


def test_medusas_heads_do_not_see_the_newest_token_nor_each_other() -> None:
    scene = drafters.medusa_scene()
    for place in outputs(scene):
        seen = seen_by(scene, place)
        assert NEWEST not in seen
        assert sum(scene.boxes[p][1] == DRAFTER for p in seen) == 1


@pytest.mark.parametrize("make", [drafters.draft_model_scene, drafters.eagle_scene])
def test_a_chain_sees_the_newest_token_and_every_guess_before(make: Callable[[], Scene]) -> None:
    scene = make()
    for number, place in enumerate(outputs(scene)):
        seen = seen_by(scene, place)
        assert NEWEST in seen
        words = [scene.boxes[p][0] for p in seen if p[1] == INPUTS and scene.boxes[p][1] == DRAFT]
        assert sorted(words) == sorted(["mat", "and"][:number])


def test_only_a_draft_model_does_without_the_targets_states() -> None:
    kinds = [{scene.boxes[p][1] for p in seen_by(scene, outputs(scene)[-1])} for scene in (m() for m in SCENES)]
    assert [STATE in found for found in kinds] == [False, True, True]


def test_a_box_and_an_arrow_for_everything_that_a_scene_names() -> None:
    figure = drafters.draw_drafters()
    assert isinstance(figure, Figure)
    for ax, make in zip(figure.axes, SCENES, strict=True):
        assert sum(isinstance(patch, Rectangle) for patch in ax.patches) == len(make().boxes)
        assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == len(make().arrows)


def test_shares_are_of_the_verifications_between_two_readings() -> None:
    nothing = StepStats()
    before = StepStats(verifications=4, drafts=12, accepted_per_position=[3, 1, 1])
    after = StepStats(verifications=14, drafts=42, accepted_per_position=[8, 3, 1])
    assert drafters.accepted_shares(nothing, before) == [0.75, 0.25, 0.25]
    assert drafters.accepted_shares(before, after) == [0.5, 0.2, 0.0]
    with pytest.raises(ValueError, match="no drafts were verified"):
        drafters.accepted_shares(after, after)


def test_bars_are_as_high_as_the_shares() -> None:
    figure = drafters.draw_acceptance({"A": {"x": [0.5, 0.25], "y": [0.75]}, "B": {"y": [1.0, 0.5]}})
    heights = [[bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle)] for ax in figure.axes]
    assert heights == [[0.5, 0.75, 0.25, 0.0], [1.0, 0.5]]
    assert any("1.75 · 1.75" in text.get_text() for text in figure.axes[0].texts)


def test_drafts_pay_until_the_arithmetic_is_what_takes_the_time() -> None:
    free = Payoff(2.0, 3)
    assert free.speed_up(1, 200) == free.speed_up(50, 200) == 2.0
    assert free.speed_up(100, 200) == 1.0
    assert free.break_even(200) == 100
    assert free.speed_up(400, 200) == 0.5  # half of what is computed is thrown away
    assert Payoff(1.0, 3).break_even(200) == 50


def test_guesses_have_their_price() -> None:
    assert Payoff(4.0, 3, 4.0).speed_up(1, 200) == 0.8  # a model that drafts for itself
    assert Payoff(4.0, 3, 4.0).break_even(200) is None
    assert Payoff(2.0, 3, 0.5).speed_up(1, 200) == 2.0 / 1.5


def test_a_line_for_each_way_of_drafting() -> None:
    figure = drafters.draw_payoffs({"a": Payoff(2.0, 3), "b": Payoff(4.0, 3, 4.0)}, 200)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 512]
    assert [line.get_ydata()[0] for line in lines] == [2.0, 0.8]
