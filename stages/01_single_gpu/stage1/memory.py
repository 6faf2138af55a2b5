"""Whether something large fits, asked before it is allocated.

Owns what is free on a device, the limits of a container included. Does not know what the memory is for.

vLLM: ``vllm/v1/worker/gpu_worker.py`` (``determine_available_memory``), ``vllm/utils/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

GIB = 1 << 30
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED = 1 << 60  # cgroup v1 says "no limit" with a number near 2^63


SMALLER = "lower --max-model-len or --max-num-seqs, take a smaller --dtype or model, or free memory"


def check_memory(need_bytes: int, what: str, device: torch.device, verb: str = "need", remedy: str = SMALLER) -> None:
    """Refuse what cannot fit; the caller has allocated nothing yet.

    Args:
        need_bytes: what is about to be allocated.
        what: for the message: ``the weights and the KV cache``.
        device: where.
        verb: between ``what`` and the number.
        remedy: what the user can do.

    Raises:
        ValueError: less is available; the message has both numbers and the remedy.
    """
    available = available_memory(device)
    if need_bytes > available:
        raise ValueError(
            f"{what} {verb} {need_bytes / GIB:,.2f} GiB on {device}; {available / GIB:,.2f} GiB are available: {remedy}"
        )


def available_memory(device: torch.device) -> int:
    """Bytes that can be allocated on ``device`` now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch has reserved and not handed out is free for us too.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return min([int(psutil.virtual_memory().available), *cgroup_headroom()])


def cgroup_headroom(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> Iterator[int]:
    """Bytes left under each memory limit that this process lives under: its own group's and those above it.

    ``membership`` has a line ``0::/a/b`` (version 2) or ``4:memory:/a/b`` (version 1). In a container the path may be
    the host's, which is not visible; its own group is the root then.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            names, top = ("memory.max", "memory.current", "inactive_file"), root
        elif "memory" in controllers.split(","):
            names, top = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"), root / "memory"
        else:
            continue
        folder = top / group.lstrip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(top):
                break
            room = _headroom(level, *names)
            if room is not None:
                yield room


def _headroom(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    """Limit less usage; file cache that the kernel drops when asked does not count as used."""
    try:
        limit_text = (folder / limit_name).read_text().strip()
        usage = int((folder / usage_name).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        limit = UNLIMITED if limit_text == "max" else int(limit_text)
        return None if limit >= UNLIMITED else max(0, limit - usage + int(stat.get(cache_name, 0)))
    except (OSError, ValueError):
        return None
