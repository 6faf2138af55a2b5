"""What must hold in every trace of every stage.

Owns the rules. Does not know the engine: it sees only what the trace says, and so finds a wrong schedule as well as a
wrong trace. The tests of each stage run their engines' traces through ``check_trace``.

    blocks    a block taken had no owner; one shared may have several; a request lets go exactly what it holds
    tokens    the steps of a request compute [0, a) [a, b) [b, c) …: each token once, until it is preempted
    results   a step's result comes once, after its plan; a token is sampled where the computed tokens end
    ends      a request ends once, and then only lets its blocks go; at the end of the trace all have ended

vLLM has no counterpart: there, these rules are spread over assertions in scheduler and block pool.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stage1.trace.events import (
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    Event,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
)
from stage1.trace.reader import Trace


def check_trace(trace: Trace, *, complete: bool = True) -> list[str]:
    """The violations in ``trace``, as sentences; an empty list means that all is well.

    Args:
        trace: what to check.
        complete: whether the engine has come to rest, so that nothing may be held or unfinished at the end.
    """
    if trace.num_lost:
        return [f"{trace.num_lost:,} events are missing: read the trace from a file, or give the live feed more room"]
    checker = _Checker(trace.start.num_blocks, trace.start.block_size)
    for event in trace.events:
        checker.check(event)
    if complete:
        checker.check_end()
    return checker.violations


@dataclass(slots=True)
class _Life:
    """What the rules need of one request."""

    num_prompt_tokens: int
    num_output_tokens: int = 0
    num_last_tokens: int = 0  # of the last result
    next_start: int | None = None  # where its next step must start; None = anew
    hit_tokens: int = 0  # from the cache: where a request may start anew
    is_finished: bool = False


@dataclass(slots=True)
class _Plan:
    tokens: dict[str, tuple[int, int]]
    drafts: dict[str, int]
    has_result: bool = False


@dataclass(slots=True)
class _Checker:
    """Replays a trace, event by event."""

    num_blocks: int
    block_size: int
    violations: list[str] = field(default_factory=list)
    lives: dict[str, _Life] = field(default_factory=dict)
    held: dict[str, list[int]] = field(default_factory=dict)  # request → its blocks
    owners: dict[int, list[str]] = field(default_factory=dict)  # block → its requests
    plans: dict[int, _Plan] = field(default_factory=dict)
    last_step: int = -1
    last_result: int = -1
    now: float = 0.0

    def check(self, event: Event) -> None:
        """Apply the rules for ``event``, then its effect."""
        if event.t < self.now:
            self._report(event, f"time goes back from {self.now:.6f} s")
        self.now = max(self.now, event.t)
        match event:
            case RequestAdded():
                self._added(event)
            case BlocksTaken() | BlocksShared():
                self._taken(event)
            case BlocksFreed():
                self._freed(event)
            case RequestPreempted():
                if self._is_alive(event, event.req_id):
                    self.lives[event.req_id].next_start = None
            case StepScheduled():
                self._scheduled(event)
            case TokensSampled():
                self._sampled(event)
            case RequestFinished():
                self._finished(event)
            case _:
                pass  # the header, and what later stages add

    def check_end(self) -> None:
        """Nothing may be left."""
        for req_id, blocks in self.held.items():
            self.violations.append(f"at the end {req_id} still holds {_names(blocks)}")
        for req_id, life in self.lives.items():
            if not life.is_finished:
                self.violations.append(f"at the end {req_id} is not finished")

    def _added(self, event: RequestAdded) -> None:
        if event.req_id in self.lives and not self.lives[event.req_id].is_finished:
            self._report(event, f"{event.req_id} is added while a request of that id is alive")
        self.lives[event.req_id] = _Life(event.num_prompt_tokens)

    def _taken(self, event: BlocksTaken | BlocksShared) -> None:
        if not self._is_alive(event, event.req_id):
            return
        for block in event.block_ids:
            owners = self.owners.setdefault(block, [])
            if not 0 <= block < self.num_blocks:
                self._report(event, f"{event.req_id} gets block {block}; the cache has [0, {self.num_blocks})")
            if event.req_id in owners:
                self._report(event, f"{event.req_id} gets block {block}, which it holds already")
            elif owners and isinstance(event, BlocksTaken):
                self._report(event, f"{event.req_id} takes block {block} while {', '.join(owners)} holds it")
            owners.append(event.req_id)
        self.held.setdefault(event.req_id, []).extend(event.block_ids)
        if isinstance(event, BlocksShared):
            self.lives[event.req_id].hit_tokens = event.num_tokens

    def _freed(self, event: BlocksFreed) -> None:
        held = self.held.pop(event.req_id, [])
        if sorted(held) != sorted(event.block_ids):
            self._report(event, f"{event.req_id} frees {_names(event.block_ids)} but holds {_names(held)}")
        for block in held:
            self.owners[block].remove(event.req_id)
        if event.req_id in self.lives:
            self.lives[event.req_id].hit_tokens = 0

    def _scheduled(self, event: StepScheduled) -> None:
        if event.step <= self.last_step:
            self._report(event, f"step {event.step} follows step {self.last_step}")
        self.last_step = max(self.last_step, event.step)
        self.plans[event.step] = _Plan(event.tokens, event.drafts)
        for req_id, (start, n) in event.tokens.items():
            if not self._is_alive(event, req_id):
                continue
            life = self.lives[req_id]
            expected = life.hit_tokens if life.next_start is None else life.next_start
            if start != expected:
                self._report(event, f"{req_id} computes from token {start}; it must go on from token {expected}")
            if n < 1:
                self._report(event, f"{req_id} is scheduled with {n} tokens")
            room = len(self.held.get(req_id, ())) * self.block_size
            if start + n > room:
                self._report(event, f"{req_id} computes up to token {start + n} but holds room for {room}")
            life.next_start = start + n

    def _sampled(self, event: TokensSampled) -> None:
        plan = self.plans.get(event.step)
        if plan is None or plan.has_result:
            why = "without a plan" if plan is None else "for the second time"
            self._report(event, f"step {event.step} has a result {why}")
            return
        plan.has_result = True
        if event.step < self.last_result:
            self._report(event, f"the result of step {event.step} comes after that of step {self.last_result}")
        self.last_result = max(self.last_result, event.step)
        for req_id, ids in event.ids.items():
            if not self._is_alive(event, req_id):
                continue
            if req_id not in plan.tokens:
                self._report(event, f"{req_id} gets a token from step {event.step}, which did not compute it")
                continue
            self._check_tokens(event, req_id, len(ids), plan)

    def _check_tokens(self, event: TokensSampled, req_id: str, num_ids: int, plan: _Plan) -> None:
        """A step that computed up to the last known token, and drafts behind it, may give 1 + drafts tokens."""
        life = self.lives[req_id]
        start, n = plan.tokens[req_id]
        drafts = plan.drafts.get(req_id, 0)
        known = life.num_prompt_tokens + life.num_output_tokens
        if start + n - drafts != known:
            self._report(event, f"{req_id} gets a token after computing {start + n - drafts} of its {known} tokens")
        if num_ids > 1 + drafts:
            self._report(event, f"{req_id} gets {num_ids} tokens from a step with {drafts} drafts")
        if drafts and life.next_start is not None:
            life.next_start -= 1 + drafts - num_ids  # the KV of rejected drafts is written again
        life.num_output_tokens += num_ids
        life.num_last_tokens = num_ids

    def _finished(self, event: RequestFinished) -> None:
        if not self._is_alive(event, event.req_id):
            return
        life = self.lives[event.req_id]
        life.is_finished = True
        # Of the tokens of its last step, those behind the one that ended it are dropped.
        fewest = life.num_output_tokens - max(life.num_last_tokens - 1, 0)
        if not fewest <= event.num_output_tokens <= life.num_output_tokens:
            self._report(
                event,
                f"{event.req_id} ends with {event.num_output_tokens} tokens; {life.num_output_tokens} were sampled",
            )

    def _is_alive(self, event: Event, req_id: str) -> bool:
        """Whether ``req_id`` may still do something; otherwise that is reported."""
        life = self.lives.get(req_id)
        if life is None:
            self._report(event, f"{req_id} was never added")
        elif life.is_finished:
            self._report(event, f"{req_id} has ended already ({type(event).__name__})")
        return life is not None and not life.is_finished

    def _report(self, event: Event, what: str) -> None:
        self.violations.append(f"t = {event.t:.6f} s: {what}")


def _names(blocks: list[int]) -> str:
    return f"blocks {sorted(blocks)}" if blocks else "nothing"
