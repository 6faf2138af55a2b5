"""The records that travel between front end, core, scheduler and runner.

Plain data (integers, strings, lists): they cross process borders as msgpack through ``codec``. Each field has
one writer. Per-step records are columnar, because at hundreds of running requests an object a request
costs more than the scheduling itself.

vLLM: ``v1/core/sched/output.py``, ``v1/outputs.py``, ``v1/engine/__init__.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stage1.params import SamplingParams


class Extra(msgspec.Struct, tag_field="kind"):
    """Base of what a later stage sends along with a plan or a result.

    Subclasses set ``tag``; ``build.py`` hands them to ``Codec(extras=…)``.
    """


# --- front end → core -----------------------------------------------------------------------------


class EngineCoreRequest(msgspec.Struct):
    """A request as the core receives it: tokens, never text. Written by the input processor."""

    req_id: str
    prompt_ids: list[int]
    params: SamplingParams
    priority: int = 0  # lower goes first, where the policy is ``priority``
    arrival_time: float = 0.0  # seconds, ``time.time()``
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    data_parallel_rank: int | None = None


# --- scheduler → runner ---------------------------------------------------------------------------


class NewRequestData(msgspec.Struct):
    """All that the runner must know of a request it does not hold: a new or a resumed one."""

    req_id: str
    prompt_ids: list[int]
    output_ids: list[int]  # empty unless the request resumes after a preemption
    params: SamplingParams
    block_ids: list[int]
    num_computed: int  # tokens whose KV is in the cache already


class CachedRequests(msgspec.Struct):
    """What changed since the last step for requests that the runner holds."""

    req_ids: list[str] = []
    num_computed: list[int] = []  # before this step, in the order of req_ids
    new_block_ids: dict[str, list[int]] = {}  # only those that got some


class SchedulerOutput(msgspec.Struct):
    """The plan of one step. Written by the scheduler, read by hooks, executor and runner."""

    step: int
    new: list[NewRequestData]
    cached: CachedRequests
    num_scheduled: dict[str, int]  # tokens computed this step; the batch has this order
    drafts: dict[str, list[int]] = {}  # speculated tokens among them, from stage 3 on
    finished: list[str] = []  # their rows are free; may name requests the runner never saw
    preempted: list[str] = []
    extras: list[Extra] = []

    @property
    def total_tokens(self) -> int:
        """Tokens of the flattened batch."""
        return sum(self.num_scheduled.values())


# --- runner → scheduler ---------------------------------------------------------------------------


class Logprobs(msgspec.Struct):
    """Log-probabilities of consecutive tokens, before temperature and penalties."""

    ids: list[list[int]]  # [tokens][1 + k], the token itself first, then the k best
    values: list[list[float]]  # the same shape
    ranks: list[int]  # [tokens], 1 = the most likely


class PromptLogprobs(msgspec.Struct):
    """Log-probabilities of prompt tokens ``start, start + 1, …`` (token 0 has none)."""

    start: int
    rows: Logprobs


class ModelRunnerOutput(msgspec.Struct):
    """What one step computed. ``sampled[i]`` belongs to ``req_ids[i]``; empty for an unfinished prompt."""

    req_ids: list[str]
    sampled: list[list[int]]
    logprobs: dict[str, Logprobs] = {}  # only requests that asked for them
    prompt_logprobs: dict[str, PromptLogprobs] = {}
    drafts: dict[str, list[int]] = {}  # proposals for the next step, from stage 3 on
    failed: dict[str, str] = {}  # request → why it cannot go on (its logits were not finite, …)
    extras: list[Extra] = []


# --- core → front end -----------------------------------------------------------------------------


class Timings(msgspec.Struct):
    """When a request passed the core's milestones: seconds, ``time.time()``."""

    queued: float = 0.0
    scheduled: float = 0.0  # first time in a plan
    first_token: float = 0.0
    last_token: float = 0.0


class StepStats(msgspec.Struct):
    """The engine's state after a step; counters are totals since the start."""

    step: int = 0
    num_running: int = 0
    num_waiting: int = 0
    scheduled_tokens: int = 0  # in this step
    kv_usage: float = 0.0  # 0..1, share of the blocks in use
    preemptions: int = 0
    prefix_queries: int = 0  # tokens
    prefix_hits: int = 0  # tokens
    verifications: int = 0  # of a request's drafts, each step anew
    drafts: int = 0  # tokens
    accepted_per_position: list[int] = []
    step_ms: float = 0.0


class EngineCoreOutputs(msgspec.Struct):
    """New tokens of one step, columns in the order of ``req_ids``. Dictionaries hold only those that have an entry."""

    req_ids: list[str] = []
    new_ids: list[list[int]] = []
    logprobs: dict[str, Logprobs] = {}
    prompt_logprobs: dict[str, PromptLogprobs] = {}
    finish_reason: dict[str, str] = {}  # stop, length, abort or error
    stop_reason: dict[str, int] = {}  # the stop_token_id that ended the request
    error: dict[str, str] = {}
    num_cached_tokens: dict[str, int] = {}  # sent with the first tokens
    kv_transfer_params: dict[str, dict[str, Any]] = {}
    timings: dict[str, Timings] = {}  # sent with the finish_reason
    stats: StepStats | None = None
