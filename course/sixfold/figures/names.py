"""What a picture calls a request.

Owns the short name. Offline, ids are made of the prompt's number, its completion's and a counter: ``0-0-0``.

vLLM: none; it belongs to the course.
"""

from __future__ import annotations

import re

from stage1.trace import palette

_OFFLINE = re.compile(r"(\d+)-0-\d+")


def label(req_id: str) -> str:
    """``req 0`` for an offline id of a single completion, else the id, cut where it is long."""
    found = _OFFLINE.fullmatch(req_id)
    return f"req {found[1]}" if found else palette.short(req_id)
