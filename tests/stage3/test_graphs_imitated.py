"""Steps from graphs with speculation, on a CPU: the tokens are those of an engine without graphs and without drafts."""

import json
import random
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest
from stage2 import graphs
from stage3.llm import LLM

BED = Path(__file__).parent
heads, bed = load_file(BED / "heads_bed.py"), load_file(BED / "graphs_bed.py")
SIZES = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "max_num_seqs": 3, "num_gpu_blocks_override": 40}
BUDGET = 16  # tokens of a step, and of the one graph with prompts
METHODS = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1},
    "eagle": {"method": "eagle", "num_speculative_tokens": 3},
}


def requests() -> list[tuple[int, EngineCoreRequest]]:
    """Step of arrival and request: some alone, more than the off switch allows, prompts beside decodes."""
    rng = random.Random(4)
    found = []
    for i, arrival in enumerate([0, 2, 2, 2, 2]):
        ids = [rng.choice([5, 6]) for _ in range(rng.choice([3, 12]))]
        params = SamplingParams(temperature=[0.0, 0.8][i % 2], seed=i, max_tokens=rng.randint(6, 10), ignore_eos=True)
        found.append((arrival, EngineCoreRequest(f"r{i}", ids, params)))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_tokens_from_graphs_are_those_without(method, tmp_path, monkeypatch) -> None:
    config = {**METHODS[method], "disable_by_batch_size": 2}
    if method == "eagle":
        heads.write_heads(tmp_path, method)
        config["model"] = str(tmp_path)
    prompts = [{"prompt_token_ids": request.prompt_ids} for _, request in requests()]
    with LLM(**SIZES, device="cpu", dtype="float32") as plain:
        outputs = plain.generate(prompts, [request.params for _, request in requests()])
    expected = {request.req_id: out.outputs[0].token_ids for (_, request), out in zip(requests(), outputs, strict=True)}
    bed.imitate(monkeypatch, BUDGET)
    core = bed.core_with_graphs(**SIZES, max_num_batched_tokens=BUDGET, speculative_config=json.dumps(config))
    runner = core.executor._runner
    graphs, eager = [], []  # which graph each step took, and what was drafted without one behind a graph
    find_graph, draft = runner._find_graph, runner._draft
    found: dict[str, list[int]] = {req_id: [] for req_id in expected}
    waiting, step = requests(), 0
    captured = bed.Imitation.num_replays
    monkeypatch.setattr(runner, "_find_graph", lambda step: (graphs.append(find_graph(step)), graphs[-1])[1])
    monkeypatch.setattr(runner, "_draft", lambda *args: (eager.append(args) if graphs[-1] else None, draft(*args)))
    while waiting or core.has_work:
        while waiting and waiting[0][0] <= step:
            core.add_request(waiting.pop(0)[1])
        outputs = core.step()
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            found[req_id] += ids
        step += 1
    stats = core.stats()
    core.shutdown()
    assert found == expected
    assert stats.drafts > 0
    assert not eager, "what follows a graph is a graph too"
    assert {graph.size.num_chunks > 0 for graph in graphs if graph} == {False, True}
    assert bed.Imitation.num_replays - captured > step


def test_graphs_beyond_the_small_ones_hold_more_chunks(monkeypatch) -> None:
    """Nine prompts in a step: more than a small graph takes, and as many as one of 40 tokens has room for."""
    bed.imitate(monkeypatch, BUDGET)
    monkeypatch.setattr(graphs, "MAX_MIXED_TOKENS", BUDGET)
    monkeypatch.setattr(graphs, "TOKENS_A_CHUNK", 4)
    sizes = {**SIZES, "max_num_seqs": 10}
    prompts = [[5 + i, 6, 7, 8][: 2 + i % 3] for i in range(10)]
    params = [SamplingParams(temperature=0.8 * (i % 2), seed=i, max_tokens=4, ignore_eos=True) for i in range(10)]
    with LLM(**sizes, device="cpu", dtype="float32") as plain:
        outputs = plain.generate([{"prompt_token_ids": ids} for ids in prompts], params)
    core = bed.core_with_graphs(**sizes, max_num_batched_tokens=40)
    find_graph, taken = core.executor._runner._find_graph, []
    monkeypatch.setattr(
        core.executor._runner, "_find_graph", lambda step: (taken.append(find_graph(step)), taken[-1])[1]
    )
    found: dict[str, list[int]] = {}
    for i, (ids, own) in enumerate(zip(prompts, params, strict=True)):
        core.add_request(EngineCoreRequest(f"r{i}", ids, own))
        found[f"r{i}"] = []
    while core.has_work:
        step = core.step()
        for req_id, ids in zip(step.req_ids, step.new_ids, strict=True):
            found[req_id] += ids
    core.shutdown()
    assert list(found.values()) == [output.outputs[0].token_ids for output in outputs]
    assert (taken[0].size.num_tokens, taken[0].size.num_chunks) == (40, 10)
