"""``sixfold train-heads``: train draft heads for speculative decoding, from text that the model writes itself.

Owns the flags and their defaults, which fit one large GPU and a small model: under ten minutes in all. The work is
``stage3.training``'s. Progress goes to standard output.

vLLM: none (it does not train; its heads come from other projects).
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sixfold.errors import UsageError
from sixfold.flags import finite_float, human_int

if TYPE_CHECKING:
    from stage3.training.recipe import Recipe

# What only the engine that generates is told, by its setting's name.
ENGINE = ("model", "tokenizer", "load_format", "download_dir", "dtype", "device", "attention_backend", "max_num_seqs",
          "gpu_memory_utilization", "kv_cache_memory_bytes", "seed")  # fmt: skip

# Fields of GenerateSettings that are flags of the same name.
GENERATION = ("tokens", "max_tokens", "temperature", "greedy_share", "magpie_share", "round_size", "held_out_per_kind",
              "seed")  # fmt: skip


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="sixfold train-heads",
        usage="sixfold train-heads --out FOLDER [--model MODEL] [--tokens N] [options]",
        description="Train Medusa heads and an EAGLE layer for a model, on text that it writes itself, and measure "
        "how many drafts stay. Writes safetensors, train_log.json, a line of runs.jsonl and MODEL_CARD.md.",
        allow_abbrev=False,
        formatter_class=_Help,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the files go")
    parser.add_argument("--methods", nargs="+", default=["eagle", "medusa"], choices=["eagle", "medusa"],
                        help="what to train, in this order")  # fmt: skip
    parser.add_argument("--seed", type=human_int, default=0, metavar="N", help="decides prompts, draws and batches")
    parser.add_argument("--commit", default=None, help="the code's commit, for the log; git is asked by default")
    parser.add_argument("--note", default=None, metavar="TEXT", help="what is new in this run, for runs.jsonl")
    _engine_flags(parser)
    _generation_flags(parser)
    _training_flags(parser)
    return parser


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def _engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model, and the engine that generates")
    group.add_argument("--model", default="smollm2-135m-instruct", help="as for generate")
    group.add_argument("--tokenizer", default=None, help="as for generate")
    group.add_argument("--load-format", default="auto", choices=["auto", "safetensors", "gguf", "dummy"],
                       help="dummy = random weights")  # fmt: skip
    group.add_argument("--download-dir", default=None, help="where hub models are kept")
    group.add_argument("--dtype", default="auto", help="of the target; auto = float32 on a CPU, bfloat16 on a GPU")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    group.add_argument("--attention-backend", default="auto", choices=["auto", "torch", "triton"], help="as for serve")
    group.add_argument("--max-num-seqs", type=human_int, default=256, metavar="N", help="requests in one step")
    group.add_argument("--gpu-memory-utilization", type=finite_float, default=0.5, metavar="X", help="as for serve")
    group.add_argument("--kv-cache-memory-bytes", type=human_int, default=None, metavar="N", help="as for serve")
    group.add_argument("--max-len", type=human_int, default=1024, metavar="N", help="tokens of prompt and answer")


def _generation_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the text")
    group.add_argument("--tokens", type=human_int, default=6_000_000, metavar="N", help="stop at so many of output")
    group.add_argument("--generate-seconds", type=finite_float, default=100.0, metavar="S", help="or after so long")
    group.add_argument("--max-tokens", type=human_int, default=320, metavar="N", help="of one answer")
    group.add_argument("--temperature", type=finite_float, default=0.7, metavar="X", help="of the sampled answers")
    group.add_argument("--greedy-share", type=finite_float, default=0.7, metavar="X", help="of the answers, 0 to 1")
    group.add_argument("--magpie-share", type=finite_float, default=0.25, metavar="X",
                       help="of the prompts the model makes up itself, 0 to 1")  # fmt: skip
    group.add_argument("--round-size", type=human_int, default=4096, metavar="N", help="prompts in a round")
    group.add_argument("--held-out-per-kind", type=human_int, default=None, metavar="N", help="fewer, for a trial")
    group.add_argument("--corpus", type=Path, default=None, metavar="FILE", help="use this text, generate none")
    group.add_argument("--save-corpus", type=Path, default=None, metavar="FILE", help="keep the text")


def _training_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the training")
    group.add_argument("--eagle-seconds", type=finite_float, default=200.0, metavar="S", help="time limit")
    group.add_argument("--medusa-seconds", type=finite_float, default=90.0, metavar="S", help="time limit")
    group.add_argument("--max-steps", type=human_int, default=None, metavar="N", help="of each; time alone by default")
    group.add_argument("--lr-eagle", type=finite_float, default=1e-3, metavar="X", help="highest learning rate")
    group.add_argument("--lr-medusa", type=finite_float, default=1.5e-3, metavar="X", help="highest learning rate")
    group.add_argument("--unroll", type=human_int, default=3, metavar="N", help="steps of EAGLE's own chain")
    group.add_argument("--intermediate-size", type=human_int, default=None, metavar="N",
                       help="of EAGLE's layer; the target's by default")  # fmt: skip
    group.add_argument("--medusa-heads", type=human_int, default=2, metavar="N", help="tokens guessed ahead")
    group.add_argument("--medusa-layers", type=human_int, default=5, metavar="N", help="residual layers of a head")
    group.add_argument("--batch-tokens", type=human_int, default=8192, metavar="N", help="of one training step")
    group.add_argument("--hard-share", type=finite_float, default=0.25, metavar="X",
                       help="of the label is the token that came; the rest is the target's distribution")  # fmt: skip
    group.add_argument("--max-megabytes", type=finite_float, default=16.0, metavar="X",
                       help="of all heads' files together; a recipe for larger ones is refused")  # fmt: skip
    group.add_argument("--log-every", type=human_int, default=50, metavar="N", help="steps between two lines")


def run(options: argparse.Namespace) -> int:
    """Generate, train, measure and write; progress is printed."""
    from stage3.training.recipe import run_recipe  # here, so that --help need not wait for torch

    run_recipe(make_recipe(options), options.out, functools.partial(print, flush=True))
    print(f"wrote {options.out}/MODEL_CARD.md, train_log.json and runs.jsonl")
    return 0


def make_recipe(options: argparse.Namespace) -> Recipe:
    """The ``Recipe`` of the flags.

    Raises:
        UsageError: a value is out of range or contradicts another.
    """
    from stage3.training.generate import GenerateSettings
    from stage3.training.recipe import Recipe
    from stage3.training.trainer import TrainSettings

    engine = {name: getattr(options, name) for name in ENGINE if getattr(options, name) is not None}
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"--out {options.out} is a file: name a folder")
    if options.corpus is not None and not options.corpus.is_file():
        raise UsageError(f"--corpus {options.corpus} is not there: make it with --save-corpus")
    common = {name: getattr(options, name) for name in ("max_steps", "batch_tokens", "hard_share", "log_every", "seed")}
    training = {
        "eagle": {"lr": options.lr_eagle, "seconds": options.eagle_seconds, "decay": 0.8, "clip": 0.5},
        "medusa": {"lr": options.lr_medusa, "seconds": options.medusa_seconds, "decay": 0.8, "clip": 1.0},
    }
    try:
        return Recipe(
            engine={**engine, "max_model_len": options.max_len, "max_num_batched_tokens": 8192},
            generate=GenerateSettings(
                seconds=options.generate_seconds, **{name: getattr(options, name) for name in GENERATION}
            ),
            train={method: TrainSettings(**training[method], **common) for method in dict.fromkeys(options.methods)},
            unroll=options.unroll,
            medusa_heads=options.medusa_heads,
            medusa_layers=options.medusa_layers,
            intermediate_size=options.intermediate_size,
            corpus=options.corpus,
            save_corpus=options.save_corpus,
            commit=options.commit or _commit(),
            note=options.note,
            max_megabytes=options.max_megabytes,
            max_len=options.max_len,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _commit() -> str | None:
    """The commit of the working folder, where it is one of git's."""
    import subprocess

    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
