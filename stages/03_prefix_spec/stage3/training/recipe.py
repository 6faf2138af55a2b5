"""The whole way from a model to trained heads: generate, train, measure, write.

Owns the order of the phases and what the log says of them. Each phase frees what the next one needs: the engine is gone
before the target is loaded for the training.

vLLM: none (it does not train).
"""

from __future__ import annotations

import gc
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stage1.config import ModelConfig, Settings
from stage1.model.shape import ModelShape
from stage1.model.source import resolve
from stage3.build import CONFIGS
from stage3.llm import LLM
from stage3.training.acceptance import Measured, measure
from stage3.training.card import model_card
from stage3.training.corpus import Corpus
from stage3.training.eagle import EagleLayer
from stage3.training.file import METHODS, check_sizes, round_parameters, save_heads
from stage3.training.generate import GenerateSettings, Writer
from stage3.training.heads import DraftHeads
from stage3.training.medusa import MedusaHeads
from stage3.training.runs import add_run, read_runs, run_of_log
from stage3.training.states import HiddenStates
from stage3.training.target import Target
from stage3.training.trainer import TrainSettings, train

Report = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out."""

    engine: Mapping[str, Any]  # settings of the engine that generates, by name; the model among them
    generate: GenerateSettings
    train: Mapping[str, TrainSettings]  # by method, in the order of the training
    unroll: int = 3  # steps of the EAGLE layer's own chain
    medusa_heads: int = 2
    medusa_layers: int = 5
    intermediate_size: int | None = None  # of the EAGLE layer; None = the target's
    corpus: Path | None = None  # read this instead of generating
    save_corpus: Path | None = None
    commit: str | None = None  # of the code, for the log
    note: str | None = None  # what is new in this run, for the log
    max_megabytes: float = 16.0  # of the files of all methods together
    max_len: int = 1024  # tokens of a sequence

    def __post_init__(self) -> None:
        for name in ("unroll", "medusa_heads", "medusa_layers", "max_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: choose at least 1")
        if self.max_megabytes <= 0:
            raise ValueError(f"max_megabytes is {self.max_megabytes}: choose above 0")
        if unknown := sorted(set(self.train) - set(METHODS)):
            raise ValueError(f"methods has {', '.join(unknown)}: choose among {', '.join(METHODS)}")


def run_recipe(recipe: Recipe, folder: Path, report: Report = print) -> dict[str, Any]:
    """Make the heads of ``recipe`` in ``folder``, which is made where it is missing; returns the log.

    Writes METHOD.safetensors of each method, train_log.json, a line of runs.jsonl and MODEL_CARD.md.

    Raises:
        ValueError: the model, the corpus or a setting is unfit; the message says how to mend it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    settings = Settings.from_keywords(CONFIGS, dict(recipe.engine))
    read_runs(folder)  # what cannot be read is better known before the training
    check_sizes(_parameters(recipe, resolve(settings[ModelConfig]).shape), folder, recipe.max_megabytes)
    corpus, held_out, seconds = _texts(recipe, settings, report)
    if corpus.num_seqs == 0:
        raise ValueError("no text was finished in time: raise --generate-seconds or lower --max-tokens")
    if recipe.save_corpus is not None:
        corpus.save(recipe.save_corpus)

    target = Target.load(settings, recipe.max_len)
    at = time.perf_counter()
    longest = max(train.batch_tokens for train in recipe.train.values())
    states = HiddenStates(target, corpus, longest)
    seconds["hidden_states"] = time.perf_counter() - at
    report(f"hidden states of {len(corpus.tokens):,} tokens, {seconds['hidden_states']:.0f} s")

    log = _head_of_log(recipe, settings, target, corpus, held_out)
    for method in recipe.train:
        log["methods"][method] = _one_method(method, recipe, target, corpus, states, held_out, folder, seconds, report)
    log["seconds"] = {phase: round(value, 2) for phase, value in seconds.items()}
    log["seconds"]["total"] = round(time.perf_counter() - start, 2)
    (folder / "train_log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    runs = add_run(folder, run_of_log(log))
    (folder / "MODEL_CARD.md").write_text(model_card(log, runs), encoding="utf-8")
    return log


def _parameters(recipe: Recipe, shape: ModelShape) -> dict[str, int]:
    """How many parameters the heads of each method will have."""
    counts = {
        "eagle": EagleLayer.count_parameters(shape, recipe.intermediate_size),
        "medusa": MedusaHeads.count_parameters(shape.hidden_size, recipe.medusa_heads, recipe.medusa_layers),
    }
    return {method: counts[method] for method in recipe.train}


def _one_method(
    method: str, recipe: Recipe, target: Target, corpus: Corpus, states: HiddenStates, held_out: Mapping[str, Corpus],
    folder: Path, seconds: dict[str, float], report: Report,
) -> dict[str, Any]:  # fmt: skip
    """Train, measure and save the heads of one method; its part of the log. Its seconds go into ``seconds``."""
    heads, chosen = _make(method, recipe, target), recipe.train[method]
    untrained = measure(heads, target, held_out, chosen.batch_tokens)["overall"]
    trained = train(heads, target, corpus, states, chosen, report)
    round_parameters(heads)
    at = time.perf_counter()
    found = measure(heads, target, held_out, chosen.batch_tokens)
    path = save_heads(heads, target, folder)
    seconds[method], seconds[f"{method}_evaluation"] = trained.seconds, time.perf_counter() - at
    for kind, value in found.items():
        report(f"{method}: {_shown(kind, value)}")
    report(f"{method}: wrote {path}")
    return {
        "settings": asdict(chosen),
        "parameters": sum(parameter.numel() for parameter in _module(heads).parameters()),
        "file": path.name,
        "bytes": path.stat().st_size,
        "training": asdict(trained),
        "acceptance": {kind: value.as_json() for kind, value in found.items()},
        "acceptance_untrained": untrained.as_json(),
    }


def _shown(kind: str, found: Measured) -> str:
    walked, everywhere = found.walked, found.everywhere
    count = len(walked.accepted)
    shares = " ".join(f"{share:.3f}" for share in walked.cumulative)
    each = " ".join(f"{share:.3f}" for share in everywhere.conditional)
    return (
        f"{kind}: {walked.length():.2f} tokens a step with {count} draft{'s' * (count > 1)}, walked as an engine does "
        f"(accepted in {shares} of {walked.starts:,} verifications); at every position {everywhere.length(count):.2f} "
        f"({each} of those whose predecessors stayed)"
    )


def _texts(recipe: Recipe, settings: Settings, report: Report) -> tuple[Corpus, dict[str, Corpus], dict[str, float]]:
    """The training corpus, the held-out texts and the seconds of each; the engine is gone afterwards."""
    seconds, at = {}, time.perf_counter()
    with LLM(**recipe.engine) as llm:
        seconds["engine_start"] = time.perf_counter() - at
        report(f"engine ready after {seconds['engine_start']:.0f} s")
        writer = Writer(llm, recipe.generate, recipe.max_len, report)
        at = time.perf_counter()
        held_out = writer.held_out()
        seconds["held_out_generation"] = time.perf_counter() - at
        report(f"held-out texts: {sum(c.num_output_tokens for c in held_out.values()):,} tokens")
        at = time.perf_counter()
        if recipe.corpus is None:
            corpus = writer.corpus()
        else:
            corpus = Corpus.load(recipe.corpus, resolve(settings[ModelConfig]).shape.vocab_size)
        seconds["generation"] = time.perf_counter() - at
    del writer, llm
    _free()
    return corpus, held_out, seconds


def _make(method: str, recipe: Recipe, target: Target) -> DraftHeads:
    """Untrained heads on the target's device, the same each time."""
    torch.manual_seed(recipe.train[method].seed)
    if method == "medusa":
        medusa = MedusaHeads(target.shape.hidden_size, recipe.medusa_heads, recipe.medusa_layers)
        return medusa.to(target.device)
    eagle = EagleLayer(target.shape, recipe.intermediate_size, recipe.unroll)
    eagle.start_from(target)
    return eagle.to(target.device)


def _module(heads: DraftHeads) -> nn.Module:
    assert isinstance(heads, nn.Module)
    return heads


def _head_of_log(
    recipe: Recipe, settings: Settings, target: Target, corpus: Corpus, held_out: Mapping[str, Corpus]
) -> dict[str, Any]:
    """What is known before the training."""
    on_gpu = target.device.type == "cuda"
    return {
        "target": target.name,
        "load_format": settings[ModelConfig].load_format,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": recipe.commit,
        "note": recipe.note,
        "device": torch.cuda.get_device_name(target.device) if on_gpu else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "dtype": str(target.dtype).removeprefix("torch."),
        "recipe": {
            "engine": dict(recipe.engine),
            "generate": asdict(recipe.generate),
            "unroll": recipe.unroll,
            "medusa_heads": recipe.medusa_heads,
            "medusa_layers": recipe.medusa_layers,
            "max_len": recipe.max_len,
            "corpus_from_file": recipe.corpus is not None,
        },
        "data": {
            "sequences": corpus.num_seqs,
            "tokens": len(corpus.tokens),
            "output_tokens": corpus.num_output_tokens,
            "held_out_sequences": {kind: texts.num_seqs for kind, texts in held_out.items()},
            "held_out_output_tokens": sum(texts.num_output_tokens for texts in held_out.values()),
        },
        "methods": {},
    }


def _free() -> None:
    """Give the engine's memory back: its graphs and caches hang in cycles that only the collector finds."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
