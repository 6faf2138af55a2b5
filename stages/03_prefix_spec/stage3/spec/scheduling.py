"""Drafts in the schedule: which are verified, what their verification means, and when it is not worth it.

Owns the way of a draft from a step's result into the next plan and out again. A hook beside an unchanged scheduler:
drafts lie behind a request's tokens, so they are a part of the gap that the scheduler closes anyway.

    result     drafts d0 d1 d2 came with a token: they are the request's draft_ids         gap 1 + 3
    schedule   tokens and drafts are computed together, as far as the budget goes          computed += 1 + 3
    annotate   those that were scheduled go into the plan                                  draft_ids = []
    result     d0 stayed, x came in d1's place: two drafts are taken back                  computed -= 2

A draft is taken only where it costs no one anything: where it may still become output, where the budget has a token
for everyone beside it, and where the free blocks are enough for it and for everyone's next token. So drafts push
nobody out, and a request is refused or ends no sooner than without them. What is not scheduled at once is dropped.

The hook stands behind that of a grammar, which cuts the drafts of a result, and before the tracer, which reads those of
the plan. With several plans in flight a request whose drafts are being verified waits for them; one that has run ahead
gets no drafts.

vLLM: ``v1/core/sched/scheduler.py`` (``scheduled_spec_decode_tokens``, ``update_from_output``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stage1.interfaces import KVCacheManager
from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage1.request import Request, Status
from stage3.spec.accept import AcceptanceCounter


@dataclass(frozen=True)
class DraftLimits:
    """When drafts are verified, and how many.

    Raises:
        ValueError: nothing would ever be verified.
    """

    num_drafts: int  # of a request in a step
    max_batch: int  # requests in a step; behind larger ones nothing is drafted: their time goes into computing
    max_tokens: int  # of all drafts in a step: what the token budget has left when every seat has its token

    def __post_init__(self) -> None:
        for name in ("num_drafts", "max_batch", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; at least 1 is needed: raise it or leave speculation off"
                )


@dataclass(slots=True)
class _Room:
    """What drafts may still take of the next step."""

    tokens: int
    blocks: int


class Speculation:
    """A ``SchedulerHook``: the scheduler's side of speculative decoding."""

    def __init__(self, kv: KVCacheManager, limits: DraftLimits, counter: AcceptanceCounter) -> None:
        self.counter = counter
        self._kv = kv
        self._limits = limits
        self._requests: dict[str, Request] = {}
        self._running: set[str] = set()
        self._taken: dict[str, int] = {}  # requests with draft_ids, until the next plan, and the blocks they ask for

    def admit(self, req: Request) -> bool:
        """Remember the request; it is never held back."""
        self._requests[req.req_id] = req
        return True

    def released(self) -> Sequence[str]:
        """Nothing: no request is parked."""
        return ()

    def annotate(self, plan: SchedulerOutput) -> None:
        """Move the drafts that were scheduled into ``plan``, and drop the others."""
        self._running.difference_update(plan.preempted)
        self._running.update(new.req_id for new in plan.new)
        for req_id in self._taken:
            req = self._requests[req_id]
            drafts, req.draft_ids = req.draft_ids, []
            if req_id not in plan.num_scheduled:
                continue
            # Of a gap that the budget cut short only drafts are missing, and a token is sampled all the same.
            req.num_in_flight = 1
            count = req.num_computed_tokens - req.num_tokens
            if count:
                plan.drafts[req_id] = drafts[:count]
        self._taken.clear()

    def on_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """Take back what was rejected or lies behind an end, then take the drafts for the next step."""
        if not plan.drafts and not out.drafts:
            return
        verified, guessed, failed, step = plan.drafts, out.drafts, out.failed, plan.step
        if len(plan.num_scheduled) > self._limits.max_batch:
            guessed = {}
        room = self._room()
        for req_id, sampled in zip(out.req_ids, out.sampled, strict=True):
            req = self._requests.get(req_id)
            if req is None or req.first_step > step or req_id in failed:  # it has ended, or is about to
                continue
            if drafts := verified.get(req_id):
                num_kept = len(keep_until_end(req, sampled))
                # The last token kept is not computed yet; all before it are.
                req.num_computed_tokens -= 1 + len(drafts) - num_kept
                self.counter.observe(len(drafts), len(sampled), num_kept)
            if drafts := guessed.get(req_id):
                self._take(req, drafts, len(sampled), room)

    def on_finish(self, req: Request) -> bool:
        """Forget the request; its blocks may go at once."""
        del self._requests[req.req_id]
        self._running.discard(req.req_id)
        self._taken.pop(req.req_id, None)
        return False

    # --- below: one request --------------------------------------------------------------------------

    def _take(self, req: Request, drafts: list[int], num_sampled: int, room: _Room) -> None:
        """Make the first of ``drafts`` the request's, as many as cost no one anything; ``room`` shrinks by them."""
        if num_sampled == 0 or req.status is not Status.RUNNING or req.num_in_flight > 1:
            return  # half a prompt, a victim, or a request whose next token is on its way already
        block_size = self._kv.block_size
        computed = req.num_prompt_tokens + len(req.output_ids) + num_sampled - 1  # all but the last one sampled
        num_blocks = -(-computed // block_size)  # that it has, at least
        in_blocks = (num_blocks + room.blocks) * block_size - computed - 1
        # A token follows the last draft, hence two less than the request may have behind what is computed.
        most = min(self._limits.num_drafts, req.max_total_tokens - 2 - computed, room.tokens, in_blocks)
        drafts = drafts[:most] if most > 0 else []
        if not drafts:
            return
        num_blocks = -(-(computed + 1 + len(drafts)) // block_size) - num_blocks
        req.draft_ids = drafts
        self._taken[req.req_id] = num_blocks
        room.tokens -= len(drafts)
        room.blocks -= num_blocks

    def _room(self) -> _Room:
        """What neither drafts taken before nor the next token of any running request may need."""
        tokens = sum(len(self._requests[req_id].draft_ids) for req_id in self._taken)
        free = round((1.0 - self._kv.usage) * self._kv.num_blocks) - len(self._running)
        return _Room(self._limits.max_tokens - tokens, max(free - sum(self._taken.values()), 0))


def keep_until_end(req: Request, sampled: list[int]) -> list[int]:
    """``sampled`` up to the token that ends ``req``, as ``Lifecycle`` will cut it: what lies behind was for nothing."""
    room = req.max_total_tokens - req.num_prompt_tokens - len(req.output_ids)
    if len(sampled) < room and req.ending_ids.isdisjoint(sampled):
        return sampled  # nearly always
    for count, token in enumerate(sampled, 1):
        ends = token in req.ending_ids and len(req.output_ids) + count >= req.params.min_tokens
        if ends or count == room:
            return sampled[:count]
    return sampled
