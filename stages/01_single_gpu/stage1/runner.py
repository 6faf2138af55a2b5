"""From a plan to tokens: the runner flattens the batch, runs the model and samples.

Owns each request's token ids and block ids on the worker's side. Does not decide what runs, when a request ends or
which blocks it gets: it follows plans.

vLLM: ``v1/worker/gpu_model_runner.py``, ``v1/worker/gpu_input_batch.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stage1.batch import ForwardBatch, RowState, Sampled
from stage1.interfaces import AttentionBackend, LogitsProcessor, RunnerHook, Sampler
from stage1.model.transformer import Transformer
from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage1.results import add_logprobs, prompt_rows
from stage1.transfer import to_device

BAD_LOGITS = "the model gave no usable logits for this request (not a number, or no token is allowed)"


class ModelRunner:
    """``Runner`` on one device."""

    def __init__(
        self,
        model: Transformer,
        attention: AttentionBackend,
        sampler: Sampler,
        processors: Sequence[LogitsProcessor],
        block_size: int,
        device: torch.device,
        hooks: Sequence[RunnerHook] = (),
    ) -> None:
        self._model = model
        self._attention = attention
        self._sampler = sampler
        self._processors = processors
        self._block_size = block_size
        self._device = device
        self._hooks = hooks
        self._states: dict[str, RowState] = {}

    @torch.inference_mode()
    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Compute one step."""
        self._follow(plan)
        if not plan.num_scheduled:
            return ModelRunnerOutput([], [])
        batch = self._flatten(plan)
        for processor in self._processors:
            processor.prepare(plan, batch)
        self._attention.plan(batch)
        for hook in self._hooks:
            hook.before_forward(plan, batch)
        hidden = self._model(batch.input_ids, batch, self._attention)  # [T, hidden]
        logits = self._model.logits(hidden[batch.logits_rows])  # [L, vocab]
        sampled = self._sampler.sample(logits, batch)
        out = self._to_lists(batch, sampled)
        out.prompt_logprobs = prompt_rows(batch, hidden, self._model)
        self._advance(plan, out)
        for hook in self._hooks:
            hook.after_forward(plan, batch, out)
        return out

    def check_health(self) -> bool:
        """Whether the device still computes; raises what it raises."""
        return bool(torch.ones(2, device=self._device).sum().item() == 2.0)

    # --- below: the phases of a step ----------------------------------------------------------------

    def _follow(self, plan: SchedulerOutput) -> None:
        """Bring the table of requests to the state that ``plan`` assumes."""
        for req_id in (*plan.finished, *plan.preempted):
            self._states.pop(req_id, None)
        for new in plan.new:
            self._states[new.req_id] = RowState(
                req_id=new.req_id,
                params=new.params,
                seed=new.params.seed or 0,  # the input processor seeds every request; a core driven directly may not
                num_prompt_tokens=len(new.prompt_ids),
                token_ids=[*new.prompt_ids, *new.output_ids],
                block_ids=list(new.block_ids),
                num_computed=new.num_computed,
            )
        for req_id, num_computed in zip(plan.cached.req_ids, plan.cached.num_computed, strict=True):
            self._states[req_id].num_computed = num_computed
        for req_id, block_ids in plan.cached.new_block_ids.items():
            self._states[req_id].block_ids.extend(block_ids)

    def _flatten(self, plan: SchedulerOutput) -> ForwardBatch:
        """All scheduled tokens behind each other; see the picture in ``batch``."""
        states = [self._states[req_id] for req_id in plan.num_scheduled]
        counts = list(plan.num_scheduled.values())
        ends = [state.num_computed + n for state, n in zip(states, counts, strict=True)]
        input_ids: list[int] = []
        positions: list[int] = []
        for state, end in zip(states, ends, strict=True):
            input_ids += state.token_ids[state.num_computed : end]
            positions += range(state.num_computed, end)
        width = max(len(state.block_ids) for state in states)
        table = [block for s in states for block in (*s.block_ids, *[0] * (width - len(s.block_ids)))]

        def tensor(values: Sequence[int]) -> torch.Tensor:
            return to_device(values, torch.int64, self._device)

        num_queries, position = tensor(counts), tensor(positions)  # [R], [T]
        block_table = tensor(table).view(len(states), width)  # [R, B]
        query_start = torch.nn.functional.pad(num_queries.cumsum(0), (1, 0))  # [R + 1]
        request = torch.repeat_interleave(num_queries, output_size=len(positions))  # [T]
        block = block_table[request, position // self._block_size]  # [T]
        return ForwardBatch(
            rows=torch.arange(len(states), device=self._device),  # nothing is kept on the device between steps yet
            input_ids=tensor(input_ids),
            positions=position,
            query_start=query_start,
            seq_lens=tensor(ends),
            block_table=block_table,
            slot_mapping=block * self._block_size + position % self._block_size,
            logits_rows=query_start[1:] - 1,
            max_query_len=max(counts),
            max_seq_len=max(ends),
            states=states,
            samples=[end == len(state.token_ids) for state, end in zip(states, ends, strict=True)],
        )

    def _to_lists(self, batch: ForwardBatch, sampled: Sampled) -> ModelRunnerOutput:
        """The one place where the step's tensors become Python numbers."""
        packed = torch.cat((sampled.ids, sampled.counts[:, None], sampled.bad[:, None].long()), dim=1).tolist()
        req_ids = [state.req_id for state in batch.states]
        out = ModelRunnerOutput(req_ids, [row[: row[-2]] for row in packed])
        for state, row in zip(batch.states, packed, strict=True):
            if row[-1] and row[-2]:
                out.failed[state.req_id] = BAD_LOGITS
        add_logprobs(out, batch, sampled, self._model.shape.vocab_size)
        return out

    def _advance(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """Remember what was computed and sampled."""
        for req_id, sampled in zip(out.req_ids, out.sampled, strict=True):
            state = self._states[req_id]
            state.num_computed += plan.num_scheduled[req_id]
            state.token_ids += sampled
