"""A scheduler with the grammar hook in it, and a fake runner that obeys the masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sixfold.exercises.importer import load_file
from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.hook import GrammarHook
from stage3.grammar.masks import unpack
from stage3.grammar.records import GrammarMasks
from stage3.grammar.vocabulary import Vocabulary

bed = load_file(Path(__file__).parents[1] / "stage2" / "scheduler_bed.py")
EOS = bed.EOS
VOCABULARY = Vocabulary([b"" if i == EOS else b"%c" % (97 + i) for i in range(23)])  # 0 is a, 1 is b, …


def text(ids: list[int]) -> str:
    return "".join(VOCABULARY.tokens[i].decode() for i in ids)


def masks_of(plan: SchedulerOutput) -> dict[str, list[list[int]]]:
    """What each guided row may draw, a list a draft position."""
    found: dict[str, list[list[int]]] = {}
    for extra in plan.extras:
        assert isinstance(extra, GrammarMasks)
        rows = iter(np.frombuffer(extra.data, dtype="<u4").reshape(-1, extra.num_words))
        for req_id, count in zip(extra.req_ids, extra.counts, strict=True):
            found[req_id] = [np.flatnonzero(unpack(next(rows), 32)).tolist() for _ in range(count)]
    return found


class MaskedRunner(bed.FakeRunner):
    """Draws what the fake runner draws, or the next token that the mask allows."""

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        out: ModelRunnerOutput = super().execute(plan)
        masks = masks_of(plan)
        for req_id, sampled in zip(out.req_ids, out.sampled, strict=True):
            assert bool(sampled) or req_id not in masks  # only rows that draw have one
            if sampled and req_id in masks:
                allowed = masks[req_id][0]
                if len(allowed) == 32:  # the hook ends it with this step
                    continue
                assert allowed
                assert max(allowed) < VOCABULARY.size
                sampled[0] = min(allowed, key=lambda token: (token - sampled[0]) % 23)
                self.tokens[req_id][-1] = sampled[0]
        return out


class World:
    """A bed with the hook in it."""

    def __init__(self, compiler: GrammarCompiler, **settings: Any) -> None:
        self.compiler = compiler
        self.hook = GrammarHook(compiler)
        self.bed = bed.Bed(hooks=[self.hook], **settings)
        self.bed.lifecycle._hooks = self.bed.lifecycle._hooks[::-1]  # the tracer reads what the hook writes
        self.bed.runner = MaskedRunner(self.bed.runner.block_size)
        self.hook.doom = self.bed.lifecycle.doom

    def add(
        self, req_id: str, asked: dict[str, Any] | None = None, prompt: tuple[int, ...] = (1, 2), **params: Any
    ) -> None:
        self.bed.add(req_id, list(prompt), structured_outputs=asked, **params)

    def compile_all(self) -> None:
        self.compiler._pool.submit(lambda: None).result(timeout=60)  # one thread: all before it are done

    def run(self) -> None:
        self.compile_all()
        self.bed.run()
        self.bed.assert_clean()
        assert self.hook.num_parked == 0
        assert not self.hook._guided

    def received(self, req_id: str) -> str:
        return text(self.bed.received[req_id])
