"""Guided requests between the scheduler's steps: parked while their grammar is compiled, then a mask for every draw.

Owns which request is how far in its grammar. Does not compile, and does not know how masks are applied. A request
without a grammar costs it one look-up a step, a parked one nothing.

    admit        grammar known?  yes: go on     no: parked, and compiled in the background
    released     those whose grammar is ready; one that cannot be compiled ends with the reason
    annotate     a mask for each guided row that draws in this step, and one behind each of its drafts
    on_result    what was drawn moves the grammar on; the next drafts are cut where they leave it

The masks of a step depend on all tokens before it, so a guided request has no more than one step in flight. The hook
stands before the one that takes drafts over, and before the tracer: both read what it writes.

vLLM: ``v1/structured_output/__init__.py`` (``StructuredOutputManager``), ``v1/core/sched/scheduler.py``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np

from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage1.request import Request
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.errors import GrammarError
from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Grammar, Matcher, Walk
from stage3.grammar.records import GrammarMasks
from stage3.grammar.structured_outputs import constraint_of

_ANY = 0xFFFFFFFF  # a word of a mask that allows everything
_DEAD_END = "no token of this model can follow in the request's grammar"


@dataclass(slots=True, eq=False)
class _Guided:
    """A live request with its place in its grammar."""

    req: Request
    matcher: Matcher
    ending_ids: frozenset[int]
    min_tokens: int
    error: str | None = None  # why it ends with the step that is under way
    dead_end: int = 0  # drafts of that step behind which nothing can follow; 0: there is no such place


class GrammarHook:
    """``SchedulerHook`` of guided decoding.

    Args:
        compiler: of the model's vocabulary; shut down by whoever made it.
        doom: ends a parked request with a reason. ``Lifecycle.doom``, which exists only after its hooks: set it then.
        matcher: begins an output in a grammar.
        drafts_are_drawn: from a distribution, and verified by rejection.
    """

    def __init__(
        self,
        compiler: GrammarCompiler,
        doom: Callable[[Request, str], None] | None = None,
        matcher: Callable[[Walk, frozenset[int]], Matcher] = Matcher,
        drafts_are_drawn: bool = False,
    ) -> None:
        self.doom = doom
        self._drafts_are_drawn = drafts_are_drawn
        self._matcher = matcher
        self._compiler = compiler
        self._guided: dict[str, _Guided] = {}
        self._parked: dict[str, tuple[Request, Future[Grammar]]] = {}
        self._waiting: Counter[Future[Grammar]] = Counter()  # parked requests, by what they wait for
        self._compiled: deque[tuple[Request, Future[Grammar]]] = deque()  # filled by the compiler's thread

    @property
    def num_parked(self) -> int:
        """Requests whose grammar is not ready."""
        return len(self._parked)

    def admit(self, req: Request) -> bool:
        """See ``SchedulerHook``."""
        if req.params.structured_outputs is None:
            return True
        future = self._submit(req)
        if future.done() and future.exception() is None:
            return self._begin(req, future.result())
        self._parked[req.req_id] = req, future
        self._waiting[future] += 1
        future.add_done_callback(partial(self._note, req))
        return False

    def released(self) -> Sequence[str]:
        """See ``SchedulerHook``."""
        ready = []
        while self._compiled:
            req, future = self._compiled.popleft()
            if self._parked.get(req.req_id) != (req, future):  # it ended meanwhile
                continue
            if future.cancelled() or (error := future.exception()) is not None:
                self._doom(req, "cancelled" if future.cancelled() else f"{error}")
            else:
                self._leave(req.req_id)
                self._begin(req, future.result())
                ready.append(req.req_id)
        return ready

    def annotate(self, plan: SchedulerOutput) -> None:
        """See ``SchedulerHook``; what is scheduled counts as computed already."""
        if not self._guided:
            return
        drawing = [
            guided
            for req_id in plan.num_scheduled
            if (guided := self._guided.get(req_id)) and guided.req.num_computed_tokens >= guided.req.num_tokens
        ]
        if not drawing:
            return
        drafts = [_scheduled_drafts(guided.req, plan) for guided in drawing]
        counts = [1 + len(ids) for ids in drafts]
        num_words = self._compiler.vocabulary.num_words
        masks = np.full((sum(counts), num_words), _ANY, dtype="<u4")
        first = 0
        for guided, ids, count in zip(drawing, drafts, counts, strict=True):
            self._fill(guided, ids, masks[first : first + count])
            first += count
        req_ids = [guided.req.req_id for guided in drawing]
        plan.extras.append(GrammarMasks(req_ids, counts, num_words, masks.tobytes()))

    def on_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """See ``SchedulerHook``."""
        if not self._guided:
            return
        for req_id, sampled in zip(out.req_ids, out.sampled, strict=True):
            guided = self._guided.get(req_id)
            if guided is None or guided.req.first_step > plan.step or req_id in out.failed:
                continue
            if guided.error is None:
                self._advance(guided, sampled, out)
            if guided.error is not None:
                out.failed[req_id] = guided.error

    def on_finish(self, req: Request) -> bool:
        """See ``SchedulerHook``."""
        self._guided.pop(req.req_id, None)
        self._leave(req.req_id)
        return False

    # --- below: coming in ---------------------------------------------------------------------------

    def _submit(self, req: Request) -> Future[Grammar]:
        try:
            return self._compiler.submit(constraint_of(req.params.structured_outputs or {}))
        except Exception as error:  # refused by the front end, unless the core is driven without one
            future: Future[Grammar] = Future()
            future.set_exception(error)
            return future

    def _leave(self, req_id: str) -> None:
        """It is parked no longer; what nobody waits for need not be compiled."""
        if req_id not in self._parked:
            return
        _, future = self._parked.pop(req_id)
        self._waiting[future] -= 1
        if self._waiting[future] == 0:
            del self._waiting[future]
            self._compiler.withdraw(future)

    def _note(self, req: Request, future: Future[Grammar]) -> None:
        self._compiled.append((req, future))

    def _doom(self, req: Request, reason: str) -> None:
        if self.doom is None:
            raise RuntimeError("the hook cannot end requests: set its doom to Lifecycle.doom")
        self.doom(req, f"the request's grammar cannot be compiled: {reason}")

    def _begin(self, req: Request, grammar: Grammar) -> bool:
        """``req`` starts in ``grammar``, which decides alone when it may end: not ``ignore_eos``, nor ``min_tokens``.

        ``min_tokens`` is kept here, where something else may still follow; elsewhere it would forbid the only way out.
        """
        params = req.params
        known = range(self._compiler.vocabulary.size)  # a core that is driven directly may be sent any id
        endings = frozenset(i for i in (*params.eos_token_ids, *params.stop_token_ids) if i in known)
        req.ending_ids = endings
        req.params = params.replace(min_tokens=0)
        self._guided[req.req_id] = _Guided(req, self._matcher(grammar.start(), endings), endings, params.min_tokens)
        return True

    # --- below: a step ------------------------------------------------------------------------------

    def _fill(self, guided: _Guided, drafts: Sequence[int], masks: Words) -> None:
        """Masks [1 + drafts, words]; behind a draft that leaves the grammar all is allowed, for nobody gets there."""
        matcher, num_output = guided.matcher, len(guided.req.output_ids)
        num_accepted = guided.dead_end = 0
        try:
            for i in range(len(masks)):
                if not self._fill_one(guided, num_output + i, masks[i]):
                    if i == 0:
                        raise GrammarError(_DEAD_END)
                    masks[i:] = _ANY  # only a draft leads there: plain decoding may not, and nobody draws from it then
                    guided.dead_end = i
                    break
                if i == len(drafts) or not matcher.accept([drafts[i]]):
                    break
                num_accepted += 1
        except GrammarError as error:
            # The request ends with this step's result, whatever is drawn; its matcher is not used again.
            guided.error = str(error)
            masks[:] = _ANY
            return
        matcher.rollback(num_accepted)

    def _fill_one(self, guided: _Guided, num_output: int, mask: Words) -> bool:
        """The mask at one place; ``False``: nothing can follow there."""
        guided.matcher.allowed_mask(mask)
        if num_output < guided.min_tokens:
            set_bits(mask, guided.ending_ids, False)
            if not mask.any():
                guided.matcher.allowed_mask(mask)
        return bool(mask.any())

    def _advance(self, guided: _Guided, sampled: list[int], out: ModelRunnerOutput) -> None:
        matcher, req_id = guided.matcher, guided.req.req_id
        if 0 < guided.dead_end < len(sampled):  # the draft before the dead end was right
            guided.error = _DEAD_END
            return
        try:
            count = matcher.accept(sampled)
            if count < len(sampled) and not matcher.has_ended:
                guided.error = f"token {sampled[count]} was drawn, which the request's grammar does not allow"
            elif drafts := out.drafts.get(req_id):
                count = matcher.accept(drafts)
                matcher.rollback(count)
                # Of drawn drafts the forbidden one stays, and is rejected: whether it is looked at must not depend on
                # its value, or what takes its place would be drawn from too much.
                out.drafts[req_id] = drafts[: count + self._drafts_are_drawn]
        except GrammarError as error:  # it takes too much work
            guided.error = str(error)


def _scheduled_drafts(req: Request, plan: SchedulerOutput) -> list[int]:
    """The drafts that ``plan`` verifies: in the plan, or still with the request if their hook comes behind this one."""
    return (plan.drafts.get(req.req_id) or req.draft_ids)[: req.num_computed_tokens - req.num_tokens]
