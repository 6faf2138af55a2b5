"""The command line's frame: finds the command, and turns what goes wrong into one line and an exit code.

Owns the list of commands and the exit codes: 0 fine, 1 failed, 2 wrong usage, 130 interrupted. Does not know what
a command does: its module is imported only when it is asked for, so that ``sixfold --help`` never waits for torch.

vLLM: ``vllm/entrypoints/cli/main.py``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from sixfold.dotted import add_dotted
from sixfold.errors import UsageError


class Command(NamedTuple):
    """Where a command lives and what the overview says of it."""

    module: str
    summary: str


COMMANDS = {
    "doctor": Command("sixfold.commands.doctor", "check this machine, and say how to mend what is missing"),
    "generate": Command("sixfold.commands.generate", "continue prompts and print the text as it comes"),
    "serve": Command("sixfold.commands.serve", "start a stage's HTTP server"),
    "check": Command("sixfold.commands.check", "check your versions of exercises"),
    "hint": Command("sixfold.commands.hint", "open the next hint of an exercise"),
    "show": Command("sixfold.commands.show", "draw what your version of an exercise does"),
    "solution": Command("sixfold.commands.solution", "print the engine's own version of an exercise"),
    "reset": Command("sixfold.commands.reset", "begin an exercise, or begin it anew"),
    "progress": Command("sixfold.commands.progress", "list the exercises, and what passes"),
    "trace": Command("sixfold.commands.trace", "look at a trace in a browser, or check it"),
    "train-heads": Command("sixfold.commands.train_heads", "train draft heads for speculative decoding"),
    "model": Command("sixfold.commands.model", "print the folder of the embedded model"),
    "notebooks": Command("sixfold.commands.notebooks", "build the notebooks from their masters, or check them"),
    "diff": Command("sixfold.commands.diff", "show what one stage adds to another"),
}


class CommandModule(Protocol):
    """What every module of ``sixfold.commands`` offers."""

    make_parser: Callable[[Sequence[str]], argparse.ArgumentParser]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. ``argv`` defaults to the process's arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    overview = _overview()
    if not arguments:
        overview.print_help()
        return 2
    if arguments[0] not in COMMANDS:
        overview.parse_args(arguments)  # answers --help, and refuses what it does not know
    name, rest = arguments[0], arguments[1:]
    try:
        return _run(name, rest)
    except UsageError as error:
        return _failed(name, error, rest, code=2)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has left (`… | head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        return _failed(name, error, rest, code=1)


def _run(name: str, rest: Sequence[str]) -> int:
    module = cast(CommandModule, importlib.import_module(COMMANDS[name].module))
    parser = module.make_parser(rest)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    # Split here, because argparse would take what follows -- for flags when options and prompts are mixed.
    cut = rest.index("--") if "--" in rest else len(rest)
    arguments = with_dashes(rest[:cut])
    add_dotted(parser, arguments)
    options = parser.parse_intermixed_args(arguments)
    if after := list(rest[cut + 1 :]):
        if parser.get_default("literal") is None:
            parser.error(f"nothing may follow --, but {' '.join(after)} does")
        options.literal = after
    code = module.run(options)
    sys.stdout.flush()  # here, where a broken pipe is still caught
    return code


def with_dashes(argv: Sequence[str]) -> list[str]:
    """``--max_model_len=8`` → ``--max-model-len=8``: vLLM's users write both."""
    changed = list(argv)
    for i, argument in enumerate(argv):
        if argument.startswith("--"):
            flag, equals, value = argument.partition("=")
            changed[i] = flag.replace("_", "-") + equals + value
    return changed


def _overview() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog="sixfold",
        description="An LLM inference engine built in six stages.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n" + "\n".join(f"  {name:{width}}  {c.summary}" for name, c in COMMANDS.items())
        + "\n\n`sixfold COMMAND --help` lists a command's options.",
    )  # fmt: skip
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below")
    return parser


def _failed(name: str, error: Exception, argv: Sequence[str], code: int) -> int:
    if "--debug" in argv:
        traceback.print_exception(error)
        return code
    text = str(error) or type(error).__name__
    if not isinstance(error, (UsageError, ValueError, OSError)):
        text = f"{type(error).__name__}: {text} (--debug shows where)"
    print(f"sixfold {name}: {text}", file=sys.stderr)
    return code
