"""The kernels of a step with drafts against their plain versions, for random ragged batches with padding."""

from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

from stage1.batch import Sampled
from stage1.model.ops import TorchOps
from stage1.model.shape import PRESETS
from stage1.model.transformer import allocate
from stage2.inputs import StepBuffers
from stage2.state import NO_BLOCK, RequestTable
from stage3.spec import chain, chain_kernel, eagle, eagle_kernel, shifted, step_kernel, steps
from stage3.spec.choose import best_tokens

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MARKS = [pytest.param("cpu", id="interpreted"), pytest.param("cuda", id="compiled", marks=pytest.mark.gpu)]
MAX_LEN = 40


def random_batch(seed: int, num_reqs: int, width: int, padding: int = 2):
    """A step of ``num_reqs`` requests and ``padding`` more: drafts, plain decodes, halves of prompts."""
    gen = torch.Generator().manual_seed(seed)
    table = RequestTable(16, 10, MAX_LEN, DEVICE)
    table.memory.copy_(torch.randint(0, 250, table.memory.shape, generator=gen))
    kind = torch.randint(0, 3, (num_reqs,), generator=gen)
    drafts = torch.randint(0, width, (num_reqs,), generator=gen) * (kind == 0)
    counts = torch.where(kind == 2, torch.randint(1, 6, (num_reqs,), generator=gen), 1 + drafts)
    draws = torch.where(kind == 2, 0, 1 + drafts)
    starts = torch.randint(1, 20, (num_reqs,), generator=gen)
    tokens = int(counts.sum())
    buffers = StepBuffers(num_reqs + padding, tokens + 3, 10, DEVICE)
    for buffer in vars(buffers).values():  # what lies behind is anything
        buffer.copy_(torch.randint(0, 9, buffer.shape, generator=gen))
    ends = counts.cumsum(0)
    request = torch.repeat_interleave(torch.arange(num_reqs), counts)
    offset = torch.arange(tokens) - (ends - counts)[request]
    for name, values, fill in (
        ("rows", torch.randperm(16, generator=gen)[:num_reqs], 0),
        ("seq_lens", starts + counts, 0),
        ("draws", draws, 0),
        ("draw_positions", torch.randint(5, 20, (num_reqs,), generator=gen), 0),
        ("seeds", torch.randint(-(2**62), 2**62, (num_reqs,), generator=gen), 0),
        ("positions", starts[request] + offset, 0),
        ("input_ids", torch.randint(0, 250, (tokens,), generator=gen), 0),
        ("query_start", torch.cat((torch.zeros(1, dtype=torch.int64), ends)), tokens),
    ):
        buffer = getattr(buffers, name)
        buffer.fill_(fill)
        buffer[: len(values)] = values
    batch = buffers.batch(num_reqs + padding, tokens + 3, max_query_len=6, max_seq_len=MAX_LEN, max_draws=width)
    return batch, table


@pytest.mark.parametrize("where", MARKS)
@pytest.mark.parametrize(("seed", "num_reqs", "width"), [(0, 1, 1), (1, 5, 4), (2, 9, 2), (3, 14, 8), (4, 7, 3)])
def test_a_steps_kernels_do_what_torch_does(where, seed, num_reqs, width) -> None:
    batch, table = random_batch(seed, num_reqs, width)
    fast, slow = step_kernel.place(batch), steps.Places.of(batch)
    assert torch.equal(fast.rows, slow.rows)
    assert torch.equal(fast.drafts.ids, slow.drafts.ids)
    assert torch.equal(fast.drafts.counts, slow.drafts.counts)
    for field in fields(slow.rules):
        assert torch.equal(getattr(fast.rules, field.name), getattr(slow.rules, field.name)), field.name

    gen = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 250, (batch.num_reqs, width), generator=gen).to(DEVICE)
    counts = torch.minimum(
        1 + torch.randint(0, width, (batch.num_reqs,), generator=gen).to(DEVICE), batch.draws.clamp(min=1)
    )
    sampled = Sampled(ids, counts, (torch.rand(batch.num_reqs, generator=gen) < 0.3).to(DEVICE))
    before, results = table.memory.clone(), []
    for operations in (steps.StepOperations(), step_kernel.OPERATIONS):
        table.memory.copy_(before)
        result = torch.full((steps.num_lines(width - 1), batch.num_reqs + 3), -5, dtype=torch.int32, device=DEVICE)
        operations.remember(batch, sampled, table, result)
        result[[steps.FLAGS, steps.COUNTS], num_reqs:] = 1  # of an earlier, larger step
        known = operations.know(batch, result)
        results.append((table.memory.clone(), result[[0, steps.FLAGS, steps.COUNTS]], known.lengths, known.last_rows))
        for r in range(batch.num_reqs):
            n = int(result[steps.COUNTS, r])
            assert result[steps.FURTHER : steps.FURTHER + n - 1, r].tolist() == ids[r, 1:n].tolist() if n else True
    assert not torch.equal(results[0][0], before)
    assert results[0][2][num_reqs:].tolist() == [0] * 2  # padding is nobody
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("where", MARKS)
@pytest.mark.parametrize("seed", range(3))
def test_what_eagle_reads_is_what_torch_gathers(where, seed) -> None:
    batch, table = random_batch(seed, 6, 4, padding=seed)
    real = int(batch.query_start[-1])
    fast = eagle_kernel.next_tokens_of(batch, table.token_ids)
    assert torch.equal(fast[:real], shifted.next_tokens_of(batch, table.token_ids)[:real])

    shape = PRESETS["tiny"]
    layer = eagle.EagleLayer(eagle.eagle_shape(shape, 32), 4, TorchOps())
    allocate(layer, torch.float32, DEVICE)
    gen = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.copy_(torch.rand(parameter.shape, generator=gen))
    embedding = torch.randn(264, 64, generator=gen).to(DEVICE)
    hidden = torch.randn(batch.num_tokens, 64, generator=gen).to(DEVICE)
    ids = torch.randint(0, 264, (batch.num_tokens,), generator=gen).to(DEVICE)
    assert torch.allclose(
        eagle_kernel.mix(layer, embedding, ids, hidden), eagle.mix(layer, embedding, ids, hidden), atol=1e-5
    )


@pytest.mark.parametrize("where", MARKS)
@pytest.mark.parametrize(
    ("seed", "drafts", "passes", "size"), [(0, 3, 2, 4), (1, 3, 3, 4), (2, 1, 1, 16), (3, 7, 6, 2)]
)
def test_a_chain_is_planned_as_torch_plans_it(where, seed, drafts, passes, size) -> None:
    """Ends of blocks, of the longest length, requests without guesses and stale ids behind the last block included."""
    batch, table = random_batch(seed, 9, 4)
    gen = torch.Generator().manual_seed(seed)
    table.block_table.copy_(torch.randint(0, 50, table.block_table.shape, generator=gen))
    lengths = torch.randint(1, MAX_LEN + 1, (batch.num_reqs,), generator=gen)
    lengths[::4] = 0
    for request, length in enumerate(lengths.tolist()):
        end = -(-length // size) + request % 2
        if end < table.block_table.shape[1]:
            table.block_table[batch.rows[request], end] = NO_BLOCK
    known = steps.Known(lengths.to(DEVICE), torch.zeros_like(lengths).to(DEVICE))
    limits = chain.ChainLimits(drafts, passes, size, min(MAX_LEN, 10 * size))
    known.lengths.clamp_(max=limits.max_model_len)
    fast, slow = chain_kernel.plan_chain(batch, known, limits, table), chain.plan_chain(batch, known, limits, table)
    for name in ("positions", "slots", "seq_lens", "starts", "counts"):
        assert torch.equal(getattr(fast, name), getattr(slow, name)), name
    for request in range(batch.num_reqs):
        used = -(-int(slow.seq_lens[:, request].max()) // size)
        assert torch.equal(fast.blocks[request, :used], slow.blocks[request, :used])
    assert (slow.slots == -1).any()
    assert (slow.slots >= 0).any()


@pytest.mark.parametrize("where", MARKS)
@pytest.mark.parametrize("count", [1, 7, 20])
def test_the_best_token_is_the_first_of_the_likeliest(where, count, monkeypatch) -> None:
    monkeypatch.setattr(step_kernel, "_zeros", lambda device: torch.zeros(8, dtype=torch.int64, device=device))
    logits = torch.randint(0, 50, (count, 100), generator=torch.Generator().manual_seed(count)).float().to(DEVICE)
    assert torch.equal(step_kernel.best_tokens(logits), best_tokens(logits))


def test_places_of_the_example() -> None:
    """A verifies two drafts, B decodes, C is half a prompt."""
    batch = SimpleNamespace(
        query_start=torch.tensor([0, 3, 4, 7]),
        draws=torch.tensor([3, 1, 0]),
        seq_lens=torch.tensor([9, 10, 3]),
        draw_positions=torch.tensor([6, 2, 0]),
        input_ids=torch.tensor([60, 70, 71, 90, 10, 11, 12]),
        temperature=torch.zeros(3),
        top_k=torch.zeros(3, dtype=torch.int64),
        top_p=torch.ones(3),
        min_p=torch.zeros(3),
        seeds=torch.arange(3),
        max_draws=3,
        num_reqs=3,
    )
    places = steps.Places.of(batch)
    assert places.rows.tolist() == [0, 1, 2, 3, 3, 3, 6, 6, 6]
    assert places.drafts.ids[0].tolist() == [70, 71]
    assert places.drafts.counts.tolist() == [2, 0, 0]
    assert places.rules.positions[:3].tolist() == [4, 5, 6]
    result = torch.zeros(steps.num_lines(2), 3, dtype=torch.int32)
    result[steps.COUNTS] = torch.tensor([2, 1, 0])
    known = steps.know(batch, result)
    assert known.lengths.tolist() == [9, 11, 0]  # one draft of two was taken back
    assert known.last_rows.tolist() == [1, 3, 6]
