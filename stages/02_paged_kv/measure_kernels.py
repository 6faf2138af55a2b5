"""Measure this stage's kernels on a GPU, each against the time that its bytes or operations need there.

    python stages/02_paged_kv/measure_kernels.py --out stages/06_benchmark/results   all points, three rounds
    python stages/02_paged_kv/measure_kernels.py --quick                             without the pointwise kernels, once
    python stages/02_paged_kv/measure_kernels.py --tune decode prefill               the sweep behind some constants

Inputs are random and cold: a case's launches go round over more than 200 MB, and pages lie in random order. A timing is
replays of a graph of 20 or more launches. All points are timed in turn, three times over; the table shows medians.
Bandwidth and matmul rate are read before and after. The result is one JSON file with GPU, versions, commit and date.

``share`` is the time that the fewest bytes (prefill: operations) need at the measured rate over the time it took;
``error`` is relative to a reference in float32, for sampling the share of tokens on the wrong side of a filter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench_kernels.arena import Arena
from bench_kernels.compiling import compile_all
from bench_kernels.points import (
    Point,
    decode_points,
    matvec_points,
    pointwise_points,
    prefill_points,
    sampling_points,
)
from bench_kernels.sweep import BEST, SWEEPS, sweep
from bench_kernels.timing import CapturedCase
from stage1.measuring import device_rates, provenance, require_gpu, spread_of, write_result

ROUNDS = 3
ARENA_NUMBERS = 2 * 64 * 32768 * 8 * 128  # keys and values of 64 requests of 32k tokens, 8 heads of 128
MOST_ERROR = 0.02
STREAM_NUMBERS = 1 << 29  # 2 GiB, far beyond the L2 cache, beside the arena
LIBRARIES = ("torch", "triton")


def measure(points: list[Point], arena: Arena, rounds: int) -> list[dict[str, Any]]:
    """Time all points in turn, ``rounds`` times, and check each against its reference."""
    cases = [point.build(arena) for point in points]
    errors = [case.check() for case in cases]
    captured = [CapturedCase(case) for case in cases]
    times = [[one.microseconds() for one in captured] for _ in range(rounds)]
    return [
        {"kernel": point.kernel, **point.arguments, **spread_of(column, "us"), "error": error}
        | {"bytes": case.num_bytes, "flops": case.flops}
        for point, case, error, column in zip(points, cases, errors, zip(*times, strict=True), strict=True)
    ]


def add_shares(rows: list[dict[str, Any]], rates: dict[str, float]) -> None:
    """Write into each row how much of the device's bandwidth, or of its matmul rate for prefill, it reached."""
    for row in rows:
        by_bytes = row["bytes"] / rates["read_tb_s"] / 1e6  # microseconds
        row["share"] = by_bytes / row["us"]
        if row["kernel"] == "prefill":
            row["share"] = row["flops"] / rates["matmul_tflop_s"] / 1e6 / row["us"]
        if row["kernel"] == "decode" and row["context"] == 32768:
            row["cliff"] = row["us"] / max(10.0, by_bytes)


def show(rows: list[dict[str, Any]]) -> None:
    """Print a line for each row."""
    hidden = {"kernel", "us", "us_min", "us_max", "error", "bytes", "flops", "share", "cliff"}
    for row in rows:
        what = " ".join(f"{k}={v}" for k, v in row.items() if k not in hidden)
        cliff = f" cliff {row['cliff']:.2f}" if "cliff" in row else ""
        flag = "" if row["error"] < MOST_ERROR else "  WRONG"
        print(
            f"{row['kernel']:<10} {what:<52} {row['us']:9.2f} us ({row['us_min']:.2f}-{row['us_max']:.2f})"
            f" share {row['share']:.3f} error {row['error']:.1e}{cliff}{flag}",
            flush=True,
        )


def tune(names: list[str], arena: Arena) -> None:
    """Print the best variants of each point of the sweeps ``names``, and the best one of each kernel."""
    for name in names:
        start = time.perf_counter()
        for common, timed in sweep(name, arena):
            print(name, " ".join(f"{k}={v}" for k, v in common.items()))
            fastest = {pair[1].kernel: pair for pair in reversed(timed)}.values()
            for us, point in timed[:BEST] + sorted((p for p in fastest if p not in timed[:BEST]), key=lambda p: p[0]):
                cut = {k: v for k, v in point.arguments.items() if k not in common}
                print(f"    {us:9.2f} us {point.kernel} {cut or ''}", flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s")


def main() -> None:
    """Measure, print a table, write the JSON file; or sweep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, without the pointwise kernels")
    parser.add_argument("--tune", nargs="*", choices=list(SWEEPS), help="sweep instead, and print the best variants")
    parser.add_argument("--out", type=Path, default=Path("stages/06_benchmark/results"), help="of the JSON file")
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    if args.tune is not None:
        tune(args.tune or list(SWEEPS), Arena(ARENA_NUMBERS))
        return
    points = decode_points() + prefill_points() + sampling_points() + matvec_points()
    points += [] if args.quick else pointwise_points()
    start = time.perf_counter()
    if failed := compile_all(points):
        sys.exit("\n".join(f"{point} cannot run: {reason}" for point, reason in failed.items()))
    compiled = time.perf_counter()
    result = {**provenance(args.commit, LIBRARIES), "rates_before": device_rates(STREAM_NUMBERS)}
    rows = measure(points, Arena(ARENA_NUMBERS), 1 if args.quick else ROUNDS)
    result["rates_after"] = device_rates(STREAM_NUMBERS)
    add_shares(rows, {k: (v + result["rates_after"][k]) / 2 for k, v in result["rates_before"].items()})
    show(rows)
    result |= {"rounds": 1 if args.quick else ROUNDS, "kernels": rows}
    print(json.dumps(result["rates_before"]), json.dumps(result["rates_after"]), sep="\n")
    print(f"compiled in {compiled - start:.0f} s, measured in {time.perf_counter() - compiled:.0f} s")
    print(write_result(args.out, "stage2_kernels", result))


if __name__ == "__main__":
    main()
