"""Drafts from the text itself in one launch: a program a request, over the request table in place.

Owns the search on a GPU. The plain version is ``ngram.propose_rows``, with the same drafts: some thirty launches over
[R, W] temporaries where this reads each request's tokens, and no more of them than it has.

vLLM: ``v1/spec_decode/ngram_proposer.py`` (on the CPU).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage1.interfaces import Drafts
from stage3.spec.ngram import NgramRules

_BLOCK = 1024  # places looked at together
_NUM_WARPS = 8


def propose_rows(
    token_ids: torch.Tensor, rows: torch.Tensor, lengths: torch.Tensor, rules: NgramRules, max_model_len: int
) -> Drafts:
    """The drafts of R requests at once, [R, k] int64 with 0 behind the counts; nothing waits for the device.

    Args:
        token_ids: [rows, W] int32, the request table's; rows may lie apart, the tokens of a row may not.
        rows: [R] int64, contiguous, each request's row of the table.
        lengths: [R] int64, contiguous, tokens known of each, at most W; 0 = no drafts.
        rules: what to look for.
        max_model_len: tokens that a request may have in all; a token follows the last draft.
    """
    num_reqs, k = len(rows), rules.num_speculative_tokens
    ids = torch.empty(num_reqs, k, dtype=torch.int64, device=rows.device)
    counts = torch.empty(num_reqs, dtype=torch.int64, device=rows.device)
    if num_reqs:
        _ngram_kernel[(num_reqs,)](
            token_ids, rows, lengths, ids, counts, token_ids.stride(0), max_model_len, k,
            longest=rules.prompt_lookup_max, shortest=rules.prompt_lookup_min, latest=rules.latest,
            drafts=triton.next_power_of_2(k), block=_BLOCK, num_warps=_NUM_WARPS,
        )  # fmt: skip
    return Drafts(ids, counts)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["lengths_ptr"]
)
def _ngram_kernel(
    token_ids_ptr: tl.tensor,
    rows_ptr: tl.tensor,
    lengths_ptr: tl.tensor,
    ids_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    row_stride: int,
    max_model_len: int,
    k: int,
    longest: tl.constexpr,
    shortest: tl.constexpr,
    latest: tl.constexpr,
    drafts: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """A program is a request. Its best match is the largest number made of (tokens that match, place)."""
    req = tl.program_id(0).to(tl.int64)
    row_ptr = token_ids_ptr + tl.load(rows_ptr + req) * row_stride
    length = tl.load(lengths_ptr + req)
    last = length - 1
    best = tl.full([block], -1, tl.int64)
    for start in range(0, last, block):
        end = start + tl.arange(0, block)  # [block]: does what ends here equal the last tokens?
        equal = end < last
        run = tl.zeros([block], tl.int64)
        for back in range(longest):
            token = tl.load(row_ptr + last - back, mask=last >= back, other=-1)
            equal = equal & (end >= back)
            equal = equal & (tl.load(row_ptr + end - back, mask=equal, other=-2) == token)
            run += equal.to(tl.int64)
        place = end if latest else last - end  # below ``length``, and not negative where a run is
        best = tl.maximum(best, tl.where(run >= shortest, run * length + place, -1))
    score = tl.max(best, axis=0)
    place = score % tl.maximum(length, 1)
    follow = (place if latest else last - place) + 1
    room = tl.minimum(tl.minimum(length - follow, max_model_len - 1 - length), k)
    count = tl.where(score >= 0, tl.maximum(room, 0), 0)
    offset = tl.arange(0, drafts)
    token = tl.load(row_ptr + follow + offset, mask=offset < count, other=0)
    tl.store(ids_ptr + req * k + offset, token.to(tl.int64), mask=offset < k)
    tl.store(counts_ptr + req, count.to(tl.int64))
