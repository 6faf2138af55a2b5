"""The host's side of the request table: who has which row, and what a step means for each.

Owns the rows' host half: tokens, blocks and, as columns of numbers, how far each request is. Follows plans and never
decides. Does not launch anything.

A step is described by arrays, not by a loop over its requests: at 256 requests a loop takes longer than many a GPU
needs for a layer. Its requests are put in the order of their lengths, the longest first: attention starts with those
that take longest, so that no long one is left when the others are done.

vLLM: ``v1/worker/gpu_input_batch.py``, ``v1/worker/gpu_model_runner.py`` (``_update_states``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stage1.params import SamplingParams
from stage1.records import ModelRunnerOutput, NewRequestData, SchedulerOutput
from stage2.state import Edit, RequestTable, TableRow


@dataclass(slots=True, eq=False)
class Step:
    """What the host knows of a step that is about to run; arrays are [R] int32 in batch order."""

    plan: SchedulerOutput
    rows: list[TableRow]
    index: np.ndarray  # rows of the table
    starts: np.ndarray  # position of each request's first token
    counts: np.ndarray  # tokens of each
    samples: np.ndarray  # 0 = nothing is drawn, else one more than the drafts that are verified
    drafts: list[list[int]]  # guesses among the tokens of each, behind those that are known; [] where nobody has any
    num_tokens: int
    num_chunks: int  # requests with more than one token
    is_plain: bool  # greedy or temperature is all that anyone in it asks for
    concerns_processors: bool  # someone in it, or someone who left, asks for more


@dataclass(slots=True, eq=False)
class Roster:
    """The requests of a step: as planned, and the longest first. Decoding keeps both from step to step."""

    req_ids: list[str]
    planned: np.ndarray  # rows of the table in the order of the plan
    rows: list[TableRow]  # the longest first, as is the next
    index: np.ndarray


NOBODY = Roster([], np.zeros(0, np.int32), [], np.zeros(0, np.int32))


class RowKeeper:
    """Rows of the requests that the runner holds."""

    def __init__(self, table: RequestTable, is_plain: Callable[[SamplingParams], bool]) -> None:
        self.table = table
        self._is_plain = is_plain
        self._rows: dict[str, TableRow] = {}
        self._demanding: set[str] = set()  # requests whose draw takes more than a temperature
        # By row of the table: tokens computed, given with the request, and known to the device.
        self._num_computed, self._num_given, self._num_known = np.zeros((3, table.num_rows), np.int32)
        self._roster = NOBODY  # of the last step

    def follow(self, plan: SchedulerOutput) -> tuple[Step, list[Edit]]:
        """Bring the rows to the state that ``plan`` assumes; returns the step and the table's changes."""
        demanding = bool(self._demanding)
        for req_id in (*plan.finished, *plan.preempted):
            self._leave(req_id)
        edits: list[Edit] = []
        for new in plan.new:
            edits += self._enter(new)
        for req_id, block_ids in plan.cached.new_block_ids.items():
            edits.append(self.table.append_blocks(self._rows[req_id], block_ids))
        step = self._describe(plan, demanding)
        edits += self._tokens_to_give(step)
        return step, edits

    def advance(self, step: Step) -> None:
        """The step is queued: what it computes and draws counts from now on."""
        self._num_computed[step.index] = step.starts + step.counts
        self._num_known[step.index] += step.samples > 0

    def see(self, step: Step, out: ModelRunnerOutput) -> None:
        """The drawn tokens have arrived. Only where a processor may ask for them are they kept here."""
        if self._demanding:
            for row, sampled in zip(step.rows, out.sampled, strict=True):
                row.token_ids += sampled
        if step.drafts:
            for row, sampled in zip(step.rows, out.sampled, strict=True):
                if self._rows.get(row.req_id) is row:  # else it has left, and somebody else may have its place
                    self._num_known[row.row] += max(len(sampled) - 1, 0)

    # --- below: the phases of ``follow`` -------------------------------------------------------------

    def _enter(self, new: NewRequestData) -> list[Edit]:
        """Take a row for a new or resumed request."""
        tokens = [*new.prompt_ids, *new.output_ids]
        row = TableRow(
            req_id=new.req_id,
            params=new.params,
            seed=new.params.seed or 0,  # the input processor seeds every request; a core driven directly may not
            num_prompt_tokens=len(new.prompt_ids),
            token_ids=tokens,
            block_ids=[],
            num_computed=new.num_computed,
            row=self.table.take_row(),
        )
        self._rows[new.req_id] = row
        self._num_computed[row.row] = new.num_computed
        self._num_given[row.row] = self._num_known[row.row] = len(tokens)
        if not self._is_plain(new.params):
            self._demanding.add(new.req_id)
        edits = [self.table.describe(row), self.table.append_blocks(row, new.block_ids)]
        if new.num_computed:  # found in a cache: not computed here, but a drafter may look at the text
            edits.append(self.table.put_tokens(row, 0, tokens[: new.num_computed]))
        return edits

    def _leave(self, req_id: str) -> None:
        row = self._rows.pop(req_id, None)
        if row is not None:
            self.table.give_back(row.row)
            self._demanding.discard(req_id)
            self._roster = NOBODY  # an equal id may come back with another row

    def _describe(self, plan: SchedulerOutput, demanding_before: bool) -> Step:
        roster = self._call(plan)
        rows, index = roster.rows, roster.index
        starts = self._num_computed[index]
        drafts = [plan.drafts.get(row.req_id, []) for row in rows] if plan.drafts else []
        num_drafts = np.array([len(ids) for ids in drafts] or 0, np.int32)
        num_known = self._num_known[index] + num_drafts
        num_tokens = plan.total_tokens
        if num_tokens == len(rows):
            counts = np.ones(len(rows), np.int32)
        else:
            counts = np.array([plan.num_scheduled[row.req_id] for row in rows], np.int32)
        return Step(
            plan=plan,
            rows=rows,
            index=index,
            starts=starts,
            counts=counts,
            samples=(starts + counts == num_known) * (1 + num_drafts),
            drafts=drafts,
            num_tokens=num_tokens,
            num_chunks=int((counts > 1).sum()) if num_tokens > len(rows) else 0,
            is_plain=not self._demanding or self._demanding.isdisjoint(plan.num_scheduled),
            concerns_processors=demanding_before or bool(self._demanding),
        )

    def _call(self, plan: SchedulerOutput) -> Roster:
        """Who is in the step, with the numbers of computed tokens that the plan says."""
        req_ids, cached = list(plan.num_scheduled), plan.cached
        roster = self._roster
        if req_ids != roster.req_ids:
            rows = [self._rows[req_id] for req_id in req_ids]
            index = np.array([row.row for row in rows], np.int32)
            roster = Roster(req_ids, index, rows, index)
        known = len(cached.req_ids)
        if req_ids[:known] == cached.req_ids:
            self._num_computed[roster.planned[:known]] = cached.num_computed
        else:
            for req_id, num_computed in zip(cached.req_ids, cached.num_computed, strict=True):
                self._num_computed[self._rows[req_id].row] = num_computed
        lengths = self._num_computed[roster.index]
        if (lengths[:-1] < lengths[1:]).any():
            order = np.argsort(-lengths, kind="stable")
            roster = Roster(req_ids, roster.planned, [roster.rows[i] for i in order], roster.index[order])
        self._roster = roster
        return roster

    def _tokens_to_give(self, step: Step) -> list[Edit]:
        """Tokens of this step that the device has not: those that came with the request, and drafts.

        Of the former one more, where there is one: a drafter reads each token together with the next.
        """
        edits = []
        if step.drafts:
            edits.append(self.table.put_drafts(step.index, self._num_known[step.index], step.drafts))
        for i in np.flatnonzero(step.starts < self._num_given[step.index]):
            start, row = int(step.starts[i]), step.rows[i]
            end = min(start + int(step.counts[i]) + 1, int(self._num_given[row.row]))
            edits.append(self.table.put_tokens(row, start, row.token_ids[start:end]))
        return edits
