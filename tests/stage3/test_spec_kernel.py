"""The accepting kernels against their plain versions, and all of a verification without waiting for the device."""

from __future__ import annotations

import pytest
import torch

from stage1.interfaces import Drafts
from stage3.spec import ngram_kernel, rejection, rejection_kernel
from stage3.spec.ngram import NgramRules, propose_rows
from stage3.spec.rejection import DrawRules, is_bad, verify_by_match, verify_by_rejection

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_drafts(num_reqs: int, k: int, vocab: int, seed: int) -> Drafts:
    ids = torch.randint(0, vocab, (num_reqs, k), generator=generator(seed)).to(DEVICE)
    return Drafts(ids, torch.randint(0, k + 1, (num_reqs,), generator=generator(seed + 1)).to(DEVICE))


def random_rules(num_reqs: int, seed: int) -> DrawRules:
    chosen = torch.randint(0, 3, (4, num_reqs), generator=generator(seed)).to(DEVICE)
    return DrawRules(
        torch.tensor([0.0, 0.7, 1.2], device=DEVICE)[chosen[0]],
        torch.tensor([0, 5, 40], device=DEVICE)[chosen[1]],
        torch.tensor([1.0, 0.9, 0.5], device=DEVICE)[chosen[2]],
        torch.tensor([0.0, 0.05, 0.3], device=DEVICE)[chosen[3]],
        torch.randint(-(2**63), 2**63 - 1, (num_reqs,), generator=generator(seed)).to(DEVICE),
        torch.randint(0, 2**34, (num_reqs,), generator=generator(seed)).to(DEVICE),
    )


@pytest.mark.parametrize(("num_reqs", "k"), [(0, 2), (1, 0), (1, 1), (40, 1), (40, 3), (25, 7), (9, 16)])
def test_matching_is_that_of_the_plain_version(num_reqs, k):
    drafts = random_drafts(num_reqs, k, 2, seed=k)
    drawn = torch.randint(0, 2, (num_reqs, 1 + k), generator=generator(9)).to(DEVICE)
    bad = (torch.rand(num_reqs, 1 + k, generator=generator(8)) < 0.1).to(DEVICE)
    before = [tensor.clone() for tensor in (drawn, bad, drafts.ids, drafts.counts)]
    fast = rejection_kernel.accept_matching(drawn, bad, drafts)
    slow = rejection.accept_matching(drawn, bad, drafts)
    assert torch.equal(fast.ids, slow.ids)
    assert torch.equal(fast.counts, slow.counts)
    assert torch.equal(fast.bad, slow.bad)
    assert all(torch.equal(a, b) for a, b in zip(before, (drawn, bad, drafts.ids, drafts.counts), strict=True))


@pytest.mark.parametrize(("num_reqs", "k"), [(0, 2), (2, 0), (1, 1), (60, 1), (60, 3), (25, 7), (9, 16)])
def test_acceptance_is_that_of_the_plain_version(num_reqs, k):
    drafts, rules = random_drafts(num_reqs, k, 9, seed=k), random_rules(num_reqs, seed=4)
    p, q, zero = torch.rand(3, num_reqs, k, generator=generator(k)).to(DEVICE)
    p, q = torch.where(zero < 0.1, 0.0, p), torch.where(zero > 0.9, 0.0, q * 0.8)
    fast = rejection_kernel.count_accepted(p, q, drafts, rules)
    assert torch.equal(fast, rejection.count_accepted(p, q, drafts, rules))
    assert fast.dtype == torch.int64
    assert num_reqs < 20 or k == 0 or len(fast.unique()) > min(k, 3)


def test_rejection_with_kernels_gives_the_same_tokens():
    logits = torch.randn(16, 3, 50, generator=generator(1)).to(DEVICE)
    probs = torch.randn(16, 2, 50, generator=generator(2)).to(DEVICE).softmax(dim=2)
    drafts, rules = random_drafts(16, 2, 50, seed=3), random_rules(16, seed=5)
    slow = verify_by_rejection(logits, drafts, probs, rules)
    fast = rejection_kernel.verify_by_rejection(logits, drafts, probs, rules)
    assert torch.equal(fast.ids, slow.ids)
    assert torch.equal(fast.counts, slow.counts)
    assert torch.equal(fast.bad, slow.bad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_kept_without_a_sort_is_the_same(dtype):
    logits = torch.randn(24, 40, generator=generator(3)).to(DEVICE, dtype)
    logits[::5, 3] = float("-inf")
    rules = random_rules(24, seed=8)
    torch.testing.assert_close(
        rejection_kernel.kept_logits(logits, rules), rejection.kept_logits(logits, rules), rtol=0, atol=0
    )


def test_matching_with_kernels_gives_the_same_tokens():
    logits = torch.randn(12, 4, 150, generator=generator(6)).to(DEVICE) * 3
    rules = random_rules(12, seed=7)
    nothing = Drafts(torch.zeros(12, 3, dtype=torch.int64, device=DEVICE), torch.full((12,), 3, device=DEVICE))
    each = rules.at_each_position(4)
    rows = logits.view(-1, 150)
    tokens = rejection.draw(rejection.kept_logits(rows, each), each).view(12, 4)
    right = Drafts(tokens[:, :3].clone(), torch.arange(12, device=DEVICE) % 4)
    right.ids[5:9, 1] += 1
    assert not is_bad(rows).any()
    for drafts in (nothing, right):
        slow = verify_by_match(logits, drafts, rules)
        fast = rejection_kernel.verify_by_match(logits, drafts, rules)
        assert torch.equal(fast.ids, slow.ids)
        assert torch.equal(fast.counts, slow.counts)
        assert not fast.bad.any()


@pytest.mark.gpu
@pytest.mark.parametrize("what", ["match", "rejection", "match with kernels", "rejection with kernels", "ngram"])
def test_everything_can_be_captured_in_a_graph(what):
    """So nothing waits for the device; a replay reads what stands in the inputs then."""
    logits = torch.randn(8, 4, 5000, generator=generator(1)).cuda()
    probs = torch.randn(8, 3, 5000, generator=generator(2)).cuda().softmax(dim=2)
    drafts, rules = random_drafts(8, 3, 5000, seed=3), random_rules(8, seed=5)
    table = torch.randint(0, 4, (8, 65), generator=generator(4), dtype=torch.int32).cuda()
    rows = torch.arange(8).flip(0).cuda()
    lengths = torch.randint(0, 60, (8,), generator=generator(5)).cuda()

    def compute() -> list[torch.Tensor]:
        if what == "ngram":
            found = propose_rows(table, rows, lengths, NgramRules(3, 4, 2), 64)
            fast = ngram_kernel.propose_rows(table, rows, lengths, NgramRules(3, 4, 2), 64)
            return [found.ids, found.counts, fast.ids, fast.counts]
        module = rejection_kernel if "kernels" in what else rejection
        if "match" in what:
            sampled = module.verify_by_match(logits, drafts, rules)
        else:
            sampled = module.verify_by_rejection(logits, drafts, probs, rules)
        return [sampled.ids, sampled.counts, sampled.bad]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        compute()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = compute()
    for _ in range(2):
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(captured, compute(), strict=True))
        logits.copy_(logits.flip(0))
        lengths.copy_(lengths.flip(0))
