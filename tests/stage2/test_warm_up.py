"""Warm-up steps: within the limits, with every kind of draw, and without a trace of them afterwards."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage2.llm import LLM
from stage2.warm_up import DRAWS, WarmUpLimits, warm_up_plans

bed = load_file(Path(__file__).with_name("warm_up_bed.py"))
TINY = bed.TINY


@pytest.mark.parametrize("limits", bed.LIMITS)
def test_plans_keep_the_limits_and_leave_nobody(limits):
    plans = list(warm_up_plans(limits))
    bed.check_plans(plans, limits)
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
        bed.check_nobody_is_left(llm.core.executor._runner)
        assert [output.outputs[0].token_ids for output in llm.generate(prompts, params)] == expected


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
