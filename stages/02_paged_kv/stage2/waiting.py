"""The queue of waiting requests, under either policy.

Owns the order. First come first served: a preempted request returns to the front, for it was there first. Priority:
by (priority, arrival) for new and preempted requests alike. Ended requests are dropped when they come to the front, or
all at once when they are the larger part, so that no step ever walks the whole queue.

vLLM: ``v1/core/sched/request_queue.py``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Protocol

from stage1.request import Request


class WaitingQueue(Protocol):
    """What the scheduler needs of a queue; every method but ``drop_ended`` is at most O(log n)."""

    def __len__(self) -> int:
        """Requests in it, ended ones too."""

    def add(self, req: Request) -> None:
        """A new request."""

    def put_back(self, req: Request) -> None:
        """A preempted one."""

    def peek(self) -> Request | None:
        """The next one to admit, or ``None``."""

    def pop(self) -> Request:
        """Take out what ``peek`` shows."""

    def drop_ended(self) -> None:
        """Forget the ended ones, wherever they stand."""

    def worst(self, running: list[Request]) -> Request:
        """Which of ``running`` to preempt first."""


class FcfsQueue:
    """First come, first served; the last to be admitted is preempted first."""

    def __init__(self) -> None:
        self._queue: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, req: Request) -> None:
        """To the end."""
        self._queue.append(req)

    def put_back(self, req: Request) -> None:
        """To the front."""
        self._queue.appendleft(req)

    def peek(self) -> Request | None:
        """The one at the front that still lives."""
        while self._queue and self._queue[0].status.is_finished:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def pop(self) -> Request:
        """Take the front."""
        return self._queue.popleft()

    def drop_ended(self) -> None:
        """Keep the order of the others."""
        self._queue = deque(req for req in self._queue if not req.status.is_finished)

    def worst(self, running: list[Request]) -> Request:
        """The last admitted."""
        return running[-1]


class PriorityQueue:
    """Lowest (priority, arrival) first; the highest is preempted first."""

    def __init__(self) -> None:
        # The number behind the id decides between an ended request and a new one of the same id.
        self._heap: list[tuple[int, float, str, int, Request]] = []
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, req: Request) -> None:
        """By (priority, arrival); the id makes the order total."""
        heapq.heappush(self._heap, (req.priority, req.arrival_time, req.req_id, next(self._counter), req))

    def put_back(self, req: Request) -> None:
        """Like a new one."""
        self.add(req)

    def peek(self) -> Request | None:
        """The most urgent that still lives."""
        while self._heap and self._heap[0][-1].status.is_finished:
            heapq.heappop(self._heap)
        return self._heap[0][-1] if self._heap else None

    def pop(self) -> Request:
        """Take the most urgent."""
        return heapq.heappop(self._heap)[-1]

    def drop_ended(self) -> None:
        """Rebuild the heap without them."""
        self._heap = [entry for entry in self._heap if not entry[-1].status.is_finished]
        heapq.heapify(self._heap)

    def worst(self, running: list[Request]) -> Request:
        """The least urgent of those that run."""
        return max(running, key=lambda req: (req.priority, req.arrival_time, req.req_id))


QUEUES: dict[str, Callable[[], WaitingQueue]] = {"fcfs": FcfsQueue, "priority": PriorityQueue}
