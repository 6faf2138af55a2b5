"""Measure speculation with a real model on a GPU: tokens a second with and without, and how many drafts stay.

    python stages/03_prefix_spec/measure_speculation.py --out stages/06_benchmark/results

The engines stand side by side and take the same held-out prompts in turn, greedily, kind by kind; the fastest engine
without speculation is the base. A batch of n is n requests at any time: when one ends the next one joins, and the clock
stops when none is left to join. Above 64 requests nothing is drafted. Acceptance length and speed-up are
shown apart, for each kind of text. Loading, capturing graphs and warming up are outside the clock. The result is one
JSON file with GPU, versions, commit and date.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from stage1.core import EngineCore
from stage1.measuring import device_rates, provenance, require_gpu, spread_of, write_result
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, StepStats
from stage1.workloads import finish
from stage3.measured import ARMS, make_llm
from stage3.training.held_out import held_out_prompts

MAX_TOKENS = 256
ALL = "all"


def serve(core: EngineCore, prompts: list[list[int]], batch: int, eos: list[int]) -> tuple[float, int]:
    """Keep ``batch`` of ``prompts`` running until none waits; (seconds, output tokens) up to then."""
    params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, stop_token_ids=eos, ignore_eos=True, seed=0)
    waiting = list(enumerate(prompts))[::-1]
    tokens = running = 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    while waiting or running == batch == 1:
        while waiting and running < batch:
            number, ids = waiting.pop()
            core.add_request(EngineCoreRequest(f"{time.monotonic_ns()}-{number}", ids, params))
            running += 1
        out = core.step()
        tokens += sum(map(len, out.new_ids))
        running -= len(out.finish_reason)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    finish(core)
    return seconds, tokens


def since(before: StepStats, after: StepStats, k: int) -> dict[str, Any]:
    """What the drafts between two readings brought."""
    count = after.verifications - before.verifications
    old = before.accepted_per_position or [0] * k
    accepted = [a - b for a, b in zip(after.accepted_per_position, old, strict=True)]
    return {
        "verifications": count,
        "drafts": after.drafts - before.drafts,
        "accepted_per_position": [round(a / max(count, 1), 4) for a in accepted],
        "acceptance_length": 1 + sum(accepted) / max(count, 1),
    }


Runs = dict[str, list[dict[str, Any]]]  # by arm, a run a round


class Arm:
    """One engine."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self.config = ARMS[name]
        self.llm = make_llm(name, **settings)

    def run(self, prompts: list[list[int]], batch: int, eos: list[int]) -> dict[str, Any]:
        """Tokens a second, and what became of the drafts."""
        core = self.llm.core
        before = core.stats()
        seconds, tokens = serve(core, prompts, batch, eos)
        found: dict[str, Any] = {"seconds": seconds, "tokens": tokens, "tok_s": tokens / seconds}
        if self.config is not None:
            found |= since(before, core.stats(), self.config["num_speculative_tokens"])
        return found


def point(arms: list[Arm], prompts: list[list[int]], batch: int, eos: list[int], rounds: int) -> Runs:
    """All arms at one batch and kind of text, in turn."""
    runs: Runs = {arm.name: [] for arm in arms}
    for _ in range(rounds):
        for arm in arms:
            runs[arm.name].append(arm.run(prompts, batch, eos))
    return runs


def together(kinds: list[Runs]) -> Runs:
    """The sums over kinds of text, round by round."""
    found: Runs = {}
    for name in kinds[0]:
        found[name] = []
        for of_kinds in zip(*(runs[name] for runs in kinds), strict=True):
            total: dict[str, Any] = {key: sum(run[key] for run in of_kinds) for key in ("seconds", "tokens")}
            total["tok_s"] = total["tokens"] / total["seconds"]
            if "drafts" in of_kinds[0]:
                count = sum(run["verifications"] for run in of_kinds)
                shares = zip(
                    *([a * run["verifications"] for a in run["accepted_per_position"]] for run in of_kinds), strict=True
                )
                accepted = [sum(share) / max(count, 1) for share in shares]
                total |= {"verifications": count, "drafts": sum(run["drafts"] for run in of_kinds)}
                total |= {"accepted_per_position": accepted, "acceptance_length": 1 + sum(accepted)}
            found[name].append(total)
    return found


def rows_of(runs: Runs, kind: str, batch: int) -> list[dict[str, Any]]:
    """Medians over the rounds, with their spread; the speed-up is against the first arm, round by round."""
    rows = []
    base = next(iter(runs.values()))
    for name, found in runs.items():
        ratios = [a["tok_s"] / b["tok_s"] for a, b in zip(found, base, strict=True)]
        speeds = [run["tok_s"] for run in found]
        row = {"arm": name, "kind": kind, "batch": batch, **found[0], **spread_of(speeds, "tok_s")}
        row["speed_up"] = statistics.median(ratios)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16, 64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-kind", type=int, default=6, help="prompts of each kind of text")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    result = {**provenance(args.commit), "stage": 3, "model": args.model, "arms": ARMS}
    result["rates_before"] = device_rates()
    torch.cuda.empty_cache()
    arms = [Arm(name, model=args.model) for name in args.arms]
    llm = arms[0].llm
    kinds = {
        kind: [
            llm.render_chat([{"role": "user", "content": text}])["prompt_token_ids"] for text in texts[: args.per_kind]
        ]
        for kind, texts in held_out_prompts().items()
    }
    eos = [llm.get_tokenizer().eos_token_id]
    mixed = [ids for group in zip(*kinds.values(), strict=False) for ids in group]
    for arm in arms:  # warm
        arm.run(mixed[:32], 16, eos)
    rows = []
    for batch in args.batches:
        if batch == 1:
            by_kind = {kind: point(arms, prompts, 1, eos, args.rounds) for kind, prompts in kinds.items()}
            rows += [row for kind, runs in by_kind.items() for row in rows_of(runs, kind, 1)]
            rows += rows_of(together(list(by_kind.values())), ALL, 1)
        else:  # enough prompts that most of the time ``batch`` of them run
            prompts = mixed * -(-3 * batch // len(mixed))
            rows += rows_of(point(arms, prompts, batch, eos, args.rounds), ALL, batch)
        result |= {"rows": rows, "rates_after": device_rates()}
        if args.out is not None:  # after each batch: what is measured is kept
            write_result(args.out, "stage3_speculation", result)
    print(json.dumps(result["rates_after"]))


if __name__ == "__main__":
    main()
