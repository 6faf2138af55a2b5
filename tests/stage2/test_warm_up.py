"""Warm-up steps: within the limits, with every kind of draw, and without a trace of them afterwards."""

import pytest

from stage1.params import SamplingParams
from stage1.records import SchedulerOutput
from stage2.llm import LLM
from stage2.warm_up import DRAWS, WarmUpLimits, warm_up_plans

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


@pytest.mark.parametrize("limits", LIMITS)
def test_plans_keep_the_limits_and_leave_nobody(limits):
    plans = list(warm_up_plans(limits))
    check_plans(plans, limits)
    drawn = {id(new.params) for plan in plans for new in plan.new}
    assert drawn == {id(params) for params in DRAWS}


def test_an_engine_is_the_same_after_it():
    params = [SamplingParams(temperature=t, seed=3, max_tokens=12, top_p=p) for t, p in ((0, 1), (1, 1), (1, 0.8))]
    prompts = [{"prompt_token_ids": list(range(3, 3 + n))} for n in (5, 20, 40)]
    with LLM(**TINY, max_num_seqs=12) as llm:
        expected = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
    with LLM(**TINY, max_num_seqs=12) as llm:
        plans = list(warm_up_plans(WarmUpLimits(12, 512, 80, 16, 256)))
        assert llm.core.call("warm_up", plans) == [0]
        check_nobody_is_left(llm.core.executor._runner)
        assert [output.outputs[0].token_ids for output in llm.generate(prompts, params)] == expected


def check_nobody_is_left(runner) -> None:
    """No row, and nothing that a processor remembers of a request."""
    assert runner._keeper._rows == {}
    assert runner._keeper._demanding == set()
    for processor in runner._processors:
        for value in vars(processor).values():
            assert "warm-up" not in repr(value)
            assert not (isinstance(value, dict | set) and value), vars(processor)


def test_too_little_memory_for_a_step_leaves_it_out(monkeypatch, caplog):
    import torch

    with LLM(**TINY, max_num_seqs=4) as llm:
        runner = llm.core.executor._runner
        compute = runner._compute

        def short(batch):
            if batch.num_reqs == 4:
                raise torch.OutOfMemoryError("none is left")
            return compute(batch)

        monkeypatch.setattr(runner, "_compute", short)
        assert runner.warm_up(list(warm_up_plans(WarmUpLimits(4, 512, 80, 16, 256)))) == 2
        assert "2 of" in caplog.text
        monkeypatch.undo()
        assert len(llm.generate([{"prompt_token_ids": [5, 6]}] * 4, SamplingParams(max_tokens=3))) == 4
