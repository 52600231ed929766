"""A class in the browser: learners join with a name, the teacher sees them, sends messages and looks at a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from class_server import ClassServer, joined
from page_client import open_tab
from page_cluster import page_files
from playwright.sync_api import expect


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClassServer]:
    if page_files() is None:
        pytest.skip("the page is not built")
    server = ClassServer(6)
    try:
        yield server
    finally:
        server.stop()


def test_a_class(cluster: ClassServer, new_context: Callable[..., GuardedContext]) -> None:
    ann = joined(new_context(), cluster.join_link, "Ann")
    ann.page.wait_for_selector(".frame")
    second = new_context()
    second.allowed += ["409", "401"]  # the browser reports the refusals below
    bob = joined(second, cluster.join_link, "Ann")
    bob.until_text("Another learner is called Ann already. Choose another name.")
    assert findings(bob) == []
    bob.get_by_label("Your name").fill("Bob")
    bob.keyboard.press("Enter")
    bob.page.wait_for_selector(".frame")
    ann.get_by_role("button", name="Create the example").click()
    ann.until_text("web-")
    expect(bob.get_by_text("Nothing runs here yet")).to_be_visible()

    teacher = cluster.teacher(new_context())
    row = teacher.get_by_role("row", name="Ann")
    expect(row).to_be_visible()
    expect(teacher.get_by_role("row", name="Bob")).to_be_visible()
    assert findings(teacher) == []
    teacher.get_by_label("Message to everyone").fill("Ten minutes left")
    teacher.keyboard.press("Enter")
    ann.until_text("Your teacher: Ten minutes left")
    bob.until_text("Your teacher: Ten minutes left")

    row.get_by_role("button", name="Look").click()
    teacher.until_text("web-")
    teacher.until_text("This is the cluster of Ann: you can look, and change nothing.")
    teacher.get_by_role("button", name="Back to the class").click()
    teacher.get_by_label("Send everyone to a lesson").select_option(index=1)
    teacher.get_by_role("button", name="Send", exact=True).click()
    ann.until("location.hash.startsWith('#/learn')")
    teacher.get_by_role("row", name="Bob").get_by_role("button", name="Remove").click()
    teacher.get_by_role("dialog").get_by_role("button", name="Remove").click()
    bob.until_text("This session has ended")
    assert "setpoint page" not in bob.text(), "a learner has no such command"
    expect(teacher.get_by_role("row", name="Bob")).to_have_count(0)


BANNER = "Your teacher is looking at your cluster."


def at_seat(teacher: GuardedPage, name: str) -> GuardedPage:
    """Let a tab of the teacher look at a seat."""
    teacher.get_by_role("row", name=name).get_by_role("button", name="Look").click()
    teacher.until_text("The learner sees that you look.")
    return teacher


def test_learners_see_that_the_teacher_looks(cluster: ClassServer, new_context: Callable[..., GuardedContext]) -> None:
    """The banner comes and goes without a request of the learner, who does nothing here."""
    cat = joined(new_context(), cluster.join_link, "Cat")
    phone = joined(new_context(viewport={"width": 390, "height": 844}), cluster.join_link, "Dan")
    for learner in (cat, phone):
        learner.page.wait_for_selector(".frame")
        learner.until_text("Nothing runs here yet")
    context = new_context()
    teacher = cluster.teacher(context)
    teacher.get_by_role("row", name="Cat").wait_for()
    teacher.page.wait_for_timeout(300)  # the board itself shows nothing of a cluster
    shown = cat.get_by_role("status").filter(has_text=BANNER)
    expect(shown).to_have_count(0)

    at_seat(teacher, "Cat")
    expect(shown).to_be_visible(timeout=2_000)
    assert BANNER not in phone.text()
    assert findings(cat) == []
    # A second tab of the teacher looks too: the first one may leave.
    second = at_seat(context.new_page().enter(cluster.origin), "Cat")
    teacher.get_by_role("button", name="Back to the class").click()
    at_seat(teacher, "Dan")
    expect(phone.get_by_text(BANNER)).to_be_visible(timeout=2_000)
    phone.page.emulate_media(color_scheme="dark")
    assert findings(phone) == []
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(shown).to_be_visible()
    # A past moment has no stream that is read: the open view counts.
    second.go("#/objects/pods?ns=default&at=30&cluster=" + second.evaluate("location.hash").partition("cluster=")[2])
    second.page.wait_for_timeout(2_500)
    expect(shown).to_be_visible()
    second.page.close()
    expect(shown).to_have_count(0, timeout=4_000)
    cat.until("document.getElementById('live-polite').textContent.includes('not looking at your cluster any more')")
    expect(phone.get_by_text(BANNER)).to_be_visible()
    teacher.page.close()
    expect(phone.get_by_text(BANNER)).to_have_count(0, timeout=4_000)


_OUT_OF_SIGHT = """
[...document.querySelectorAll(".class-seats :is(th, td, button)")].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width > 1 && (box.right > innerWidth || box.left < 0);
}).map((one) => one.textContent)
"""


def test_the_board_on_a_phone(cluster: ClassServer, new_context: Callable[..., GuardedContext]) -> None:
    """The teacher walks through the room with it: each learner is a card, with everything in sight."""
    joined(new_context(), cluster.join_link, "Eve").page.wait_for_selector(".frame")
    page = cluster.teacher(new_context(viewport={"width": 390, "height": 844}, has_touch=True))
    row = page.get_by_role("row", name="Eve")
    row.get_by_role("button", name="Look").wait_for()
    assert page.evaluate(_OUT_OF_SIGHT) == []
    assert findings(page) == []


def test_the_code_can_be_typed(cluster: ClassServer, new_context: Callable[..., GuardedContext]) -> None:
    """A learner who has the address of the class, but not the whole link, types the code."""
    context = new_context()
    context.allowed.append("401")  # the browser reports the refusal below
    page = context.new_page()
    page.page.goto(cluster.origin)
    page.get_by_label("Code of the class").fill("not-the-code")
    page.get_by_label("Your name").fill("Zoe")
    page.keyboard.press("Enter")
    page.until_text("This is not the code of this class.")
    assert findings(page) == []
    page.get_by_label("Code of the class").fill(cluster.join_link.partition("#class-")[2])
    page.get_by_role("button", name="Join").click()
    page.page.wait_for_selector(".frame")
    page.until_text("Nothing runs here yet")


PODS, REPLICA_SETS = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/replicasets"


async def fight(origin: str, key: str) -> None:
    """Delete the Pods of a ReplicaSet until its loops have used their CPU time."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}
    spec = {"replicas": 100, "selector": {"matchLabels": labels}, "template": template}
    async with asyncio.timeout(60), open_tab(origin, key) as (tab, _):
        made = await tab.request(REPLICA_SETS, "POST", body={"metadata": {"name": "web"}, "spec": spec})
        assert made["status"] == 201, made
        while not (await tab.request("/setpoint/v1/loops"))["body"]["gate"]["note"]:
            await tab.request(PODS, "DELETE", query="gracePeriodSeconds=0")
            await asyncio.sleep(0.2)


def test_loops_that_rest(cluster: ClassServer, new_context: Callable[..., GuardedContext]) -> None:
    ann = joined(new_context(), cluster.join_link, "Resting")
    key = ann.session_key()
    with ThreadPoolExecutor(1) as thread:  # the interface of the browser keeps an event loop in this one
        thread.submit(asyncio.run, fight(cluster.origin, key)).result()
    ann.go("#/loops")
    ann.until_text("The control loops have used all their CPU time, which is 10 % of one core")
    assert "All loops run." not in ann.text()
    assert findings(ann) == []
