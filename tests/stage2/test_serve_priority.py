"""Priorities from the outside: refused where nobody would look at them, obeyed where the policy asks for them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from stage1.config import Settings
from stage1.params import SamplingParams
from stage1.server.config import ServerConfig
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2 import serving
from stage2.build import build
from stage2.llm import LLM, AsyncLLM, supported

TINY: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "max_num_seqs": 1}
ONE = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
REFUSAL = r"priority .* stage 2 or later with --scheduling-policy priority"


def post(policy: str, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    """The answers of a server with this policy."""
    settings = Settings.from_keywords(serving.SERVER_CONFIGS, {**TINY, "scheduling_policy": policy})
    client = start_client(settings, build_core=build, supported=supported(settings), stage=2)
    try:
        with serve_in_thread(client, config=ServerConfig(port=0, uvicorn_log_level="critical")) as url:
            return [httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 2, **b}) for b in bodies]
    finally:
        client.shutdown()


def test_the_server_refuses_a_priority_under_first_come_first_served() -> None:
    refused, accepted = post("fcfs", [{"priority": -1}, {"priority": 0}])
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "priority"
    assert "--scheduling-policy priority" in refused.json()["error"]["message"]
    assert accepted.status_code == 200


def test_the_server_takes_one_where_the_policy_asks_for_it() -> None:
    assert [answer.status_code for answer in post("priority", [{"priority": -1}, {}])] == [200, 200]


def test_serve_hands_its_settings_to_that_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own way in, without a port: what it starts a client with."""
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(serving.serving, "serve", lambda settings, **start: started.append(start))
    for policy in ("fcfs", "priority"):
        serving.serve(Settings.from_keywords(serving.SERVER_CONFIGS, {**TINY, "scheduling_policy": policy}))
    assert ["priority" in start["supported"] for start in started] == [False, True]


def test_offline_and_asynchronous_engines_refuse_it_too() -> None:
    with LLM(**TINY) as llm, pytest.raises(ValueError, match=REFUSAL):
        llm.generate(["a", "b"], ONE, priority=[0, 1])
    engine = AsyncLLM(**TINY)
    try:
        with pytest.raises(ValueError, match=REFUSAL):
            engine.generate("a", ONE, request_id="x", priority=1)
    finally:
        engine.shutdown()


def test_the_lower_number_goes_first_offline() -> None:
    sink = MemorySink()
    with LLM(**TINY, scheduling_policy="priority", sinks=[sink]) as llm:
        outputs = llm.generate(["a", "b", "c"], ONE, priority=[1, 0, -7])
    assert [len(output.outputs[0].token_ids) for output in outputs] == [2, 2, 2]
    firsts = {req_id: life.steps[0] for req_id, life in Trace(sink.events).requests.items()}
    assert [req_id.split("-")[0] for req_id in sorted(firsts, key=firsts.__getitem__)] == ["2", "1", "0"]


def test_the_lower_number_overtakes_in_a_running_engine() -> None:
    ends: list[str] = []

    async def ask(engine: AsyncLLM, name: str, priority: int, size: int) -> None:
        params = ONE.replace(max_tokens=size)
        async for _ in engine.generate(name, params, request_id=name, priority=priority):
            pass
        ends.append(name)

    async def main() -> None:
        engine = AsyncLLM(**TINY, scheduling_policy="priority")
        try:
            first = asyncio.create_task(ask(engine, "first", 9, 40))
            await asyncio.sleep(0)
            await asyncio.gather(first, ask(engine, "late", 5, 2), ask(engine, "soon", -5, 2))
        finally:
            engine.shutdown()

    asyncio.run(main())
    assert ends.index("soon") < ends.index("late")
