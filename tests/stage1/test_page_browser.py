"""The server's page in a real browser: it streams, stops, explains, draws, and lets no text become markup."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.live import live_router
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client
from stage1.trace.sinks import LiveFeed

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 2048, "dtype": "float32", "max_num_seqs": 2}
QUIET = ServerConfig(port=0, uvicorn_log_level="critical", disable_uvicorn_access_log=True)
HOSTILE = "</p><img src=x onerror=\"alert('text')\"><script>alert(1)</script>"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    feed = LiveFeed()
    client = start_client(Settings.from_keywords(CONFIGS, TINY), (feed,))
    try:
        with serve_in_thread(client, [live_router(feed)], config=QUIET, parts={"sampler": "yours"}) as url:
            yield url
    finally:
        client.shutdown()


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_locator

    return expect_locator(locator)


def api(url: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/completions", json=body, verify=False, timeout=30)
    parsed: dict[str, Any] = answer.raise_for_status().json()
    return parsed


def fill(page: Any, **values: Any) -> None:
    """Fill fields by id; those under More are opened first."""
    page.evaluate("document.querySelector('details').open = true")
    for name, value in values.items():
        page.fill(f"#{name}", str(value))


def picture(page: Any, name: str) -> str:
    """What a canvas shows."""
    shown: str = page.evaluate("(name) => document.getElementById(name).toDataURL()", name)
    return shown


def scripted(page: Any, *events: object, path: str = "/v1/completions") -> None:
    """Answers the next requests with a stream of ``events`` instead of the server's."""
    stream = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    page.route(f"**{path}", lambda route: route.fulfill(status=200, content_type="text/event-stream", body=stream))


def chunk(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "token_ids": [1], "finish_reason": reason, "stop_reason": None}]}


def test_a_prompt_is_continued_as_it_comes(browser: Any, url: str) -> None:
    """The text is the API's and comes in pieces; the numbers and the live picture follow."""

    def act(page: Any) -> Any:
        page.goto(url)
        expect(page.locator("#about")).to_contain_text("stage 1 · tiny · up to 2,048 tokens")
        expect(page.locator("#parts li.yours")).to_have_text("sampler: yours")
        before = [picture(page, name) for name in ("timeline", "mask", "life")]
        fill(page, prompt="abc", max_tokens=40)
        page.check("#ignore_eos")
        page.press("#prompt", "Control+Enter")
        expect(page.locator("#reason")).to_have_text("length")
        expect(page.locator("#count")).to_have_text("40")
        expect(page.locator("#ttft")).to_have_text(re.compile(r"^[\d,]+ ms$"))
        expect(page.locator("#speed")).to_have_text(re.compile(r"^\d+\.\d$"))
        expect(page.locator("#running_now")).to_have_text("0")
        expect(page.locator("#step_table td").nth(1)).to_have_text("1: position 42")
        expect(page.locator("#life_numbers")).to_contain_text("40 tokens")
        expect(page.locator("#block_note")).to_contain_text("0 of 2 blocks")
        assert not set(before) & {picture(page, name) for name in ("timeline", "mask", "life")}
        assert page.locator("#output .given").text_content() == "abc"
        return page.locator("#output .token").all_text_contents()

    pieces = browser.run(act)
    asked = {"prompt": "abc", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    assert "".join(pieces) == api(url, **asked)["choices"][0]["text"]
    assert len(pieces) > 5


def test_stop_aborts(browser: Any, url: str) -> None:
    """The engine is free again long before the 2,000 tokens that were asked for."""

    def act(page: Any) -> None:
        page.goto(url)
        fill(page, max_tokens=2000)
        page.check("#ignore_eos")
        expect(page.locator("#stop_button")).to_be_disabled()
        page.click("#generate")
        expect(page.locator("#output .token").nth(3)).to_be_attached()
        expect(page.locator("#generate")).to_be_disabled()
        page.click("#stop_button")
        expect(page.locator("#reason")).to_have_text("you")
        expect(page.locator("#generate")).to_be_enabled()
        assert 0 < int(page.text_content("#count").replace(",", "")) < 2000
        expect(page.locator("#life_numbers")).to_contain_text("abort")

    browser.run(act)
    deadline = time.monotonic() + 5
    while httpx.get(f"{url}/status", verify=False).json()["num_running"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert httpx.get(f"{url}/status", verify=False).json()["num_running"] == 0


def test_what_the_server_refuses_is_said_and_the_next_request_works(browser: Any, url: str) -> None:
    def act(page: Any) -> None:
        page.goto(url)
        fill(page, n=2)
        page.click("#generate")
        expect(page.locator("#error")).to_be_visible()
        expect(page.locator("#error")).to_contain_text("n must be 1")
        fill(page, n="", max_tokens=3)
        page.click("#generate")
        expect(page.locator("#error")).to_be_hidden()
        expect(page.locator("#count")).to_have_text("3")

    browser.run(act, expected=["status of 400"])


def test_text_is_never_markup(browser: Any, url: str) -> None:
    """A hostile reply is shown as it is; an error in the middle of a stream leaves what came and is shown, too."""

    def act(page: Any) -> None:
        page.goto(url)
        scripted(page, chunk("one "), chunk(HOSTILE), {"error": {"message": HOSTILE}})
        page.click("#generate")
        expect(page.locator("#error")).to_have_text(HOSTILE)
        assert page.locator("#output .token").all_text_contents() == ["one ", HOSTILE]
        assert page.locator("#output img, #output script, #error img").count() == 0
        expect(page.locator("#generate")).to_be_enabled()

    browser.run(act)


def test_request_ids_of_others_are_shown_safely(browser: Any, url: str) -> None:
    """Whoever may send requests names them: an id may be markup, or a name that every object has."""
    names = ["<img/src=x/onerror=alert(1)>", "constructor", "__proto__"]

    def act(page: Any) -> None:
        page.goto(url)
        for name in names:
            api(url, prompt="a", max_tokens=2, request_id=name)
            expect(page.locator("#life_title")).to_have_attribute("title", re.compile(re.escape(name)))
        assert page.locator("#step_table td").first.get_attribute("title").startswith("cmpl-__proto__")
        assert page.locator("section img, section script").count() == 0

    browser.run(act)


def test_a_conversation(browser: Any, url: str) -> None:
    """A turn moves into the conversation, and the next request carries it."""

    def act(page: Any) -> list[dict[str, Any]]:
        page.goto(url)
        bodies: list[dict[str, Any]] = []

        def answer(route: Any) -> None:
            bodies.append(route.request.post_data_json)
            event = {"choices": [{"index": 0, "delta": {"content": f"reply {len(bodies)}"}, "finish_reason": "stop"}]}
            route.fulfill(content_type="text/event-stream", body=f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n")

        page.route("**/v1/chat/completions", answer)
        page.check("input[value=chat]", force=True)
        for turn in ("hello", "and now?"):
            page.fill("#prompt", turn)
            page.click("#generate")
            expect(page.locator("#prompt")).to_have_value("")
        bubbles = page.locator("#history .bubble").all_text_contents()
        assert bubbles == ["hello", "reply 1", "and now?", "reply 2"]
        page.click("#clear")
        assert page.locator("#history .bubble").count() == 0
        return bodies

    first, second = browser.run(act)
    assert first["messages"] == [{"role": "user", "content": "hello"}]
    assert [message["content"] for message in second["messages"]] == ["hello", "reply 1", "and now?"]


def test_any_step_can_be_looked_at_with_the_keyboard(browser: Any, url: str) -> None:
    def act(page: Any) -> None:
        page.goto(url)
        fill(page, prompt="abcdef", max_tokens=12)
        page.check("#ignore_eos")
        page.click("#generate")
        expect(page.locator("#reason")).to_have_text("length")
        expect(page.locator("#step_table td").nth(1)).to_have_text("1: position 17")
        newest = int(page.get_attribute("#timeline", "aria-valuenow"))
        page.focus("#timeline")
        for _ in range(11):
            page.keyboard.press("ArrowLeft")
        expect(page.locator("#timeline")).to_have_attribute("aria-valuenow", str(newest - 11))
        expect(page.locator("#step_table td").nth(1)).to_have_text("7: positions 0 to 6")
        expect(page.locator("#mask_note")).to_contain_text("7 query tokens of 1 request over 7 keys: 28 pairs of 49")
        expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")
        page.click("#follow")
        expect(page.locator("#timeline")).to_have_attribute("aria-valuenow", str(newest))

    browser.run(act)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen(browser: Any, url: str, scheme: str) -> None:
    """Nothing is wider than 360 pixels, whatever is written, and the colours follow the scheme."""

    def act(page: Any) -> tuple[int, str]:
        page.goto(url)
        page.fill("#prompt", "W" * 300)
        scripted(page, chunk("M" * 500), chunk("", "length"), "[DONE]")
        page.click("#generate")
        expect(page.locator("#reason")).to_have_text("length")
        assert page.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.getElementById('output'))")
        width: int = page.evaluate("document.documentElement.scrollWidth")
        ground: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return width, ground

    width, ground = browser.run(act, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    assert width == 360
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3]))
    assert brightness > 600 if scheme == "light" else brightness < 150


@pytest.mark.parametrize(
    ("status", "words"),
    [({"dead": "CUDA out of memory"}, "engine stopped: CUDA out of memory"), (None, "server not reachable")],
    ids=["dead engine", "no server"],
)
def test_trouble_shows_in_the_header(browser: Any, url: str, status: dict[str, Any] | None, words: str) -> None:
    base = {"stage": 1, "model": "m", "max_model_len": 8, "parts": []}
    answer: Callable[[Any], None] = lambda route: route.fulfill(json=base | status) if status else route.abort()  # noqa: E731

    def act(page: Any) -> None:
        page.route("**/status", answer)
        page.goto(url)
        expect(page.locator("#health")).to_have_text(words)
        expect(page.locator("#health")).to_have_class("health down")

    browser.run(act, expected=["Failed to load resource"])
