"""The clock for launches: graph replays.

Owns how a launch is timed. Does not know kernels. A graph holds 20 or more launches, over all sets of inputs of a case,
so the host is not in the figure; the gap between two launches of a graph, about a microsecond, is.
"""

from __future__ import annotations

import torch

from bench_kernels.arena import Case

LAUNCHES = 20  # of a graph, at least
ENOUGH_US = 3000.0  # a timing lasts at least this long


class CapturedCase:
    """A case's launches in a graph, ready to be timed again and again."""

    def __init__(self, case: Case) -> None:
        self._num_launches = max(LAUNCHES, len(case.launches))
        for launch in case.launches[:3]:  # compiles, and lets libraries allocate, outside the capture
            launch()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for i in range(self._num_launches):
                case.launches[i % len(case.launches)]()
        once = self._replay(1)  # the first replay uploads the graph
        self._repeats = max(1, round(ENOUGH_US / max(once, 1.0)))

    def microseconds(self) -> float:
        """Of one launch, now."""
        return self._replay(self._repeats) / (self._repeats * self._num_launches)

    def _replay(self, repeats: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            self._graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3
