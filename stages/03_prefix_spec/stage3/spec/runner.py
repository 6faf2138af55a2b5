"""Stage 2's runner with guesses: it verifies those of the plan and makes those of the next one.

Owns the way of drafts through a step. Does not decide which are verified (``scheduling``), how (``rejection``), nor
how they are made (a ``Drafter``).

    plan        A: its last token and the drafts d0 d1        B: its last token
    model       rows behind the last token, d0, d1            a row
    verify      x d1' …: tokens of A and how many             one token of B
    table       both write their tokens where the next step reads them
    draft       guesses behind what is known now, on the device

A step is two graphs, one behind the other: up to the tokens, and the guesses. What a graph cannot draw (filters, masks,
penalties) is drawn between the two. Requests with masks, biases, penalties or log-probabilities get no drafts; a
grammar's masks come with the plan, one for each position.

vLLM: ``v1/worker/gpu_model_runner.py`` (``propose_draft_token_ids``, ``_calc_spec_decode_metadata``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from stage1.batch import Sampled
from stage1.records import ModelRunnerOutput
from stage2.graphs import Computed, StepGraph
from stage2.inputs import StepBatch
from stage2.needs import changes_logits, has_filter, has_rules
from stage2.pending import Lines, ResultCopies
from stage2.rows import Step
from stage2.runner import PagedRunner
from stage3.grammar.mask_processor import ApplyMasks, StepMasks, first_masks
from stage3.grammar.records import GrammarMasks
from stage3.spec import steps
from stage3.spec.drafter import MakeDrafter
from stage3.spec.graphs import DraftGraphs, drafts_behind, verify_sizes
from stage3.spec.steps import Places, StepOperations

Verify = Callable[[torch.Tensor, Places, StepBatch, bool], Sampled]  # logits, places, batch, whether filters matter


@dataclass(frozen=True)
class Drafting:
    """How a runner speculates."""

    num_drafts: int
    max_batch: int  # of larger steps nothing is drafted
    make_drafter: MakeDrafter
    verify: Verify
    steps: StepOperations
    apply_masks: ApplyMasks
    capturable: bool  # whether ``verify`` can be part of a graph


class DraftingRunner(PagedRunner):
    """``PagedRunner`` with a drafter and a verifier."""

    def __init__(self, *args: Any, drafting: Drafting, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._drafting = drafting
        self._width = 1 + drafting.num_drafts
        self._draft_lines = steps.draft_lines(drafting.num_drafts)
        self._drafter = drafting.make_drafter(self._model, self._attention, self._keeper.table)
        self._results = ResultCopies(
            self._limits.max_reqs, self._device, num_lines=steps.num_lines(drafting.num_drafts)
        )
        self._masks: StepMasks | None = None  # of the step that is being queued, a mask for each draft
        self._draft_graphs = DraftGraphs()
        self._placed: tuple[StepBatch, Places] | None = None  # a batch, and where its draws are

    def _capture(self) -> int:
        """Stage 2's graphs, those of verifications, and behind each what guesses or follows."""
        count = super()._capture()
        pool = self._graphs.pool
        if self._drafting.capturable:
            sizes = verify_sizes(self._limits, self._drafting.max_batch, self._width, self._cuts)
            self._draft_graphs.capture_verifying(sizes, pool, self._compute, self._buffers)
        if self._drafter.capturable:
            graphs = (*self._draft_graphs.verifying, *self._draft_graphs.mixed, *self._graphs.all())
            behind = drafts_behind([graph.size for graph in graphs], self._drafting.max_batch, self._drafter.sees_all)
            wanted = [(graphs[i], self._draft_inputs(graphs[i], guesses), guesses) for i, guesses in behind]
            self._draft_graphs.capture_drafting(wanted, pool, self._draft)
        return count + len(self._draft_graphs)

    # --- below: stage 2's phases of a step, with drafts ------------------------------------------------

    def _find_graph(self, step: Step) -> StepGraph | None:
        if step.drafts:
            return self._draft_graphs.find(len(step.rows), step.num_tokens, step.counts, self._worth_cutting(step))
        return super()._find_graph(step)

    def _views(self, step: Step) -> StepBatch:
        batch = super()._views(step)
        if step.drafts:
            batch.max_draws = self._width
            batch.num_chunks = int((step.counts > batch.max_few).sum())
            batch.num_few = batch.num_reqs - batch.num_chunks
        return batch

    def _prepare(self, step: Step, batch: StepBatch) -> None:
        """Masks for each draft, and for the processors a step in which every request has one row."""
        self._masks = None
        if not step.drafts:
            super()._prepare(step, batch)
            return
        extras = [first_masks(e) if isinstance(e, GrammarMasks) else e for e in step.plan.extras]
        plan = msgspec.structs.replace(step.plan, drafts={}, extras=extras)
        for processor in self._processors:
            processor.prepare(plan, batch)
        first_rows = {row.req_id: place * self._width for place, row in enumerate(step.rows)}
        self._masks = StepMasks(step.plan, first_rows, self._device, self._drafting.apply_masks)

    def _before_draws(self, hidden: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        if batch.max_draws == 1:
            return super()._before_draws(hidden, batch)
        places = self._drafting.steps.place(batch)
        self._placed = batch, places
        return hidden[places.rows]

    def _draw(self, logits: torch.Tensor, batch: StepBatch) -> Sampled:
        """The verifier's tokens; the plain sampler's for requests with rules or log-probabilities, without drafts."""
        if batch.max_draws == 1:
            return super()._draw(logits, batch)
        wanting = [state.params for state, samples in zip(batch.states, batch.samples, strict=True) if samples]
        by_request = logits.view(batch.num_reqs, batch.max_draws, -1)  # [R, 1 + k, vocab]
        plain = None
        if any(changes_logits(params) or params.logprobs is not None for params in wanting):
            plain = self._sampler.sample(by_request[:, 0].clone(), batch)  # without drafts all its rows are equal
        if self._masks is not None:
            self._masks.apply(logits)
        filters = any(has_filter(params, logits.shape[1]) for params in wanting)
        if self._placed is not None and self._placed[0] is batch:
            places = self._placed[1]
        else:  # a graph computed the logits, with places of its own
            places = self._drafting.steps.place(batch)
        sampled = self._drafting.verify(by_request, places, batch, filters)
        if plain is not None:
            sampled = _choose(places.drafts.counts > 0, sampled, plain, batch)
        self._drafting.steps.remember(batch, sampled, self._keeper.table, self._results.on_device)
        return sampled

    def _queue_behind(self, step: Step, graph: StepGraph | None, batch: StepBatch, computed: Computed) -> None:
        """The guesses behind a step's tokens."""
        self._masks = None
        guesses = len(step.rows) <= self._drafting.max_batch
        if not guesses and not self._drafter.sees_all:
            return
        if graph is None or not self._draft_graphs.replay(graph, guesses):
            # A graph may have left more than the step has: tokens and requests that are padding.
            self._draft(batch, computed.hidden[: batch.num_tokens], guesses)

    def _draft_inputs(self, graph: StepGraph, guesses: bool) -> StepBatch:
        """What the graph of guesses, or of following, behind ``graph`` reads.

        Where there is room for more requests than are guessed for, those that matter are the first.
        """
        size, most = graph.size, self._drafting.max_batch
        if not guesses or size.num_reqs <= most:
            return graph.batch
        num_tokens = size.num_tokens if size.num_chunks else most
        described = {"num_chunks": size.num_chunks, "num_few": most, "max_query_len": size.max_query_len}
        return self._buffers.batch(most, num_tokens, max_seq_len=0, cut=size.cut, **described)

    def _draft(self, batch: StepBatch, hidden: torch.Tensor, guesses: bool) -> None:
        """Queue the drafter, and its guesses into the result. Captured with a padded batch."""
        result, num_reqs = self._results.on_device, batch.num_reqs
        known = self._drafting.steps.know(batch, result)
        if not guesses:
            self._drafter.follow(batch, hidden, known)
            return
        drafts = self._drafter.propose(batch, hidden, known)
        lines = torch.cat((drafts.ids, drafts.counts[:, None]), dim=1)  # [R, k + 1]
        result[self._draft_lines, :num_reqs] = lines.T

    def _num_lines(self, step: Step) -> int:
        if not step.drafts and len(step.rows) > self._drafting.max_batch:  # nothing verified, nothing guessed
            return super()._num_lines(step)
        return steps.num_lines(self._drafting.num_drafts)

    def _to_output(self, step: Step, lines: Lines) -> ModelRunnerOutput:
        out = super()._to_output(step, lines[:2])
        if step.drafts:
            further = zip(*lines[steps.FURTHER : self._draft_lines.start], strict=True)
            for sampled, count, ids in zip(out.sampled, lines[steps.COUNTS], further, strict=True):
                sampled += ids[: count - 1] if count else ()
        if len(step.rows) > self._drafting.max_batch:  # the schedule takes no drafts of so large a step
            return out
        plain = step.is_plain
        for row, *drafts, count in zip(step.rows, *lines[self._draft_lines], strict=True):
            if count and (plain or (row.params.logprobs is None and not has_rules(row.params))):
                out.drafts[row.req_id] = drafts[:count]
        return out


def _choose(has_drafts: torch.Tensor, verified: Sampled, plain: Sampled, batch: StepBatch) -> Sampled:
    """Of requests with drafts ``verified``, of others ``plain``; ``has_drafts`` [R] bool."""
    ids = torch.nn.functional.pad(plain.ids, (0, verified.ids.shape[1] - 1))
    return Sampled(
        torch.where(has_drafts[:, None], verified.ids, ids),
        torch.where(has_drafts, verified.counts, batch.draws),
        torch.where(has_drafts, verified.bad, plain.bad),
        plain.logprobs,
    )
