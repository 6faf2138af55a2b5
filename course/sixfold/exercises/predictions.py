"""Predictions, kept until the measurement, and how good they turn out to be.

Owns what is remembered and how a prediction is judged: a number by its ratio to the measurement, a range
``(low, high)`` by whether it holds it, anything else by equality. Once the measurement has been seen, the prediction
stays as it is.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from sixfold.exercises import store

CLOSE = 1.5  # a factor: within it a number was well predicted


def predict(prediction_id: str, value: Any) -> str:
    """Remember a prediction and say so; ``None`` or ``...`` is none."""
    if value is None or value is ...:
        return f"no prediction for {prediction_id} yet: write what you expect, a number, (low, high) or a word"
    kept = store.read_json(_file())
    entry = kept.get(prediction_id, {})
    if "measured" in entry and entry["value"] != _plain(value):
        return f"your prediction for {prediction_id} stays {_said(entry['value'])}: you have seen the measurement"
    kept[prediction_id] = {**entry, "value": _plain(value), "at": entry.get("at", store.now())}
    store.write_json(_file(), kept)
    return f"predicted for {prediction_id}: {_said(_plain(value))}"


def reveal(prediction_id: str, measured: Any, unit: str = "") -> str:
    """Keep the measurement, and say how the prediction compares."""
    kept = store.read_json(_file())
    entry = kept.get(prediction_id)
    unit = f" {unit}" if unit else ""
    if entry is None:
        return f"measured for {prediction_id}: {_said(_plain(measured))}{unit} (you had predicted nothing)"
    entry["measured"] = _plain(measured)
    store.write_json(_file(), kept)
    verdict = judge(entry["value"], entry["measured"])
    said = f"predicted {_said(entry['value'])}{unit}, measured {_said(entry['measured'])}{unit}"
    return f"{prediction_id}: {said}: {verdict}"


def judge(value: Any, measured: Any) -> str:
    """How a prediction compares with its measurement, in words."""
    if isinstance(value, list) and len(value) == 2 and _is_number(measured):
        low, high = value
        if low <= measured <= high:
            return "inside your range"
        return f"{'above' if measured > high else 'below'} your range"
    if _is_number(value) and _is_number(measured):
        if value == measured:
            return "exactly right"
        if value * measured <= 0:
            return f"off by {_said(abs(measured - value))}"
        ratio = measured / value
        return (
            f"{_said(ratio)} times your number" if ratio > 1 else f"your number was {_said(1 / ratio)} times too large"
        )
    return "right" if value == measured else "not what you expected"


def summary() -> str:
    """How well calibrated the learner is so far; empty before the first measurement."""
    entries = [
        e for e in store.read_json(_file()).values() if isinstance(e, dict) and {"value", "measured"} <= e.keys()
    ]
    if not entries:
        return ""
    pairs = [(entry["value"], entry["measured"]) for entry in entries]
    ratios = [m / v for v, m in pairs if _is_number(v) and _is_number(m) and v * m > 0]
    ranges = [v[0] <= m <= v[1] for v, m in pairs if isinstance(v, list) and len(v) == 2 and _is_number(m)]
    others = [v == m for v, m in pairs if not _is_number(v) and not isinstance(v, list)]
    lines = [f"predictions: {len(entries)} measured"]
    if ratios:
        close = sum(1 / CLOSE <= ratio <= CLOSE for ratio in ratios)
        middle = statistics.median(ratios)
        lean = "" if 0.9 <= middle <= 1.1 else f"; you tend to guess too {'low' if middle > 1 else 'high'}"
        lines.append(f"  {close} of {len(ratios)} numbers within a factor of {CLOSE}{lean}")
    if ranges:
        lines.append(f"  {sum(ranges)} of {len(ranges)} ranges held the measurement")
    if others:
        lines.append(f"  {sum(others)} of {len(others)} choices right")
    return "\n".join(lines)


def _file() -> Path:
    return store.work_folder() / "predictions.json"


def _plain(value: Any) -> Any:
    """As JSON keeps it: numbers of torch and numpy become Python's, tuples lists, infinities words."""
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (int, float, str, bool)) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _said(value: Any) -> str:
    if isinstance(value, list) and len(value) == 2:
        return f"{_said(value[0])} to {_said(value[1])}"
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if _is_number(value) else str(value)
