"""Drafts from the text itself: what followed when its last tokens came before.

Owns the search. Does not know requests, plans or models.

    tokens   5 [1 2 3] 7 1 2 3 6 … 1 2 3     the last three have come twice; what followed first was 7
                        ^ draft

The longest run of last tokens that has come before decides, at most ``prompt_lookup_max`` and at least
``prompt_lookup_min`` of them; where it has come several times, its first occurrence, or with ``latest`` its last. Text
that copies itself (code, summaries, corrections) is guessed well at next to no cost; other text gives no drafts.

``propose`` looks at one request on the host; ``propose_rows`` at all of them on the device, with the same drafts, and
``ngram_kernel`` in one launch.

vLLM: ``v1/spec_decode/ngram_proposer.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stage1.interfaces import Drafts


@dataclass(frozen=True)
class NgramRules:
    """What counts as a match, and how much is drafted from it.

    Raises:
        ValueError: a number is below 1, or the shortest match is longer than the longest.
    """

    num_speculative_tokens: int  # most drafts
    prompt_lookup_max: int = 5  # tokens of the longest match
    prompt_lookup_min: int = 3  # tokens of the shortest
    latest: bool = False  # of equally long matches the last, not the first

    def __post_init__(self) -> None:
        for name in ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError(
                f"prompt_lookup_min is {self.prompt_lookup_min} and prompt_lookup_max {self.prompt_lookup_max}: "
                "lower the one or raise the other"
            )


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """The drafts behind ``tokens`` (prompt and output), none without a match; O(len(tokens)).

    Args:
        tokens: what is known of one request.
        rules: what to look for.
        room: most drafts; 0 or less = none.
    """
    follow = _find(tokens, rules)
    return (
        [] if follow is None or room <= 0 else list(tokens[follow : follow + min(rules.num_speculative_tokens, room)])
    )


def _find(tokens: Sequence[int], rules: NgramRules) -> int | None:
    """Where the best match is followed up. A walk backwards in the manner of Knuth, Morris and Pratt.

    ``border[i]``: of the last i + 1 tokens, how many begin anew at their front: where to go on after a mismatch.
    """
    last, most = len(tokens) - 1, rules.prompt_lookup_max
    border = [0] * most
    length = longest = 0
    follow = None
    for back in range(1, len(tokens)):
        token = tokens[last - back]
        while length and (length == most or tokens[last - length] != token):
            length = border[length - 1]
        length += tokens[last - length] == token
        if back < most:
            border[back] = length
        if length > longest or (length == longest and not rules.latest):
            longest = length
            follow = last - back + length
    return follow if longest >= rules.prompt_lookup_min else None


def propose_rows(
    token_ids: torch.Tensor,
    rows: torch.Tensor,
    lengths: torch.Tensor,
    rules: NgramRules,
    max_model_len: int,
    block: int = 1 << 24,
) -> Drafts:
    """The drafts of R requests at once, on their device and without waiting for it.

    A token follows the last draft, so that a request of n tokens gets at most ``max_model_len - 1 - n``.

    Args:
        token_ids: [rows, W] integers, the request table's; what lies behind a request's length is not looked at.
        rows: [R] int64, each request's row of the table.
        lengths: [R] int64, tokens known of each; 0 = no drafts.
        rules: what to look for.
        max_model_len: tokens that a request may have in all.
        block: numbers in the largest temporary, by which requests are taken together.
    """
    at_once = max(1, block // token_ids.shape[1])
    ids = torch.empty(len(rows), rules.num_speculative_tokens, dtype=torch.int64, device=rows.device)
    counts = torch.empty_like(lengths)
    for start in range(0, len(rows), at_once):
        part = slice(start, start + at_once)
        ids[part], counts[part] = _propose_part(token_ids[rows[part]], lengths[part], rules, max_model_len)
    return Drafts(ids, counts)


def _propose_part(
    token_ids: torch.Tensor, lengths: torch.Tensor, rules: NgramRules, max_model_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    width, k = token_ids.shape[1], rules.num_speculative_tokens
    column = torch.arange(width, device=token_ids.device)  # [W]
    last = lengths[:, None] - 1  # [R, 1]
    equal = column < last  # [R, W]: do the tokens that end here equal the last ones?
    run = torch.zeros_like(token_ids, dtype=torch.int32)  # [R, W]: how many of them do
    for back in range(min(rules.prompt_lookup_max, width)):
        # No token is -1: what would begin in front of the text equals nothing.
        before = torch.nn.functional.pad(token_ids[:, : width - back], (back, 0), value=-1)
        equal = equal & (before == token_ids.gather(1, (last - back).clamp(min=0)))
        run += equal
    # One number orders the candidates: the longer first, then by place.
    place = column if rules.latest else width - 1 - column
    score = torch.where(run >= rules.prompt_lookup_min, run * width + place, -1)
    best, end = score.max(dim=1, keepdim=True)  # [R, 1]
    offset = torch.arange(k, device=token_ids.device)  # [k]
    room = torch.minimum(last - end, max_model_len - 1 - lengths[:, None])
    counts = torch.where(best >= 0, room.clamp(0, k), 0)  # [R, 1]
    ids = token_ids.gather(1, (end + 1 + offset).clamp(max=width - 1)).long()  # [R, k]
    return torch.where(offset < counts, ids, 0), counts[:, 0]
