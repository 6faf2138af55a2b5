"""The heads that come with the stage, in the engine with the model that they were trained for."""

import json

import pytest
import torch
from safetensors import safe_open

from stage1.config import ModelConfig, Settings
from stage1.model.source import resolve
from stage1.params import SamplingParams
from stage3.build import CONFIGS
from stage3.llm import LLM
from stage3.spec.heads import FOLDER
from stage3.training.acceptance import measure
from stage3.training.corpus import Corpus
from stage3.training.eagle import EagleLayer
from stage3.training.medusa import MedusaHeads
from stage3.training.target import Target

SETTINGS = {"max_model_len": 256, "dtype": "float32", "enable_prefix_caching": False}
MESSAGE = [{"role": "user", "content": "Name five animals that live in the sea."}]
GREEDY = SamplingParams(temperature=0, max_tokens=48)


@pytest.fixture(scope="module")
def plain() -> tuple[list[int], list[int]]:
    with LLM(**SETTINGS) as llm:
        prompt = llm.render_chat(MESSAGE)
        return prompt["prompt_token_ids"], llm.generate(prompt, GREEDY)[0].outputs[0].token_ids


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.load(Settings.from_keywords(CONFIGS, {"dtype": "float32"}), 256)


def trained(method: str):
    shape = resolve(ModelConfig()).shape
    with safe_open(FOLDER / f"{method}.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    if method == "eagle":
        heads = EagleLayer(shape)
    else:
        layers, count = tensors["blocks.weight"].shape[:2]
        heads = MedusaHeads(shape.hidden_size, count, layers)
    for name, tensor in heads.tensors().items():
        tensor.data.copy_(tensors[name])
    return heads


@pytest.mark.parametrize(("method", "count", "least"), [("eagle", 3, 1.7), ("medusa", 2, 1.2)])
def test_drafts_stay_as_often_as_the_training_says(method, count, least, plain, target) -> None:
    """Two codes for the same arithmetic: the training's whole texts, and the engine's steps over a paged cache."""
    prompt, expected = plain
    config = {"method": method, "num_speculative_tokens": count}
    with LLM(**SETTINGS, speculative_config=config) as llm:
        output = llm.generate({"prompt_token_ids": prompt}, GREEDY)[0].outputs[0]
        stats = llm.core.stats()
    assert output.token_ids == expected
    with torch.inference_mode():
        walked = measure(trained(method), target, {"text": Corpus.of([(prompt, expected)])}, 4096, count)["text"].walked
    # The walk ends where the last drafts would lie behind the text; the engine goes on, and drafts less at the end.
    assert abs(stats.verifications - walked.starts) <= 1 + count
    for ours, theirs in zip(stats.accepted_per_position, walked.accepted, strict=True):
        assert abs(ours - theirs) <= 2
    assert 1 + sum(stats.accepted_per_position) / stats.verifications >= least


def test_files_card_and_log_tell_the_same() -> None:
    log = json.loads((FOLDER / "train_log.json").read_text())
    card = (FOLDER / "MODEL_CARD.md").read_text()
    total = 0
    for method, found in log["methods"].items():
        path = FOLDER / f"{method}.safetensors"
        total += path.stat().st_size
        assert path.stat().st_size == found["bytes"]
        walked = found["acceptance"]["overall"]["walked"]["acceptance_length"]
        assert f"{walked:.2f} tokens a step" in card
    assert total <= 16_000_000
    assert {"eagle", "medusa"} == log["methods"].keys()
    assert log["seconds"]["total"] <= 600
