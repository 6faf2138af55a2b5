"""Limits of warm-up steps, and what must hold of their plans and of a runner behind them."""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage2.warm_up import WarmUpLimits

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 96, "dtype": "float32", "device": "cpu"}
LIMITS = [
    WarmUpLimits(max_reqs=32, max_tokens=2048, max_len=500, block_size=16, vocab_size=256),
    WarmUpLimits(max_reqs=10, max_tokens=64, max_len=500, block_size=32, vocab_size=256),
    WarmUpLimits(max_reqs=1, max_tokens=1, max_len=1, block_size=16, vocab_size=256),
    WarmUpLimits(max_reqs=300, max_tokens=512, max_len=30, block_size=16, vocab_size=256),
    WarmUpLimits(max_reqs=128, max_tokens=2048, max_len=64, block_size=16, vocab_size=256),  # as many as fill blocks
]


def check_plans(plans: list[SchedulerOutput], limits: WarmUpLimits) -> None:
    """Follow the plans as a runner does: whoever computes has come, fits, and has gone at the end."""
    lengths: dict[str, int] = {}
    rooms: dict[str, int] = {}
    for plan in plans:
        for req_id in plan.finished:
            del lengths[req_id]
        for new in plan.new:
            assert new.req_id not in lengths
            assert max(new.block_ids) <= (limits.max_len + 8) // limits.block_size  # the cache has at least these
            rooms[new.req_id] = len(new.block_ids) * limits.block_size
            lengths[new.req_id] = 0
        for req_id, computed in zip(plan.cached.req_ids, plan.cached.num_computed, strict=True):
            assert lengths[req_id] == computed
        for req_id, count in plan.num_scheduled.items():
            lengths[req_id] += count
            assert lengths[req_id] <= rooms[req_id]
        assert max(lengths.values(), default=0) <= limits.max_len + 8
        assert len(plan.num_scheduled) <= limits.max_reqs
        assert plan.total_tokens <= limits.max_tokens
    assert lengths == {}


def check_nobody_is_left(runner) -> None:
    """No row, and nothing that a processor remembers of a request."""
    assert runner._keeper._rows == {}
    assert runner._keeper._demanding == set()
    for processor in runner._processors:
        for value in vars(processor).values():
            assert "warm-up" not in repr(value)
            assert not (isinstance(value, dict | set) and value), vars(processor)
