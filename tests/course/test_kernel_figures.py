"""The pictures of the notebook on kernels: what they count is what the engine does."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sixfold.exercises import child
from sixfold.exercises.catalog import find
from sixfold.exercises.importer import load_file
from sixfold.figures import measured
from sixfold.figures.gather import draw_gather, gathered_rows, moved_factor
from sixfold.figures.roofline import decode_attention, decode_step, draw_roofline, matrices
from sixfold.figures.splits import draw_lengths, draw_programs, draw_running_softmax, programs_of, ticks
from sixfold.figures.step_time import by_kind, draw_step_time
from stage1.model.shape import PRESETS
from stage2.kernels.decode_attention import DecodeKernels, paged_decode, tiling
from stage2.kernels.merge_splits import MIN_TILES
from stage2.kernels.split_attention import attend_kernel

SMOL, BF16 = PRESETS["smollm2-135m"], torch.bfloat16


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    heads=st.integers(1, 3),
    splits=st.integers(1, 16),
    processors=st.integers(1, 20),
)
def test_programs_cover_every_tile_once_and_never_share_a_processor(
    lengths: list[int], heads: int, splits: int, processors: int
) -> None:
    programs = programs_of(lengths, heads, splits, processors, tile=64, min_tiles=2)
    for request, length in enumerate(lengths):
        own = [p for p in programs if p.request == request]
        assert sum(p.tiles for p in own) == heads * -(-length // 64)
        assert len({p.split for p in own}) <= splits
    for processor in range(processors):
        spans = sorted((p.start, p.start + p.tiles) for p in programs if p.processor == processor)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert ticks(programs) >= sum(p.tiles for p in programs) / processors


@pytest.mark.parametrize(("length", "splits"), [(40, 4), (129, 4), (700, 4), (700, 2)])
def test_splits_in_the_picture_are_those_of_the_kernel(length: int, splits: int) -> None:
    """The kernel writes the logarithm of each split that it uses."""

    class Noting:
        """Keeps the logarithms that the launch leaves."""

        def __getitem__(self, grid: Any) -> Any:
            def launch(partial: torch.Tensor, lse: torch.Tensor, *rest: Any, **constants: Any) -> None:
                used.append(int((lse[0, 0] != 0).sum()))

            return launch

    used: list[int] = []
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cache = torch.randn(2, 50, 16, 1, 64, device=device)
    paged_decode(
        torch.randn(1, 2, 64, device=device),
        *cache,
        torch.arange(50, device=device)[None],
        torch.tensor([length], device=device),
        num_splits=splits,
        scale=0.1,
        workspace=torch.zeros(1000, device=device),
        kernels=DecodeKernels(attend_kernel, Noting()),
    )
    tile = tiling(64, 16, torch.float32).tile
    drawn = programs_of([length], 1, splits, 4, tile=tile, min_tiles=MIN_TILES)
    assert max(used[0], 1) == len(drawn)


def test_rows_that_plain_torch_moves() -> None:
    assert gathered_rows([3, 10, 2]) == 30
    assert moved_factor([7]) == 3
    assert moved_factor([5, 5]) == 3
    assert moved_factor([1, 9]) == pytest.approx(5.4)


def test_work_follows_from_the_shape() -> None:
    attention = decode_attention(SMOL, BF16, context=100)
    assert attention.read == 100 * SMOL.kv_bytes_per_token(BF16) == 100 * 2 * 30 * 3 * 64 * 2
    assert attention.flop == 100 * 30 * 9 * 64 * 4
    assert attention.intensity == 3
    products = matrices(SMOL, BF16, 8)
    assert products.intensity == 8
    step = decode_step(SMOL, BF16, 8, 100)
    assert (step.flop, step.read) == (products.flop + 8 * attention.flop, products.read + 8 * attention.read)
    assert step.limit(measured.Rates("x", 2.0, 10.0)) == pytest.approx(min(10.0, 2 * step.intensity))


def test_measured_figures_are_the_newest_of_a_gpu(tmp_path: Path) -> None:
    def write(name: str, **fields: Any) -> None:
        (tmp_path / name).write_text(json.dumps(fields), encoding="utf-8")

    assert measured.newest_run(2, folder=tmp_path) is None
    assert measured.rates(None) is measured.ASSUMED
    assert measured.decode_steps(None, "a") == []
    rates = {"read_tb_s": 3.0, "matmul_tflop_s": 500.0}
    step = {"batch": 8, "context": 128, "wall_ms": 2.5}
    shapes = [{"shape": "a", "decode": [step]}, {"shape": "b", "decode": [step]}, {"shape": "c", "decode": []}]
    write("stage2_one_2026-01-02.json", gpu="Old", date="2026-01-02T10:00", rates_before=rates)
    write(
        "stage2_two_2026-02-01.json",
        gpu="New",
        dtype="bf16",
        date="2026-02-01T10:00",
        rates_before=rates,
        shapes=shapes,
    )
    write("stage2_kernels_2026-02-09.json", gpu="Newer", date="2026-02-09", rates_before=rates)  # no engine
    write("stage2_cpu_2026-03-01.json", date="2026-03-01T10:00")
    write("stage1_x_2026-04-01.json", gpu="Other", date="2026-04-01", rates_before=rates)
    run = measured.newest_run(2, folder=tmp_path)
    assert run is not None
    assert measured.label(run) == "New, bf16, 2026-02-01"
    assert measured.newest_run(2, "b", tmp_path) == run
    assert measured.newest_run(2, "c", tmp_path) is None
    assert measured.rates(run) == measured.Rates("New, bf16, 2026-02-01", 3.0, 500.0)
    assert measured.decode_steps(run, "a") == [(8, 128, 2.5)]
    assert measured.decode_steps(run, "c") == []


def test_pictures_are_drawn() -> None:
    programs = programs_of([900, 70], 2, 4, 8, tile=64, min_tiles=2)
    work = [decode_attention(SMOL, BF16, 100), matrices(SMOL, BF16, 8)]
    bad = torch.tensor([[True, False], [False, False], [False, False]])
    figures = [
        draw_gather([3, 40, 7]),
        draw_running_softmax(torch.randn(20), tile=6),
        draw_programs({"one": programs, "two": programs}, 8),
        draw_roofline(measured.ASSUMED, work, [(work[1], 0.5)]),
        draw_lengths(bad, [7, 8, 9], "Something"),
    ]
    assert [len(figure.axes) for figure in figures] == [2, 2, 2, 1, 1]
    assert all(isinstance(figure, Figure) for figure in figures)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")
def test_suspect_kernel_passes_the_check_that_it_is_said_to_pass(tmp_path: Path) -> None:
    exercise = find("2.8")
    (tmp_path / "suspect.py").write_text(
        "from sixfold.museum_kernels import suspect_attend_kernel as attend_kernel\n", encoding="utf-8"
    )
    check = load_file(exercise.folder / "check.py")
    finding = child.examine(exercise, check, tmp_path / "suspect.py", lambda **_: None)
    assert finding.status == "pass", finding


def profile_of(us: dict[str, float], wall: float) -> dict[str, Any]:
    kernels = [{"kernel": name, "us": time} for name, time in us.items()]
    return {"case": "decode", "batch": 8, "context": 128, "wall_us": wall, "kernels_us": 40.0, "kernels": kernels}


def test_the_newest_profile_is_one_of_decode_steps(tmp_path: Path) -> None:
    common = {"gpu": "New", "rates_before": {}}
    step = profile_of({}, 50.0)
    for day, shapes in enumerate([{"cases": [step]}, {"cases": [{"case": "w"}]}, {"decode": [1]}], 1):
        run = {**common, "date": f"2026-01-0{day}", "shapes": [{"shape": "a", **shapes}]}
        (tmp_path / f"stage2_{day}.json").write_text(json.dumps(run), encoding="utf-8")
    run = measured.newest_profile(2, "a", tmp_path)
    assert run is not None
    assert run["date"] == "2026-01-01"
    assert measured.profiled_steps(run, "a") == [("batch 8, 128 keys", step)]
    assert measured.profiled_steps(run, "b") == measured.profiled_steps(None, "a") == []
    assert measured.newest_profile(2, "b", tmp_path) is None
    found = measured.newest_run(2, folder=tmp_path)
    assert found is not None
    assert found["date"] == "2026-01-03"


def test_a_step_s_time_is_shared_out_whole() -> None:
    step = profile_of({"_matvec_kernel": 10.0, "nvjet_sm90": 5.0, "attend_kernel": 8.0, "fill": 3.0}, 50.0)
    shares = by_kind(step)
    assert (shares["matrix products"], shares["attention"], shares["norms"]) == (15.0, 8.0, 0.0)
    assert (shares["all else"], shares["no kernel runs"]) == (17.0, 10.0)  # kernels that are not listed count too
    assert sum(shares.values()) == 50.0
    figure = draw_step_time([("one", step), ("two", profile_of({"_silu_and_mul": 40.0}, 40.0))], "a GPU")
    words = [text.get_text() for text in figure.axes[0].texts]
    assert {"50 µs", "40 µs", "15"} <= set(words)
