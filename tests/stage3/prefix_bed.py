"""Stage 2's test bed with a prefix cache: after every plan and result, every cached block holds what its name says.

The runner of that bed reads each request's tokens back through its block table, so a wrong block gives a wrong output.
Here a slot also knows behind which tokens its own was computed, as real keys and values do, and the names that were
given are kept, so that a wrong name is found before anyone reads the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sixfold.exercises.importer import load_file
from stage1.interfaces import Hit
from stage1.params import SamplingParams
from stage1.records import EngineCoreOutputs, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.request import Request
from stage3.prefix.block_hash import chain_start, hash_block
from stage3.prefix.kv_manager import PrefixKVManager
from stage3.prefix.scheduler import PrefixScheduler

base = load_file(Path(__file__).parents[1] / "stage2" / "scheduler_bed.py")
EOS, MAX_LEN = base.EOS, base.MAX_LEN
HashBlock = Callable[[bytes, Sequence[int]], bytes]


def alone(prompt: list[int], **params: Any) -> list[int]:
    """The oracle: what ``prompt`` gives with no cache at all."""
    return base.expected_output(prompt, SamplingParams(**params))


class RecordingKV(PrefixKVManager):
    """Remembers what was said to be in the cache."""

    def __init__(self, *args: Any, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self.committed: dict[str, int] = {}

    @property
    def pool(self):
        return self._pool

    @property
    def num_chains(self) -> int:
        return len(self._chains)

    def adopt(self, req: Request, hit: Hit) -> None:
        super().adopt(req, hit)
        self.committed[req.req_id] = hit.num_tokens

    def commit(self, req: Request) -> None:
        super().commit(req)
        self.committed[req.req_id] = req.num_computed_tokens

    def free(self, req: Request) -> None:
        super().free(req)
        self.committed.pop(req.req_id, None)


class ContextRunner(base.FakeRunner):
    """Counts reads of a token's keys and values that were computed behind other tokens: they are not the same ones."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.contexts: dict[int, tuple[int, ...]] = {}  # slot → the tokens up to and with its own
        self.num_misread = 0

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        out = super().execute(plan)
        starts = dict(zip(plan.cached.req_ids, plan.cached.num_computed, strict=True))
        starts.update({new.req_id: new.num_computed for new in plan.new})
        for req_id, n in plan.num_scheduled.items():
            for position in range(starts[req_id], starts[req_id] + n):
                self.contexts[self.slot(req_id, position)] = tuple(self.tokens[req_id][: position + 1])
        for req_id, n in plan.num_scheduled.items():
            for position in range(starts[req_id] + n):
                context = tuple(self.tokens[req_id][: position + 1])
                self.num_misread += self.contexts[self.slot(req_id, position)] != context
        return out


class PrefixBed(base.Bed):
    """``Bed`` over a ``PrefixKVManager``; ``kv_parts`` are its further arguments."""

    def __init__(
        self, *args: Any, kv_parts: dict[str, Any] | None = None, checks: bool = True, **settings: Any
    ) -> None:
        self.names: dict[bytes, tuple[bytes, tuple[int, ...]]] = {}  # name → its parent and tokens
        self.salts: dict[str, str | None] = {}
        self.told: dict[str, int] = {}  # cached tokens, as the outputs told
        self.checks = checks
        parts = {"hash_block": hash_block, **(kv_parts or {})}
        hashed = parts.pop("hash_block")

        def recorded(parent: bytes, token_ids: Sequence[int]) -> bytes:
            key = hashed(parent, token_ids)
            self.names[key] = (parent, tuple(token_ids))
            return key

        def make_kv(pool: Any, block_size: int) -> RecordingKV:
            return RecordingKV(pool, block_size, hash_block=recorded, **parts)

        super().__init__(*args, kv_type=make_kv, **settings)
        self.runner = ContextRunner(self.kv.block_size)
        self.cached_pool = self.plain_kv.pool
        self.scheduler = PrefixScheduler(self.scheduler, self.plain_kv)

    def add(
        self,
        req_id: str,
        prompt: list[int],
        priority: int = 0,
        arrival: float = 0.0,
        salt: str | None = None,
        **params: Any,
    ) -> None:
        asked = SamplingParams(**{"seed": 0, "eos_token_ids": [EOS], **params})
        self.scheduler.add(EngineCoreRequest(req_id, prompt, asked, priority, arrival, salt))
        self.received[req_id] = []
        self.salts[req_id] = salt
        self.reasons.pop(req_id, None)
        self.told.pop(req_id, None)

    def serve(self, req_id: str, prompt: list[int], **params: Any) -> int:
        """Run one request to its end; its output must be right. Returns how much of it was cached."""
        params = {"max_tokens": 1, "ignore_eos": True, **params}
        self.add(req_id, prompt, **params)
        self.run()
        params.pop("salt", None)
        assert self.received[req_id] == alone(prompt, **params)
        return self.told[req_id]

    def deliver(self, outputs: EngineCoreOutputs) -> None:
        assert not self.told.keys() & outputs.num_cached_tokens.keys(), "told twice"
        self.told.update(outputs.num_cached_tokens)
        super().deliver(outputs)

    def check_plan(self, plan: SchedulerOutput) -> None:
        super().check_plan(plan)
        for new in plan.new:
            known = len(new.prompt_ids) + len(new.output_ids)
            assert new.num_computed % self.kv.block_size == 0
            assert new.num_computed + plan.num_scheduled[new.req_id] <= known
            for block in new.block_ids[: new.num_computed // self.kv.block_size]:
                salt = self.salts[new.req_id]
                start = chain_start({} if salt is None else {"cache_salt": salt})
                assert not self.checks or self.start_of(self.cached_pool.key_of(block)) == start, "another one's block"
        self.check_contents()

    def check_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        super().check_result(plan, out)
        self.check_contents()

    def check_contents(self) -> None:
        if not self.checks:
            return
        assert self.runner.num_misread == 0
        size = self.kv.block_size
        for block in self.cached_pool.cached_blocks():
            key = self.cached_pool.key_of(block)
            held = [self.runner.slots[slot] for slot in range(block * size, (block + 1) * size)]
            assert held == list(self.names[key][1]), f"block {block} holds something else than its name says"
            assert self.cached_pool.key_of(self.cached_pool.find(key)) == key

    def start_of(self, key: bytes) -> bytes:
        """The start of the chain that ``key`` is in."""
        while key in self.names:
            key = self.names[key][0]
        return key

    def assert_clean(self) -> None:
        super().assert_clean()
        assert self.plain_kv.num_chains == 0
        assert self.scheduler._untold == {}
