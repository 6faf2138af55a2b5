"""Prompts, held-out prompts, the corpus and its file, and the writer that drives the engine."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stage1.params import SamplingParams
from stage3.llm import LLM
from stage3.training import held_out_passages, passages
from stage3.training.corpus import Corpus
from stage3.training.generate import GenerateSettings, Writer, is_decent
from stage3.training.held_out import TOPICS, held_out_prompts, is_held_out
from stage3.training.prompts import KINDS, make_prompts, misspell
from stage3.training.target import Target

MAX_LEN = 192


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    engine = {"max_model_len": MAX_LEN, "device": "cpu", "attention_backend": "torch", "max_num_seqs": 8}
    with LLM("tiny", load_format="dummy", num_gpu_blocks_override=120, **engine) as made:
        yield made


def writer(llm: LLM, **settings: float) -> Writer:
    chosen = {"tokens": 60, "seconds": 60.0, "max_tokens": 12, "round_size": 8, "magpie_share": 0.0, **settings}
    return Writer(llm, GenerateSettings(**chosen), MAX_LEN, lambda line: None)  # type: ignore[arg-type]


# --- prompts -----------------------------------------------------------------------------------------


def test_held_out_kinds_and_sizes() -> None:
    kinds = held_out_prompts()
    assert list(kinds) == ["chat", "writing", "code", "lists", "summary", "copy"]
    assert all(len(set(texts)) >= 12 for texts in kinds.values())
    for text in (*held_out_passages.COPIED, *held_out_passages.TYPOS, *held_out_passages.SUMMED_UP):
        assert 80 <= len(text.split()) <= 150
    for code in (*held_out_passages.CODES, *(code for code, _, _ in held_out_passages.RENAMED)):
        assert 15 <= len(code.splitlines()) <= 25
        compile(code, "held out", "exec")
    for code, old, new in held_out_passages.RENAMED:
        assert old in code
        assert new not in code


def test_training_prompts_touch_nothing_that_is_held_out() -> None:
    prompts = make_prompts(4000, random.Random(3), passages.passage, passages.code)
    assert len(set(prompts)) > 3000
    assert [text for text in prompts if is_held_out(text)] == []
    shared = {text for texts in held_out_prompts().values() for text in texts} & set(prompts)
    assert shared == set()
    for topic in TOPICS:  # without is_held_out's own pattern
        assert not any(f" {topic} " in f" {text.lower()} " for text in prompts)


def test_every_held_out_prompt_is_recognised() -> None:
    texts = [text for several in held_out_prompts().values() for text in several]
    assert [text for text in texts if not is_held_out(text)] == []
    assert not is_held_out("My mother likes pottery and smooth stones.")  # otter, moth: only as words


def test_copies_and_summaries_have_their_share_beside_the_models_own_prompts() -> None:
    shares = {name: share for name, _, share in KINDS}
    assert sum(shares.values()) == 100
    listed = 1 - GenerateSettings(tokens=1, seconds=1.0).magpie_share
    assert listed * (shares["copy of a text"] + shares["copy of code"]) >= 15
    assert listed * shares["summary"] >= 12


def test_composed_texts_are_long_and_varied() -> None:
    texts = [passages.passage(random.Random(seed)) for seed in range(200)]
    assert sorted(len(text) for text in texts)[20] > 300
    assert len({text[:60] for text in texts}) > 190


def test_variables_to_rename_are_in_the_code_and_their_new_names_are_not() -> None:
    prompts = make_prompts(3000, random.Random(0), passages.passage, passages.code)
    found = [match for text in prompts if (match := re.match(r"Rename the variable (\w+) to (\w+) in", text))]
    for match in found:
        code = match.string.split("```")[1]
        assert re.search(rf"\b{match[1]}\b", code)
        assert not re.search(rf"\b{match[2]}\b", code)
    assert len({match[1] for match in found}) >= 5
    assert len({match[2] for match in found}) >= 10


def test_prompts_follow_the_seed() -> None:
    made = [make_prompts(50, random.Random(seed), passages.passage, passages.code) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_misspelling_swaps_letters_and_keeps_words() -> None:
    text = passages.passage(random.Random(0))
    wrong = misspell(text, random.Random(1), share=1.0)
    assert wrong != text
    pairs = list(zip(text.split(" "), wrong.split(" "), strict=True))
    assert all(sorted(a) == sorted(b) and a[0] == b[0] for a, b in pairs)


def test_composed_code_is_python() -> None:
    for seed in range(50):
        compile(passages.code(random.Random(seed)), "composed", "exec")


@pytest.mark.parametrize(
    ("text", "decent"),
    [("How do tides work?", True), ("", False), ("Why?", False), ("§§ ** §§ ** §§", False), ("a b c <|im_end|>", False),
     ("word " * 101, False)],
)  # fmt: skip
def test_decent_messages(text: str, decent: bool) -> None:
    assert is_decent(text) is decent


# --- the writer --------------------------------------------------------------------------------------


def test_writer_stops_at_its_tokens_and_marks_the_prompts(llm: LLM) -> None:
    corpus = writer(llm).corpus()
    assert 60 <= corpus.num_output_tokens < 60 + 12
    tokenizer = llm.get_tokenizer()
    for i in range(corpus.num_seqs):
        start, end = corpus.offsets[i : i + 2].tolist()
        prompt = tokenizer.decode(corpus.tokens[start : start + int(corpus.prompt_lens[i])].tolist())
        assert prompt.startswith("user: ")
        assert prompt.endswith("assistant:")
        assert end - start <= MAX_LEN
        assert not is_held_out(prompt)


def test_writer_stops_at_its_time(llm: LLM) -> None:
    start = time.perf_counter()
    corpus = writer(llm, tokens=10**9, seconds=0.5).corpus()
    assert time.perf_counter() - start < 20
    assert corpus.num_output_tokens < 10**6


def test_rounds_fit_the_time_that_is_left(llm: LLM) -> None:
    made = writer(llm, round_size=800, max_tokens=10)
    assert made._round_size(10**6, float("inf")) == 800
    assert made._round_size(40, float("inf")) == 20  # few tokens are missing
    assert made._round_size(10**6, 250.0) == 250
    assert made._round_size(10**6, 99.0) == 0
    assert made._round_size(40, 19.0) == 0


def test_no_round_begins_that_would_not_end(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    made = writer(llm, tokens=10**9, seconds=60.0)
    monkeypatch.setattr(made, "_report", lines.append)
    now = itertools.count(0.0, 0.5)  # each look at the clock takes half a second
    monkeypatch.setattr("stage3.training.generate.time", SimpleNamespace(perf_counter=lambda: next(now)))
    made.corpus()
    assert "too few for another round" in lines[-1] or next(now) > 60
    assert next(now) < 70


def test_later_rounds_copy_what_the_model_wrote(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    made, rng = writer(llm), random.Random(0)
    text = "It is a fine day. " * 30
    code = "total = 1\n" * 20
    answers = iter([text, f"Here it is:\n```python\n{code}```\nIt adds.", "Short."])
    monkeypatch.setattr(made, "_decode", lambda ids: next(answers))
    made._keep_texts([[1], [2], [3]])
    assert {made._passage(rng) for _ in range(50)} > {text.strip()}
    assert {made._code(rng) for _ in range(50)} > {code.strip()}


def test_greedy_answers_are_the_engines_and_the_targets(llm: LLM) -> None:
    corpus = writer(llm, greedy_share=1.0).corpus()
    target = Target.load(llm.settings, MAX_LEN)
    compared = 0
    for i in range(corpus.num_seqs):
        tokens = corpus.tokens[corpus.offsets[i] : corpus.offsets[i + 1]].long()
        prompt = int(corpus.prompt_lens[i])
        greedy = SamplingParams(temperature=0, max_tokens=12)
        assert llm.generate([tokens[:prompt].tolist()], greedy)[0].outputs[0].token_ids == tokens[prompt:].tolist()
        best = target.best_tokens(target.hidden(tokens[None]))[0]
        assert best[prompt - 1 : -1].tolist() == tokens[prompt:].tolist()
        compared += len(tokens) - prompt
    assert compared >= 60


def test_sampled_answers_differ_from_greedy_ones(llm: LLM) -> None:
    greedy, sampled = (writer(llm, greedy_share=share).corpus() for share in (1.0, 0.0))
    assert greedy.tokens.tolist() != sampled.tokens.tolist()


def test_model_makes_up_prompts(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model writes noise, so what is decent is decided here: how its messages come about is looked at."""
    asked: list[list[int]] = []
    stream = llm.stream

    def watch(prompts: list[list[int]], params: list[SamplingParams]) -> object:
        asked.extend(prompts)
        short = [own.replace(max_tokens=6, stop_token_ids=list(range(32, 256))) for own in params]
        return stream(prompts, short)

    monkeypatch.setattr(llm, "stream", watch)
    monkeypatch.setattr("stage3.training.generate.is_decent", lambda text: True)
    writer(llm, magpie_share=1.0).corpus()
    texts = [llm.get_tokenizer().decode(ids) for ids in asked]
    assert "user: " in texts  # the opening of a turn and nothing more
    assert any(text.endswith("assistant:") for text in texts)


def test_held_out_texts_are_greedy_and_by_kind(llm: LLM) -> None:
    found = writer(llm, held_out_per_kind=2).held_out()
    assert list(found) == list(held_out_prompts())
    assert found["chat"].num_seqs == 2
    assert found["copy"].num_seqs == 0  # its prompts are longer than this model's context
    assert found["chat"].num_output_tokens <= 24


# --- the corpus --------------------------------------------------------------------------------------


def test_corpus_comes_back_from_its_file(tmp_path: Path) -> None:
    corpus = Corpus.of([([1, 2], [3]), ([4], [5, 6, 7]), ([8], [])])
    assert corpus.num_seqs == 2  # what has no answer is left out
    assert corpus.num_output_tokens == 4
    corpus.save(tmp_path / "c.safetensors")
    read = Corpus.load(tmp_path / "c.safetensors", 8)
    for name in ("tokens", "offsets", "prompt_lens"):
        assert torch.equal(getattr(read, name), getattr(corpus, name))
        assert getattr(read, name).dtype == getattr(corpus, name).dtype


def test_unfit_corpora_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with pytest.raises(ValueError, match="cannot be read"):
        Corpus.load(path, 8)
    Corpus.of([([1, 2], [9])]).save(path)
    with pytest.raises(ValueError, match="has the token 9; the model has 8 tokens"):
        Corpus.load(path, 8)
    Corpus(torch.tensor([1, 2], dtype=torch.int32), torch.tensor([0, 2]), torch.tensor([2])).save(path)
    with pytest.raises(ValueError, match="contradicts itself"):
        Corpus.load(path, 8)
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="has the format None"):
        Corpus.load(path, 8)
