"""The asynchronous clients: order, aborts at any moment, death, shutdown."""

import asyncio
import threading

import pytest

from stage1.client import InProcessClient
from stage1.interfaces import EngineDeadError
from stage1.params import RequestOutputKind, SamplingParams
from stage1.text_client import TextClient

PARAMS = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, output_kind=RequestOutputKind.DELTA)


@pytest.fixture
def make_client(make_tiny):
    made = []

    def make(**settings):
        llm = make_tiny(**settings)
        client = TextClient(InProcessClient(llm.core), llm._inputs, llm._outputs, stage=1)
        made.append(client)
        return client, llm

    yield make
    for client in made:
        client.shutdown()
    assert not [t for t in threading.enumerate() if t.name == "engine-core" and t.is_alive()]


async def collect(client: TextClient, prompt: list[int], request_id: str, params: SamplingParams = PARAMS) -> list[int]:
    ids: list[int] = []
    async for output in client.generate({"prompt_token_ids": prompt}, params, request_id=request_id):
        ids += output.outputs[0].token_ids
    return ids


async def until_idle(client: TextClient) -> None:
    """Wait for the core to have nothing to do; fails after a bounded number of looks."""
    for _ in range(400):
        stats = await client._client.call("stats")
        if stats.num_running == stats.num_waiting == 0 and stats.kv_usage == 0.0:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"still busy: {stats}")


def test_many_at_once_get_what_each_gets_alone(make_client):
    client, _ = make_client(max_num_seqs=3)
    prompts = [[i + 1, 7, i] for i in range(10)]

    async def main():
        return await asyncio.gather(*(collect(client, p, str(i)) for i, p in enumerate(prompts)))

    got = asyncio.run(main())
    client.shutdown()
    assert [len(ids) for ids in got] == [40] * 10
    assert len({tuple(ids) for ids in got}) > 1


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_closed_stream_frees_its_request(make_client, after):
    client, _ = make_client(max_num_seqs=1)

    async def main():
        long = client.generate({"prompt_token_ids": [1, 2]}, PARAMS.replace(max_tokens=200), request_id="long")
        waiting = asyncio.create_task(collect(client, [3, 4], "next"))
        if after == 0:
            task = asyncio.ensure_future(anext(long))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        for _ in range(after):
            await anext(long)
        await long.aclose()
        assert len(await waiting) == 40
        await until_idle(client)

    asyncio.run(main())


def test_an_id_can_be_used_again_and_a_late_abort_of_the_old_one_is_harmless(make_client):
    client, llm = make_client()

    async def main():
        first = client.generate({"prompt_token_ids": [1]}, PARAMS, request_id="same")
        await anext(first)
        with pytest.raises(ValueError, match="in use"):
            await collect(client, [2], "same")
        old = list(llm.core.scheduler._lifecycle.requests)
        await first.aclose()
        second = asyncio.create_task(collect(client, [2], "same"))
        await asyncio.sleep(0)
        await client._client.abort(old)
        assert len(await second) == 40

    asyncio.run(main())


def test_bad_requests_fail_at_once_and_disturb_nobody(make_client):
    client, _ = make_client()

    async def main():
        good = asyncio.create_task(collect(client, [1, 2], "good"))
        for prompt in ([], [259_000], [-1], [1] * 256):
            with pytest.raises(ValueError, match=r"prompt|token"):
                client.generate({"prompt_token_ids": prompt}, PARAMS, request_id="bad")
        assert len(await good) == 40

    asyncio.run(main())


def test_a_dead_core_ends_every_stream_with_the_reason(make_client):
    client, llm = make_client()

    def broken(*_):
        raise RuntimeError("planted: device lost")

    async def main():
        stream = client.generate({"prompt_token_ids": [1]}, PARAMS, request_id="a")
        await anext(stream)
        llm.core.executor._runner.execute = broken
        llm.core.executor._runner.check_health = broken
        with pytest.raises(EngineDeadError, match="device lost"):
            async for _ in stream:
                pass
        assert "device lost" in client.dead
        with pytest.raises(EngineDeadError):
            await collect(client, [1], "b")

    asyncio.run(main())


def test_shutdown_twice_and_call_between_steps(make_client):
    client, _ = make_client()

    async def main():
        assert await client._client.call("call", "check_health") == [True]
        with pytest.raises(AttributeError):
            await client._client.call("no_such_method")

    asyncio.run(main())
    client.shutdown()
    client.shutdown()


def test_an_abort_from_elsewhere_ends_the_stream(make_client):
    client, _ = make_client()

    async def main():
        stream = client.generate({"prompt_token_ids": [1]}, PARAMS.replace(max_tokens=200), request_id="a")
        await anext(stream)
        await client.abort("a")
        await client.abort("a")
        rest = [output async for output in stream]
        assert rest[-1].finished
        assert rest[-1].outputs[0].finish_reason == "abort"
        await until_idle(client)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["ended", "aborted"])
def test_an_id_is_free_when_its_request_has_ended_though_the_old_stream_is_unread(make_client, how):
    client, _ = make_client()

    async def main():
        old = client.generate({"prompt_token_ids": [1]}, PARAMS.replace(max_tokens=5), request_id="same")
        await anext(old)
        if how == "aborted":
            await client.abort("same")
        await until_idle(client)
        new = asyncio.create_task(collect(client, [2], "same"))
        await asyncio.sleep(0)
        if how == "aborted":
            await old.aclose()
        else:
            assert [output.finished async for output in old][-1]
        assert len(await asyncio.wait_for(new, 20)) == 40

    asyncio.run(main())


def test_shutdown_ends_what_is_in_flight_and_what_comes_later(make_client):
    client, _ = make_client()

    async def main():
        waiting = asyncio.create_task(collect(client, [1], "a", PARAMS.replace(max_tokens=250)))
        await asyncio.sleep(0.05)
        client.shutdown()
        with pytest.raises(EngineDeadError, match="shut down"):
            await asyncio.wait_for(waiting, 20)
        with pytest.raises(EngineDeadError, match="shut down"):
            await asyncio.wait_for(collect(client, [1], "b"), 20)
        for asking in (client.call("stats"), client.stats()):
            with pytest.raises(EngineDeadError, match="shut down"):
                await asyncio.wait_for(asking, 20)

    asyncio.run(main())


def test_another_event_loop_is_told_so(make_client):
    client, _ = make_client()
    assert len(asyncio.run(collect(client, [1], "a"))) == 40
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(collect(client, [1], "b"))


def test_what_the_core_cannot_take_ends_that_request_alone(make_client, monkeypatch):
    """Whatever it raises: a hook, or a queue that cannot compare."""
    client, llm = make_client()
    add = llm.core.add_request

    def picky(request):
        if request.prompt_ids == [9]:
            raise TypeError("planted: '<' not supported")
        add(request)

    monkeypatch.setattr(llm.core, "add_request", picky)

    async def main():
        good = asyncio.create_task(collect(client, [1], "good"))
        async for output in client.generate({"prompt_token_ids": [9]}, PARAMS, request_id="bad"):
            assert output.outputs[0].finish_reason == "error"
            assert "TypeError: planted" in output.outputs[0].error
        assert len(await good) == 40

    asyncio.run(main())


@pytest.mark.parametrize("when", ["now", float("nan"), float("inf"), [1.0]])
def test_an_arrival_time_is_a_number(make_client, when):
    client, _ = make_client()
    with pytest.raises(ValueError, match="arrival_time"):
        client.generate({"prompt_token_ids": [1]}, PARAMS, request_id="a", arrival_time=when)


@pytest.mark.parametrize("params", [None, {"max_tokens": 3}, "greedy"])
def test_parameters_have_their_type(make_client, params):
    client, llm = make_client()
    with pytest.raises(ValueError, match="SamplingParams"):
        client.generate({"prompt_token_ids": [1]}, params, request_id="a")
    if params is not None:
        with pytest.raises(ValueError, match="sampling_params"):
            llm.generate([[1]], params)


def test_statistics_never_show_half_a_change(make_client):
    """They are read by another thread than the one that changes them."""
    client, _ = make_client(max_num_seqs=2)

    async def main():
        requests = [asyncio.create_task(collect(client, [i], str(i), PARAMS.replace(max_tokens=3))) for i in range(60)]
        while not all(request.done() for request in requests):
            stats = await client.stats()
            assert min(stats.num_waiting, stats.num_running) >= 0
            await asyncio.sleep(0)

    asyncio.run(main())
