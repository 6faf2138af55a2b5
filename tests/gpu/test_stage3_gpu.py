"""Stage 3 on a CUDA GPU: prefix cache, grammars and speculation with compiled kernels, beside stage 2's graphs."""

import random
import re
from itertools import product
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage3.llm import LLM
from stage3.training.prompts import make_prompts

BEDS = Path(__file__).parents[1] / "stage3"
heads, proof = load_file(BEDS / "heads_bed.py"), load_file(BEDS / "proof_bed.py")

pytestmark = pytest.mark.gpu

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 256, "dtype": "float32", "device": "cuda"}
requests = load_file(BEDS / "requests_bed.py")
PROMPTS, PARAMS, NGRAM, tokens = requests.PROMPTS[:5], requests.PARAMS[:5], requests.NGRAM, requests.tokens


METHODS = ["none", "ngram", "medusa", "eagle", "draft_model"]


def config_of(method: str, folder: Path) -> dict | None:
    if method in ("medusa", "eagle"):
        heads.write_heads(folder, method)
    return {
        "none": None,
        "ngram": NGRAM,
        "medusa": {"method": "medusa", "num_speculative_tokens": 3, "model": str(folder)},
        "eagle": {"method": "eagle", "num_speculative_tokens": 3, "model": str(folder)},
        "draft_model": {"model": "tiny", "num_speculative_tokens": 3},
    }[method]


@pytest.mark.parametrize("settings", [{}, {"enforce_eager": True}, {"block_size": 32, "max_num_batched_tokens": 80}])
@pytest.mark.parametrize("method", METHODS)
def test_cold_and_warm_with_and_without_drafts_the_tokens_are_stage_1s(method, settings, tmp_path) -> None:
    config = config_of(method, tmp_path)
    with stage1_llm.LLM(**TINY) as plain:
        expected = tokens(plain.generate(PROMPTS, PARAMS))
    with LLM(**TINY, **settings, num_gpu_blocks_override=64, max_num_seqs=8, speculative_config=config) as llm:
        assert tokens(llm.generate(PROMPTS, PARAMS)) == expected
        warm = llm.generate(PROMPTS, PARAMS)
        stats = llm.core.stats()
        if config is not None and "enforce_eager" not in settings:
            sizes = [graph.size for graph in llm.core.executor._runner._draft_graphs.verifying]
            assert {(size.num_reqs, size.cut) for size in sizes} == set(product((1, 2, 4, 8), (False, True)))
    assert tokens(warm) == expected
    assert min(output.num_cached_tokens for output in warm) >= (0 if "block_size" in settings else 16)
    assert (stats.drafts > 0) == (config is not None)


@pytest.mark.parametrize("method", ["none", "ngram", "eagle"])
def test_long_requests_alone_and_beside_others(method, tmp_path) -> None:
    """Their keys are cut into splits, in graphs of their own."""
    sizes = {**TINY, "max_model_len": 1024}
    prompts = [{"prompt_token_ids": [5 + (3 * i + j) % 11 for j in range(n)]} for i, n in enumerate((900, 30, 400, 9))]
    config = config_of(method, tmp_path)
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (60, 40, 20, 20)]
    with stage1_llm.LLM(**sizes) as plain:
        expected = tokens(plain.generate(prompts, params))
    with LLM(**sizes, num_gpu_blocks_override=200, max_num_seqs=4, speculative_config=config) as llm:
        runner, taken = llm.core.executor._runner, set()
        find = runner._find_graph
        runner._find_graph = lambda step: (taken.add((graph := find(step)) and graph.size.cut), graph)[1]
        assert tokens(llm.generate(prompts, params)) == expected
        assert tokens(llm.generate(prompts[3:], params[3:])) == expected[3:]
    assert {True, False} <= taken


@pytest.mark.parametrize("settings", [{}, {"enforce_eager": True}, {"block_size": 64, "max_num_batched_tokens": 48}])
def test_a_model_that_drafts_for_itself_is_always_right(settings) -> None:
    """A wrong slot, position or row would be seen: every greedy draft is the model's own token."""
    config = {"model": "tiny", "num_speculative_tokens": 3}
    with LLM(**TINY, **settings, num_gpu_blocks_override=64, max_num_seqs=8, speculative_config=config) as llm:
        for _ in range(2):  # cold and warm
            llm.generate(PROMPTS, PARAMS[0])
        stats = llm.core.stats()
    assert sum(stats.accepted_per_position) >= 0.97 * stats.drafts  # all but those behind a request's end
    assert stats.drafts > 2 * 5 * 40


def some_messages() -> list[str]:
    """Two hundred messages of all kinds."""
    passages = ["The library lends books for three weeks. Whoever returns one late pays ten cents a day."]
    return make_prompts(200, random.Random(3), lambda rng: passages[0], lambda rng: "for i in range(3):\n    print(i)")


@pytest.mark.parametrize("method", ["ngram", "medusa", "eagle"])
def test_two_hundred_prompts_with_real_weights(method) -> None:
    """In float32, in which two good tokens are told apart."""
    settings = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 32, "kv_cache_memory_bytes": 4 << 30}
    config = {"method": method, "num_speculative_tokens": 2 if method == "medusa" else 3}
    with LLM(**settings) as plain:
        messages = [plain.render_chat([{"role": "user", "content": text}]) for text in some_messages()]
        expected = plain.generate(messages, proof.greedy(48, logprobs=2))
    with LLM(**settings, speculative_config=config) as llm:
        found = proof.compare(expected, llm.generate(messages, proof.greedy(48)))
        assert llm.core.stats().drafts > 1000
    print(f"{method}: {found.num_equal} of 200 equal, ties {found.ties}")
    assert found.faults == []
    assert found.num_equal + len(found.ties) == 200
    assert len(found.ties) < 20


def test_grammars_hold_beside_free_requests() -> None:
    guided = SamplingParams(temperature=1.0, seed=5, max_tokens=60, structured_outputs={"regex": r"[ab]{5}\d{3}"})
    settings = {"num_gpu_blocks_override": 64, "max_num_seqs": 8, "speculative_config": NGRAM}
    with LLM(**TINY, **settings) as llm:
        alone = tokens(llm.generate(PROMPTS[:2], PARAMS[:2]))
        mixed = llm.generate([*PROMPTS[:2], PROMPTS[2]], [*PARAMS[:2], guided])
    assert tokens(mixed)[:2] == alone
    assert re.fullmatch(r"[ab]{5}\d{3}", mixed[2].outputs[0].text)
