"""What goes wrong in a learner's code is said in their own lines, and what is right is not refused.

The code here does no harm, so it is examined in this process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold.exercises import child
from sixfold.exercises.catalog import find
from sixfold.exercises.importer import load_file
from sixfold.exercises.outcome import Finding
from sixfold.exercises.signatures import misfit
from sixfold.exercises.stub import make_solution, make_stub

ROPE = find("1.2")
HEAD = "import torch\ndef apply_rope(x, cos, sin):\n"


@pytest.fixture
def examined(tmp_path: Path) -> Callable[[str], Finding]:
    """A function that examines a text in this process: for code that does no harm."""
    check = load_file(ROPE.folder / "check.py")

    def examine(text: str) -> Finding:
        path = tmp_path / "mine.py"
        path.write_text(text, encoding="utf-8")
        return child.examine(ROPE, check, path, lambda **_: None)

    return examine


@pytest.mark.parametrize(
    ("text", "headline", "where"),
    [
        ("def apply_rope(x cos, sin):\n    pass\n", "SyntaxError: invalid", "line 1\n    def apply_rope(x cos, "),
        (HEAD + "    y = x +\n", "SyntaxError: invalid syntax", "line 3\n    y = x +\n           ^"),
        ("if True:\nx = 1\n", "IndentationError: ", "line 2\n    x = 1"),
        ("import no_such_thing\n", "ModuleNotFoundError: No module named", "line 1\n    import no_such_thing"),
        (HEAD + "    return x @ cos[0, 0]\n", "RuntimeError: both", ", line 3, in apply_rope\n    return x @"),
        (HEAD + "    raise SystemExit(0)\n", "SystemExit: 0", "line 3, in apply_rope"),
        (HEAD + "    return apply_rope(x, cos, sin)\n", "RecursionError", "line 3, in apply_rope"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt", "line 1"),
        ("\x00", "SyntaxError", ""),
        (b"# \xff\n".decode("latin-1"), "the file does not define `apply_rope`", ""),
    ],
)  # fmt: skip
def test_errors_show_the_learners_own_lines(
    examined: Callable[[str], Finding], text: str, headline: str, where: str
) -> None:
    finding = examined(text)
    assert finding.status == "error"
    assert headline in finding.headline
    assert where in finding.where
    assert "site-packages" not in finding.where


def test_long_way_through_the_file_is_shortened(examined: Callable[[str], Finding]) -> None:
    finding = examined("def down(n):\n    return down(n - 1) if n else 1 / 0\n" + HEAD + "    return down(9)\n")
    assert "… 7 earlier lines" in finding.where
    assert finding.where.count("in down") == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def apply_rop(x, cos, sin): return x\n", "does not define `apply_rope`"),
        ("apply_rope = 3\n", "`apply_rope` is of type int, where the engine needs a function"),
        ("def apply_rope(x, cos): return x\n", "calls `apply_rope(x, cos, sin)`, but yours is `apply_rope(x, cos)`"),
        ("def apply_rope(x, c, s): return x\n", "but yours is `apply_rope(x, c, s)`"),
        ("def apply_rope(x, cos, sin, scale): return x\n", "keep the first line as the stub has it"),
    ],
)  # fmt: skip
def test_changed_signature_names_the_right_one(examined: Callable[[str], Finding], text: str, message: str) -> None:
    finding = examined(text)
    assert finding.status == "error"
    assert message in finding.headline


def test_more_parameters_with_defaults_are_fine(examined: Callable[[str], Finding]) -> None:
    solution = make_solution(ROPE).replace("sin: torch.Tensor)", "sin: torch.Tensor, scale: float = 1.0)")
    assert examined(solution).status == "pass"
    anything = "from stage1.model.rope import apply_rope as own\napply_rope = lambda *a, **k: own(*a, **k)\n"
    assert examined(anything).status == "pass"


def test_methods_may_be_static_or_not_but_must_be_there(tmp_path: Path) -> None:
    exercise = find("1.3")
    own = importlib.import_module(exercise.module)
    path = tmp_path / "mine.py"
    text = make_solution(exercise)

    def problem(*change: str) -> str | None:
        path.write_text(text.replace(*change) if change else "def TorchAttention(*a): ...\n", encoding="utf-8")
        return misfit(exercise, own, load_file(path))

    assert problem("    @staticmethod\n    def grouped(", "    def grouped(self, ") is None
    assert problem("def _mask(", "def _other_name(") is None
    assert problem("rotate: Rotate = apply_rope", "rotate: Rotate = apply_rope, more: int = 3") is None
    assert "has no `refresh`" in str(problem("def refresh", "def refrsh"))
    assert "`TorchAttention.attend(layer, qkv, batch)`" in str(
        problem("def attend(self, layer", "def attend(self, lay")
    )
    assert "`TorchAttention.__init__(kv_cache, cos, sin, rotate=" in str(problem("self, kv_cache: KVCache", "self"))
    assert "where the engine needs a class" in str(problem())


@pytest.mark.parametrize(
    ("body", "difference"),
    [
        ("    x * 2\n", "result is None, not a tensor"),
        ("    return x[0]\n", "has the shape [1, 2], not [1, 1, 2]"),
        ("    return x.double()\n", "has the dtype torch.float64"),
        ("    return 'x'\n", "of type str"),
    ],
)
def test_wrong_kind_of_result(examined: Callable[[str], Finding], body: str, difference: str) -> None:
    finding = examined(HEAD + body)
    assert finding.status == "fail"
    assert difference in finding.difference


def test_code_that_writes_into_its_inputs_does_not_spoil_what_is_shown(examined: Callable[[str], Finding]) -> None:
    finding = examined(HEAD + "    x.zero_(); cos.zero_(); sin.zero_()\n    return x\n")
    assert "x = a tensor float32 [1, 1, 2] = [[[3, 1]]]" in finding.inputs
    assert finding.difference == "result[0, 0, 0] is 0, not -1 (2 of 2 numbers differ)"


def test_which_blank_is_left_is_said(examined: Callable[[str], Finding]) -> None:
    finding = examined(make_stub(ROPE))
    assert finding.status == "not attempted"
    assert "`apply_rope` in " in finding.headline


def test_the_same_inputs_each_time(examined: Callable[[str], Finding]) -> None:
    wrong = (ROPE.folder / "wrong_neighbours.py").read_text(encoding="utf-8")
    assert examined(wrong) == examined(wrong)
