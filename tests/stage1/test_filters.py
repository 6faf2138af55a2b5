"""min-p, top-k and top-p: which tokens each leaves, against a plain version."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.sampler import filter_logits

INF = math.inf


def kept_of(logits: list[float], top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> set[int]:
    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([[value]], dtype=dtype)

    k = top_k if 0 < top_k < len(logits) else len(logits)
    p = top_p if top_p < 1 else 2.0
    out = filter_logits(
        torch.tensor([logits]), column(k, torch.int64), column(p, torch.float32), column(min_p, torch.float32)
    )
    kept = out[0].isfinite()
    assert torch.equal(out[0][kept], torch.tensor(logits)[kept])
    return set(kept.nonzero().flatten().tolist())


def plain_filters(logits: list[float], top_k: int, top_p: float, min_p: float) -> tuple[set[int], float]:
    """The definition with Python floats; also how near a decision of top-p or min-p was to a tie."""
    nearest = INF

    def probs(kept: set[int]) -> dict[int, float]:
        largest = max(logits[i] for i in kept)
        weights = {i: math.exp(logits[i] - largest) for i in kept}
        return {i: w / sum(weights.values()) for i, w in weights.items()}

    kept = {i for i, x in enumerate(logits) if x > -INF}
    if min_p > 0:
        p = probs(kept)
        ratios = {i: p[i] / max(p.values()) for i in kept}
        nearest = min(nearest, *(abs(r / min_p - 1) if r < 1 else INF for r in ratios.values()))
        kept = {i for i in kept if ratios[i] >= min_p}
    if 0 < top_k < len(kept):
        threshold = sorted((logits[i] for i in kept), reverse=True)[top_k - 1]
        kept = {i for i in kept if logits[i] >= threshold}
    if top_p < 1:
        p = probs(kept)
        better = {i: sum(p[j] for j in kept if logits[j] > logits[i]) for i in kept}
        nearest = min(nearest, *(abs(b - top_p) for b in better.values()))
        kept = {i for i in kept if better[i] < top_p}
    return kept, nearest


quarter = st.integers(-24, 24).map(lambda x: x / 4)  # ties are common


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.one_of(quarter, st.just(-INF)), min_size=1, max_size=12).filter(lambda x: max(x) > -INF),
    st.integers(-1, 14).filter(bool),
    st.sampled_from([1e-9, 0.05, 0.3, 0.5, 0.77, 0.9, 0.99, 1.0]),
    st.sampled_from([0.0, 0.01, 0.2, 0.6, 1.0]),
)
def test_filters_equal_the_plain_version(logits: list[float], top_k: int, top_p: float, min_p: float) -> None:
    expected, nearest = plain_filters(logits, top_k, top_p, min_p)
    if nearest < 1e-5:
        return  # float32 may decide either way
    assert kept_of(logits, top_k, top_p, min_p) == expected


def test_filters_by_hand() -> None:
    logits = [3.0, 2.0, 1.0, 0.0]  # probabilities .644 .237 .087 .032
    assert kept_of(logits) == {0, 1, 2, 3}
    assert kept_of(logits, top_p=1e-9) == {0}
    assert kept_of(logits, top_p=1e-60) == {0}  # zero in float32
    assert kept_of(logits, top_p=0.64) == {0}
    assert kept_of(logits, top_p=0.65) == {0, 1}
    assert kept_of(logits, top_k=2, top_p=0.5) == {0}
    assert kept_of(logits, top_k=2, top_p=0.72) == {0}  # .644 is .731 once only two are left
    assert kept_of(logits, top_k=2, top_p=0.74) == {0, 1}
    assert kept_of(logits, min_p=0.1) == {0, 1, 2}
    assert kept_of(logits, min_p=1.0) == {0}
    assert kept_of(logits, min_p=0.3, top_p=0.74) == {0, 1}  # renormalised after min-p too
    assert kept_of(logits, min_p=0.3, top_p=0.72) == {0}


def test_ties_at_a_threshold_stay_together() -> None:
    assert kept_of([1.0, 2.0, 1.0, 0.0], top_k=2) == {0, 1, 2}
    assert kept_of([0.0] * 5, top_p=0.1) == {0, 1, 2, 3, 4}
    assert kept_of([0.0] * 5, top_k=1) == {0, 1, 2, 3, 4}
    assert kept_of([1.0, 1.0, 0.0], top_p=0.3) == {0, 1}
    assert kept_of([1.0, 1.0, 0.0], min_p=1.0) == {0, 1}
