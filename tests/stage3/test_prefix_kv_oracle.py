"""The prefix cache against an oracle that writes down every block's whole past, under any order of operations."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sixfold.exercises.importer import load_file
from stage1.request import Request, Status
from stage2.block_pool import BlockPool
from stage3.prefix.kv_manager import PrefixKVManager

steps = load_file(Path(__file__).with_name("prefix_steps.py"))
admit, compute, end, request = steps.admit, steps.compute, steps.end, steps.request

NAMES = "abcd"
OPERATIONS = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(["come", "step", "step", "step", "stop", "preempt", "fail", "reset"]),
    st.integers(0, 40),
    st.sampled_from([None, None, "x"]),
)


class Oracle:
    """The manager beside the whole past of every block: who computed what in it, and in which order it became free."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.kv = PrefixKVManager(self.pool, block_size)
        self.size = block_size
        self.free = list(range(num_blocks))
        self.past: dict[int, tuple] = {}  # block → salt and all tokens up to its end
        self.live: dict[str, Request] = {}
        self.tables: dict[str, list[int]] = {}
        self.adopted: dict[str, int] = {}
        self.salts: dict[str, str | None] = {}

    def come(self, name: str, number: int, salt: str | None) -> None:
        if name not in self.live:
            self.live[name] = request(name, [(number + i // 3) % 3 for i in range(1 + number % 19)])
            self.salts[name] = salt
            if salt is not None:
                self.kv.set_extra_keys(name, {"cache_salt": salt})
        if name not in self.tables:
            self.admit(name, self.live[name])

    def admit(self, name: str, req: Request) -> None:
        tokens = (*req.prompt_ids, *req.output_ids)
        hit = self.kv.lookup(req)
        ends = range(self.size, len(tokens), self.size)
        pasts = [(self.salts[name], tokens[:end]) for end in ends]
        longest = next((i for i, past in enumerate(pasts) if past not in self.past.values()), len(pasts))
        assert [self.past[block] for block in hit.block_ids] == pasts[:longest]
        assert hit.num_tokens == longest * self.size
        shared = list(hit.block_ids)
        kept = [block for block in self.free if block not in shared]
        missing = -(-len(tokens) // self.size) - longest
        hits = admit(self.kv, req)
        if missing > len(kept):
            assert hits is None
            self.free = kept + [block for block in reversed(shared) if block in self.free]
            return
        assert hits == hit.num_tokens
        self.tables[name] = shared + kept[:missing]
        self.adopted[name] = longest
        self.forget(kept[:missing])
        self.free = kept[missing:]

    def step(self, name: str, number: int) -> None:
        if name not in self.tables:
            return
        req = self.live[name]
        n = min(req.num_tokens_to_compute, 1 + number % 7)
        new = self.kv.allocate_slots(req, req.num_computed_tokens + n)
        missing = -(-(req.num_computed_tokens + n) // self.size) - len(self.tables[name])
        if new is None:
            assert missing > len(self.free)
            return
        assert new == self.free[: max(missing, 0)]
        self.free = self.free[len(new) :]
        self.forget(new)
        self.tables[name] += new
        compute(self.kv, req, n)
        tokens = (*req.prompt_ids, *req.output_ids)
        for place in range(self.adopted[name], req.num_computed_tokens // self.size):
            self.past[self.tables[name][place]] = (self.salts[name], tokens[: (place + 1) * self.size])

    def leave(self, name: str, status: Status) -> None:
        if name not in self.live or (status is Status.PREEMPTED and name not in self.tables):
            return
        req = self.live[name]
        table = self.tables.pop(name, [])
        if status is Status.FAILED:
            self.forget(table[self.adopted[name] :] if table else [])
        end(self.kv, req, status)
        owned = {block for other in self.tables.values() for block in other}
        self.free += [block for block in reversed(table) if block not in owned]
        if status is Status.PREEMPTED:
            req.num_computed_tokens = 0
        else:
            del self.live[name]

    def reset(self) -> None:
        assert self.kv.reset() is (not self.tables)
        if not self.tables:
            self.past.clear()

    def forget(self, blocks: list[int]) -> None:
        for block in blocks:
            self.past.pop(block, None)

    def check(self) -> None:
        assert list(self.pool.free_blocks()) == self.free
        for block in range(self.pool.num_blocks):
            assert self.pool.ref_count(block) == sum(block in table for table in self.tables.values())


@given(st.integers(3, 12), st.integers(1, 4), st.lists(OPERATIONS, max_size=60))
def test_any_order_of_operations_finds_just_what_was_computed(num_blocks, block_size, operations):
    oracle = Oracle(num_blocks, block_size)
    ends = {"stop": Status.STOPPED, "preempt": Status.PREEMPTED, "fail": Status.FAILED}
    for name, operation, number, salt in operations:
        if operation == "come":
            oracle.come(name, number, salt)
        elif operation == "step":
            oracle.step(name, number)
        elif operation == "reset":
            oracle.reset()
        else:
            oracle.leave(name, ends[operation])
        oracle.check()
    for name in NAMES:
        oracle.leave(name, Status.ABORTED)
    oracle.check()
    assert oracle.kv.usage == 0.0
    assert oracle.kv._chains == {}
