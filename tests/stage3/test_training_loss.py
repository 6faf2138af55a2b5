"""Which positions count, the divergence and its gradient, and that training brings it down."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from sixfold.exercises.importer import load_file
from stage3.training import loss as loss_module
from stage3.training.acceptance import measure
from stage3.training.batches import endless, in_order, make_batch
from stage3.training.corpus import Corpus
from stage3.training.eagle import EagleLayer
from stage3.training.heads import DraftHeads
from stage3.training.loss import soft_loss
from stage3.training.medusa import MedusaHeads
from stage3.training.states import HiddenStates
from stage3.training.trainer import TrainSettings, lr_share, mean_losses, train

bed = load_file(Path(__file__).with_name("training_bed.py"))
SHAPE, greedy_corpus, small_target = bed.SHAPE, bed.greedy_corpus, bed.small_target


@pytest.mark.parametrize("hard_share", [0.0, 0.25])
def test_loss_and_gradient_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch, hard_share: float) -> None:
    monkeypatch.setitem(
        loss_module.CHUNK_BYTES, "cpu", 4 * 30 * 3
    )  # 3 rows a chunk: several chunks, the last one short
    torch.manual_seed(0)
    students, teacher, lm_head = torch.randn(2, 8, 16, requires_grad=True), torch.randn(8, 16), torch.randn(30, 16)
    weights, tokens = torch.rand(2, 8), torch.randint(0, 30, (8,))
    found, each = soft_loss(students, teacher, weights, lm_head, tokens, hard_share)
    (3 * found).backward()
    gradient, students.grad = students.grad, None

    p = (teacher @ lm_head.T).softmax(-1)
    label = (1 - hard_share) * p + hard_share * torch.nn.functional.one_hot(tokens, 30)
    rows = -(label * (students @ lm_head.T).log_softmax(-1)).sum(-1) + (p * p.log()).sum(-1)  # [2, 8]
    plain = (rows * weights).sum()
    (3 * plain).backward()
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(each, (rows * weights).sum(-1))
    torch.testing.assert_close(gradient, students.grad)


def test_perfect_students_have_no_loss() -> None:
    teacher = torch.randn(5, 16)
    found, _ = soft_loss(teacher[None], teacher, torch.ones(1, 5), torch.randn(30, 16), torch.zeros(5).long())
    assert abs(found.item()) < 1e-4


def test_weights_count_what_the_engine_would_draft() -> None:
    corpus = Corpus.of([([1, 2, 3], [4, 5, 6, 7]), ([1], [2, 3])])
    batch = make_batch(corpus, torch.tensor([0, 1]), torch.device("cpu"))
    weights = batch.chain_weights(torch.tensor([1.0, 0.5]))
    for j, b in itertools.product(range(2), range(2)):
        length, prompt = (7, 3) if b == 0 else (3, 1)
        for t in range(7):
            start = t - 1 - j
            counts = start >= prompt - 1 and t + 1 < length
            assert weights[j, b, t].item() == (1.0, 0.5)[j] * counts
    # The first draft behind the prompt's last token, 3, is that of the token 5.
    assert weights[0, 0].nonzero().flatten().tolist() == [3, 4, 5]


@pytest.mark.parametrize("method", ["medusa", "eagle"])
def test_training_lowers_the_loss_and_makes_drafts_stay(method: str) -> None:
    torch.manual_seed(0)
    target = small_target()
    corpus = greedy_corpus(target, [12 + i % 9 for i in range(24)], seed=1)
    heads: DraftHeads = MedusaHeads(32, 3, 2) if method == "medusa" else EagleLayer(SHAPE)
    states = HiddenStates(target, corpus, 128)
    batch = make_batch(corpus, torch.arange(corpus.num_seqs), target.device)
    decays = 0.8 ** torch.arange(3.0)
    _, before = mean_losses(heads, target, states.of(batch), batch, decays)
    untrained = measure(heads, target, {"all": corpus}, 128, 3)["all"].walked
    lines: list[str] = []
    settings = TrainSettings(lr=3e-3, seconds=60, decay=0.8, clip=1.0, max_steps=80, batch_tokens=256, log_every=40)
    log = train(heads, target, corpus, states, settings, lines.append)
    _, after = mean_losses(heads, target, states.of(batch), batch, decays)
    assert (after < 0.7 * before).all(), (before, after)
    assert measure(heads, target, {"all": corpus}, 128, 3)["all"].walked.length() > untrained.length() + 0.3
    assert log.steps == 80
    assert [entry["step"] for entry in log.curve] == [1, 40, 80]
    assert len(lines) == 3


@pytest.mark.parametrize("lr", [1.5e-3, 6e-3])
def test_deep_medusa_heads_train_without_a_relapse(lr: float) -> None:
    torch.manual_seed(0)
    target = small_target()
    corpus = greedy_corpus(target, [12 + i % 9 for i in range(24)], seed=1)
    settings = TrainSettings(
        lr=lr, seconds=60, decay=0.8, clip=1.0, max_steps=120, batch_tokens=256, hard_share=0.25, log_every=20
    )
    heads = MedusaHeads(32, 2, 5)
    log = train(heads, target, corpus, HiddenStates(target, corpus, 128), settings, lambda line: None)
    losses = torch.tensor([entry["loss"] for entry in log.curve])  # [lines, heads]
    assert (losses[1:] < losses[:-1] + 0.05).all()
    assert (losses[-1] < 0.7 * losses[0]).all()
    for first, later in itertools.combinations(heads.weight.detach(), 2):  # the layers are not copies of each other
        assert (first - later).norm() > 0.1 * first.norm()


def test_untrained_medusa_heads_are_the_targets_own_projection() -> None:
    target = small_target()
    batch = make_batch(greedy_corpus(target, [9]), torch.tensor([0]), target.device)
    hidden = target.hidden(batch.tokens)
    for state in MedusaHeads(32, 4, 2)(hidden):
        assert torch.equal(state, hidden)


def test_medusa_arithmetic_is_that_of_the_file() -> None:
    torch.manual_seed(0)
    target = small_target()
    batch = make_batch(greedy_corpus(target, [9, 7]), torch.arange(2), target.device)
    heads = MedusaHeads(32, 3, 2)
    for parameter in heads.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    weight, bias = heads.tensors()["blocks.weight"], heads.tensors()["blocks.bias"]
    hidden = target.hidden(batch.tokens)
    drafts, aligned = heads.draft(target, hidden, batch, 3), heads.states(target, hidden, batch)
    for k, b, p in itertools.product(range(3), range(2), range(5)):
        x = hidden[b, p]
        for layer in range(2):
            x = x + torch.nn.functional.silu(x @ weight[layer, k].T + bias[layer, k])
        assert int(drafts[k, b, p]) == int((target.lm_head @ x).argmax())
        torch.testing.assert_close(aligned[k, b, p + 1 + k], x, rtol=1e-4, atol=1e-5)


def test_time_ends_the_training() -> None:
    target = small_target()
    corpus = greedy_corpus(target, [10, 12])
    settings = TrainSettings(lr=1e-3, seconds=0.5, decay=0.8, clip=1.0, batch_tokens=64)
    log = train(MedusaHeads(32, 2, 1), target, corpus, HiddenStates(target, corpus, 64), settings, lambda line: None)
    assert log.steps >= 1
    assert 0.3 <= log.seconds < 20


def test_lr_rises_then_falls_to_nothing() -> None:
    shares = [lr_share(i / 100) for i in range(100)]
    assert 0 < shares[0] < 0.1
    assert max(shares) == shares[4] == 1
    assert shares[4:] == sorted(shares[4:], reverse=True)
    assert shares[-1] < 0.01


def test_batches_hold_every_sequence_once_and_keep_their_size() -> None:
    target_lengths = [3 + i % 17 for i in range(50)]
    corpus = Corpus.of([([1], [2] * (n - 1)) for n in target_lengths])
    drawn = endless(corpus, 40, torch.Generator().manual_seed(0))
    parts = in_order(corpus, 40)
    assert sorted(torch.cat(parts).tolist()) == list(range(50))
    one_epoch: list[int] = []
    while len(one_epoch) < 50:
        rows = next(drawn)
        assert len(rows) * int(corpus.lengths[rows].max()) <= 40
        one_epoch += rows.tolist()
    assert sorted(one_epoch) == list(range(50))
    with pytest.raises(ValueError, match="no sequence"):
        next(endless(Corpus.of([]), 40, torch.Generator()))


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"seconds": 0.0}, {"max_steps": 0}, {"hard_share": 1.5}])
def test_bad_settings_are_named(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        TrainSettings(**{"lr": 1e-3, "seconds": 1.0, "decay": 0.8, "clip": 1.0, **bad})  # type: ignore[arg-type]
