"""A class of thirty learners, five in browsers and twenty-five by WebSocket: isolated, asleep and awake, and stuck."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from browser import GuardedContext
from class_server import ClassServer, joined
from page_client import PageTab, enter, open_tab, page_request
from page_cluster import page_files
from playwright.sync_api import expect

BROWSERS, SOCKETS = 5, 25
Result = TypeVar("Result")
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClassServer]:
    if page_files() is None:
        pytest.skip("the page is not built")
    server = ClassServer(BROWSERS + SOCKETS, "--sleep-after", "1")
    try:
        yield server
    finally:
        server.stop()


class Background:
    """Runs coroutines in another thread: the interface of the browser keeps an event loop in this one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __call__(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.stop()


class Learner:
    """A learner without a browser."""

    def __init__(self, class_: ClassServer, name: str) -> None:
        self.name = name
        self._origin = class_.origin
        body = {"code": class_.join_link.partition("#class-")[2], "nickname": name}
        sent = {"Origin": class_.origin, "Content-Type": "application/json"}
        status, _, answer = page_request(self._origin, "POST", "/class/v1/join", sent, json.dumps(body).encode())
        assert status == 201, answer
        found = json.loads(answer)
        self.seat, self._key = str(found["seat"]), str(found["key"])
        self._open = AsyncExitStack()

    async def come(self) -> PageTab:
        """Open a tab."""
        tab, _ = await self._open.enter_async_context(open_tab(self._origin, self._key))
        return tab

    async def leave(self) -> None:
        await self._open.aclose()

    async def work(self) -> None:
        """Create an object and a file."""
        tab = await self.come()
        made = await tab.request(CONFIG_MAPS, "POST", body={"metadata": {"name": self.name}})
        assert made["status"] == 201, made
        await self._terminal(tab, f"echo {self.name} > mine.txt")
        await self.leave()

    async def find(self) -> tuple[set[str], str]:
        """Return the names of the objects and the content of the file."""
        tab = await self.come()
        found = await tab.request(CONFIG_MAPS)
        text = await self._terminal(tab, "cat *.txt")
        await self.leave()
        return {each["metadata"]["name"] for each in found["body"]["items"]}, text

    async def _terminal(self, tab: PageTab, line: str) -> str:
        tab.open(2, "terminal", size=[80, 24])
        await tab.until(2, "prompt")
        tab.send(2, "say", data={"line": line})
        return "".join(each.get("output", "") for each in (await tab.until(2, "prompt"))[1])

    async def take_a_lesson(self) -> None:
        tab = await self.come()
        tab.open(3, "lesson", lesson="loop")
        await tab.until(3, "checks")


async def all_of(work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*work)


async def states(origin: str, key: str, asleep: set[str]) -> dict[str, str]:
    """Return the states of all seats, as soon as these sleep."""
    found: dict[str, str] = {}
    async with asyncio.timeout(20), open_tab(origin, key) as (tab, _):
        tab.open(1, "class")
        while not asleep or not {found.get(each) for each in asleep} <= {"asleep"}:
            message = await tab.receive()
            assert message is not None
            items = message.get("set", {})
            found |= {seat: item["state"] for seat, item in items.items() if "state" in item}
    return found


@pytest.mark.slow
def test_thirty_learners(
    cluster: ClassServer, new_context: Callable[..., GuardedContext], background: Background
) -> None:
    began = time.time()
    stuck, *others = [Learner(cluster, f"learner-{number}") for number in range(SOCKETS - 1)]
    away = Learner(cluster, "<img src=x onerror=window.__canary=1>")
    background(all_of([each.work() for each in others]))
    background(all_of([stuck.take_a_lesson(), away.take_a_lesson()]))
    background(away.leave())

    # In browsers: one learner creates something, and no other one has it.
    pages = [joined(new_context(), cluster.join_link, f"browser-{number}") for number in range(BROWSERS)]
    for page in pages:
        page.page.wait_for_selector(".frame")
    pages[0].get_by_role("button", name="Create the example").click()
    pages[0].until_text("web-")
    for page in pages[1:]:
        expect(page.get_by_text("Nothing runs here yet")).to_be_visible()

    # Clusters that nobody uses sleep, and those with an open page do not. Objects and files are there afterwards.
    key = enter(cluster.teacher_link)
    sleeping = {each.seat for each in others}
    found = background(states(cluster.origin, key, sleeping))
    assert len(found) == BROWSERS + SOCKETS
    assert sum(state == "live" for seat, state in found.items() if seat not in sleeping) >= BROWSERS + 1
    results = background(all_of([each.find() for each in others]))
    assert results == [({each.name}, f"{each.name}\n") for each in others]

    # The teacher sees who is stuck: at a lesson, with an open page, without a step for minutes.
    context = new_context()
    context.context.add_init_script(f"if (location.protocol === 'http:') localStorage.setItem('setpoint.key', '{key}')")
    teacher = context.new_page()
    teacher.page.clock.set_fixed_time(datetime.fromtimestamp(began) + timedelta(minutes=4, seconds=40))
    teacher.enter(f"{cluster.origin}/#/class")
    rows = teacher.page.locator(".class-seats tbody tr")
    expect(rows).to_have_count(BROWSERS + SOCKETS)
    expect(rows.filter(has_text="stuck: no step for 4m")).to_have_count(1)
    # Before those who have begun no lesson.
    expect(rows.first).to_contain_text("stuck: no step for 4m")
    expect(rows.first.get_by_role("rowheader")).to_have_text(stuck.name)
    assert "away" in rows.filter(has=teacher.get_by_role("rowheader", name=away.name, exact=True)).inner_text()
    assert teacher.evaluate("window.__canary === undefined"), "names are text"
    background(stuck.leave())
    expect(rows.filter(has_text="stuck:")).to_have_count(0)
