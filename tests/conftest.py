"""What all tests share: GPU tests are skipped or counted (``make gpu-test``), and pages are tried in one browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail without a CUDA GPU, and when no GPU test ran")


def pytest_configure(config: pytest.Config) -> None:
    if not _has_gpu():  # before any kernel is decorated: interpreted and compiled kernels are different objects
        os.environ.setdefault("TRITON_INTERPRET", "1")
    if config.getoption("--require-gpu"):
        if not _has_gpu():
            pytest.exit("no CUDA GPU is visible to torch: GPU tests cannot run here", returncode=1)
        config.pluginmanager.register(GpuCount(), "sixfold-gpu-count")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run on a GPU reads only files with a GPU test: others may import what a GPU machine lacks."""
    if not config.getoption("--require-gpu") or collection_path.suffix != ".py":
        return None
    return True if "mark.gpu" not in collection_path.read_text(encoding="utf-8") else None


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


CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)


class Browser:
    """Chromium in its own thread: playwright's event loop would be in the way of ``asyncio.run`` in other tests."""

    def __init__(self, executable: str) -> None:
        self._thread = ThreadPoolExecutor(1, "browser")
        self._thread.submit(self._start, executable).result()

    def _start(self, executable: str) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_FLAGS))

    def run(self, act: Callable[[Any], Any], expected: Collection[str] = (), **context: Any) -> Any:
        """``act(page)`` on a fresh page.

        Fails when a request leaves this machine, when a dialog opens, and when the console has an error or warning that
        contains none of ``expected``.
        """
        return self._thread.submit(self._run, act, expected, context).result()

    def _run(self, act: Callable[[Any], Any], expected: Collection[str], context: dict[str, Any]) -> Any:
        faults: list[str] = []

        def on_console(message: Any) -> None:
            if message.type in ("error", "warning") and not any(part in message.text for part in expected):
                faults.append(f"console: {message.text}")

        def on_dialog(dialog: Any) -> None:
            faults.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        def on_request(request: Any) -> None:
            if not request.url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:")):
                faults.append(f"request: {request.url}")

        page = self._browser.new_page(**context)
        page.set_default_timeout(10_000)
        page.on("console", on_console)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", on_dialog)
        page.on("request", on_request)
        try:
            result = act(page)
        finally:
            page.close()
        assert faults == []
        return result

    def close(self) -> None:
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def _stop(self) -> None:
        self._browser.close()
        self._playwright.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests that look at pages."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("chromium is not installed")
    made = Browser(executable)
    yield made
    made.close()
