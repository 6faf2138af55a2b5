"""``sixfold train-heads`` from end to end on a tiny model, its files, and the counting of accepted drafts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open

from sixfold.cli import main
from sixfold.exercises.importer import load_file
from stage1.model.shape import PRESETS
from stage3.spec.heads import find_heads, open_heads
from stage3.training.acceptance import Acceptance, count_accepted, measure
from stage3.training.batches import make_batch
from stage3.training.corpus import Corpus
from stage3.training.eagle import EagleLayer
from stage3.training.file import round_parameters, save_heads
from stage3.training.medusa import MedusaHeads

bed = load_file(Path(__file__).with_name("training_bed.py"))

SMALL = [
    *("--model", "tiny", "--load-format", "dummy", "--device", "cpu", "--attention-backend", "torch"),
    *("--tokens", "100", "--generate-seconds", "30", "--max-tokens", "16", "--max-num-seqs", "8"),
    *("--max-len", "192", "--kv-cache-memory-bytes", "16M", "--magpie-share", "0", "--held-out-per-kind", "1"),
    *("--max-steps", "3", "--batch-tokens", "512", "--log-every", "1", "--intermediate-size", "32"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    saved = str(folder / "corpus.safetensors")
    assert (
        main(["train-heads", "--out", str(folder / "out"), "--commit", "abc1234", "--save-corpus", saved, *SMALL]) == 0
    )
    return folder


def test_files_have_the_fixed_format(made: Path) -> None:
    shape = PRESETS["tiny"]
    common = {"format": "sixfold-heads-1", "target": "tiny", "hidden_size": "64", "vocab_size": "264"}
    with safe_open(made / "out" / "medusa.safetensors", framework="pt") as file:
        assert file.metadata() == {**common, "method": "medusa"}
        sizes = {name: tuple(file.get_tensor(name).shape) for name in file.keys()}  # noqa: SIM118
        assert {file.get_tensor(name).dtype for name in sizes} == {torch.bfloat16}
    assert sizes == {"blocks.weight": (2, 4, 64, 64), "blocks.bias": (2, 4, 64)}
    with safe_open(made / "out" / "eagle.safetensors", framework="pt") as file:
        assert file.metadata() == {**common, "method": "eagle", "intermediate_size": "32"}
        sizes = {name: tuple(file.get_tensor(name).shape) for name in file.keys()}  # noqa: SIM118
        assert {file.get_tensor(name).dtype for name in sizes} == {torch.bfloat16}
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    assert sizes == {
        "embed_norm.weight": (64,), "hidden_norm.weight": (64,), "fc.weight": (64, 128), "norm.weight": (64,),
        "layer.input_layernorm.weight": (64,), "layer.post_attention_layernorm.weight": (64,),
        "layer.self_attn.qkv_proj.weight": (q + 2 * kv, 64), "layer.self_attn.o_proj.weight": (64, q),
        "layer.mlp.gate_up_proj.weight": (64, 64), "layer.mlp.down_proj.weight": (64, 32),
    }  # fmt: skip


@pytest.mark.parametrize("method", ["eagle", "medusa"])
def test_files_are_those_that_the_engine_loads(made: Path, method: str) -> None:
    opened = open_heads(find_heads(str(made / "out"), method), method, PRESETS["tiny"])
    assert opened.sizes.get("intermediate_size") == (32 if method == "eagle" else None)


def test_log_and_card_say_what_happened(made: Path) -> None:
    log = json.loads((made / "out" / "train_log.json").read_text())
    assert log["commit"] == "abc1234"
    assert log["data"]["output_tokens"] >= 100
    assert {"generation", "eagle", "medusa", "total"} <= log["seconds"].keys()
    assert list(log["methods"]) == ["eagle", "medusa"]
    card = (made / "out" / "MODEL_CARD.md").read_text()
    for method, found in log["methods"].items():
        assert [entry["step"] for entry in found["training"]["curve"]] == [1, 2, 3]
        assert found["bytes"] == (made / "out" / found["file"]).stat().st_size
        overall = found["acceptance"]["overall"]
        assert len(overall["conditional"]) == len(overall["cumulative"]) == 4
        assert overall["positions"] == sum(v["positions"] for k, v in found["acceptance"].items() if k != "overall") > 0
        assert f"## {method}" in card
        assert f"| {overall['acceptance_length_at_3']:.2f} |" in card
    assert "Apache-2.0" in card
    assert "abc1234" in card


def test_a_saved_corpus_serves_a_second_recipe(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, out = str(made / "corpus.safetensors"), made / "second"
    assert main(["train-heads", "--out", str(out), "--corpus", corpus, "--methods", "medusa", *SMALL]) == 0
    assert (out / "medusa.safetensors").is_file()
    assert not (out / "eagle.safetensors").exists()
    assert "generate: round" not in capsys.readouterr().out
    first, second = (json.loads((folder / "train_log.json").read_text()) for folder in (made / "out", out))
    assert first["data"] == second["data"]


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--tokens", "0"], 2, "tokens is 0: choose above 0"),
        (["--lr-eagle", "-1"], 2, "lr is -1.0"),
        (["--unroll", "0"], 2, "unroll is 0"),
        (["--corpus", "nowhere.safetensors"], 2, "--corpus nowhere.safetensors is not there"),
        (["--model", "tiny", "--load-format", "auto"], 1, "tiny is only a shape"),
        (["--greedy-share", "2"], 2, "greedy_share is 2.0"),
    ],
)
def test_bad_arguments_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, message: str
) -> None:
    assert main(["train-heads", *SMALL, "--out", str(tmp_path / "out"), *argv]) == code
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out" / "train_log.json").exists()


def test_a_file_in_the_way_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert main(["train-heads", *SMALL, "--out", str(tmp_path / "out")]) == 2
    assert "is a file: name a folder" in capsys.readouterr().err


def test_both_files_of_the_default_model_fit_16_megabytes(tmp_path: Path) -> None:
    shape = PRESETS["smollm2-135m"]
    target = SimpleNamespace(name="smollm2-135m-instruct", shape=shape)
    paths = [save_heads(heads, target, tmp_path) for heads in (EagleLayer(shape), MedusaHeads(576, 4, 2))]  # type: ignore[arg-type]
    assert 10e6 < sum(path.stat().st_size for path in paths) <= 16e6


def test_what_is_measured_is_what_is_saved(tmp_path: Path) -> None:
    target = bed.small_target()
    layer = EagleLayer(bed.SHAPE)
    round_parameters(layer)
    with safe_open(save_heads(layer, target, tmp_path), framework="pt") as file:
        for name, parameter in layer.named_parameters():
            assert torch.equal(file.get_tensor(name).float(), parameter)


def test_counting_is_that_of_a_plain_loop() -> None:
    torch.manual_seed(0)
    corpus = Corpus.of([([1, 2, 0], [0, 0, 0, 0, 1, 0, 0, 0, 0]), ([1], [0, 0, 1, 0]), ([0, 1], [1])])
    batch = make_batch(corpus, torch.arange(3), torch.device("cpu"))
    drafts = (torch.rand(3, *batch.tokens.shape) < 0.2).long()
    starts, accepted = 0, [0, 0, 0]
    for b, (prompt, length) in enumerate(((3, 12), (1, 5), (2, 3))):
        for p in range(prompt - 1, length):
            if p + 1 + 3 >= length:
                continue
            starts += 1
            for d in range(3):
                if drafts[d, b, p] != batch.tokens[b, p + 2 + d]:
                    break
                accepted[d] += 1
    assert count_accepted(drafts, batch) == Acceptance(starts, tuple(accepted))
    assert starts > 4
    assert accepted[0] > accepted[2] > 0


def test_acceptance_figures() -> None:
    found = Acceptance(10, (8, 4, 1))
    assert found.cumulative == [0.8, 0.4, 0.1]
    assert found.conditional == [0.8, 0.5, 0.25]
    assert found.length(2) == pytest.approx(2.2)
    assert (found + found).starts == 20
    assert Acceptance(0, (0,)).length(1) == 1


def test_measuring_adds_up_the_kinds() -> None:
    target = bed.small_target()
    kinds = {"a": bed.greedy_corpus(target, [12, 9]), "b": bed.greedy_corpus(target, [14], seed=5), "c": Corpus.of([])}
    found = measure(MedusaHeads(32, 4, 1), target, kinds, 64)
    assert found["overall"] == found["a"] + found["b"]
    assert found["a"].starts == (12 - 3 - 5) + (9 - 3 - 5)
    assert found["c"].starts == 0
