"""A step's inputs: the plain filler against arithmetic by hand, the kernels against the plain filler."""

import random
from dataclasses import fields

import pytest
import torch

from stage1.batch import ForwardBatch
from stage1.params import SamplingParams
from stage1.records import CachedRequests, ModelRunnerOutput, NewRequestData, SchedulerOutput
from stage2 import packet as packet_module
from stage2.inputs import PlainInputs, StepBatch, StepBuffers
from stage2.kernels.step_inputs import TritonInputs
from stage2.packet import Packet
from stage2.rows import RowKeeper
from stage2.slots import slot_mapping
from stage2.state import RequestTable

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TENSORS = [f.name for kind in (ForwardBatch, StepBatch) for f in fields(kind) if f.type == "torch.Tensor"]
BLOCK, MAX_LEN = 4, 700
MAX_BLOCKS = MAX_LEN // BLOCK


class Bed:
    """Table, packet, buffers and a filler, driven by plans."""

    def __init__(self, kind, max_reqs=5, max_tokens=800) -> None:
        self.table = RequestTable(max_reqs, MAX_BLOCKS, MAX_LEN, DEVICE)
        self.packet = Packet(max_reqs, DEVICE)
        self.buffers = StepBuffers(max_reqs, max_tokens, MAX_BLOCKS, DEVICE)
        self.inputs = kind(self.packet, self.table, BLOCK, slot_mapping)
        self.keeper = RowKeeper(self.table, lambda params: True)
        self.result = torch.zeros(2, max_reqs, dtype=torch.int32, device=DEVICE)

    def step(self, plan: SchedulerOutput, size: tuple[int, int] | None = None) -> StepBatch:
        """Fill a batch of ``size`` (padded) for ``plan``, from poisoned buffers."""
        step, edits = self.keeper.follow(plan)
        self.packet.send(step, edits, self.table)
        for value in vars(self.buffers).values():
            value.fill_(77)
        num_reqs, num_tokens = size or (len(step.rows), step.num_tokens)
        batch = self.buffers.batch(num_reqs, num_tokens, max_query_len=1, max_seq_len=1)
        self.inputs.fill(batch)
        self.keeper.advance(step)
        self.last = step
        return batch

    def draw(self, batch: StepBatch, ids: list[int], bad: list[bool] | None = None) -> list[list[int]]:
        """Remember ``ids``; returns the result that the host would read."""
        flags = torch.tensor(bad or [False] * len(ids), device=DEVICE)
        self.inputs.remember(batch, torch.tensor(ids, device=DEVICE), flags, self.result)
        result = self.result[:, : len(ids)].tolist()
        self.keeper.see(
            self.last,
            ModelRunnerOutput([], [[i] if f else [] for i, f in zip(*result, strict=True)][: len(self.last.rows)]),
        )
        return result


def new(
    req_id: str, tokens: list[int], blocks: list[int], computed: int = 0, output: int = 0, **params
) -> NewRequestData:
    prompt = tokens[: len(tokens) - output]
    return NewRequestData(req_id, prompt, tokens[len(prompt) :], SamplingParams(**params), blocks, computed)


def plan(scheduled: dict[str, int], new=(), cached=None, **others) -> SchedulerOutput:
    return SchedulerOutput(1, list(new), cached or CachedRequests(), scheduled, **others)


@pytest.mark.parametrize("kind", [PlainInputs, TritonInputs])
def test_a_step_by_hand(kind) -> None:
    bed = Bed(kind)
    a = new("a", [11, 12, 13, 14, 15], [8, 3], temperature=0.5, seed=-2, top_k=3, top_p=0.25, min_p=0.125)
    b = new("b", list(range(20, 27)), [5, 0], computed=6, output=2, temperature=0, seed=(1 << 40) + 5)
    batch = bed.step(plan({"a": 5, "b": 1}, [a, b]), size=(4, 8))  # b, the longer one, goes first
    assert batch.input_ids.tolist() == [26, 11, 12, 13, 14, 15, 0, 0]
    assert batch.positions.tolist() == [6, 0, 1, 2, 3, 4, 0, 0]
    assert batch.slot_mapping.tolist() == [2, 32, 33, 34, 35, 12, -1, -1]
    assert batch.query_start.tolist() == [0, 1, 6, 6, 6]
    assert batch.seq_lens.tolist() == [7, 5, 0, 0]
    assert batch.few_lens.tolist() == [7, 0, 0, 0]
    assert batch.logits_rows.tolist()[:2] == [0, 5]
    assert batch.block_table[:2, :2].tolist() == [[5, 0], [8, 3]]
    assert batch.temperature.tolist()[:2] == [0, 0.5]
    assert (batch.top_p.tolist()[1], batch.min_p.tolist()[1], batch.top_k.tolist()[1]) == (0.25, 0.125, 3)
    assert batch.seeds.tolist()[:2] == [(1 << 40) + 5, -2]
    assert batch.draw_positions.tolist()[:2] == [2, 0]
    assert batch.draws.tolist() == [1, 1, 0, 0]
    assert bed.draw(batch, [52, 51, 9, 9])[1] == [1, 1, 0, 0]
    after = CachedRequests(["a", "b"], [5, 7], {"b": [6]})
    batch = bed.step(plan({"a": 1, "b": 1}, cached=after))
    assert batch.input_ids.tolist() == [52, 51], "what was drawn is the next input, unseen by the host"
    assert batch.slot_mapping.tolist() == [3, 13]
    assert batch.draw_positions.tolist() == [3, 1]


@pytest.mark.parametrize("kind", [PlainInputs, TritonInputs])
def test_a_bad_row_is_told_and_an_unfinished_prompt_draws_nothing(kind) -> None:
    bed = Bed(kind)
    batch = bed.step(plan({"a": 2, "b": 3}, [new("a", [1, 2], [0]), new("b", [4, 5, 6, 7], [1])]))
    assert batch.draws.tolist() == [1, 0]
    assert bed.draw(batch, [50, 60], [True, True])[1] == [2, 0]
    batch = bed.step(plan({"b": 1}, cached=CachedRequests(["b"], [3]), finished=["a"]))
    assert batch.input_ids.tolist() == [7], "60 was not drawn"


def random_plans(rng: random.Random, steps: int = 12):
    """Plans with prompts in pieces, decodes, ends and preemptions, and how large each batch is padded."""
    live: dict[str, list] = {}  # tokens known, computed, blocks
    free = list(range(400))
    rng.shuffle(free)
    for number in range(steps):
        finished = [r for r in live if rng.random() < 0.15]
        for r in finished:
            free += live.pop(r)[2]
        fresh, scheduled, cached = [], {}, CachedRequests([], [], {})
        for req_id, state in live.items():
            known, computed, blocks = state
            n = 1 if known - computed == 1 else rng.randint(1, known - computed)
            missing = -(-(computed + n) // BLOCK) - len(blocks)
            if missing > 0:
                cached.new_block_ids[req_id] = [free.pop() for _ in range(missing)]
                blocks += cached.new_block_ids[req_id]
            cached.req_ids.append(req_id)
            cached.num_computed.append(computed)
            scheduled[req_id] = n
            state[1] += n
            state[0] += state[1] == known
        while len(live) < 5 and rng.random() < 0.7:
            length, req_id = rng.choice([1, 3, 4, 9, 300]), f"r{number}-{len(live)}"
            blocks = [free.pop() for _ in range(-(-length // BLOCK))]
            tokens = [rng.randrange(1000) for _ in range(length)]
            fresh.append(
                new(req_id, tokens, list(blocks), temperature=rng.random(), seed=rng.randrange(-(2**63), 2**63))
            )
            n = rng.randint(1, length)
            scheduled[req_id] = n
            live[req_id] = [length + (n == length), n, blocks]
        yield plan(scheduled, fresh, cached, finished=finished), (rng.randint(len(scheduled), 5), rng.randint(0, 9))


@pytest.mark.parametrize("seed", range(3))
def test_the_kernels_fill_what_the_plain_filler_fills(seed: int) -> None:
    plain, kernels = Bed(PlainInputs), Bed(TritonInputs)
    for step, (num_reqs, more) in random_plans(random.Random(seed)):
        if not step.num_scheduled:
            continue
        size = (num_reqs, step.total_tokens + more)
        expected, got = plain.step(step, size), kernels.step(step, size)
        n = len(step.num_scheduled)
        for name in TENSORS:
            one, other = getattr(expected, name), getattr(got, name)
            if name == "block_table":
                used = [-(-length // BLOCK) for length in expected.seq_lens.tolist()]
                for r, width in enumerate(used):
                    assert torch.equal(one[r, :width], other[r, :width])
            elif name in ("rows", "top_p", "draw_positions", "seeds", "top_k", "min_p", "temperature", "logits_rows"):
                assert torch.equal(one[:n], other[:n]), name  # padding may be anything there
            else:
                assert torch.equal(one, other), name
        ids = [7 * r + 1 for r in range(num_reqs)]
        assert plain.draw(expected, ids)[1][:n] == kernels.draw(got, ids)[1][:n]
        assert torch.equal(plain.table.token_ids, kernels.table.token_ids)


@pytest.mark.parametrize("kind", [PlainInputs, TritonInputs])
def test_more_changes_than_a_packet_holds(kind, monkeypatch) -> None:
    monkeypatch.setattr(packet_module, "MAX_EDITS", 32)
    bed = Bed(kind)
    tokens = list(range(100, 400))
    batch = bed.step(plan({"a": 300}, [new("a", tokens, list(range(75)))]))
    assert batch.input_ids.tolist() == tokens
    assert batch.slot_mapping.tolist() == list(range(300))


def test_a_table_too_large_for_32_bit_indices_is_refused() -> None:
    with pytest.raises(ValueError, match="lower --max-num-seqs"):
        RequestTable(1 << 20, 1, 1 << 20, torch.device("meta"))
