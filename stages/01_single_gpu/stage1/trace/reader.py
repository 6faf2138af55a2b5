"""Reading a trace: from a file, a list of events or a live feed's rows to views of steps, requests and blocks.

Owns the index over the events. Does not judge them (``invariants``) and draws nothing (``draw``). Kinds that it does
not know, from a later stage, are kept as dictionaries in ``Trace.other``.

vLLM: ``v1/metrics/stats.py`` derives the same times of a request, as it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from stage1.trace.events import (
    KINDS,
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    Event,
    EventsLost,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
    TraceStart,
)


class TraceError(ValueError):
    """A file or list that is no trace; the message names the line and what is wrong with it."""


@dataclass(slots=True)
class Step:
    """One step: its plan and, once that is there, its result."""

    step: int
    t: float  # seconds, when the plan was made
    tokens: dict[str, tuple[int, int]]  # req_id → (start, n): it computes [start, start + n)
    num_running: int
    num_waiting: int
    t_done: float | None = None  # seconds, when the result was read; None = never
    sampled: dict[str, list[int]] = field(default_factory=dict)  # req_id → token ids

    @property
    def num_tokens(self) -> int:
        """Tokens of the flattened batch."""
        return sum(n for _, n in self.tokens.values())


@dataclass(slots=True)
class RequestLife:
    """One request from its arrival to its end; times in seconds, ``None`` = it did not happen."""

    req_id: str
    added: float
    num_prompt_tokens: int
    max_tokens: int | None
    priority: int
    steps: list[int] = field(default_factory=list)  # that computed tokens of it
    first_scheduled: float | None = None
    token_ids: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)  # one a token; the tokens of a step share theirs
    preempted: list[float] = field(default_factory=list)
    finished: float | None = None
    reason: str | None = None

    @property
    def first_token(self) -> float | None:
        """When the first token came."""
        return self.token_times[0] if self.token_times else None

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from arrival."""
        return None if self.first_token is None else self.first_token - self.added

    @property
    def arrivals(self) -> list[float]:
        """When tokens came, one entry a step."""
        return sorted(set(self.token_times))

    @property
    def itl(self) -> list[float]:
        """Inter-token latencies: seconds between one arrival and the next."""
        times = self.arrivals
        return [later - earlier for earlier, later in pairwise(times)]


class Trace:
    """The events of one engine, indexed.

    Attributes:
        start: which engine it was.
        events: every known event, in order, ``start`` first.
        other: events of unknown kinds, in order.
        steps: by step number, in order.
        requests: by request id, in order of arrival; of an id used again, the last life.
        end: seconds, the time of the last event.
        truncated: whether the file's last line was cut off.
        num_lost: events that a live feed had dropped before they were read.
    """

    def __init__(self, events: Sequence[Event], other: Sequence[dict[str, Any]] = (), truncated: bool = False) -> None:
        if not events or not isinstance(events[0], TraceStart):
            raise TraceError("not a trace: its first event must be a trace_start")
        self.start: TraceStart = events[0]
        self.events = list(events)
        self.other = list(other)
        self.truncated = truncated
        self.end = max(event.t for event in events)
        self.num_lost = sum(event.num_events for event in events if isinstance(event, EventsLost))
        self.steps: dict[int, Step] = {}
        self.requests: dict[str, RequestLife] = {}
        for event in events:
            self._index(event)

    @classmethod
    def from_dicts(cls, rows: Iterable[dict[str, Any]], where: str = "row", truncated: bool = False) -> Trace:
        """From plain dictionaries, as ``LiveFeed.snapshot`` returns them; ``where`` names a row in errors.

        Raises:
            TraceError: a row of a known kind lacks a field or has one of the wrong type.
        """
        events = [_to_event(row, f"{where} {number}") for number, row in enumerate(rows, 1)]
        return cls(
            [event for event in events if isinstance(event, Event)],
            [event for event in events if not isinstance(event, Event)],
            truncated,
        )

    def holdings_at(self, step: int) -> dict[str, list[int]]:
        """The blocks of each request while ``step`` computes, in the order of its tokens.

        Raises:
            ValueError: the trace has no such step.
        """
        if step not in self.steps:
            known = f"steps {min(self.steps)} to {max(self.steps)}" if self.steps else "no steps"
            raise ValueError(f"no step {step} in the trace; it has {known}")
        held: dict[str, list[int]] = {}
        for event in self.events:
            if isinstance(event, BlocksTaken | BlocksShared):
                held.setdefault(event.req_id, []).extend(event.block_ids)
            elif isinstance(event, BlocksFreed):
                held.pop(event.req_id, None)
            elif isinstance(event, StepScheduled) and event.step == step:
                break
        return held

    def blocks_at(self, step: int) -> dict[int, tuple[str, ...]]:
        """Who holds each block while ``step`` computes: block id → its holders, for blocks in use.

        Raises:
            ValueError: the trace has no such step.
        """
        holders: dict[int, list[str]] = {}
        for req_id, blocks in self.holdings_at(step).items():
            for block in blocks:
                holders.setdefault(block, []).append(req_id)
        return {block: tuple(req_ids) for block, req_ids in sorted(holders.items())}

    def computed_at(self, step: int) -> dict[str, int]:
        """Tokens whose KV each request has once ``step`` is computed, for requests that hold blocks then.

        Raises:
            ValueError: the trace has no such step.
        """
        computed = dict.fromkeys(self.holdings_at(step), 0)
        for number, record in self.steps.items():
            if number <= step:
                computed.update({req_id: sum(span) for req_id, span in record.tokens.items() if req_id in computed})
        return computed

    def _index(self, event: Event) -> None:
        match event:
            case RequestAdded(t, req_id, num_prompt_tokens, max_tokens, priority):
                self.requests.pop(req_id, None)  # an id used again moves to the end
                self.requests[req_id] = RequestLife(req_id, t, num_prompt_tokens, max_tokens, priority)
            case StepScheduled(t, step, tokens, num_running, num_waiting):
                self.steps[step] = Step(step, t, tokens, num_running, num_waiting)
                for life in self._known(tokens):
                    life.steps.append(step)
                    life.first_scheduled = t if life.first_scheduled is None else life.first_scheduled
            case TokensSampled(t, step, ids):
                if step in self.steps:
                    self.steps[step].t_done = t
                    self.steps[step].sampled = ids
                for life in self._known(ids):
                    life.token_ids += ids[life.req_id]
                    life.token_times += [t] * len(ids[life.req_id])
            case RequestPreempted(t, _, req_id):
                for life in self._known([req_id]):
                    life.preempted.append(t)
            case RequestFinished(t, req_id, reason, num_output_tokens):
                for life in self._known([req_id]):
                    life.finished, life.reason = t, reason
                    del life.token_ids[num_output_tokens:]  # tokens of its last step behind the one that ended it
                    del life.token_times[num_output_tokens:]
            case _:
                pass  # blocks are replayed by holdings_at

    def _known(self, req_ids: Iterable[str]) -> list[RequestLife]:
        """The lives of ``req_ids``, without those whose arrival is not in the trace."""
        return [self.requests[req_id] for req_id in req_ids if req_id in self.requests]


def read_trace(path: str | Path) -> Trace:
    """Read the JSON lines of ``JsonLinesSink``.

    A last line without its line feed is what a crash leaves: it is dropped and ``Trace.truncated`` is set.

    Raises:
        TraceError: the file cannot be read, a line is not an event, or the first is not ``trace_start``.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(f"cannot read the trace {str(path)!r}: {error.strerror}") from error
    truncated = lines.pop() != b""
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(msgspec.json.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"{path}, line {number}: not JSON: {error}") from error
    return Trace.from_dicts(rows, f"{path}, line", truncated)


def _to_event(row: Any, where: str) -> Event | dict[str, Any]:
    """``row`` as an event, or itself where its kind is unknown."""
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        raise TraceError(f"{where}: an event is an object with a kind, not {str(row)[:60]}")
    kind = KINDS.get(row["kind"])
    if kind is None:
        return row
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise TraceError(f"{where}: {row['kind']}: {error}") from error
