"""The history of the trainings of a folder: one line a run, in ``runs.jsonl``.

Owns the line's format. Each line is one JSON object; a field that is not known is null or left out:

    date        "2026-03-01 14:05 UTC"
    commit      of the code
    note        what was new in this run, in a few words
    tokens      that the target wrote for it
    greedy_share, max_tokens
                of the texts
    seconds     of the whole run
    eagle, medusa
                null where that was not trained; otherwise an object of
        seconds, steps, lr, batch_tokens, hard_share
                            of its training
        sizes               what decides its size: {"unroll": 3}, {"heads": 2, "layers": 5}
        final_loss          of each step ahead, in nats
        walked_length       tokens a step, walked as an engine does (see ``acceptance``)
        walked_shares       of all verifications, those in which the drafts up to each place stayed
        every_position_length
                            tokens a step, averaged over all positions
        engine_length       tokens a step of an engine with them; always by hand, for a run serves nothing

Lines may be added by hand, for runs that were not logged:

    {"date": "2026-03-01", "commit": null, "note": "first", "tokens": 2576821, "eagle": {"every_position_length": 2.19}}

vLLM: none (it does not train).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "runs.jsonl"


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """All runs of ``folder``, the oldest first; none where there is no file.

    Raises:
        ValueError: a line is no run; the message names it.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    runs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            run = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number} is no JSON ({error.msg}): mend or remove it") from None
        if not isinstance(run, dict) or any(not isinstance(run.get(name) or {}, dict) for name in ("eagle", "medusa")):
            raise ValueError(f"{path}, line {number} is no run: it and its eagle and medusa must be JSON objects")
        runs.append(run)
    return runs


def add_run(folder: Path, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Append ``run`` to the file, which is made where it is missing; returns all runs."""
    path = folder / FILE
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    gap = "\n" if before and not before.endswith("\n") else ""  # a line written by hand may lack its end
    with path.open("a", encoding="utf-8") as file:
        file.write(gap + json.dumps(run) + "\n")
    return read_runs(folder)


def run_of_log(log: Mapping[str, Any]) -> dict[str, Any]:
    """The line of the run that ``log`` (train_log.json) describes."""
    recipe = log["recipe"]
    sizes = {
        "eagle": {"unroll": recipe["unroll"]},
        "medusa": {"heads": recipe["medusa_heads"], "layers": recipe["medusa_layers"]},
    }
    return {
        "date": log["date"],
        "commit": log["commit"],
        "note": log["note"],
        "tokens": log["data"]["output_tokens"],
        "greedy_share": recipe["generate"]["greedy_share"],
        "max_tokens": recipe["generate"]["max_tokens"],
        "seconds": log["seconds"]["total"],
        **{name: _method(log["methods"].get(name), sizes[name]) for name in sizes},
    }


def _method(found: Mapping[str, Any] | None, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    if found is None:
        return None
    training, settings, overall = found["training"], found["settings"], found["acceptance"]["overall"]
    return {
        "seconds": round(training["seconds"], 1),
        "steps": training["steps"],
        **{name: settings[name] for name in ("lr", "batch_tokens", "hard_share")},
        "sizes": dict(sizes),
        "final_loss": training["curve"][-1]["loss"] if training["curve"] else None,
        "walked_length": overall["walked"]["acceptance_length"],
        "walked_shares": overall["walked"]["shares"],
        "every_position_length": overall["at_every_position"]["acceptance_length"],
        "engine_length": None,
    }
