"""Drafts that are drawn, verified by rejection, in the engine: other tokens, the same distribution."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage3.llm import LLM
from stage3.spec import choose

heads = load_file(Path(__file__).with_name("heads_bed.py"))

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32", "max_num_seqs": 64}
PROMPT = {"prompt_token_ids": [5, 6, 7, 8, 9, 10]}
DRAWS = 1500
DRAWN = {"num_speculative_tokens": 2, "rejection_sample_method": "probabilistic", "disable_by_batch_size": 64}


def config_of(method: str, folder: Path) -> dict:
    model = "tiny" if method == "draft_model" else str(heads.write_heads(folder, method))
    return {"method": method, "model": model, **DRAWN}


def texts(config: dict | None, first_seed: int, count: int = DRAWS, **more) -> list[list[int]]:
    """``count`` texts of four tokens, each with its own seed and drawn from the three likeliest tokens."""
    common = {"temperature": 1.0, "top_k": 3, "max_tokens": 4, "ignore_eos": True} | more
    params = [SamplingParams(seed=first_seed + i, **common) for i in range(count)]
    with LLM(**TINY, speculative_config=config) as llm:
        outputs = llm.generate([PROMPT] * count, params)
        if config is not None:
            stats = llm.core.stats()
            assert 0 < sum(stats.accepted_per_position) <= stats.drafts
    return [output.outputs[0].token_ids for output in outputs]


def chi_square(ours: list, theirs: list) -> tuple[float, int]:
    """Of two samples of equal size over the same values: the statistic and its degrees of freedom."""
    statistic, kinds = 0.0, 0
    for value in set(ours) | set(theirs):
        a, b = ours.count(value), theirs.count(value)
        if a + b >= 10:
            statistic += (a - b) ** 2 / (a + b)
            kinds += 1
    return statistic, kinds - 1


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return texts(None, first_seed=100_000)


@pytest.mark.parametrize("method", ["medusa", "eagle", "draft_model"])
def test_the_distribution_of_texts_is_that_of_plain_decoding(method, plain, tmp_path) -> None:
    found = texts(config_of(method, tmp_path), first_seed=0)
    for length in (2, 3, 4):  # whole beginnings: a bias in any token, or between two, shows
        statistic, freedom = chi_square([tuple(t[:length]) for t in found], [tuple(t[:length]) for t in plain])
        # Three deviations above the mean of a chi-square.
        assert statistic < freedom + 3.5 * (2 * freedom) ** 0.5, (length, statistic, freedom)
        assert freedom >= 5


def test_a_grammar_draws_from_the_same_distribution(tmp_path) -> None:
    """A draft that the grammar forbids is rejected like any other, and what takes its place is drawn from the rest."""
    guided = {"top_k": 0, "max_tokens": 3, "structured_outputs": {"regex": "[!-@]{3}x"}}
    found = texts(config_of("medusa", tmp_path), 0, 6000, **guided)
    statistic, freedom = chi_square([t[1] for t in found], [t[1] for t in texts(None, 100_000, 6000, **guided)])
    assert statistic < freedom + 3.5 * (2 * freedom) ** 0.5, (statistic, freedom)
    assert freedom >= 5


def test_a_bias_would_be_seen(plain, tmp_path, monkeypatch) -> None:
    """Planted: the likeliest token is guessed, and verified as if it had been drawn."""
    monkeypatch.setattr(choose, "draw", lambda kept, rules: kept.argmax(dim=1))
    found = texts(config_of("draft_model", tmp_path), first_seed=0)
    statistic, freedom = chi_square([tuple(t[:3]) for t in found], [tuple(t[:3]) for t in plain])
    assert statistic > freedom + 10 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("method", ["medusa", "eagle", "draft_model"])
def test_greedy_requests_get_plain_decodings_tokens(method, tmp_path) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    with LLM(**TINY) as llm:
        expected = llm.generate(PROMPT, greedy)[0].outputs[0].token_ids
    with LLM(**TINY, speculative_config=config_of(method, tmp_path)) as llm:
        assert llm.generate(PROMPT, greedy)[0].outputs[0].token_ids == expected


def test_a_model_that_drafts_for_itself_is_right_when_drawn_too(tmp_path) -> None:
    """p = q: every draft stays, at any temperature, while few would by match."""
    hot = [SamplingParams(temperature=1.3, seed=i, max_tokens=40, ignore_eos=True) for i in range(8)]
    with LLM(**TINY, speculative_config=config_of("draft_model", tmp_path)) as llm:
        llm.generate([PROMPT] * 8, hot)
        stats = llm.core.stats()
    assert sum(stats.accepted_per_position) >= 0.95 * stats.drafts


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"method": "ngram", "num_speculative_tokens": 2, "rejection_sample_method": "probabilistic"}, "not drawn"),
        ({"model": "tiny", "num_speculative_tokens": 2, "rejection_sample_method": "loose"}, "'loose'; choose strict"),
    ],
)
def test_wrong_configurations_say_what_is_wrong(config, message) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(**TINY, speculative_config=config)
