"""Memory is asked for before it is taken, and a container's limit counts."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from stage1.memory import GIB, available_memory, cgroup_headroom, check_memory

CPU = torch.device("cpu")


def test_what_fits_passes_and_what_does_not_is_refused_with_both_numbers() -> None:
    check_memory(1 << 20, "the weights", CPU)
    with pytest.raises(ValueError, match=r"the weights need 1,048,576\.00 GiB on cpu; [\d.,]+ GiB .*--max-model-len"):
        check_memory(GIB << 20, "the weights", CPU)


def test_available_is_at_most_what_the_system_has() -> None:
    assert 0 < available_memory(CPU) <= psutil.virtual_memory().total


def group(folder: Path, version: int, limit: str, usage: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    prefix = "" if version == 2 else "total_"
    (folder / "memory.stat").write_text(f"anon 1\n{prefix}inactive_file {cache}\n")


def headroom(tmp_path: Path, line: str) -> list[int]:
    (tmp_path / "membership").write_text(f"9:cpu,cpuacct:/x\n{line}\n")
    return list(cgroup_headroom(tmp_path / "cgroup", tmp_path / "membership"))


def test_version_2_counts_every_level_and_gives_cache_back(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root / "a" / "b", 2, "max", 500)
    group(root / "a", 2, "1000", 700, cache=100)
    assert headroom(tmp_path, "0::/a/b") == [400]


def test_version_1_knows_no_limit_by_its_size(tmp_path: Path) -> None:
    memory = tmp_path / "cgroup" / "memory"
    group(memory / "job", 1, "9223372036854771712", 5)
    group(memory, 1, "2000", 2500)
    assert headroom(tmp_path, "4:memory:/job") == [0]


def test_in_a_container_the_root_is_its_own_group(tmp_path: Path) -> None:
    group(tmp_path / "cgroup", 2, "4096", 96)
    assert headroom(tmp_path, "0::/not/visible/here") == [4000]


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert list(cgroup_headroom(tmp_path / "none", tmp_path / "none")) == []
    assert headroom(tmp_path, "0::/a") == []
