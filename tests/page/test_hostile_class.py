"""Names and commands of learners, messages of the teacher and titles of lessons are text, and no formula."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from browser import GuardedContext, GuardedPage
from class_server import ClassServer, joined
from effort import tries
from hostile_page import assert_harmless, assert_shown, parcels, shown
from hostile_texts import hostile_texts
from page_client import enter, open_tab, page_request
from page_cluster import page_files

TEXTS = [text.strip() for text in hostile_texts()]
MOST = 40
"""Characters of the name of a learner."""
FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "\u200b=1",
    "＝1+1",
    '=HYPERLINK("//a.invalid")',
    "|x",
    "%0A=1",
]


def name_of(text: str) -> str:
    """Return the text as the server takes it for a name: cut, and without what cannot be printed."""
    return " ".join("".join(each for each in text if each.isprintable()).split())[:MOST].strip()


NAMES = list({name_of(text).casefold(): name_of(text) for text in [*FORMULAS, *TEXTS] if name_of(text)}.values())


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClassServer]:
    if page_files() is None:
        pytest.skip("the page is not built")
    server = ClassServer(len(NAMES) + 5)
    try:
        yield server
    finally:
        server.stop()


def join(server: ClassServer, nickname: str) -> tuple[int, dict[str, str]]:
    code = server.join_link.partition("#class-")[2]
    body = json.dumps({"code": code, "nickname": nickname}).encode()
    status, _, answer = page_request(server.origin, "POST", "/class/v1/join", {"Origin": server.origin}, body)
    return status, json.loads(answer)


@pytest.fixture(scope="module")
def keys(cluster: ClassServer) -> dict[str, str]:
    """The keys of learners by their names."""
    found = {}
    for name in NAMES:
        status, answer = join(cluster, name)
        assert status == 201 and answer["user"] == name, answer
        found[name] = answer["key"]
    return found


@pytest.fixture(scope="module")
def teacher(cluster: ClassServer) -> str:
    """The key of the teacher, whose link works once."""
    return enter(cluster.teacher_link)


def board(server: ClassServer, context: GuardedContext, key: str) -> GuardedPage:
    """Return the page of somebody with this key: the board, or the cluster of a learner."""
    entered = (
        f"if (location.origin === {json.dumps(server.origin)}) localStorage.setItem('setpoint.key', {json.dumps(key)})"
    )
    context.context.add_init_script(entered)
    page = context.new_page()
    page.page.goto(server.origin)
    page.page.wait_for_selector(".frame")
    return page


def test_names_that_are_refused(
    cluster: ClassServer, keys: dict[str, str], new_context: Callable[..., GuardedContext]
) -> None:
    """The refusal of a name that is taken contains it."""
    context = new_context()
    context.allowed.append("409")  # the browser reports the refusals below
    page = joined(context, cluster.join_link, NAMES[0])
    for name in NAMES[:: max(1, len(NAMES) // 30)]:
        page.get_by_label("Your name").fill(name)
        page.keyboard.press("Enter")
        page.until(f"document.body.textContent.includes({json.dumps(f'Another learner is called {name} already.')})", 5)
    assert_harmless(page)


def test_the_board(
    cluster: ClassServer, keys: dict[str, str], teacher: str, new_context: Callable[..., GuardedContext]
) -> None:
    page = board(cluster, new_context(), teacher)
    rows = page.locator(".class-seats tbody tr")
    rows.nth(len(NAMES) - 1).wait_for()
    assert set(page.locator(".class-seats th[scope=row]").all_text_contents()) >= set(NAMES)
    assert_harmless(page)
    labels = page.evaluate("[...document.querySelectorAll('.class-actions button')].map((one) => one.ariaLabel)")
    assert {f"Look at the cluster of {name}" for name in NAMES} <= set(labels)
    rows.filter(has_text=NAMES[-1]).first.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").wait_for()
    assert_harmless(page)
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.until("document.querySelector('.toast')?.textContent.includes('has left the class.')")
    assert_harmless(page)


async def type_lines(origin: str, keys: list[str], lines: list[str]) -> None:
    """Type a line into a terminal of each learner."""
    for key, line in zip(keys, lines, strict=True):
        async with asyncio.timeout(30), open_tab(origin, key) as (tab, _):
            tab.open(1, "terminal", size=[100, 40])
            await tab.until(1, "prompt")
            tab.send(1, "say", data={"line": f"{line} "})
            await tab.until(1, "prompt", "more")


def test_commands_and_the_exported_board(
    cluster: ClassServer, keys: dict[str, str], teacher: str, new_context: Callable[..., GuardedContext], tmp_path: Path
) -> None:
    """The board shows what learners typed last. A spreadsheet takes no cell of the exported one for a formula."""
    # A comment is complete whatever quotes it has.
    lines = [*FORMULAS, *(f"# {text}" for text in parcels(195, TEXTS))]
    learners = NAMES[: len(lines)]
    with ThreadPoolExecutor(1) as thread:  # the interface of the browser keeps an event loop in this one
        thread.submit(asyncio.run, type_lines(cluster.origin, [keys[name] for name in learners], lines)).result()
    page = board(cluster, new_context(), teacher)
    page.locator(".class-seats code").nth(len(lines) - 1).wait_for()
    assert_shown("".join(page.locator(".class-seats code").all_text_contents()), [text[:195] for text in TEXTS])
    assert_harmless(page)
    with page.page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "class.csv")
    with open(tmp_path / "class.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert {len(row) for row in rows} == {6}
    assert {name for row in rows for name in (row[0], row[0].removeprefix("'"))} >= set(learners)
    formulas = re.compile(r"[\s\u200b]*[=+\-@|%＝＋－＠]|[\t\r\n]")
    assert [cell for row in rows for cell in row if formulas.match(cell)] == []
    assert {cell.removeprefix("'").strip() for row in rows for cell in row} >= {each.strip() for each in FORMULAS}


def test_messages_of_the_teacher(
    cluster: ClassServer, keys: dict[str, str], teacher: str, new_context: Callable[..., GuardedContext]
) -> None:
    """They are shown to learners, whose names and clusters these are."""
    learner = board(cluster, new_context(), keys[NAMES[0]])
    learner.guard.allowed.append("the layout shifted")  # messages in quick succession push each other away
    page = board(cluster, new_context(), teacher)
    for message in parcels(300, TEXTS):
        page.get_by_label("Message to everyone").fill(message)
        page.keyboard.press("Enter")
        last = json.dumps(shown(message.split("  ")[-1]))
        learner.until(f"[...document.querySelectorAll('.toast')].some((one) => one.textContent.includes({last}))")
        assert_shown("".join(learner.locator(".toast").all_text_contents()), message.split("  "))
        assert_harmless(learner)


def test_names_on_the_pages_of_learners(
    cluster: ClassServer, keys: dict[str, str], new_context: Callable[..., GuardedContext]
) -> None:
    """The server names the learner when a tab begins."""
    for name in NAMES[:: max(1, len(NAMES) // tries(5, len(NAMES)))]:
        page = board(cluster, new_context(), keys[name])
        page.until(f"document.querySelector('#namespace').title.includes({json.dumps(name)})")
        assert_harmless(page)
