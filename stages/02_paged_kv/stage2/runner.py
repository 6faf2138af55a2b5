"""From a plan to tokens with the request table on the device: a packet, one graph replay, a small copy back.

Owns the order of a step and the choice between a graph and single launches. Does not decide what runs; does not know
kernels, nor who has which row (``rows``).

    follow     finished and preempted requests leave their rows, new ones take one
    send       rows, positions and changes of the table: one copy, to the device
    compute    inputs → model → logits → tokens → table      a replayed graph, or the same launches one by one
    result     ids of the drawn tokens: one copy, back

``launch`` returns when the step is queued: what it draws feeds the next step on the device, whether or not the host has
seen it. ``stage1.runner.ModelRunner`` is the plain version.

vLLM: ``v1/worker/gpu_model_runner.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from stage1.batch import Sampled
from stage1.interfaces import AttentionBackend, LogitsProcessor, RunnerHook, Sampler
from stage1.model.transformer import Transformer
from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage1.results import add_logprobs, prompt_rows
from stage2.graphs import MAX_MIXED_TOKENS, Computed, StepGraph, StepGraphs, graph_sizes
from stage2.inputs import InputFiller, SlotMapping, StepBatch, StepBuffers
from stage2.needs import is_plain
from stage2.packet import Packet
from stage2.pending import NUM_LINES, Lines, PendingStep, ResultCopies, to_output
from stage2.rows import RowKeeper, Step
from stage2.state import RequestTable

logger = logging.getLogger(__name__)

Inputs = Callable[[Packet, RequestTable, int, SlotMapping], InputFiller]


@dataclass(frozen=True)
class StepLimits:
    """The largest step, and the longest request."""

    max_reqs: int
    max_tokens: int
    max_model_len: int
    block_size: int
    graph_tokens: int = MAX_MIXED_TOKENS  # of the largest step that is worth a graph

    @property
    def captured_tokens(self) -> int:
        """Tokens of the largest step that is captured."""
        return min(self.max_tokens, self.graph_tokens)

    @property
    def max_blocks(self) -> int:
        """Blocks of the longest request."""
        return -(-self.max_model_len // self.block_size)


class PagedRunner:
    """``Runner`` on one device."""

    def __init__(
        self,
        model: Transformer,
        attention: AttentionBackend,
        sampler: Sampler,
        processors: Sequence[LogitsProcessor],
        limits: StepLimits,
        device: torch.device,
        inputs: Inputs,
        slots: SlotMapping,
        hooks: Sequence[RunnerHook] = (),
    ) -> None:
        self._model, self._attention = model, attention
        self._sampler, self._processors = sampler, processors
        self._hooks = hooks
        self._device = device
        self._limits = limits
        table = RequestTable(limits.max_reqs, limits.max_blocks, limits.max_model_len, device)
        self._packet = Packet(limits.max_reqs, device)
        self._buffers = StepBuffers(limits.max_reqs, limits.max_tokens, limits.max_blocks, device)
        self._inputs = inputs(self._packet, table, limits.block_size, slots)
        self._results = ResultCopies(limits.max_reqs, device)
        # Whether a draw that needs nothing from the host can be part of a graph.
        draws: bool = getattr(sampler, "capturable", False)
        self._draws_in_graph, vocab_size = draws, model.shape.vocab_size
        self._keeper = RowKeeper(table, lambda params: draws and is_plain(params, vocab_size))
        self._graphs = StepGraphs()
        # A backend that says when cutting long requests' keys pays gets two graphs for each batch of decodes.
        self._pays_to_cut: Callable[[npt.NDArray[np.int32]], bool] | None = getattr(attention, "worth_cutting", None)
        self._cuts = (None,) if self._pays_to_cut is None else (False, True)

    @torch.inference_mode()
    def capture_graphs(self) -> int:
        """Capture a graph for every size worth one; returns their number, 0 where nothing can be captured."""
        if self._device.type != "cuda" or self._attention.capture_buffers(self._limits.max_reqs) is None:
            return 0
        return self._capture()

    def warm_up(self, plans: Sequence[SchedulerOutput]) -> int:
        """Compute made-up steps, so that what they launch is compiled; returns how many failed for want of memory."""
        failed, start = 0, time.perf_counter()
        for plan in plans:
            try:
                self.execute(plan)
            except torch.OutOfMemoryError:  # a request that asks for as much will hear of it
                torch.cuda.empty_cache()
                failed += 1
        logger.info("%d warm-up steps in %.1f s", len(plans), time.perf_counter() - start)
        if failed:
            logger.warning("out of memory: %d of %d warm-up steps were left out", failed, len(plans))
        return failed

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Compute one step and wait for it."""
        return self.launch(plan).result()

    @torch.inference_mode()
    def launch(self, plan: SchedulerOutput) -> PendingStep:
        """Queue one step; asking for the result waits for it."""
        step, edits = self._keeper.follow(plan)
        if not step.rows:
            if step.concerns_processors:  # they hear of those who have left
                self._prepare(step, self._buffers.batch(0, 0, max_query_len=0, max_seq_len=0))
            return PendingStep(lambda: ModelRunnerOutput([], []))
        self._packet.send(step, edits, self._keeper.table)
        read = self._queue(step)
        self._keeper.advance(step)

        def finish() -> ModelRunnerOutput:
            out = read()
            self._keeper.see(step, out)
            return out

        return PendingStep(finish)

    def check_health(self) -> bool:
        """Whether the device still computes; raises what it raises."""
        return bool(torch.ones(2, device=self._device).sum().item() == 2.0)

    def _capture(self) -> int:
        """Capture all graphs in place of those there are; returns their number."""
        self._packet.clear()  # the launches are warmed up with padding alone
        sizes = graph_sizes(self._limits.max_reqs, self._limits.captured_tokens, self._cuts)
        return self._graphs.capture(sizes, self._compute, self._buffers)

    # --- below: the phases of a step ----------------------------------------------------------------

    def _queue(self, step: Step) -> Callable[[], ModelRunnerOutput]:
        """Queue the launches of a step and the copy of its tokens; what is returned waits for them."""
        graph = self._find_graph(step)
        if graph is not None and step.is_plain and not self._hooks:
            self._queue_behind(step, graph, graph.batch, graph.replay())
            complete = None
        else:
            complete = self._launch_demanding(step, graph)
        wait = self._results.start(len(step.rows), self._num_lines(step))

        def read() -> ModelRunnerOutput:
            out = self._to_output(step, wait())
            if complete is not None:
                complete(out)
            return out

        return read

    def _find_graph(self, step: Step) -> StepGraph | None:
        return self._graphs.find(len(step.rows), step.num_tokens, step.num_chunks, self._worth_cutting(step))

    def _worth_cutting(self, step: Step) -> bool | None:
        """Which of two graphs of a batch is faster for ``step``, where there are two."""
        return None if self._pays_to_cut is None else self._pays_to_cut(step.starts + step.counts)

    def _queue_behind(self, step: Step, graph: StepGraph | None, batch: StepBatch, computed: Computed) -> None:
        """What is launched behind a step's tokens: nothing here."""

    def _num_lines(self, step: Step) -> int:
        """Lines of the result that say something of ``step``: ids and flags."""
        return NUM_LINES

    def _to_output(self, step: Step, lines: Lines) -> ModelRunnerOutput:
        ids, flags = lines
        return to_output(step.rows, ids, flags)

    def _launch_demanding(self, step: Step, graph: StepGraph | None) -> Callable[[ModelRunnerOutput], None]:
        """Queue a step that needs the host: no graph, a draw that is not in it, or hooks.

        Returns what completes the step's record when its tokens have arrived.
        """
        batch = self._views(step)
        if step.concerns_processors:
            self._prepare(step, batch)
        if self._hooks:
            self._inputs.fill(batch)  # once more in the graph, with the same result
            for hook in self._hooks:
                hook.before_forward(step.plan, batch)
        computed = self._compute(batch) if graph is None else self._replay(graph, batch, step)
        self._queue_behind(step, graph, batch, computed)
        prompts = prompt_rows(batch, computed.hidden, self._model)

        def complete(out: ModelRunnerOutput) -> None:
            add_logprobs(out, batch, computed.sampled, self._model.shape.vocab_size)
            out.prompt_logprobs = prompts
            for hook in self._hooks:
                hook.after_forward(step.plan, batch, out)

        return complete

    def _prepare(self, step: Step, batch: StepBatch) -> None:
        """Let the logits processors follow the requests."""
        for processor in self._processors:
            processor.prepare(step.plan, batch)

    def _views(self, step: Step) -> StepBatch:
        """The step's inputs, exactly as long as they are, with the host's view of its rows."""
        for row, num_computed in zip(step.rows, step.starts.tolist(), strict=True):
            row.num_computed = num_computed
        return self._buffers.batch(
            len(step.rows),
            step.num_tokens,
            num_chunks=step.num_chunks,
            num_few=len(step.rows) - step.num_chunks,
            max_query_len=int(step.counts.max()),
            max_seq_len=int((step.starts + step.counts).max()),
            states=step.rows,
            samples=(step.samples > 0).tolist(),
        )

    def _compute(self, batch: StepBatch) -> Computed:
        """Queue the launches of a step. Captured with a padded batch that has no ``states``."""
        self._inputs.fill(batch)
        self._attention.plan(batch)
        hidden = self._model(batch.input_ids, batch, self._attention)  # [T, hidden]
        last = self._before_draws(hidden, batch)  # [R * max_draws, hidden]
        logits = self._model.lm_head(last)  # [R * max_draws, vocab], in the model's dtype: half the bytes to read again
        is_captured = not batch.states
        sampled = None if is_captured and not self._draws_in_graph else self._draw(logits, batch)
        return Computed(hidden, logits, sampled)

    def _before_draws(self, hidden: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        """The hidden states that tokens are drawn behind: one a request here, of its last token."""
        return hidden if batch.num_chunks == 0 else hidden[batch.logits_rows]

    def _replay(self, graph: StepGraph, batch: StepBatch, step: Step) -> Computed:
        """The same from a graph; tokens that its draw got wrong or left out are drawn behind it."""
        computed = graph.replay()
        if step.is_plain and computed.sampled is not None:
            return computed
        logits = computed.logits[: batch.num_reqs * batch.max_draws]
        return Computed(computed.hidden, computed.logits, self._draw(logits, batch))

    def _draw(self, logits: torch.Tensor, batch: StepBatch) -> Sampled:
        """Tokens, for the host and for the next step."""
        sampled = self._sampler.sample(logits, batch)
        self._inputs.remember(batch, sampled.ids[:, 0], sampled.bad, self._results.on_device)
        return sampled
