"""Verification with kernels: stage 2's for every position at once, then a small one that accepts.

Owns where a request's drafts stop, a program a request. By match no more than that is needed: the target's tokens come
from ``stage2.kernels.sampling``. By rejection the sort of the filters is gone, and the sums over the vocabulary are
torch's.

    drawn   7 4 9 2      by match: the first place where drawn and draft differ, or where there is no draft
    drafts  7 4 5        → 2 accepted, 3 tokens: 7 4 9

Nothing waits for the device and sizes are those of the tensors, so the launches can be captured in a graph. The plain
versions are those of ``rejection``, with the same results up to the rounding of two near scores.

vLLM: ``v1/sample/rejection_sampler.py`` (its Triton kernels).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage1.params_check import MIN_TEMPERATURE
from stage2.kernels.sampling import sample
from stage2.kernels.sampling_filters import filter_thresholds
from stage3.spec import noise, rejection
from stage3.spec.rejection import DrawRules

_DOMAIN: tl.constexpr = tl.constexpr(noise.DOMAIN)
_STEP: tl.constexpr = tl.constexpr(2.0**-32)
_BELOW_ONE: tl.constexpr = tl.constexpr(1.0 - 2.0**-24)


def verify_by_match(logits: torch.Tensor, drafts: Drafts, rules: DrawRules, has_filters: bool = True) -> Sampled:
    """``rejection.verify_by_match``: the same arguments, contiguous, and the same tokens."""
    return verify_each(logits, drafts, rules.at_each_position(logits.shape[1]), has_filters)


def verify_each(logits: torch.Tensor, drafts: Drafts, each: DrawRules, has_filters: bool = True) -> Sampled:
    """``rejection.verify_each``, likewise."""
    num_reqs, width, vocab_size = logits.shape
    rows = logits.view(-1, vocab_size)
    floor = None
    if has_filters:
        floor = filter_thresholds(rows, each.temperature, each.top_k, each.top_p, each.min_p)
    drawn, bad = sample(rows, each.temperature, each.seeds, each.positions, floor)
    return accept_matching(drawn.view(num_reqs, width), bad.view(num_reqs, width), drafts)


def verify_by_rejection(logits: torch.Tensor, drafts: Drafts, draft_probs: torch.Tensor, rules: DrawRules) -> Sampled:
    """``rejection.verify_by_rejection``: the same arguments, contiguous, and the same tokens."""
    return rejection.verify_by_rejection(logits, drafts, draft_probs, rules, kept_logits, count_accepted)


def kept_logits(logits: torch.Tensor, rules: DrawRules) -> torch.Tensor:
    """``rejection.kept_logits`` without a sort: [N, vocab] float32, -inf where a token is left out."""
    floor = filter_thresholds(logits, rules.temperature, rules.top_k, rules.top_p, rules.min_p)
    greedy = rules.temperature == 0
    best = torch.arange(logits.shape[1], device=logits.device) == logits.argmax(dim=1, keepdim=True)
    left_out = (logits < floor[:, None]) | (greedy[:, None] & ~best)
    return (logits.float() / rules.temperature.clamp(min=MIN_TEMPERATURE)[:, None]).masked_fill(left_out, -torch.inf)


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """The target's own tokens up to the first that is not a draft.

    Args:
        drawn: [R, 1 + k] int64, contiguous, the target's token at every position.
        bad_rows: [R, 1 + k] bool, contiguous, where it has none.
        drafts: [R, k] and [R], int64, contiguous; ids behind the counts may be anything.

    Returns:
        ids [R, 1 + k], of which ``counts`` = 1 + accepted are meant (0 behind them); ``bad`` where a needed row is bad.
    """
    num_reqs, width = drawn.shape
    ids = torch.empty_like(drawn)
    counts = torch.empty(num_reqs, dtype=torch.int64, device=drawn.device)
    bad = torch.empty(num_reqs, dtype=torch.bool, device=drawn.device)
    if num_reqs:
        _matching_kernel[(num_reqs,)](
            drawn, bad_rows, drafts.ids, drafts.counts, ids, counts, bad, width,
            block=triton.next_power_of_2(width), num_warps=1,
        )  # fmt: skip
    return Sampled(ids, counts, bad)


def count_accepted(p: torch.Tensor, q: torch.Tensor, drafts: Drafts, rules: DrawRules) -> torch.Tensor:
    """Drafts before the first that does not stay, [R] int64: each stays with probability min(1, p / q).

    Args:
        p: [R, k] float32, contiguous, the target's probability of each draft.
        q: [R, k] float32, contiguous, the probability that it was drawn with.
        drafts: [R, k] and [R]; of the ids nothing is read.
        rules: seeds, and output positions of each request's first draft, are read.
    """
    num_reqs, width = p.shape
    accepted = torch.zeros(num_reqs, dtype=torch.int64, device=p.device)
    if num_reqs and width:
        _ratio_kernel[(num_reqs,)](
            p, q, drafts.counts, rules.seeds, rules.positions, accepted, width,
            block=triton.next_power_of_2(width), num_warps=1,
        )  # fmt: skip
    return accepted


@triton.jit  # type: ignore[untyped-decorator]
def _matching_kernel(
    drawn_ptr: tl.tensor,
    bad_rows_ptr: tl.tensor,
    drafts_ptr: tl.tensor,
    num_drafts_ptr: tl.tensor,
    ids_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    bad_ptr: tl.tensor,
    width: int,
    block: tl.constexpr,
) -> None:
    """A program is a request."""
    req = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, block)
    in_row = place < width
    num_drafts = tl.minimum(tl.load(num_drafts_ptr + req), width - 1)
    drawn = tl.load(drawn_ptr + req * width + place, mask=in_row, other=0)
    draft = tl.load(drafts_ptr + req * (width - 1) + place, mask=place < width - 1, other=0)
    ends = (place >= num_drafts) | (drawn != draft)
    accepted = tl.min(tl.where(ends, place, block), axis=0)
    meant = place <= accepted
    tl.store(ids_ptr + req * width + place, tl.where(meant, drawn, 0), mask=in_row)
    tl.store(counts_ptr + req, accepted.to(tl.int64) + 1)
    bad = tl.load(bad_rows_ptr + req * width + place, mask=in_row & meant, other=0).to(tl.int32)
    tl.store(bad_ptr + req, tl.max(bad, axis=0) != 0)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["seeds_ptr", "positions_ptr"]
)
def _ratio_kernel(
    p_ptr: tl.tensor,
    q_ptr: tl.tensor,
    num_drafts_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    accepted_ptr: tl.tensor,
    width: int,
    block: tl.constexpr,
) -> None:
    """A program is a request."""
    req = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, block)
    in_row = place < width
    num_drafts = tl.minimum(tl.load(num_drafts_ptr + req), width)
    p = tl.load(p_ptr + req * width + place, mask=in_row, other=0.0)
    q = tl.load(q_ptr + req * width + place, mask=in_row, other=0.0)
    position = tl.load(positions_ptr + req) + place  # [block]
    low, high = (position & 0xFFFFFFFF).to(tl.uint32), ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    zero = low * 0
    word, _, _, _ = tl.philox(tl.load(seeds_ptr + req), zero, low, high, zero + _DOMAIN)
    u = tl.minimum((word.to(tl.float32) + 0.5) * _STEP, _BELOW_ONE)
    stays = (u * q < p) & (place < num_drafts)
    tl.store(accepted_ptr + req, tl.min(tl.where(stays, width, place), axis=0).to(tl.int64))
