"""Flags that are derived from settings."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.cli import with_dashes
from sixfold.flags import add_settings, given_settings, human_int
from stage1.config import setting


@dataclass(frozen=True)
class ShapeConfig:
    """Shapes."""

    model: str = setting("small", "which")
    max_model_len: int | None = setting(None, "100% of it")
    share: float = setting(0.9, "a share")
    eager: bool = setting(False, "no graphs")
    dtype: Literal["auto", "half"] = setting("auto", "precision")
    seed: int = setting(0, "the engine's")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192),
        ("1k", 1000),
        ("1K", 1024),
        ("2M", 2 * 1024**2),
        ("1.5m", 1_500_000),
        ("-1", -1),
        ("1g", 10**9),
        ("0", 0),
    ],
)
def test_human_int(text: str, value: int) -> None:
    assert human_int(text) == value


@pytest.mark.parametrize("text", ["", "k", "1.5", "1kk", "0x10", "1e3", " 1", "1.0001k", "nan", "١"])
def test_human_int_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        human_int(text)


@given(st.integers(-(10**30), 10**30), st.sampled_from(["", "k", "K", "m", "M", "g", "G", "t", "T"]))
def test_human_int_is_exact(number: int, suffix: str) -> None:
    base = 1024 if suffix.isupper() else 1000
    assert human_int(f"{number}{suffix}") == number * base ** " kmgt".index(suffix.lower() or " ")


def settings_of(*argv: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_settings(parser, (ShapeConfig,))
    return given_settings(parser.parse_args(with_dashes(argv)))


def test_only_given_flags_become_settings() -> None:
    assert settings_of() == {}
    assert settings_of("--max_model_len", "2K", "--share=0.5", "--eager", "--dtype", "half") == {
        "max_model_len": 2048, "share": 0.5, "eager": True, "dtype": "half",
    }  # fmt: skip
    assert settings_of("--no-eager", "--max-model-len", "none") == {"eager": False, "max_model_len": None}


@pytest.mark.parametrize(
    "argv",
    [["--max-model-len", "lots"], ["--share", "nan"], ["--share", "inf"], ["--dtype", "int8"], ["--eager", "yes"]],
)
def test_bad_values_are_usage_errors(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        settings_of(*argv)
    assert argv[-1] in capsys.readouterr().err


def test_underscores_change_in_flags_only() -> None:
    assert with_dashes(["--a_b=c_d", "e_f", "-g_h"]) == ["--a-b=c_d", "e_f", "-g_h"]
