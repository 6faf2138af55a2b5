"""The host's side of the request table: who has which row, and what changes in this step.

Owns the rows' Python half: tokens, blocks, counts. Follows plans and never decides. Does not launch anything.

vLLM: ``v1/worker/gpu_input_batch.py``, ``v1/worker/gpu_model_runner.py`` (``_update_states``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stage1.params import SamplingParams
from stage1.records import ModelRunnerOutput, NewRequestData, SchedulerOutput
from stage2.state import Edit, RequestTable, TableRow


@dataclass(slots=True, eq=False)
class Step:
    """What the host knows of a step that is about to run."""

    plan: SchedulerOutput
    rows: list[TableRow]  # in batch order
    counts: list[int]  # tokens of each
    samples: list[bool]  # whether a token is drawn for each
    num_tokens: int
    num_chunks: int  # requests with more than one token
    max_seq_len: int
    is_plain: bool  # greedy or temperature is all that anyone in it asks for
    concerns_processors: bool  # someone in it, or someone who left, asks for more


class RowKeeper:
    """Rows of the requests that the runner holds."""

    def __init__(self, table: RequestTable, is_plain: Callable[[SamplingParams], bool]) -> None:
        self.table = table
        self._is_plain = is_plain
        self._rows: dict[str, TableRow] = {}
        self._demanding: set[str] = set()  # requests whose draw takes more than a temperature

    def follow(self, plan: SchedulerOutput) -> tuple[Step, list[Edit]]:
        """Bring the rows to the state that ``plan`` assumes; returns the step and the table's changes."""
        demanding = bool(self._demanding)
        for req_id in (*plan.finished, *plan.preempted):
            self._leave(req_id)
        edits: list[Edit] = []
        for new in plan.new:
            edits += self._enter(new)
        rows = self._rows
        for req_id, num_computed in zip(plan.cached.req_ids, plan.cached.num_computed, strict=True):
            rows[req_id].num_computed = num_computed
        for req_id, block_ids in plan.cached.new_block_ids.items():
            edits.append(self.table.append_blocks(rows[req_id], block_ids))
        step = self._describe(plan, demanding)
        edits += self._tokens_to_give(step)
        return step, edits

    def advance(self, step: Step) -> None:
        """The step is queued: what it computes and draws counts from now on."""
        for row, count, samples in zip(step.rows, step.counts, step.samples, strict=True):
            row.num_computed += count
            row.num_known += samples

    def see(self, step: Step, out: ModelRunnerOutput) -> None:
        """The drawn tokens have arrived."""
        for row, sampled in zip(step.rows, out.sampled, strict=True):
            row.token_ids += sampled

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
            num_given=len(tokens),
            num_known=len(tokens),
        )
        self._rows[new.req_id] = row
        if not self._is_plain(new.params):
            self._demanding.add(new.req_id)
        return [self.table.describe(row), self.table.append_blocks(row, new.block_ids)]

    def _leave(self, req_id: str) -> None:
        row = self._rows.pop(req_id, None)
        if row is not None:
            self.table.give_back(row.row)
            self._demanding.discard(req_id)

    def _describe(self, plan: SchedulerOutput, demanding_before: bool) -> Step:
        rows = [self._rows[req_id] for req_id in plan.num_scheduled]
        counts = list(plan.num_scheduled.values())
        ends = [row.num_computed + count for row, count in zip(rows, counts, strict=True)]
        num_tokens = sum(counts)
        return Step(
            plan=plan,
            rows=rows,
            counts=counts,
            samples=[end == row.num_known for row, end in zip(rows, ends, strict=True)],
            num_tokens=num_tokens,
            num_chunks=0 if num_tokens == len(rows) else sum(count > 1 for count in counts),
            max_seq_len=max(ends, default=0),
            is_plain=self._demanding.isdisjoint(plan.num_scheduled) if self._demanding else True,
            concerns_processors=demanding_before or bool(self._demanding),
        )

    def _tokens_to_give(self, step: Step) -> list[Edit]:
        """Tokens of this step that the device has not: those that came with the request."""
        edits = []
        for row, count in zip(step.rows, step.counts, strict=True):
            if row.num_computed < row.num_given:
                end = min(row.num_computed + count, row.num_given)
                edits.append(self.table.give_tokens(row, row.num_computed, end))
        return edits
