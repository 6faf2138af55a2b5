"""Masks on logits: the plain version against a loop over bits, the kernel against the plain version."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from stage1.batch import ForwardBatch, RowState
from stage1.codec import Codec
from stage1.params import SamplingParams
from stage1.records import CachedRequests, SchedulerOutput
from stage1.sampler import TorchSampler
from stage3.grammar import mask_kernel, mask_processor
from stage3.grammar.mask_processor import GrammarMaskProcessor, StepMasks
from stage3.grammar.masks import num_words, pack
from stage3.grammar.records import GrammarMasks

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Apply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
BOTH = pytest.mark.parametrize("apply", [mask_processor.apply_masks, mask_kernel.apply_masks], ids=["torch", "triton"])


def random_masks(count: int, vocab_size: int, seed: int = 0) -> tuple[np.ndarray, torch.Tensor]:
    """([count, vocab] bool, [count, words] int32), with the first and the last bit of a word among them."""
    allowed = np.random.default_rng(seed).random((count, vocab_size)) < 0.3
    allowed[:, 31::32] = True
    words = np.stack([pack(row) for row in allowed])
    return allowed, torch.from_numpy(words.view(np.int32)).to(DEVICE)


@BOTH
@pytest.mark.parametrize(("vocab_size", "width"), [(101, 128), (128, 128), (96, 5000), (1, 3), (40, 37), (4097, 4097)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_has_no_bit_is_forbidden_and_free_rows_stay_as_they_are(
    apply: Apply, vocab_size: int, width: int, dtype: torch.dtype
) -> None:
    logits = torch.randn(6, width + 3, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)[:, :width]
    logits[0, 0] = float("nan")
    before = logits.clone()
    rows = [4, 0, 3]
    allowed, masks = random_masks(3, vocab_size)
    apply(logits, masks, torch.tensor(rows, device=DEVICE))
    for row in range(6):
        if row not in rows:
            assert torch.equal(logits[row].nan_to_num(7.5), before[row].nan_to_num(7.5))
            continue
        for token in range(width):
            value = logits[row, token].item()
            if token < vocab_size and allowed[rows.index(row), token]:
                assert value == before[row, token].item() or np.isnan(before[row, token].item())
            else:
                assert value == -np.inf or np.isnan(before[row, token].item())
    assert logits[0, 0].isnan()  # the sampler must see it


@BOTH
def test_no_masks_change_nothing(apply: Apply) -> None:
    logits = torch.randn(2, 50, device=DEVICE)
    before = logits.clone()
    apply(logits, torch.zeros(0, 2, dtype=torch.int32, device=DEVICE), torch.zeros(0, dtype=torch.int64, device=DEVICE))
    assert torch.equal(logits, before)


def state(req_id: str) -> RowState:
    return RowState(req_id, SamplingParams(temperature=0.0), 0, 1, [1], [], 0)


def batch(req_ids: str) -> ForwardBatch:
    none = torch.zeros(len(req_ids), dtype=torch.int64, device=DEVICE)
    return ForwardBatch(
        none, none, none, none, none, none, none, none, 1, 1, [state(r) for r in req_ids], [True] * len(req_ids)
    )


def plan(extra: GrammarMasks | None, drafts: dict[str, list[int]], req_ids: str) -> SchedulerOutput:
    made = SchedulerOutput(1, [], CachedRequests(), dict.fromkeys(req_ids, 1), drafts=drafts)
    made.extras = [extra] if extra else []
    return made


@BOTH
def test_masks_find_the_row_of_every_draft_position(apply: Apply) -> None:
    allowed, masks = random_masks(4, 101)
    extra = GrammarMasks(["c", "a"], [3, 1], num_words(101), masks.cpu().numpy().tobytes())
    made = plan(extra, {"b": [5, 6], "c": [7, 8]}, "abcd")
    wire = Codec((GrammarMasks,))
    assert wire.decode(wire.encode(made), SchedulerOutput).extras == [extra]
    logits = torch.zeros(8, 128, device=DEVICE)  # a, b and two drafts, c and two drafts, d
    StepMasks(made, {"a": 0, "b": 1, "c": 4, "d": 7}, DEVICE, apply).apply(logits)
    expected = np.ones((8, 128), dtype=bool)
    for row, mask in ((4, 0), (5, 1), (6, 2), (0, 3)):
        expected[row] = np.pad(allowed[mask], (0, 27))
    assert torch.equal(logits.isfinite().cpu(), torch.from_numpy(expected))


@BOTH
def test_the_processor_finds_each_request_and_forgets_the_step_before(apply: Apply) -> None:
    allowed, masks = random_masks(2, 101)
    extra = GrammarMasks(["c", "a"], [1, 1], num_words(101), masks.cpu().numpy().tobytes())
    processor = GrammarMaskProcessor(DEVICE, apply)
    processor.prepare(plan(extra, {}, "abc"), batch("abc"))
    logits = torch.zeros(3, 128, device=DEVICE)
    assert processor.apply(logits, batch("abc")) is logits
    expected = np.ones((3, 128), dtype=bool)
    expected[2], expected[0] = np.pad(allowed[0], (0, 27)), np.pad(allowed[1], (0, 27))
    assert torch.equal(logits.isfinite().cpu(), torch.from_numpy(expected))
    processor.prepare(plan(None, {}, "ab"), batch("ab"))
    assert processor.apply(torch.zeros(2, 128, device=DEVICE), batch("ab")).isfinite().all()


def test_padding_of_the_vocabulary_is_never_drawn() -> None:
    words = pack(np.arange(101) == 17)
    processor = GrammarMaskProcessor(DEVICE)
    step = batch("ab")
    processor.prepare(plan(GrammarMasks(["b"], [1], 4, words.tobytes()), {}, "ab"), step)
    logits = torch.zeros(2, 128, device=DEVICE)
    logits[:, 127] = 50.0
    sampled = TorchSampler([processor]).sample(logits, step)
    assert sampled.ids.flatten().tolist() == [127, 17]
    assert not sampled.bad.any()
