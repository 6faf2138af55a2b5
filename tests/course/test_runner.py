"""A check of a learner's file: whatever the file does, the answer helps and nothing is left running."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sixfold.errors import UsageError
from sixfold.exercises import runner, store
from sixfold.exercises.catalog import find
from sixfold.exercises.outcome import Outcome, next_step, shortened
from sixfold.exercises.stub import make_solution, make_stub

ROPE = find("1.2")
HEAD = "import torch\ndef apply_rope(x, cos, sin):\n"


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the learner's files."""
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., Outcome]:
    """A function that checks a text in a child process."""

    def check(text: str, time_limit: float = 30.0) -> Outcome:
        path = tmp_path / "mine.py"
        path.write_text(text, encoding="utf-8")
        return runner.check(ROPE, path, time_limit)

    return check


# --- what is remembered ---------------------------------------------------------------------------------


def test_pass_is_remembered_for_this_content_only() -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    outcome = runner.check("1.2")
    assert (outcome.status, outcome.num_cases, outcome.case, outcome.advice_id) == ("pass", 5, None, None)
    assert "✓ 1.2 passes all 5 cases (yours, " in str(outcome)
    record = store.record_of(ROPE)
    assert record.passed == [store.digest(ROPE, path)]
    assert (record.attempts, record.status) == (1, "pass")

    path.write_text(make_stub(ROPE), encoding="utf-8")
    assert store.digest(ROPE, path) not in record.passed
    assert runner.check("1.2").status == "not attempted"
    record = store.record_of(ROPE)
    assert (record.attempts, record.status, len(record.passed)) == (1, "not attempted", 1)


def test_another_file_changes_nothing_that_is_remembered(checked: Callable[..., Outcome], work: Path) -> None:
    assert checked(make_stub(ROPE)).status == "not attempted"
    assert not work.exists()


def test_no_file_yet() -> None:
    outcome = runner.check("1.2")
    assert outcome.status == "not attempted"
    assert "there is no work/ex_1_2.py yet" in outcome.message
    assert "sixfold reset 1.2" in outcome.message


def test_unknown_id_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no exercise '1\.22'; did you mean: 1\.2 \(Turn the pairs"):
        runner.check("1.22")


# --- the child process ----------------------------------------------------------------------------------


def test_failure_says_everything_in_order_and_never_the_solution(checked: Callable[..., Outcome]) -> None:
    wrong = (ROPE.folder / "wrong_neighbours.py").read_text(encoding="utf-8")
    outcome = checked(wrong)
    assert (outcome.status, outcome.case, outcome.advice_id) == ("fail", "two pairs", "rope-pairs-are-neighbours")
    parts = [
        "fails in case 2 of 5",
        "expected: numbers 0 and 2",
        "input:",
        "x = a tensor float32 [1, 1, 4]",
        "difference: result[0, 0, 0] is ",
        "perhaps: A pair is two neighbours",
        'next: hint("1.2", 1)',
    ]
    places = [outcome.message.index(part) for part in parts]
    assert places == sorted(places)
    assert not [line for line in make_solution(ROPE).splitlines()[-3:] if line.strip() in outcome.message]


@pytest.mark.parametrize(
    "body",
    [
        "    print('here', flush=True)\n    while True: pass\n",
        # a loop in compiled code, which no signal handler of Python's interrupts
        "    import re\n    print('here')\n    re.match('(a+)+$', 'a' * 64 + 'b')\n",
    ],
)
def test_endless_loop_is_ended(checked: Callable[..., Outcome], body: str) -> None:
    start = time.monotonic()
    outcome = checked(HEAD + body, time_limit=1.0)
    assert time.monotonic() - start < 60
    assert (outcome.status, outcome.case) == ("error", "one pair")
    assert "no answer after 1 s: is there a loop that never ends?" in outcome.message
    assert "your code printed:\n    here" in outcome.message


def test_endless_import_is_ended(checked: Callable[..., Outcome]) -> None:
    outcome = checked("while True: pass", time_limit=0.5)
    assert outcome.status == "error"
    assert "(while the file was imported)" in outcome.message


def test_loop_that_only_later_cases_reach_still_fails_with_its_first_difference(
    checked: Callable[..., Outcome],
) -> None:
    outcome = checked(HEAD + "    while x.shape[0] > 1: pass\n    return x\n", time_limit=1.0)
    assert (outcome.status, outcome.case) == ("fail", "one pair")
    assert "difference:" in outcome.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    import os; os._exit(3)\n", "your code ended the process (exit code 3)"),
        ("    import os; os.kill(os.getpid(), 11)\n", "your code ended the process (signal SIGSEGV)"),
        ("    return [bytes(2**30) for _ in range(100)]\n", "MemoryError"),
    ],
)
def test_code_that_breaks_its_process(checked: Callable[..., Outcome], body: str, message: str) -> None:
    outcome = checked(HEAD + body)
    assert (outcome.status, outcome.case) == ("error", "one pair")
    assert message in outcome.message


def test_what_the_code_started_is_ended_too(checked: Callable[..., Outcome], tmp_path: Path) -> None:
    note = tmp_path / "pid"
    start = (
        "    import subprocess, sys\n"
        "    p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"    open({str(note)!r}, 'w').write(str(p.pid))\n"
    )
    assert checked(HEAD + start + "    return x\n").status == "fail"
    pid = int(note.read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the grandchild is still running"
        time.sleep(0.02)


def test_flood_of_output_is_shortened(checked: Callable[..., Outcome]) -> None:
    outcome = checked(HEAD + "    for i in range(200_000): print(i)\n    return x\n")
    assert outcome.status == "fail"
    assert outcome.output.startswith("0\n1\n2\n")
    assert outcome.output.endswith("(shortened)")
    assert len(outcome.output) < 3_000


# --- words ------------------------------------------------------------------------------------------------


def test_all_hints_open_leads_to_the_solution() -> None:
    assert next_step("1.2", "fail", 0, True) == 'all hints are open; solution("1.2") shows the engine\'s own version'
    assert next_step("1.2", "error", 3, True).startswith('hint("1.2", 3)')
    assert "engine" in next_step("1.2", "pass", 1, True)
    assert "engine" not in next_step("1.2", "pass", 1, False)


def test_shortened() -> None:
    assert shortened("a\nb\n") == "a\nb"
    assert shortened("ab", 1) == "a\n… (shortened)"
    assert shortened("\n".join("x" * 50)).count("\n") == 20


def test_nothing_of_torch_is_needed_to_ask_for_a_check() -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}; from sixfold.exercises import lesson, progress, runner\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
