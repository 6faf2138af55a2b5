"""``sixfold generate``: continue prompts, and print the text as it comes.

Owns the sampling flags, the order in which several texts appear, and the closing line of numbers. The text goes to
standard output and everything else to standard error, so the output can be piped.

vLLM: ``vllm/entrypoints/cli/openai.py`` (``vllm complete``, ``vllm chat``), here without a server.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from sixfold.errors import UsageError
from sixfold.flags import add_settings, finite_float, given_settings, human_int
from sixfold.learner import add_mine_flag, load_mine
from sixfold.printing import Printer
from sixfold.stages import add_stage_flag, chosen_stage, engine_configs, stage_module

# Flags of SamplingParams, by their field: how the text is read, and what help says.
SAMPLING: dict[str, tuple[Any, str]] = {
    "max_tokens": (human_int, "most tokens to write for each prompt (default: 64)"),
    "min_tokens": (human_int, "no end of the text before that many tokens"),
    "temperature": (finite_float, "0 = always the likeliest token (the default here: the same text every time)"),
    "top_p": (finite_float, "draw from the likeliest tokens that make up this share"),
    "top_k": (human_int, "draw from that many likeliest tokens"),
    "min_p": (finite_float, "drop tokens below this share of the likeliest one's probability"),
    "presence_penalty": (finite_float, "lower tokens that the output has"),
    "frequency_penalty": (finite_float, "lower tokens by how often the output has them"),
    "repetition_penalty": (finite_float, "above 1: lower tokens that prompt or output has"),
    "seed": (human_int, "makes draws repeatable"),
    "n": (human_int, "texts for each prompt; needs a temperature above 0"),
}
DEFAULTS = {"temperature": 0.0, "max_tokens": 64}


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with the flags of the stage that ``argv`` names."""
    parser = argparse.ArgumentParser(
        prog="sixfold generate",
        usage="sixfold generate PROMPT … [--stage N] [--model MODEL] [--max-tokens N] [options]",
        description="Continue prompts and print the text as it comes.",
        allow_abbrev=False,
    )
    parser.set_defaults(literal=[])  # prompts after --, which may begin with a dash
    parser.add_argument(
        "prompts", nargs="*", metavar="PROMPT", help="a text to continue; - reads it from standard input"
    )
    add_stage_flag(parser)
    parser.add_argument(
        "--chat", action="store_true", help="answer each prompt as a message, in the model's chat format"
    )
    sampling = parser.add_argument_group("sampling")
    for name, (kind, text) in SAMPLING.items():
        sampling.add_argument(
            "--" + name.replace("_", "-"), type=kind, default=argparse.SUPPRESS, metavar="X", help=text
        )
    sampling.add_argument("--stop", action="append", default=argparse.SUPPRESS, metavar="TEXT",
                          help="end before this text; may be given several times")  # fmt: skip
    sampling.add_argument("--ignore-eos", action="store_true", default=argparse.SUPPRESS,
                          help="go on when the model ends its text")  # fmt: skip
    add_mine_flag(parser)
    # --seed is the request's here; the engine's own seed decides only what unseeded requests draw.
    add_settings(parser, engine_configs(chosen_stage(argv)), leave_out=("seed",))
    return parser


def run(options: argparse.Namespace) -> int:
    """Load the engine, stream every prompt, print the numbers; 1 when a request failed."""
    prompts = read_prompts(options.prompts, options.literal)
    number = chosen_stage([] if options.stage is None else ["--stage", str(options.stage)])
    stage = stage_module(number)
    params = sampling_params(stage, options)
    settings = given_settings(options)
    mine = {} if not options.mine else {"parts": load_mine(number, settings.get("attention_backend", "auto")).parts}
    print(f"stage {number}: loading {settings.get('model', 'the embedded model')}", file=sys.stderr)
    with stage.LLM(**mine, **settings) as llm:
        asked = [llm.render_chat([{"role": "user", "content": text}]) for text in prompts] if options.chat else prompts
        printer = Printer(prompts, params.n, sys.stdout, asked)
        start = time.perf_counter()
        return follow(llm.stream(asked, params), printer, start)


def read_prompts(arguments: Sequence[str], literal: Sequence[str] = ()) -> list[str]:
    """The prompts given; in ``arguments``, ``-`` stands for standard input, less its last line end.

    Raises:
        UsageError: there is none, or ``-`` was given twice.
    """
    if not arguments and not literal:
        raise UsageError('no prompt: give one in quotes, such as "1, 2, 3, 4, 5,", or - to read standard input')
    if list(arguments).count("-") > 1:
        raise UsageError("- can be given once: standard input holds one prompt")
    given = [sys.stdin.read().removesuffix("\n") if text == "-" else text for text in arguments]
    return [*given, *literal]


def sampling_params(stage: Any, options: argparse.Namespace) -> Any:
    """``SamplingParams`` of what was given, over this command's defaults.

    Raises:
        UsageError: a value is out of range or contradicts another.
    """
    given = {name: value for name, value in vars(options).items() if name in {*SAMPLING, "stop", "ignore_eos"}}
    try:
        return stage.SamplingParams(**{**DEFAULTS, **given})
    except ValueError as error:
        raise UsageError(str(error)) from None


def follow(outputs: Iterable[Any], printer: Printer, start: float) -> int:
    """Print a stream of ``RequestOutput`` as it grows, then its numbers; ``start`` is a ``perf_counter`` time."""
    first: float | None = None
    latest: dict[str, Any] = {}
    for output in outputs:
        if first is None and any(completion.token_ids for completion in output.outputs):
            first = time.perf_counter() - start
        latest[output.request_id] = output
        printer.show(output)
    elapsed = time.perf_counter() - start
    printer.end()
    completions = [completion for output in latest.values() for completion in output.outputs]
    num_prompt = sum(len(output.prompt_token_ids) for output in latest.values())
    num_output = sum(len(completion.token_ids) for completion in completions)
    print(summary(num_prompt, num_output, first, elapsed), file=sys.stderr)
    failures = [completion.error for completion in completions if completion.finish_reason == "error"]
    for reason in failures:
        print(f"sixfold generate: a request failed: {reason}", file=sys.stderr)
    return 1 if failures else 0


def summary(num_prompt: int, num_output: int, first: float | None, elapsed: float) -> str:
    """The closing line: tokens in and out, seconds until the first token (``None`` = none came), speed."""
    parts = [_tokens(num_prompt, "prompt"), _tokens(num_output, "output")]
    if first is not None:
        parts += [f"first token after {first * 1000:,.0f} ms", f"{num_output / max(elapsed, 1e-9):,.1f} tokens/s"]
    return "[" + " · ".join(parts) + "]"


def _tokens(count: int, kind: str) -> str:
    return f"{count:,} {kind} token{'' if count == 1 else 's'}"
