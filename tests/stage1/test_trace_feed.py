"""The live feed: one thread writes, event loops follow, nobody waits for a slow one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stage1.trace.events import (
    RequestAdded,
    TraceStart,
)
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import LiveFeed

START = TraceStart(0.0, 1.7e9, 2, "tiny", 4, 8, 4)


def added(i: int) -> RequestAdded:
    return RequestAdded(float(i), str(i), 1)


async def first_row(feed: LiveFeed) -> dict[str, Any]:
    return await anext(feed.follow())


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["req_id"]) for row in rows if row["kind"] == "request_added"]


def test_a_snapshot_has_the_start_and_the_latest_events() -> None:
    feed = LiveFeed(capacity=5)
    feed.write(START)
    for i in range(12):
        feed.write(added(i))
    rows = feed.snapshot()
    assert [row["kind"] for row in rows[:2]] == ["trace_start", "events_lost"]
    assert rows[1]["num_events"] == 7
    assert numbers(rows) == [7, 8, 9, 10, 11]
    trace = Trace.from_dicts(rows)
    assert trace.num_lost == 7
    assert check_trace(trace) == ["7 events are missing: read the trace from a file, or give the live feed more room"]
    with pytest.raises(ValueError, match="capacity is 0"):
        LiveFeed(0)


def test_followers_in_another_thread_get_everything_in_order_until_the_feed_is_closed() -> None:
    feed = LiveFeed(capacity=10_000)
    feed.write(START)
    feed.write(added(0))

    def write_all() -> None:
        for i in range(1, 3000):
            feed.write(added(i))
        feed.close()

    async def collect() -> list[dict[str, Any]]:
        return [row async for row in feed.follow()]

    async def main() -> list[list[dict[str, Any]]]:
        followers = [asyncio.create_task(collect()) for _ in range(3)]
        await asyncio.sleep(0)  # all have read the snapshot and wait
        writer = threading.Thread(target=write_all)
        writer.start()
        rows = await asyncio.gather(*followers)
        writer.join()
        return rows

    for rows in asyncio.run(asyncio.wait_for(main(), 20)):
        assert rows[0]["kind"] == "trace_start"
        assert numbers(rows[1:]) == list(range(3000))
        assert len(rows) == 3001
    assert not feed._sleepers


def test_a_slow_follower_loses_the_oldest_and_is_told_how_many() -> None:
    feed = LiveFeed(capacity=3)

    async def main() -> list[dict[str, Any]]:
        follower = feed.follow()
        feed.write(added(0))
        rows = [await anext(follower)]
        for i in range(1, 11):
            feed.write(added(i))  # never waits for the follower
        feed.close()
        feed.write(added(99))  # closed: dropped
        return rows + [row async for row in follower]

    rows = asyncio.run(main())
    assert numbers(rows) == [0, 8, 9, 10]
    assert [row["num_events"] for row in rows if row["kind"] == "events_lost"] == [7]


def test_closing_wakes_a_follower_that_waits() -> None:
    feed = LiveFeed()

    async def collect() -> list[dict[str, Any]]:
        return [row async for row in feed.follow()]

    async def main() -> list[dict[str, Any]]:
        follower = asyncio.create_task(collect())
        await asyncio.sleep(0)  # it waits now, before the trace has begun
        feed.write(START)
        for _ in range(3):
            await asyncio.sleep(0)  # it has read the start and waits again
        feed.close()
        feed.close()
        return await asyncio.wait_for(follower, 20)

    assert [row["kind"] for row in asyncio.run(main())] == ["trace_start"]


def test_a_follower_that_leaves_is_forgotten() -> None:
    feed = LiveFeed()

    async def leave() -> None:
        follower = asyncio.create_task(first_row(feed))
        await asyncio.sleep(0)
        assert len(feed._sleepers) == 1
        follower.cancel()
        with pytest.raises(asyncio.CancelledError):
            await follower

    asyncio.run(leave())
    assert not feed._sleepers


def test_a_follower_whose_loop_is_gone_does_not_stop_the_engine() -> None:
    feed = LiveFeed()
    loop = asyncio.new_event_loop()
    follower = loop.create_task(first_row(feed))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    feed.write(added(1))
    assert numbers(feed.snapshot()) == [1]
    follower.get_coro().close()
