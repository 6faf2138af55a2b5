"""Steps from graphs with speculation, on a CPU: the tokens are those of an engine without graphs and without drafts."""

import json
import random
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.core import EngineCore
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest
from stage2 import graphs
from stage2.graphs import StepGraph
from stage2.kernels import decode_attention, decode_splits
from stage2.kernels.decode_attention import Tiling
from stage2.kernels.decode_splits import Programs
from stage2.runner import PagedRunner
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


def config_of(method: str, folder: Path) -> str:
    """The setting, with guesses of a small batch alone."""
    config = {**METHODS[method], "disable_by_batch_size": 2}
    if method == "eagle":
        heads.write_heads(folder, method)
        config["model"] = str(folder)
    return json.dumps(config)


def without_graphs(arrivals: list[tuple[int, EngineCoreRequest]], **sizes) -> dict[str, list[int]]:
    """The tokens of each request in an engine without graphs and without drafts."""
    requests = [request for _, request in arrivals]
    with LLM(**sizes, device="cpu", dtype="float32") as plain:
        prompts = [{"prompt_token_ids": request.prompt_ids} for request in requests]
        outputs = plain.generate(prompts, [request.params for request in requests])
    return {request.req_id: out.outputs[0].token_ids for request, out in zip(requests, outputs, strict=True)}


def serve(core: EngineCore, arrivals: list[tuple[int, EngineCoreRequest]]) -> tuple[dict[str, list[int]], int]:
    """The tokens of each request, and the number of steps."""
    found: dict[str, list[int]] = {request.req_id: [] for _, request in arrivals}
    waiting, number = list(arrivals), 0
    while waiting or core.has_work:
        while waiting and waiting[0][0] <= number:
            core.add_request(waiting.pop(0)[1])
        outputs = core.step()
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            found[req_id] += ids
        number += 1
    return found, number


def watch_graphs(runner: PagedRunner, monkeypatch) -> list[StepGraph | None]:
    """The graph of each step from now on; ``None`` where it takes none."""
    find_graph, taken = runner._find_graph, []
    monkeypatch.setattr(runner, "_find_graph", lambda step: (taken.append(find_graph(step)), taken[-1])[1])
    return taken


@pytest.mark.parametrize("method", METHODS)
def test_tokens_from_graphs_are_those_without(method, tmp_path, monkeypatch) -> None:
    expected = without_graphs(requests(), **SIZES)
    bed.imitate(monkeypatch, BUDGET)
    config = config_of(method, tmp_path)
    core = bed.core_with_graphs(**SIZES, max_num_batched_tokens=BUDGET, speculative_config=config)
    runner = core.executor._runner
    taken, eager, draft = watch_graphs(runner, monkeypatch), [], runner._draft
    # What was drafted without a graph behind a graph.
    monkeypatch.setattr(runner, "_draft", lambda *args: (eager.append(args) if taken[-1] else None, draft(*args)))
    before = bed.Imitation.num_replays
    found, num_steps = serve(core, requests())
    stats = core.stats()
    core.shutdown()
    assert found == expected
    assert stats.drafts > 0
    assert not eager, "what follows a graph is a graph too"
    assert {graph.size.num_chunks > 0 for graph in taken if graph} == {False, True}
    assert bed.Imitation.num_replays - before > num_steps


def test_graphs_beyond_the_small_ones_hold_more_chunks(monkeypatch) -> None:
    """Ten prompts in a step: more than a small graph takes, and as many as one of 40 tokens has room for."""
    bed.imitate(monkeypatch, BUDGET)
    monkeypatch.setattr(graphs, "MAX_MIXED_TOKENS", BUDGET)
    monkeypatch.setattr(graphs, "TOKENS_A_CHUNK", 4)
    sizes = {**SIZES, "max_num_seqs": 10}
    arrivals = []
    for i in range(10):
        params = SamplingParams(temperature=0.8 * (i % 2), seed=i, max_tokens=4, ignore_eos=True)
        arrivals.append((0, EngineCoreRequest(f"r{i}", [5 + i, 6, 7, 8][: 2 + i % 3], params)))
    core = bed.core_with_graphs(**sizes, max_num_batched_tokens=40)
    taken = watch_graphs(core.executor._runner, monkeypatch)
    found, _ = serve(core, arrivals)
    core.shutdown()
    assert found == without_graphs(arrivals, **sizes)
    assert (taken[0].size.num_tokens, taken[0].size.num_chunks) == (40, 10)


@pytest.mark.parametrize("method", [None, "eagle"])
def test_steps_take_graphs_with_splits_where_that_pays(method, tmp_path, monkeypatch) -> None:
    """A long request beside short ones, and alone: what is found is the same."""
    bed.imitate(monkeypatch, BUDGET)
    monkeypatch.setattr(decode_splits, "SHORT", 16)
    monkeypatch.setattr(decode_splits, "SMALL_HEADS", Programs(2, 1.0))
    for table in (decode_attention.TILINGS, decode_attention.SPLIT_TILINGS):
        monkeypatch.setitem(table, (64, 4), Tiling(16, 4, 2))  # two splits from 33 keys on
    arrivals = []
    for i, (length, count) in enumerate(((24, 14), (20, 4), (22, 4))):
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        arrivals.append((0, EngineCoreRequest(f"r{i}", list(range(5, 5 + length)), params)))
    config = {"speculative_config": config_of(method, tmp_path)} if method else {}
    core = bed.core_with_graphs(**SIZES, max_num_batched_tokens=BUDGET, **config)
    taken = watch_graphs(core.executor._runner, monkeypatch)
    found, _ = serve(core, arrivals)
    core.shutdown()
    assert found == without_graphs(arrivals, **SIZES)
    sizes = {(graph.size.num_reqs, graph.size.cut) for graph in taken if graph and not graph.size.num_chunks}
    assert {(1, True), (3, False)} <= sizes
