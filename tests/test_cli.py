"""The command line: prompts, streams, errors and exit codes, over a scripted stage."""

from __future__ import annotations

import importlib.machinery
import io
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from sixfold.cli import main
from sixfold.commands.generate import summary
from sixfold.printing import Printer
from stage1.config import Settings, setting
from stage1.params import SamplingParams


@dataclass(frozen=True)
class ShapeConfig:
    """Shapes."""

    model: str = setting("small", "which")
    max_model_len: int | None = setting(None, "100% of it")
    share: float = setting(0.9, "a share")
    eager: bool = setting(False, "no graphs")
    dtype: Literal["auto", "half"] = setting("auto", "precision")
    seed: int = setting(0, "the engine's")
    extra_config: str | None = setting(None, "more of it", json=True)


@dataclass
class Completion:
    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None
    error: str | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class Output:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[Completion]


@dataclass
class Script:
    """What the scripted stage was asked, and what it is to do."""

    settings: dict[str, Any] = field(default_factory=dict)
    prompts: list[Any] = field(default_factory=list)
    params: Any = None
    error: BaseException | None = None
    fails: bool = False
    shut_down: bool = False
    served: Settings | None = None


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A stage 6 that repeats each prompt's words, all requests together, a word a step."""
    told = Script()

    class LLM:
        def __init__(self, **settings: Any) -> None:
            told.settings = settings
            if told.error is not None:
                raise told.error

        def __enter__(self) -> LLM:
            return self

        def __exit__(self, *_: object) -> None:
            told.shut_down = True

        def render_chat(self, messages: list[dict[str, str]]) -> dict[str, Any]:
            text = messages[0]["content"]
            return {"prompt": f"<user>{text}", "prompt_token_ids": [ord(letter) for letter in text]}

        def stream(self, prompts: list[Any], params: Any) -> Iterator[Output]:
            told.prompts, told.params = prompts, params
            texts = [prompt if isinstance(prompt, str) else prompt["prompt"] for prompt in prompts]
            for step in range(1, 4):
                for i in reversed(range(len(texts))):  # later prompts are ahead
                    end = ("error" if told.fails else "stop") if step == 3 else None
                    done = [
                        Completion(j, f"{texts[i]}{j}" * step, [7] * step, end, "no memory") for j in range(params.n)
                    ]
                    yield Output(f"r{i}", texts[i], [ord(c) for c in texts[i].removeprefix("<user>")], done)

    stage = types.ModuleType("stage6")
    stage.__spec__ = importlib.machinery.ModuleSpec("stage6", None, is_package=True)
    stage.__path__ = []
    build = types.ModuleType("stage6.build")
    for name, value in {"LLM": LLM, "SamplingParams": SamplingParams, "build": build}.items():
        setattr(stage, name, value)
    stage.serve = lambda settings: setattr(told, "served", settings)  # type: ignore[attr-defined]
    build.CONFIGS = (ShapeConfig,)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stage6", stage)
    build.__spec__ = importlib.machinery.ModuleSpec("stage6.build", None)
    monkeypatch.setitem(sys.modules, "stage6.build", build)
    return told


# --- generate -----------------------------------------------------------------------------------------


def test_one_prompt_prints_text_only_on_stdout(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "ab ", "--max-model-len=1k", "--seed", "5", "--stop", "x", "--stop", "y"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "ab 0ab 0ab 0\n"
    assert "3 prompt tokens · 3 output tokens · first token after" in shown.err
    assert script.settings == {"max_model_len": 1000}
    assert script.shut_down
    assert script.params == SamplingParams(temperature=0.0, max_tokens=64, seed=5, stop=["x", "y"])


def test_several_prompts_come_one_after_the_other(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "a", "b", "--temperature", "1", "a"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "--- 1 of 3: a\na0a0a0\n--- 2 of 3: b\nb0b0b0\n--- 3 of 3: a\na0a0a0\n"
    assert "3 prompt tokens · 9 output tokens" in shown.err
    assert script.prompts == ["a", "b", "a"]


def test_n_texts_are_labelled(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "a", "--n", "2", "--temperature", "0.5"]) == 0
    assert capsys.readouterr().out == "--- 1 of 2: a (1 of 2)\na0a0a0\n--- 2 of 2: a (2 of 2)\na1a1a1\n"


def test_chat_goes_through_the_template(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--chat", "a", "b"]) == 0
    assert script.prompts[1] == {"prompt": "<user>b", "prompt_token_ids": [98]}
    assert capsys.readouterr().out.startswith("--- 1 of 2: a\n<user>a0")


def test_stdin_is_a_prompt(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    assert main(["generate", "-"]) == 0
    assert script.prompts == ["two\nlines"]


def test_text_after_dashes_is_a_prompt(script: Script) -> None:
    assert main(["generate", "--max-tokens", "3", "--", "--stop_it"]) == 0
    assert script.prompts == ["--stop_it"]


def test_failed_request_is_reported(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.fails = True
    assert main(["generate", "a"]) == 1
    assert "a request failed: no memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no prompt"),
        (["-", "-"], "- can be given once"),
        (["a", "--temperature", "-1"], "temperature"),
        (["a", "--n", "2"], "n "),
        (["a", "--stage", "9"], "there is no stage 9 here; present: 1"),
        (["a", "--stage", "x"], "--stage"),
    ],
)
def test_usage_errors(script: Script, capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert main(["generate", *argv]) == 2
    assert message in capsys.readouterr().err
    assert script.prompts == []


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("too long: shorten it"), 1, "sixfold generate: too long: shorten it\n"),
        (KeyError("k"), 1, "KeyError: 'k' (--debug shows where)"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line(
    script: Script, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    script.error = error
    assert main(["generate", "a"]) == code
    err = capsys.readouterr().err
    assert text in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2  # the loading line, and the error
    if code == 1:
        assert main(["generate", "a", "--debug"]) == 1
        assert "Traceback" in capsys.readouterr().err


def test_summary_without_a_token() -> None:
    assert summary(3, 0, None, 1.0) == "[3 prompt tokens · 0 output tokens]"
    assert (
        summary(1234, 50, 0.25, 2.0)
        == "[1,234 prompt tokens · 50 output tokens · first token after 250 ms · 25.0 tokens/s]"
    )


def test_terminal_never_gets_control_characters() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for out, expected in ((Terminal(), "a\n\t�[2J�é"), (io.StringIO(), "a\n\t\x1b[2J\x9bé")):
        printer = Printer(["p"], 1, out)
        printer.show(Output("r", "p", [1], [Completion(0, "a\n\t\x1b[2J\x9bé", [1])]))
        assert out.getvalue() == expected


def test_a_json_setting_is_given_key_by_key(script: Script) -> None:
    argv = ["a", "--extra_config.top.kind", "x", "b", "--extra-config.most=4", "--", "--extra-config.not=a flag"]
    assert main(["generate", *argv]) == 0
    assert script.settings == {"extra_config": '{"top": {"kind": "x"}, "most": 4}'}
    assert script.prompts == ["a", "b", "--extra-config.not=a flag"]


@pytest.mark.parametrize("command", ["generate", "serve"])
@pytest.mark.parametrize("argv", [["--share.most=4"], ["--nothing.most", "4"], ["--nothing.most=4 and more"]])
def test_keys_of_what_takes_no_json_are_refused_by_name(
    script: Script, capsys: pytest.CaptureFixture[str], command: str, argv: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, *argv])
    assert f"unrecognized arguments: {argv[0].partition('=')[0]} " in capsys.readouterr().err
    assert script.served is None
    assert script.prompts == []


def test_keys_beside_what_is_no_object_are_a_usage_error(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--extra-config", "[4]", "--extra-config.most", "4"]) == 2
    assert capsys.readouterr().err.startswith("sixfold serve: --extra-config is '[4]', no JSON object, so --extra-")
    assert script.served is None


# --- serve -------------------------------------------------------------------------------------------


def test_serve_passes_settings(script: Script) -> None:
    assert main(["serve", "big", "--model", "big", "--port", "8123", "--no-eager"]) == 0
    assert script.served is not None
    assert script.served[ShapeConfig] == ShapeConfig(model="big")
    from stage1.server.config import ServerConfig

    assert script.served[ServerConfig].port == 8123


def test_serve_refuses_two_models(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "a", "--model", "b"]) == 2
    assert "two models" in capsys.readouterr().err


# --- the frame ----------------------------------------------------------------------------------------


def test_overview_and_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in ("doctor", "generate", "serve", "model"))
    with pytest.raises(SystemExit, match="2"):
        main(["bogus"])


ROOT = Path(__file__).parents[1]
RUN = "import sys; sys.path[:0] = {path!r}; from sixfold.cli import main; code = main({argv!r}); "


def run_cli(argv: list[str], then: str = "sys.exit(code)") -> subprocess.CompletedProcess[str]:
    path = [str(ROOT / "stages/01_single_gpu"), str(ROOT / "course")]
    command = [sys.executable, "-c", RUN.format(path=path, argv=argv) + then]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_help_is_quick_because_torch_stays_out() -> None:
    loaded = run_cli([], "sys.exit('torch' in sys.modules or 'rich' in sys.modules)")
    assert loaded.returncode == 0, loaded.stderr
