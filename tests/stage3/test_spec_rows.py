"""Rows of the request table under speculation: who has one next finds nothing of whoever had it before."""

import pytest

from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage3.llm import LLM

TINY = {"model": "tiny", "load_format": "dummy", "dtype": "float32", "max_model_len": 96}
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, seed=0)


def plan(step: int, scheduled: dict[str, int], **fields) -> SchedulerOutput:
    return SchedulerOutput(
        step=step,
        new=fields.get("new", []),
        cached=CachedRequests(list(fields.get("computed", {})), list(fields.get("computed", {}).values()), {}),
        num_scheduled=scheduled,
        drafts=fields.get("drafts", {}),
        finished=fields.get("finished", []),
    )


@pytest.mark.parametrize("late", [False, True])
def test_a_result_that_is_read_late_counts_for_nobody_else(late) -> None:
    """A ends while its drafts are verified, and B gets its row before that step's result is read."""
    config = {"model": "tiny", "num_speculative_tokens": 3}
    with LLM(**TINY, max_num_seqs=1, block_size=4, speculative_config=config) as llm:
        runner = llm.core.executor._runner
        first = runner.execute(plan(1, {"A": 4}, new=[NewRequestData("A", [5, 6, 7, 8], [], GREEDY, [0, 1, 2], 0)]))
        verifying = runner.launch(plan(2, {"A": 4}, computed={"A": 4}, drafts=first.drafts))
        if not late:
            verifying.result()
        new = NewRequestData("B", [9, 8, 7, 6, 5, 4], [], GREEDY, [3, 4, 5], 0)
        half = runner.launch(plan(3, {"B": 4}, new=[new], finished=["A"]))
        assert len(verifying.result().sampled[0]) == 4
        half.result()
        assert len(runner.execute(plan(4, {"B": 2}, computed={"B": 4})).sampled[0]) == 1


def test_behind_a_prefix_hit_ngrams_are_looked_up_in_the_requests_own_text() -> None:
    config = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    text = {"prompt_token_ids": [(37 * i) % 256 for i in range(56)]}
    others = [{"prompt_token_ids": [100 + i] * 60} for i in range(2)]
    seen = []
    with LLM(**TINY, max_num_seqs=2, speculative_config=config) as llm:
        submit = llm.core.executor.submit
        llm.core.executor.submit = lambda p: (seen.extend(p.drafts.items()), submit(p))[1]
        cold = llm.generate(text, GREEDY)[0]
        drafts = [ids for _, ids in seen]
        llm.generate(others, SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))  # take both rows
        seen.clear()
        warm = llm.generate(text, GREEDY)[0]
    assert warm.num_cached_tokens == 48
    assert warm.outputs[0].token_ids == cold.outputs[0].token_ids
    assert [ids for _, ids in seen] == drafts
    assert len(drafts) > 2
