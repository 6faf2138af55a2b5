"""Stage 2's runner with guesses: it verifies those of the plan and makes those of the next one.

Owns the way of drafts through a step. Does not decide which are verified (``scheduling``), nor how (``rejection``).

    plan        A: its last token and the drafts d0 d1        B: its last token
    model       rows behind the last token, d0, d1            a row
    verify      x d1' …: tokens of A and how many             one token of B
    table       both write their tokens where the next step reads them
    propose     drafts behind what is known now, on the device

A step with drafts is launched kernel by kernel. Requests with masks, biases, penalties or log-probabilities get none; a
grammar's masks come with the plan, one for each position.

vLLM: ``v1/worker/gpu_model_runner.py`` (``propose_draft_token_ids``, ``_calc_spec_decode_metadata``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage1.records import ModelRunnerOutput
from stage1.results import add_logprobs, prompt_rows
from stage1.runner import BAD_LOGITS
from stage2.inputs import StepBatch
from stage2.needs import has_rules
from stage2.rows import Step
from stage2.runner import PagedRunner
from stage3.grammar.mask_processor import ApplyMasks, StepMasks, apply_masks, first_masks
from stage3.grammar.records import GrammarMasks
from stage3.spec.rejection import DrawRules

Propose = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], Drafts]  # token_ids, rows, lengths, max_model_len
Verify = Callable[[torch.Tensor, Drafts, DrawRules], Sampled]


class DraftingRunner(PagedRunner):
    """``PagedRunner`` with a proposer that needs nothing but the tokens, and a verifier."""

    def __init__(
        self,
        *args: Any,
        propose: Propose,
        verify: Verify,
        max_batch: int,
        apply_masks: ApplyMasks = apply_masks,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._max_batch = max_batch
        self._propose = propose
        self._verify = verify
        self._apply_masks = apply_masks

    def _queue(self, step: Step) -> Callable[[], ModelRunnerOutput]:
        """As without drafts, then the drafts of the next step behind it."""
        if step.drafts:
            read, lengths = self._queue_drafts(step)
        else:
            read = super()._queue(step)
            lengths = self._buffers.seq_lens + self._buffers.draws
        num_reqs = len(step.rows)
        if num_reqs > self._max_batch:  # the schedule takes no drafts of so large a step
            return read
        rows, draws = self._buffers.rows[:num_reqs], self._buffers.draws[:num_reqs]
        known = torch.where(draws > 0, lengths[:num_reqs], 0)
        drafts = self._propose(self._keeper.table.token_ids, rows, known, self._limits.max_model_len)
        packed = torch.cat((drafts.ids, drafts.counts[:, None]), dim=1)  # [R, k + 1]
        asking = [row.params.logprobs is None and not has_rules(row.params) for row in step.rows]

        def read_all() -> ModelRunnerOutput:
            out = read()
            for req_id, asks, found in zip(out.req_ids, asking, packed.tolist(), strict=True):
                if asks and found[-1]:
                    out.drafts[req_id] = found[: found[-1]]
            return out

        return read_all

    def _queue_drafts(self, step: Step) -> tuple[Callable[[], ModelRunnerOutput], torch.Tensor]:
        """Compute and verify; returns how to read the tokens, and how many are known of each request then, [R]."""
        batch = self._views(step)
        if step.concerns_processors:
            extras = [first_masks(e) if isinstance(e, GrammarMasks) else e for e in step.plan.extras]
            plan = msgspec.structs.replace(step.plan, drafts={}, extras=extras)  # the sampler sees a row a request
            for processor in self._processors:
                processor.prepare(plan, batch)
        drafts = self._drafts(step)
        self._inputs.fill(batch)
        self._attention.plan(batch)
        for hook in self._hooks:
            hook.before_forward(step.plan, batch)
        hidden = self._model(batch.input_ids, batch, self._attention)  # [T, hidden]
        first_rows = {row.req_id: place * (1 + drafts.ids.shape[1]) for place, row in enumerate(step.rows)}
        masks = StepMasks(step.plan, first_rows, self._device, self._apply_masks)
        sampled = self._draw_all(hidden, drafts, masks, batch)
        known = batch.seq_lens - drafts.counts  # [R], before this step's tokens
        self._remember_all(batch, sampled, known)
        prompts = prompt_rows(batch, hidden, self._model)
        packed = torch.cat((sampled.ids, sampled.counts[:, None], sampled.bad[:, None].long()), dim=1)

        def read() -> ModelRunnerOutput:
            found = packed.tolist()
            out = ModelRunnerOutput([row.req_id for row in step.rows], [ids[: ids[-2]] for ids in found])
            out.failed = {r: BAD_LOGITS for r, ids in zip(out.req_ids, found, strict=True) if ids[-1] and ids[-2]}
            add_logprobs(out, batch, sampled, self._model.shape.vocab_size)
            out.prompt_logprobs = prompts
            for hook in self._hooks:
                hook.after_forward(step.plan, batch, out)
            return out

        return read, known + sampled.counts

    def _drafts(self, step: Step) -> Drafts:
        """The plan's drafts on the device."""
        width = max(map(len, step.drafts))
        ids = torch.tensor([ids + [0] * (width - len(ids)) for ids in step.drafts], device=self._device)
        return Drafts(ids.view(-1, width), torch.tensor([len(ids) for ids in step.drafts], device=self._device))

    def _draw_all(self, hidden: torch.Tensor, drafts: Drafts, masks: StepMasks, batch: StepBatch) -> Sampled:
        """The verifier's tokens for requests with drafts, the plain sampler's for the others."""
        width = 1 + drafts.ids.shape[1]
        last = batch.query_start[1:] - 1  # [R]
        place = (last - drafts.counts)[:, None] + torch.arange(width, device=last.device)  # [R, 1 + k]
        logits = self._model.lm_head(hidden[torch.minimum(place, last[:, None]).flatten()])
        by_request = logits.view(batch.num_reqs, width, -1)  # [R, 1 + k, vocab]
        rules = DrawRules(
            batch.temperature,
            batch.top_k,
            batch.top_p,
            batch.min_p,
            batch.seeds,
            batch.draw_positions - drafts.counts,
        )
        plain = self._sampler.sample(by_request[:, 0].clone(), batch)  # without drafts the last row is the first
        masks.apply(logits)
        verified = self._verify(by_request, drafts, rules)
        has_drafts = drafts.counts > 0  # [R]
        ids = torch.nn.functional.pad(plain.ids, (0, width - 1))
        return Sampled(
            torch.where(has_drafts[:, None], verified.ids, ids),
            torch.where(has_drafts, verified.counts, batch.draws),
            torch.where(has_drafts, verified.bad, plain.bad),
            plain.logprobs,
        )

    def _remember_all(self, batch: StepBatch, sampled: Sampled, known: torch.Tensor) -> None:
        """Write the tokens into the table, behind the ``known`` [R] of each request."""
        place = torch.arange(sampled.ids.shape[1], device=known.device)  # [1 + k]
        meant = place < sampled.counts[:, None]  # [R, 1 + k]
        rows = batch.rows[:, None].expand_as(meant)[meant]
        columns = (known[:, None] + place)[meant]
        self._keeper.table.token_ids[rows, columns] = sampled.ids[meant].int()
