"""Verification in plain torch: how many drafts stay, and the token behind them. Exact, whatever the drafts are.

Owns the two rules, and the distribution that a request draws from. Does not know requests, plans or models.

    drafts      d0 d1 d2            logits [1 + k] of each request: row i was computed behind d0 … d(i-1)
    accepted    d0 d1 ✗             the first draft that does not stay ends the row of accepted ones
    result      d0 d1 x             one token more than was accepted: x replaces d2, or follows the last draft

*By match*: the target draws its own token at every position, with the plain sampler's noise there; a draft stays if it
is that token. What comes out are the tokens of plain decoding, one by one, also for sampled requests with a seed: the
drafts decide how many come at once and nothing else. A draft that is not random stays with the target's probability
p(d), and no exact rule can keep it more often.

*By rejection* (Leviathan et al. and Chen et al., 2023), for drafts drawn from a known q: d stays with probability
min(1, p(d) / q(d)); what takes its place is drawn from max(p - q, 0), normalised. Drafts stay more often, with
probability Σ min(p, q); the distribution of the output is the target's, its tokens are others than without drafts.
Drafters draw with the plain noise of the position: a rejected one is looked at once, so no number decides twice.

Nothing here waits for the device or changes its inputs. ``rejection_kernel`` has the same two functions in kernels.

vLLM: ``v1/sample/rejection_sampler.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage1.params_check import MIN_TEMPERATURE
from stage1.philox import exponential_noise
from stage1.sampler import filter_logits
from stage3.spec.noise import verification_noise

Accept = Callable[[torch.Tensor, torch.Tensor, Drafts], Sampled]  # drawn, bad_rows, drafts
Residual = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # target, draft, uniform

_OFF = 2.0  # a top_p that keeps everything


@dataclass(frozen=True, slots=True, eq=False)
class DrawRules:
    """How each of N draws is made; [N] tensors, those of ``stage2.inputs.StepBatch``."""

    temperature: torch.Tensor  # float32, 0 = greedy
    top_k: torch.Tensor  # int64, off below 1 and from vocab on
    top_p: torch.Tensor  # float32, off from 1 on
    min_p: torch.Tensor  # float32, 0 = off
    seeds: torch.Tensor  # int64
    positions: torch.Tensor  # int64, output position of the (first) token to draw

    def of(self, index: torch.Tensor) -> DrawRules:
        """The rules of some draws: ``index`` [M] int64 → [M]."""
        return DrawRules(
            self.temperature[index],
            self.top_k[index],
            self.top_p[index],
            self.min_p[index],
            self.seeds[index],
            self.positions[index],
        )

    def first_of(self, width: int) -> DrawRules:
        """The rules of each request's first draw: the inverse of ``at_each_position``, [N * width] → [N]."""
        return self.of(torch.arange(0, len(self.positions), width, device=self.positions.device))

    def at_each_position(self, width: int) -> DrawRules:
        """``width`` draws a request, at consecutive positions: [N] → [N * width]."""
        place = torch.arange(width, device=self.positions.device)
        return DrawRules(
            _spread(self.temperature, width),
            _spread(self.top_k, width),
            _spread(self.top_p, width),
            _spread(self.min_p, width),
            _spread(self.seeds, width),
            (self.positions[:, None] + place).flatten(),
        )


def _spread(values: torch.Tensor, width: int) -> torch.Tensor:
    """[N] → [N * width], each ``width`` times."""
    return values[:, None].expand(-1, width).flatten()


def kept_logits(logits: torch.Tensor, rules: DrawRules, has_filters: bool = True) -> torch.Tensor:
    """Logits [N, vocab] float32 whose softmax a draw follows: tempered, and -inf where the filters leave a token out.

    Of a greedy row its first maximum alone is kept. ``has_filters`` is false where no rule has a filter.
    """
    vocab_size = logits.shape[1]
    kept = logits.float() / rules.temperature.clamp(min=MIN_TEMPERATURE)[:, None]
    if has_filters:
        kept = _filtered(kept, rules)
    best = logits.float().argmax(dim=1, keepdim=True)
    other = torch.arange(vocab_size, device=logits.device) != best
    return kept.masked_fill(other & (rules.temperature == 0)[:, None], -torch.inf)


def _filtered(tempered: torch.Tensor, rules: DrawRules) -> torch.Tensor:
    vocab_size = tempered.shape[1]
    top_k = torch.where((rules.top_k > 0) & (rules.top_k < vocab_size), rules.top_k, vocab_size)
    top_p = torch.where(rules.top_p < 1, rules.top_p, _OFF)
    return filter_logits(tempered, top_k[:, None], top_p[:, None], rules.min_p[:, None])


def draw(kept: torch.Tensor, rules: DrawRules) -> torch.Tensor:
    """The plain sampler's token of each row of ``kept_logits``: [N, vocab] → [N]."""
    noise = exponential_noise(rules.seeds, rules.positions, kept.shape[1])
    return (kept - noise.log_()).argmax(dim=1)


def is_bad(logits: torch.Tensor) -> torch.Tensor:
    """Rows without a token to choose, or with a not-a-number: [N, vocab] → [N] bool."""
    return ~logits.amax(dim=1).isfinite()


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """What ``verify_by_match`` returns, from the target's tokens: ``drawn`` [R, 1 + k] int64, ``bad_rows`` bool."""
    place = torch.arange(drawn.shape[1], device=drawn.device)  # [1 + k]
    same = (drawn[:, :-1] == drafts.ids) & (place[:-1] < drafts.counts[:, None])  # [R, k]
    counts = 1 + same.cumprod(dim=1).sum(dim=1)  # [R]
    meant = place < counts[:, None]  # [R, 1 + k]
    return Sampled(torch.where(meant, drawn, 0), counts, (bad_rows & meant).any(dim=1))


def verify_by_match(
    logits: torch.Tensor, drafts: Drafts, rules: DrawRules, has_filters: bool = True, accept: Accept = accept_matching
) -> Sampled:
    """The target's own tokens up to the first that is not a draft.

    Args:
        logits: [R, 1 + k, vocab]; rows behind a request's drafts are not looked at.
        drafts: [R, k] ids and their counts; ids behind the counts may be anything.
        rules: of the R requests.
        has_filters: false where no rule has a filter.
        accept: ``accept_matching`` or what does the same.

    Returns:
        ids [R, 1 + k], of which ``counts`` = 1 + accepted are meant (0 behind them); ``bad`` where a row that was
        needed allows no token.
    """
    return verify_each(logits, drafts, rules.at_each_position(logits.shape[1]), has_filters, accept)


def verify_each(
    logits: torch.Tensor, drafts: Drafts, each: DrawRules, has_filters: bool = True, accept: Accept = accept_matching
) -> Sampled:
    """``verify_by_match`` with the rules of each of the R * (1 + k) draws."""
    num_reqs, width, vocab_size = logits.shape
    rows = logits.reshape(-1, vocab_size)
    drawn = draw(kept_logits(rows, each, has_filters), each)
    return accept(drawn.view(num_reqs, width), is_bad(rows).view(num_reqs, width), drafts)


def count_accepted(p: torch.Tensor, q: torch.Tensor, drafts: Drafts, rules: DrawRules) -> torch.Tensor:
    """Drafts before the first that does not stay, [R] int64. ``p`` and ``q`` [R, k] are the drafts' probabilities."""
    offset = torch.arange(p.shape[1], device=p.device)
    u, _ = verification_noise(rules.seeds[:, None].expand_as(p), rules.positions[:, None] + offset)
    stays = (u * q < p) & (offset < drafts.counts[:, None])  # not u < p / q: q may be 0
    return stays.cumprod(dim=1).sum(dim=1)


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """One token from max(p - q, 0), normalised; from p where nothing is left: [R] int64.

    Args:
        target: p, [R, vocab] float32.
        draft: q, likewise.
        uniform: [R] float64 in [0, 1). The tokens, in the order of their ids, share this interval; whose part it is in
            is drawn.
    """
    residual = (target - draft).clamp(min=0.0)
    # Rounding may leave nothing where p and q are nearly equal.
    residual = torch.where(residual.sum(dim=1, keepdim=True) > 0, residual, target)
    reached = residual.double().cumsum(dim=1)  # [R, vocab], where each token's part ends
    return (reached <= uniform[:, None] * reached[:, -1:]).sum(dim=1).clamp(max=target.shape[1] - 1)


def verify_by_rejection(
    logits: torch.Tensor,
    drafts: Drafts,
    draft_probs: torch.Tensor,
    rules: DrawRules,
    keep: Callable[[torch.Tensor, DrawRules], torch.Tensor] = kept_logits,
    count: Callable[[torch.Tensor, torch.Tensor, Drafts, DrawRules], torch.Tensor] = count_accepted,
    residual: Residual = draw_residual,
) -> Sampled:
    """Drafts that stay with probability min(1, p / q), and one token more.

    Args:
        logits: [R, 1 + k, vocab]; rows behind a request's drafts are not looked at.
        drafts: [R, k] ids and their counts; ids behind the counts may be anything.
        draft_probs: [R, k, vocab] float32: q, from which each draft was drawn; rows behind the counts may be anything.
        rules: of the R requests; a greedy one keeps exactly the drafts that greedy decoding would choose.
        keep: ``kept_logits`` or what does the same faster.
        count: ``count_accepted`` or what does the same faster.
        residual: ``draw_residual`` or what does the same.

    Returns:
        As ``verify_by_match``.
    """
    num_reqs, width, vocab_size = logits.shape
    rows, each = logits.reshape(-1, vocab_size), rules.at_each_position(width)
    kept = keep(rows, each)  # [R * (1 + k), vocab]
    log_total = kept.logsumexp(dim=1).view(num_reqs, width)
    place = torch.arange(width, device=logits.device)  # [1 + k]
    ids = torch.where(place[:-1] < drafts.counts[:, None], drafts.ids, 0)  # [R, k]
    of_drafts = kept.view(num_reqs, width, vocab_size)[:, :-1].gather(2, ids[:, :, None])[:, :, 0]
    p = (of_drafts - log_total[:, :-1]).exp()  # [R, k]
    q = draft_probs.gather(2, ids[:, :, None])[:, :, 0]  # [R, k]
    accepted = count(p, q, drafts, rules)  # [R]

    # The token behind the accepted ones: in a draft's place, or behind the last draft.
    request = torch.arange(num_reqs, device=logits.device)
    row = request * width + accepted  # [R]
    last = each.of(row)
    token = draw(kept[row], last)
    if width > 1:
        there = draft_probs[request, accepted.clamp(max=width - 2)]  # [R, vocab]
        _, uniform = verification_noise(last.seeds, last.positions)
        instead = residual(kept[row].softmax(dim=1), there, uniform)
        token = torch.where(accepted < drafts.counts, instead, token)
    result = torch.where(place < accepted[:, None], torch.nn.functional.pad(ids, (0, 1)), 0)
    result = torch.where(place == accepted[:, None], token[:, None], result)
    bad = is_bad(rows).view(num_reqs, width) & (place <= accepted[:, None])
    return Sampled(result, accepted + 1, bad.any(dim=1))
