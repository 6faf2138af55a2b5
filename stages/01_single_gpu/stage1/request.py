"""A request as the core sees it, from admission to end.

Owns the counters that the scheduler closes the gap with. Does not know blocks, text, grammar or hashes:
those live with their owners under ``req_id``, so that this class does not grow.

    tokens     [ prompt ............ | output ...... | in flight | drafts ]
    computed   [ ------------------------------> )     gap = what is left to compute
               0                                 num_computed_tokens

vLLM: ``v1/request.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest


class Status(Enum):
    """Where a request is. Everything after ``PREEMPTED`` is an end."""

    PARKED = "parked"  # a hook holds it back
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    STOPPED = "stop"
    LENGTH = "length"
    ABORTED = "abort"
    FAILED = "error"

    @property
    def is_finished(self) -> bool:
        """Whether the request has ended; the value is then its finish_reason."""
        return self in _ENDS


_ENDS = frozenset({Status.STOPPED, Status.LENGTH, Status.ABORTED, Status.FAILED})


@dataclass(slots=True, eq=False)
class Request:
    """One prompt with its output so far. Written by the scheduler alone."""

    req_id: str
    prompt_ids: list[int]
    params: SamplingParams
    max_total_tokens: int  # prompt and output together, from max_tokens and max_model_len
    priority: int = 0
    arrival_time: float = 0.0
    output_ids: list[int] = field(default_factory=list)
    draft_ids: list[int] = field(default_factory=list)  # speculated, not yet verified
    num_computed_tokens: int = 0  # scheduled counts as computed
    num_in_flight: int = 0  # sampled on the device, not yet seen here
    num_preemptions: int = 0
    first_step: int = 0  # since its admission; results of steps before it belong to an earlier request of this id
    status: Status = Status.WAITING
    num_prompt_tokens: int = field(init=False)
    ending_ids: frozenset[int] = field(init=False)  # tokens that end the output, once it has ``min_tokens``

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.prompt_ids)
        eos_token_ids = () if self.params.ignore_eos else self.params.eos_token_ids
        self.ending_ids = frozenset((*eos_token_ids, *self.params.stop_token_ids))

    @classmethod
    def from_core_request(cls, core: EngineCoreRequest, max_model_len: int) -> Request:
        """Admit ``core``: a request's length limit is fixed here once."""
        wanted = core.params.max_tokens
        limit = max_model_len if wanted is None else min(max_model_len, len(core.prompt_ids) + wanted)
        return cls(
            req_id=core.req_id,
            prompt_ids=core.prompt_ids,
            params=core.params,
            max_total_tokens=limit,
            priority=core.priority,
            arrival_time=core.arrival_time,
        )

    @property
    def num_tokens(self) -> int:
        """Tokens whose ids the host knows: prompt and output."""
        return self.num_prompt_tokens + len(self.output_ids)

    @property
    def num_tokens_to_compute(self) -> int:
        """The gap that the next steps must close.

        A token is worth computing only if one may follow it, hence the limit of ``max_total_tokens - 1``.
        """
        # Asked of every running request in every step, hence written out.
        known = self.num_prompt_tokens + len(self.output_ids) + self.num_in_flight + len(self.draft_ids)
        limit = self.max_total_tokens - 1
        return (known if known < limit else limit) - self.num_computed_tokens
