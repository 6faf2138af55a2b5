"""A step that is queued on the device, and the way its tokens come back.

Owns the pinned memory of results and the moment when Python numbers are made of them. Does not know the table.

The ids are copied to pinned memory behind the step's launches, and an event says when they are there; the host may
queue another step in between. Buffers take turns, so a result stays readable until two further steps were queued.

vLLM: ``v1/worker/gpu_model_runner.py`` (``AsyncGPUModelRunnerOutput`` in later versions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import torch

from stage1.batch import RowState
from stage1.records import ModelRunnerOutput
from stage1.runner import BAD_LOGITS

NUM_LINES = 2
BAD = 2  # the flag of a request for which no token can be chosen; 1 = drawn, 0 = none was to be drawn
Lines = list[list[int]]  # [R] ids, [R] flags, and what a later stage adds


class ResultCopies:
    """The result on the device, and pinned copies of it."""

    def __init__(self, max_reqs: int, device: torch.device, turns: int = 3, num_lines: int = NUM_LINES) -> None:
        on_gpu = device.type == "cuda"
        size = (num_lines, max_reqs)
        self.on_device = torch.zeros(size, dtype=torch.int32, device=device)
        self._copies = [torch.zeros(size, dtype=torch.int32, pin_memory=on_gpu) for _ in range(turns)]
        self._arrived = [torch.cuda.Event() for _ in range(turns)] if on_gpu else []
        self._turn = 0

    def start(self, num_reqs: int, num_lines: int) -> Callable[[], Lines]:
        """Queue a copy; what is returned waits for it and reads the first ``num_reqs`` columns of ``num_lines``."""
        turn = self._turn = (self._turn + 1) % len(self._copies)
        copy = self._copies[turn]
        copy[:num_lines].copy_(self.on_device[:num_lines], non_blocking=True)
        if self._arrived:
            self._arrived[turn].record()

        def wait() -> Lines:
            if self._arrived:
                self._arrived[turn].synchronize()
            lines: Lines = copy[:num_lines, :num_reqs].tolist()
            return lines

        return wait


def to_output(rows: Sequence[RowState], ids: Sequence[int], flags: Sequence[int]) -> ModelRunnerOutput:
    """The record of a step, from ``ids`` and ``flags`` [R] as they came from the device."""
    req_ids = [row.req_id for row in rows]
    if min(flags) == max(flags) == 1:  # the common case
        return ModelRunnerOutput(req_ids, [[token] for token in ids])
    out = ModelRunnerOutput(req_ids, [[token] if flag else [] for token, flag in zip(ids, flags, strict=True)])
    if BAD in flags:
        out.failed = {req_id: BAD_LOGITS for req_id, flag in zip(req_ids, flags, strict=True) if flag == BAD}
    return out


class PendingStep(Future[ModelRunnerOutput]):
    """A future whose result is made by whoever asks for it first: ``finish`` waits for the device."""

    def __init__(self, finish: Callable[[], ModelRunnerOutput]) -> None:
        super().__init__()
        self._finish: Callable[[], ModelRunnerOutput] | None = finish

    def result(self, timeout: float | None = None) -> ModelRunnerOutput:
        """The step's output; raises what the step raised. ``timeout`` (seconds) is that of ``Future``."""
        if self._finish is not None:
            finish, self._finish = self._finish, None
            try:
                self.set_result(finish())
            except Exception as error:
                self.set_exception(error)
        return super().result(timeout)
