"""The events of a trace: what happened to which request, in which step, with which tokens and blocks.

Owns the format, which every stage shares. Does not know who writes the events or where they go. On disk an event
is one JSON object with its ``kind`` first; a later stage adds kinds by subclassing ``Event``, and a reader keeps
kinds that it does not know as plain dictionaries.

    {"kind":"step_scheduled","t":0.0121,"step":3,"tokens":{"a":[14,1],"b":[0,200]},"num_running":2,"num_waiting":0}

Every ``t`` is in seconds since the trace began, from a clock that never goes back. Events of one step come in this
order: blocks freed and taken while the plan is made, preemptions, ``StepScheduled``, ``TokensSampled``, then for each
request that ends ``RequestFinished`` and its ``BlocksFreed``.

vLLM: the nearest is ``EngineCoreEvent`` in ``v1/engine/__init__.py``.
"""

from __future__ import annotations

import re

import msgspec


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=_snake_case):
    """Base of all events. The ``kind`` of a subclass is its name in snake case."""

    t: float  # seconds since the trace began


class TraceStart(Event, frozen=True):
    """The first event: which engine this is. Its ``t`` is 0."""

    wall_time: float  # seconds, ``time.time()`` when t was 0
    stage: int  # 1 … 6
    model: str
    block_size: int  # tokens a block
    num_blocks: int
    max_num_seqs: int
    versions: dict[str, str] = {}  # library → version


class RequestAdded(Event, frozen=True):
    """A request has reached the scheduler and waits."""

    req_id: str
    num_prompt_tokens: int
    max_tokens: int | None = None  # None = up to max_model_len
    priority: int = 0


class StepScheduled(Event, frozen=True):
    """A plan is made: request r computes the tokens ``[start, start + n)``."""

    step: int
    tokens: dict[str, tuple[int, int]]  # req_id → (start, n), in the order of the batch
    num_running: int  # requests, whether they got tokens in this step or not
    num_waiting: int  # requests
    drafts: dict[str, int] = {}  # how many of the n are speculated


class BlocksTaken(Event, frozen=True):
    """Blocks that were free belong to a request from now on."""

    req_id: str
    block_ids: list[int]


class BlocksShared(Event, frozen=True):
    """A request holds cached blocks too, whoever else does; the first ``num_tokens`` tokens need not be computed."""

    req_id: str
    block_ids: list[int]
    num_tokens: int


class BlocksFreed(Event, frozen=True):
    """A request has let all of its blocks go."""

    req_id: str
    block_ids: list[int]


class RequestPreempted(Event, frozen=True):
    """A running request lost its blocks and waits again; it will recompute its tokens."""

    step: int  # the plan that says so
    req_id: str


class TokensSampled(Event, frozen=True):
    """The result of a step. Requests whose prompt is unfinished have no entry, so ``ids`` may be empty."""

    step: int
    ids: dict[str, list[int]]  # req_id → token ids, in order


class RequestFinished(Event, frozen=True):
    """A request has ended."""

    req_id: str
    reason: str  # stop, length, abort or error
    num_output_tokens: int


class EventsLost(Event, frozen=True):
    """A reader of a live feed was too slow, or came late: this many events are missing here."""

    num_events: int


KINDS: dict[str, type[Event]] = {
    _snake_case(cls.__name__): cls
    for cls in (
        TraceStart,
        RequestAdded,
        StepScheduled,
        BlocksTaken,
        BlocksShared,
        BlocksFreed,
        RequestPreempted,
        TokensSampled,
        RequestFinished,
        EventsLost,
    )
}
