"""Stage 3's warm-up: masks and verifications too, and again no trace of it."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage2.warm_up import WarmUpLimits
from stage3.llm import LLM
from stage3.spec.rules import read_rules
from stage3.warm_up import warm_up_plans

BED = Path(__file__).parent
heads = load_file(BED / "heads_bed.py")
stage_2 = load_file(BED.parent / "stage2" / "warm_up_bed.py")
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
CONFIGS = {
    "none": None,
    "ngram": NGRAM,
    "medusa": {"method": "medusa", "num_speculative_tokens": 3},
    "eagle": {"method": "eagle", "num_speculative_tokens": 3},
    "drawn": {"model": "tiny", "num_speculative_tokens": 3, "rejection_sample_method": "probabilistic"},
}


@pytest.mark.parametrize("limits", stage_2.LIMITS)
@pytest.mark.parametrize("num_drafts", [None, 1, 7, 20])
def test_plans_keep_the_limits_and_leave_nobody(limits, num_drafts):
    rules = None if num_drafts is None else read_rules({**NGRAM, "num_speculative_tokens": num_drafts})
    plans = list(warm_up_plans(limits, rules))
    stage_2.check_plans(plans, limits)
    verified = {name: ids for plan in plans for name, ids in plan.drafts.items()}
    assert bool(verified) == (num_drafts is not None and limits.max_tokens > 1)
    assert any(plan.extras for plan in plans)
    if num_drafts is not None and limits.max_reqs > 9 and limits.max_len > 200:
        most = max(plan.total_tokens for plan in plans if plan.drafts)
        assert most == min(limits.max_tokens, 2048), "drafts are verified in a step that is as large as may be"
    assert all(plan.num_scheduled[name] == 1 + len(ids) for plan in plans for name, ids in plan.drafts.items())


@pytest.mark.parametrize("method", CONFIGS)
def test_an_engine_is_the_same_after_it(method, tmp_path):
    config = CONFIGS[method]
    if method in ("medusa", "eagle"):
        heads.write_heads(tmp_path, method)
        config = {**config, "model": str(tmp_path)}
    params = [SamplingParams(temperature=t, seed=3, max_tokens=12) for t in (0, 1)]
    prompts = [{"prompt_token_ids": [5, 6, 7, 8] * n} for n in (2, 9)]
    found = []
    for warm in (False, True):
        with LLM(**stage_2.TINY, max_num_seqs=12, speculative_config=config) as llm:
            if warm:
                plans = list(warm_up_plans(WarmUpLimits(12, 512, 80, 16, 256), config and read_rules(config)))
                assert llm.core.call("warm_up", plans) == [0]
                stage_2.check_nobody_is_left(llm.core.executor._runner)
            found.append([output.outputs[0].token_ids for output in llm.generate(prompts, params)])
            assert (llm.core.stats().drafts > 0) == (config is not None)
    assert found[0] == found[1]
