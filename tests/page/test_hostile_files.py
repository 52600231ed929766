"""Names and contents of files are text: in the list of files, in the editor, and in the terminal."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from posixpath import normpath

import pytest
from browser import GuardedPage
from hostile_page import assert_harmless, assert_shown, parcels
from hostile_texts import hostile_texts
from page_client import open_tab
from page_cluster import PageCluster
from page_typist import Typist

from setpoint.view.terminal_text import TerminalFilter

TEXTS = [text.strip()[:500] for text in hostile_texts()]
NAMES = parcels(1_000, TEXTS)
CLEARING = "clears\x1b[2J\x1b[H\u202ethe\x9b2Jscreen"
"""The name of a file that a terminal would obey."""
LINES = parcels(800, TEXTS)
ALL = "".join(f"{line}\n" for line in LINES)
COLOUR = re.compile(r"\x1b\[\d*m")
HOME = "/home/user"


def joined(text: str) -> str:
    """Return a text without white space: a line of a terminal that is wrapped at a blank does not have it."""
    return "".join(text.split())


def path_of(name: str) -> str:
    return normpath(f"{HOME}/{name}")


async def write_files(origin: str, key: str, texts: dict[str, str]) -> None:
    async with asyncio.timeout(30), open_tab(origin, key) as (tab, _):
        tab.open(1, "editor")
        for number, (path, text) in enumerate(texts.items(), 1):
            tab.send(1, "say", data={"id": number, "do": "write", "path": path, "text": text})
            answer, _ = await tab.until(1, "id")
            assert answer == {"id": number, "saved": True}


@pytest.fixture
def with_files(cluster: PageCluster, page: GuardedPage) -> GuardedPage:
    """A page whose user has files with these names and contents."""
    key = page.session_key()
    texts = {path_of(name): name for name in NAMES} | {
        path_of(CLEARING): "text\n",
        f"{HOME}/all.txt": ALL,
        f"{HOME}/cleat": "",
    }
    with ThreadPoolExecutor(1) as thread:  # the interface of the browser keeps an event loop in this one
        thread.submit(asyncio.run, write_files(cluster.origin, key, texts)).result()
    page.go("#/objects/configmaps?ns=default")
    return page


def test_the_list_of_files_and_the_editor(with_files: GuardedPage) -> None:
    page = with_files
    page.get_by_role("button", name="Editor", exact=True).click()
    files = page.locator(".editor-files .link")
    files.nth(len(NAMES) + 2).wait_for()
    paths = [path_of(name).removeprefix(f"{HOME}/") for name in NAMES]
    assert_shown("\n".join(files.all_text_contents()), [*paths, CLEARING])
    assert_harmless(page)
    for number in range(files.count()):
        files.nth(number).click()
        field = page.locator(".editor-field")
        field.wait_for()
        text = field.input_value()
        assert text in (*NAMES, "text\n", ALL, "")
        assert_shown(page.locator(".editor-backdrop").text_content() or "", text.split("\n")[:3])
        page.keyboard.type("x")
        page.get_by_role("tab", name="Difference").click()
        page.locator(".diff-added").first.wait_for()
        assert_harmless(page)
        page.press("Escape")
        page.get_by_role("button", name="Close (Ctrl-X)").click()
        page.get_by_role("dialog").get_by_role("button", name="Close without saving").click()
        page.get_by_role("button", name="Editor", exact=True).click()
        files.nth(len(NAMES) + 2).wait_for()


def test_files_in_the_terminal(with_files: GuardedPage) -> None:
    page = with_files
    title = page.page.title()
    typist = Typist(page).open()
    for number, line in enumerate(LINES, 1):
        printed = typist.line(f"head -n {number} all.txt | tail -n 1")
        texts = [COLOUR.sub("", TerminalFilter().filtered(text)) for text in line.split("  ")]
        assert [text for text in texts if joined(text) not in joined(printed)] == []
    typist.line("ls; cat *")
    assert_harmless(page)
    assert page.page.title() == title


def test_completion_of_names_that_a_terminal_would_obey(with_files: GuardedPage) -> None:
    """A second Tab lists them, and a Tab puts one on the line: with marks in the place of control characters."""
    page = with_files
    typist = Typist(page).open()
    assert typist.line("echo before") == "before"
    mark = "clears␛[2J␛[H\ufffdthe\ufffd2Jscreen"
    page.keyboard.type("cat clea")
    page.press("Tab", "Tab")
    typist.until(f"{mark}  cleat")
    shown = typist.shown()
    assert "before" in shown, "the screen was not cleared"
    page.keyboard.type("rs")
    page.press("Tab")
    typist.until(f"cat '{mark}'")
    page.press("Enter")
    typist.until_prompt()
    assert "before" in typist.shown()
    page.keyboard.type("nano clears")
    page.press("Tab")
    typist.until(f"nano '{mark}'")
    page.press("Enter")
    name = page.locator(".editor-name")
    name.wait_for()
    assert_shown(name.text_content() or "", [CLEARING])
    typist.until("Ctrl-C here closes it.")
    assert "before" in typist.shown()
    assert_harmless(page)
