"""GPU tests: skipped where there is no CUDA GPU, and counted where one is required (``make gpu-test``)."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail without a CUDA GPU, and when no GPU test ran")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-gpu"):
        if not _has_gpu():
            pytest.exit("no CUDA GPU is visible to torch: GPU tests cannot run here", returncode=1)
        config.pluginmanager.register(GpuCount(), "sixfold-gpu-count")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))


class GpuCount:
    """Makes a run fail in which every GPU test was skipped or left out: it would look like a success."""

    def __init__(self) -> None:
        self.num_run = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.num_run += report.when == "call" and not report.skipped and "gpu" in report.keywords

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.num_run == 0 and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{self.num_run} GPU tests ran" + ("" if self.num_run else ": this run has failed"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
