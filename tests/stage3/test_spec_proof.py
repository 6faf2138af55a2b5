"""Greedy output equals plain decoding's on 200 prompts, by every method, wherever the best token leads by 1e-3."""

import random
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage2.llm import LLM as PagedLLM
from stage3.llm import LLM

bed = load_file(Path(__file__).with_name("proof_bed.py"))
heads = load_file(Path(__file__).with_name("heads_bed.py"))

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 96, "dtype": "float32", "max_num_seqs": 32}
COUNT, LENGTH = 200, 24


def some_prompts() -> list[dict]:
    """Half of them copy themselves, so that n-grams have something to find."""
    rng = random.Random(5)
    prompts = []
    for number in range(COUNT):
        ids = [rng.randrange(256) for _ in range(rng.randint(1, 24))]
        prompts.append({"prompt_token_ids": ids * 2 if number % 2 else ids})
    return prompts


@pytest.fixture(scope="module")
def plain() -> list:
    with PagedLLM(**TINY) as llm:
        return llm.generate(some_prompts(), bed.greedy(LENGTH, logprobs=2))


@pytest.mark.parametrize("method", ["ngram", "medusa", "eagle", "draft_model"])
def test_two_hundred_prompts(method, plain, tmp_path) -> None:
    config = {"method": method, "num_speculative_tokens": 3}
    if method in ("medusa", "eagle"):
        config["model"] = str(heads.write_heads(tmp_path, method))
    elif method == "draft_model":
        config["model"] = "tiny"
    else:
        config |= {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
    with LLM(**TINY, speculative_config=config) as llm:
        found = bed.compare(plain, llm.generate(some_prompts(), bed.greedy(LENGTH)))
        stats = llm.core.stats()
    assert found.faults == []
    assert found.num_equal + len(found.ties) == COUNT
    assert len(found.ties) <= 2, found.ties
    assert stats.drafts > 500


def test_a_wrong_token_would_be_seen(plain) -> None:
    with PagedLLM(**TINY) as llm:
        other = llm.generate(some_prompts()[1:] + some_prompts()[:1], bed.greedy(LENGTH))
    assert len(bed.compare(plain, other).faults) > COUNT / 2
