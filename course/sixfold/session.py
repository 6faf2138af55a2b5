"""The first and the last cell of every notebook: ``start`` and ``finish``.

Owns the profile (which machine, which model), the seeds, and the look at what a notebook leaves behind. Does not know
exercises: the extension ``sixfold.notebook`` does.

vLLM: none.
"""

from __future__ import annotations

import gc
import os
import platform
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from sixfold.interpreter import interpret_kernels
from sixfold.stages import available
from stage1.config import DeviceConfig, ModelConfig
from stage1.model.embedded import find_gguf
from stage1.model.source import resolve_device, resolve_dtype

PROFILES = {
    "ci": "the tiny preset with random weights, on the CPU: exact and quick",
    "laptop": "the embedded model, on whatever device is there",
    "gpu": "the embedded model on a CUDA GPU, in bfloat16",
}
TINY = {"model": "tiny", "load_format": "dummy", "dtype": "float32", "device": "cpu", "max_num_seqs": 4,
        "max_model_len": 256}  # fmt: skip
SEED = 0
MIN_FREE_BYTES = 1 << 30
GPU_SLACK_BYTES = 64 << 20  # what cuBLAS and friends keep for themselves
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Profile:
    """What this notebook runs on. ``engine`` and ``tiny`` are keywords for ``LLM``."""

    name: str  # ci, laptop or gpu
    device: str
    dtype: str  # float32, bfloat16
    engine: Mapping[str, Any]
    tiny: Mapping[str, Any] = field(default_factory=lambda: dict(TINY))


@dataclass(frozen=True)
class Surroundings:
    """What this process holds that could be left behind."""

    children: frozenset[int]
    ports: frozenset[int]
    shared_memory: frozenset[str]
    gpu_bytes: int


# The stage and the surroundings at the start: one notebook in one process, so the latest entry counts.
_started: list[tuple[int, Surroundings]] = []


def start(notebook: str, *, stage: int, minutes: int, minutes_gpu: int) -> Profile:
    """Choose the profile, seed what draws, print what this notebook runs on.

    Args:
        notebook: its id, ``01a``.
        stage: the stage whose engine it uses.
        minutes, minutes_gpu: how long its core path takes, with a CPU or a GPU.

    Raises:
        RuntimeError: the machine does not fit; the message says how to mend it.
    """
    profile = choose_profile(os.environ.get("SIXFOLD_PROFILE", "laptop"))
    if stage not in available():
        raise RuntimeError(f"stage {stage} cannot be imported: run `make lab` in the repository, and open it there")
    free = psutil.virtual_memory().available
    if free < MIN_FREE_BYTES:
        raise RuntimeError(f"{free / 2**30:.1f} GiB of memory are free and 1 GiB is needed: close other programs")
    if profile.device == "cpu":
        interpret_kernels()
    random.seed(SEED)
    torch.manual_seed(SEED)
    if profile.name == "ci":
        torch.set_num_threads(1)  # tiny tensors gain nothing from a second core, and suffer when it is busy
    _started.append((stage, surroundings()))

    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    time = minutes_gpu if profile.device != "cpu" else minutes
    print(f"notebook {notebook} · stage {stage} · about {time} minutes")
    print(f"profile  {profile.name}: {PROFILES[profile.name]}")
    print(f"model    {profile.engine['model']} · {profile.dtype} · {_device_name(profile.device)}")
    print(f"versions Python {platform.python_version()}, {versions} · seed {SEED}, threads {torch.get_num_threads()}")
    return profile


def finish() -> None:
    """Show the progress, see that nothing is left, and say how to serve with the learner's code.

    Raises:
        AssertionError: a process, a port, shared memory or GPU memory is left; the message says what.
    """
    from sixfold.notebook import progress

    if not _started:
        raise RuntimeError("the set-up cell has not run: run the notebook from its top")
    stage, before = _started[-1]
    progress()
    if left := leftovers(before, surroundings()):
        raise AssertionError("left behind: " + "; ".join(left) + ". Close engines and servers (`with` does it).")
    print("\nnothing is left behind: no process, no port, no shared memory")
    print(f"your code answers requests with: sixfold serve --stage {stage} --mine")


def choose_profile(name: str) -> Profile:
    """The profile called ``name``.

    Raises:
        RuntimeError: there is no such profile, or no GPU for it.
    """
    if name not in PROFILES:
        raise RuntimeError(f"SIXFOLD_PROFILE is {name}; there are {', '.join(PROFILES)}: set one of them, or none")
    if name == "gpu" and not torch.cuda.is_available():
        raise RuntimeError("SIXFOLD_PROFILE is gpu, but torch sees no CUDA GPU: unset it, or run `sixfold doctor`")
    if name == "ci":
        return Profile(name, "cpu", "float32", dict(TINY))
    try:
        find_gguf()
    except (ValueError, OSError) as error:
        raise RuntimeError(f"{error} (or set SIXFOLD_PROFILE=ci for random weights)") from None
    device = resolve_device(DeviceConfig())
    dtype = str(resolve_dtype(ModelConfig(), device)).removeprefix("torch.")
    engine = {"model": ModelConfig().model, "device": str(device), "max_num_seqs": 4, "max_model_len": 512}
    return Profile(name, str(device), dtype, engine)


def surroundings() -> Surroundings:
    """What this process holds now. Python's own resource tracker does not count: it ends with the process."""
    gc.collect()
    me = psutil.Process()
    children = frozenset(child.pid for child in me.children(recursive=True) if _counts(child))
    listening = (c.laddr.port for c in me.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN)
    return Surroundings(children, frozenset(listening), _shared_memory(), _gpu_bytes())


def leftovers(before: Surroundings, after: Surroundings) -> list[str]:
    """What ``after`` holds that ``before`` did not, in words; empty when nothing is left."""
    left = [f"process {pid}" for pid in sorted(after.children - before.children)]
    left += [f"port {port}" for port in sorted(after.ports - before.ports)]
    left += [f"shared memory {name}" for name in sorted(after.shared_memory - before.shared_memory)]
    grown = after.gpu_bytes - before.gpu_bytes
    return left + ([f"{grown / 2**20:,.0f} MiB of GPU memory"] if grown > GPU_SLACK_BYTES else [])


def _counts(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        return False


def _shared_memory() -> frozenset[str]:
    """Segments that this process maps. Others' come and go, so the folder's list alone would say nothing."""
    maps = Path("/proc/self/maps")
    if not maps.exists():  # macOS has no such list
        return frozenset()
    paths = (line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines())
    return frozenset(path for path in paths if path.startswith(f"{SHARED_MEMORY}/"))


def _gpu_bytes() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU, {os.cpu_count()} cores"
