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
from stage3.training.acceptance import Acceptance, Measured, count_accepted, measure, walk_accepted
from stage3.training.batches import Batch, make_batch
from stage3.training.corpus import Corpus
from stage3.training.eagle import EagleLayer
from stage3.training.file import check_sizes, round_parameters, save_heads
from stage3.training.medusa import MedusaHeads
from stage3.training.runs import add_run, read_runs

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
    assert sizes == {"blocks.weight": (5, 2, 64, 64), "blocks.bias": (5, 2, 64)}
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
        walked, everywhere, drafts = overall["walked"], overall["at_every_position"], 3 if method == "eagle" else 2
        assert len(walked["shares"]) == walked["drafts"] == drafts
        assert len(everywhere["conditional"]) == len(everywhere["cumulative"]) == (4 if method == "eagle" else 2)
        kinds = [value for kind, value in found["acceptance"].items() if kind != "overall"]
        assert everywhere["positions"] == sum(kind["at_every_position"]["positions"] for kind in kinds) > 0
        assert walked["verifications"] == sum(kind["walked"]["verifications"] for kind in kinds) > 0
        assert f"## {method}" in card
        assert f"**{walked['acceptance_length']:.2f} tokens a step** with {drafts} drafts" in card
        assert f"| {everywhere['acceptance_length']:.2f} |" in card
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
        (["--max-megabytes", "0"], 2, "max_megabytes is 0.0"),
        (["--max-megabytes", "0.1"], 1, "MB (eagle 0.2, medusa 0.1), max_megabytes is 0.1: lower medusa_heads"),
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
    paths = [save_heads(heads, target, tmp_path) for heads in (EagleLayer(shape), MedusaHeads(576, 2, 5))]  # type: ignore[arg-type]
    assert 10e6 < sum(path.stat().st_size for path in paths) <= 16e6


def test_what_is_measured_is_what_is_saved(tmp_path: Path) -> None:
    target = bed.small_target()
    layer = EagleLayer(bed.SHAPE)
    round_parameters(layer)
    with safe_open(save_heads(layer, target, tmp_path), framework="pt") as file:
        for name, parameter in layer.named_parameters():
            assert torch.equal(file.get_tensor(name).float(), parameter)


RANDOM_PROMPTS = [([1, 2, 0], [0, 0, 0, 0, 1, 0, 0, 0, 0]), ([1], [0, 0, 1, 0]), ([0, 1], [1])]


def random_drafts(num_drafts: int) -> tuple[torch.Tensor, Batch]:
    """Drafts that are often right, for three short texts."""
    torch.manual_seed(0)
    batch = make_batch(Corpus.of(RANDOM_PROMPTS), torch.arange(3), torch.device("cpu"))
    return (torch.rand(num_drafts, *batch.tokens.shape) < 0.2).long(), batch


def test_counting_is_that_of_a_plain_loop() -> None:
    drafts, batch = random_drafts(3)
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


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_walking_is_drafting_and_accepting_step_by_step(num_drafts: int) -> None:
    drafts, batch = random_drafts(num_drafts)
    steps, accepted = 0, [0] * num_drafts
    for b, (prompt, answer) in enumerate(RANDOM_PROMPTS):
        whole = [*prompt, *answer]
        known = whole[: len(prompt) + 1]  # the first step gives a token and has no drafts
        while len(known) + num_drafts <= len(whole):  # otherwise the text ends within the drafts
            steps += 1
            for d in range(num_drafts):  # drafted behind the last state, which is of the token before the last
                draft = int(drafts[d, b, len(known) - 2 - d])
                if draft != whole[len(known)]:
                    break
                accepted[d] += 1
                known.append(draft)
            if len(known) < len(whole):
                known.append(whole[len(known)])  # the target's own token
    found = walk_accepted(drafts, batch)
    assert found == Acceptance(steps, tuple(accepted))
    assert steps > 2
    assert accepted[-1] > 0
    assert found != count_accepted(drafts, batch)


def test_a_walk_is_longest_in_the_hard_part() -> None:
    """The example of the module."""
    corpus = Corpus.of([([5], [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])])
    batch = make_batch(corpus, torch.tensor([0]), torch.device("cpu"))
    steps = torch.arange(3)[:, None]
    drafts = batch.tokens[0, (torch.arange(12) + 2 + steps).clamp(max=11)].where(torch.arange(12) < 4, 0)[:, None]
    assert count_accepted(drafts, batch).length() == pytest.approx(2.5)
    assert walk_accepted(drafts, batch) == Acceptance(5, (1, 1, 1))


def test_acceptance_figures() -> None:
    found = Acceptance(10, (8, 4, 1))
    assert found.cumulative == [0.8, 0.4, 0.1]
    assert found.conditional == [0.8, 0.5, 0.25]
    assert found.length(2) == pytest.approx(2.2)
    assert found.length() == pytest.approx(2.3)
    assert (found + found).starts == 20
    assert Acceptance.nothing(1).length() == 1


@pytest.mark.parametrize(("heads", "drafts"), [(1, 1), (2, 2), (3, 3), (5, 4)])
def test_measuring_adds_up_the_kinds(heads: int, drafts: int) -> None:
    target = bed.small_target()
    kinds = {"a": bed.greedy_corpus(target, [12, 9]), "b": bed.greedy_corpus(target, [14], seed=5), "c": Corpus.of([])}
    found = measure(MedusaHeads(32, heads, 1), target, kinds, 64)
    assert found["overall"] == found["a"] + found["b"]
    assert found["a"].everywhere.starts == (12 - 3 - drafts - 1) + (9 - 3 - drafts - 1)
    assert len(found["a"].everywhere.accepted) == drafts
    assert len(found["a"].walked.accepted) == min(3, drafts)
    assert found["c"] == Measured.nothing(drafts)


# --- sizes and runs ----------------------------------------------------------------------------------


def test_counted_parameters_are_those_that_are_made() -> None:
    for inner in (None, 20):
        layer = EagleLayer(bed.SHAPE, inner)
        assert EagleLayer.count_parameters(bed.SHAPE, inner) == sum(p.numel() for p in layer.parameters())
    assert MedusaHeads.count_parameters(32, 3, 2) == sum(p.numel() for p in MedusaHeads(32, 3, 2).parameters())


def test_files_that_are_there_already_count(tmp_path: Path) -> None:
    path = save_heads(MedusaHeads(32, 3, 2), bed.small_target(), tmp_path)
    size = (path.stat().st_size + 2 * 1000 + 2048) / 1e6
    check_sizes({"eagle": 1000}, tmp_path, size)
    with pytest.raises(ValueError, match=r"max_megabytes is 0\.01"):
        check_sizes({"eagle": 1000}, tmp_path, 0.01)
    check_sizes({"medusa": 1000}, tmp_path, 0.01)  # takes the old one's place


def test_runs_add_up_and_the_card_shows_them(made: Path) -> None:
    out = made / "runs"
    out.mkdir()
    by_hand: dict[str, object] = {"date": "2026-03-01", "note": "by | hand"}
    by_hand["eagle"] = {"every_position_length": 2.19, "engine_length": 1.68}
    (out / "runs.jsonl").write_text(json.dumps(by_hand))  # without an end of line
    corpus = str(made / "corpus.safetensors")
    argv = ["train-heads", "--out", str(out), "--corpus", corpus, "--methods", "medusa", "--note", "fewer", *SMALL]
    assert main(argv) == 0
    first, second = read_runs(out)
    log = json.loads((out / "train_log.json").read_text())
    assert first == by_hand
    assert (second["note"], second["eagle"]) == ("fewer", None)
    found = log["methods"]["medusa"]
    assert second["medusa"]["final_loss"] == found["training"]["curve"][-1]["loss"]
    assert second["medusa"]["walked_length"] == found["acceptance"]["overall"]["walked"]["acceptance_length"]
    assert second["medusa"]["sizes"] == {"heads": 2, "layers": 5}
    rows = [line for line in (out / "MODEL_CARD.md").read_text().splitlines() if line.startswith("| 20")]
    assert len(rows) == 2
    assert "| by / hand |" in rows[0]
    assert rows[0].endswith("| – | 2.19 | 1.68 |")
    assert rows[0].count("|") == rows[1].count("|")


@pytest.mark.parametrize("line", ["{", "[]", '{"eagle": 3}'])
def test_runs_that_cannot_be_read_are_named(tmp_path: Path, line: str) -> None:
    add_run(tmp_path, {"date": "today"})
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write("\n" + line)
    with pytest.raises(ValueError, match=r"runs.jsonl, line 3 is no"):
        read_runs(tmp_path)
