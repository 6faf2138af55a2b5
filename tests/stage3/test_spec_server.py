"""What a server says of speculation and of its prefix cache: /metrics, /status and the page tell the same."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.live import live_router
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client
from stage1.trace.sinks import LiveFeed
from stage3.build import CONFIGS, build
from stage3.llm import supported

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 256, "dtype": "float32", "block_size": 8}
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}'
QUIET = ServerConfig(port=0, uvicorn_log_level="critical", disable_uvicorn_access_log=True)
LOOP = [5, 6, 7, 8, 9, 10, 11] * 6
DRAFTS, TOKENS, ACCEPTED, PLACES = (
    f"vllm:spec_decode_num_{name}_total"
    for name in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
)
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')
Metrics = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh server, so that every figure begins at 0; a test may name its settings."""
    settings = Settings.from_keywords(CONFIGS, {**TINY, **getattr(request, "param", {"speculative_config": NGRAM})})
    feed = LiveFeed()
    client = start_client(settings, (feed,), build_core=build, supported=supported(settings), stage=3)
    try:
        with serve_in_thread(client, [live_router(feed)], config=QUIET) as url:
            yield url
    finally:
        client.shutdown()


def complete(url: str, **body: Any) -> dict[str, Any]:
    body = {"prompt": LOOP, "max_tokens": 40, "temperature": 0, "ignore_eos": True, **body}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    parsed: dict[str, Any] = answer.raise_for_status().json()
    return parsed


def metrics(url: str) -> Metrics:
    """Every sample by name, from text that keeps the rules: each family's HELP and TYPE, then its samples, once."""
    text = httpx.get(f"{url}/metrics").raise_for_status().text
    assert text.endswith("\n")
    families: Metrics = {}
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in families, "a family twice"
            kind = next(lines).removeprefix(f"# TYPE {name} ")
            assert kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
            families[name] = []
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] == name, "a sample outside its family"
        families[name].append((dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2])), float(match[3])))
    assert all(math.isfinite(value) for samples in families.values() for _, value in samples)
    return families


def value(found: Metrics, name: str) -> float:
    ((labels, number),) = found[name]
    assert labels == {"model_name": "tiny", "engine": "0"}
    return number


def by_place(found: Metrics) -> list[float]:
    labels = [labels for labels, _ in found[PLACES]]
    assert labels == [{"model_name": "tiny", "engine": "0", "position": str(i)} for i in range(len(labels))]
    return [number for _, number in found[PLACES]]


def test_the_counters_of_speculation_move_and_agree(url: str) -> None:
    before = metrics(url)
    assert [value(before, name) for name in (DRAFTS, TOKENS, ACCEPTED)] == [0, 0, 0]
    assert by_place(before) == [0, 0, 0, 0]
    last = before
    for _ in range(3):
        answer = complete(url)
        assert answer["usage"]["completion_tokens"] == 40
        now = metrics(url)
        for name in (DRAFTS, TOKENS, ACCEPTED):
            assert value(now, name) > value(last, name)
        places = by_place(now)
        assert sum(places) == value(now, ACCEPTED) <= value(now, TOKENS)
        assert value(now, DRAFTS) <= value(now, TOKENS) <= 4 * value(now, DRAFTS)
        assert places == sorted(places, reverse=True)  # a draft stays only where the one before it did
        assert places[0] <= value(now, DRAFTS)
        last = now
    assert value(last, "vllm:prefix_cache_queries_total") == 3 * len(LOOP)
    assert value(last, "vllm:prefix_cache_hits_total") == 2 * 40  # full blocks of 8, the last token is computed


def test_the_status_tells_the_same(url: str) -> None:
    complete(url)
    complete(url)
    found, status = metrics(url), httpx.get(f"{url}/status").json()
    assert status["verifications"] == value(found, DRAFTS) > 0
    assert status["drafts"] == value(found, TOKENS)
    assert status["accepted_per_position"] == by_place(found)
    assert status["prefix_queries"] == value(found, "vllm:prefix_cache_queries_total")
    assert status["prefix_hits"] == value(found, "vllm:prefix_cache_hits_total") > 0


@pytest.mark.parametrize("url", [{}], indirect=True)
def test_without_speculation_the_counters_stand_still(url: str) -> None:
    complete(url)
    found = metrics(url)
    assert [value(found, name) for name in (DRAFTS, TOKENS, ACCEPTED)] == [0, 0, 0]
    assert found[PLACES] == []
    assert httpx.get(f"{url}/status").json()["accepted_per_position"] == []


def test_a_client_of_prometheus_reads_the_text(url: str) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    complete(url)
    text = httpx.get(f"{url}/metrics").text
    read = {s.name: s.value for family in parser.text_string_to_metric_families(text) for s in family.samples}
    ours = metrics(url)
    assert set(read) == {name for name, samples in ours.items() if samples}
    assert read[ACCEPTED] == value(ours, ACCEPTED)


# --- the page --------------------------------------------------------------------------------------------


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_locator

    return expect_locator(locator)


def pairs(page: Any, where: str) -> dict[str, str]:
    """A list of names and values, as a dictionary."""
    names, values = (page.locator(f"{where} {tag}").all_text_contents() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_the_page_shows_what_metrics_say(browser: Any, url: str) -> None:
    """Cards appear with the first draft and the first hit, bars say their value in words, and sums are the engine's."""

    def act(page: Any) -> Any:
        page.goto(url)
        complete(url, prompt=[1, 2, 3], max_tokens=1)
        expect(page.locator("#step_now")).to_have_text("1")
        expect(page.locator("#speculation")).to_be_hidden()
        expect(page.locator("#prefix")).to_be_hidden()
        complete(url)
        complete(url, request_id="last")
        found = metrics(url)
        expect(page.locator("#life_title")).to_have_attribute("title", re.compile("cmpl-last"))
        expect(page.locator("#life_numbers")).to_contain_text("length")
        expect(page.locator("#speculation")).to_be_visible()
        bars = page.locator("#speculation .bars li")
        widths = bars.locator(".part").evaluate_all(
            "parts => parts.map(part => part.offsetWidth / part.parentElement.clientWidth)"
        )
        step = page.text_content("#step_title"), page.locator("#step_table td").nth(1).text_content()
        lists = [pairs(page, where) for where in ("#speculation", "#prefix", "#life_numbers")]
        return found, lists, bars.all_inner_texts(), widths, step

    found, (speculation, prefix, life), bars, widths, step = browser.run(act)
    verifications, drafts, accepted, places = (
        *(int(value(found, name)) for name in (DRAFTS, TOKENS, ACCEPTED)),
        by_place(found),
    )
    assert speculation["verifications"] == f"{verifications:,}"
    assert speculation["drafts"] == f"{drafts:,}"
    assert speculation["stayed"].split()[0] == f"{accepted:,}"
    assert 1 < float(speculation["acceptance length"]) <= 1 + accepted / verifications + 0.005
    assert prefix["looked up"] == f"{int(value(found, 'vllm:prefix_cache_queries_total')):,}"
    assert prefix["found"] == f"{int(value(found, 'vllm:prefix_cache_hits_total')):,}"
    assert len(bars) == len(places) == 4
    for place, (bar, count) in enumerate(zip(bars, places, strict=True)):
        assert f"draft {place + 1}" in bar
        assert f"stayed: {int(count)} of {verifications} times" in bar
    assert widths == pytest.approx([count / verifications for count in places], abs=0.02)
    assert re.fullmatch(r"\d+ of \d+", life["drafts stayed"])
    assert life["from the cache"] == "40 tokens"
    assert all("draft" not in text or re.search(r"\d drafts?, \d stayed", text) for text in step)


def test_the_cards_fit_a_narrow_screen(browser: Any, url: str) -> None:
    def act(page: Any) -> int:
        page.goto(url)
        complete(url)
        complete(url)
        expect(page.locator("#speculation .bars li")).to_have_count(4)
        expect(page.locator("#prefix")).to_be_visible()
        expect(page.locator("#life_numbers")).to_contain_text("from the cache")
        width: int = page.evaluate("document.documentElement.scrollWidth")
        return width

    assert browser.run(act, viewport={"width": 360, "height": 740}) == 360
