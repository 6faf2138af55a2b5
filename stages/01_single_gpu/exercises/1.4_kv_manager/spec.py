"""What each call must answer, from a plain count of owners: which block it is does not matter."""

from __future__ import annotations

from typing import Any

Call = tuple[Any, ...]  # ("allocate", req_id, upto) or ("free", req_id)


def answers(num_blocks: int, block_size: int, calls: list[Call]) -> list[str]:
    """One line a call: what it returns, and how many blocks are in use afterwards."""
    owners: set[str] = set()
    lines = []
    for name, req_id, *upto in calls:
        if name == "free":
            owners.discard(req_id)
            answer = "done"
        elif upto[0] > block_size:
            answer = "ValueError"
        elif req_id in owners:
            answer = "nothing new"
        elif len(owners) == num_blocks:
            answer = "None"
        else:
            owners.add(req_id)
            answer = "1 new block"
        lines.append(f"{answer}, {len(owners)} of {num_blocks} in use")
    return lines
