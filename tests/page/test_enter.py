"""How a browser gets in: by a link, once, and until the session ends. It needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browser import GuardedContext
from page_cluster import PageCluster
from playwright.sync_api import Browser, Route
from playwright.sync_api import Error as PlaywrightError

NewContext = Callable[..., GuardedContext]


def test_a_link_lets_one_browser_in_and_a_reload_stays_in(cluster: PageCluster, new_context: NewContext) -> None:
    link = cluster.new_link()
    page = new_context().new_page().enter(link)
    page.until_text("Pods")
    assert page.evaluate("location.href") == f"{cluster.origin}/#/"
    assert page.page.title() == "Objects · Setpoint"
    page.page.reload()
    page.until_text("Pods")
    # Nothing but the storage of the origin has the key.
    assert page.evaluate("document.cookie") == "" and page.guard.context.cookies() == []
    assert len(page.session_key()) >= 43

    other = new_context()
    other.allowed.append("401")  # the browser logs the refusal
    second = other.new_page()
    second.page.goto(link)
    second.until_text("This link was used already")
    second.until_text("setpoint page")
    assert second.evaluate("localStorage.getItem('setpoint.key')") is None
    assert second.page.locator("h1").count() == 1


def test_a_browser_with_a_session_may_open_a_used_link_again(cluster: PageCluster, new_context: NewContext) -> None:
    context = new_context()
    context.allowed.append("401")
    link = cluster.new_link()
    page = context.new_page().enter(link)
    page.page.goto("about:blank")
    page.enter(link)
    page.until_text("Pods")


def test_the_address_survives_and_history_works(cluster: PageCluster, new_context: NewContext) -> None:
    page = new_context().new_page().enter(then="#/objects/nodes")
    page.get_by_role("row", name="node-1").click()
    title = page.get_by_role("complementary").get_by_role("heading", name="node-1")
    title.wait_for()
    assert page.evaluate("location.hash").startswith("#/objects/nodes/_/node-1")
    page.page.reload()
    title.wait_for()
    page.page.go_back()
    page.until("document.querySelector('.inspector') === null")


def test_without_a_session_the_page_says_what_to_do(cluster: PageCluster, new_context: NewContext) -> None:
    page = new_context().new_page()
    page.page.goto(f"{cluster.origin}/#/objects/pods")
    page.until_text("This browser has no session")
    page.until_text("setpoint page")


def test_revoked_sessions_end_within_a_second(cluster: PageCluster, new_context: NewContext) -> None:
    context = new_context()
    context.allowed.append("401")
    page = context.new_page().enter()
    page.until_text("Pods")
    cluster.revoke()
    page.until_text("This session has ended", timeout=1.0)
    assert page.evaluate("localStorage.getItem('setpoint.key')") is None
    page.page.reload()
    page.until_text("This browser has no session")


def test_a_session_can_be_ended_in_the_browser(cluster: PageCluster, new_context: NewContext) -> None:
    page = new_context().new_page().enter()
    page.press("?")
    page.get_by_role("button", name="End this session").click()
    page.until_text("This session has ended")


def test_no_request_leaves_the_origin(cluster: PageCluster, new_context: NewContext) -> None:
    """Requests elsewhere would be a problem that fails the test; here they could not even be answered."""
    context = new_context()
    asked: list[str] = []
    headers: list[dict[str, str]] = []
    link = cluster.new_link()

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        headers.append(route.request.all_headers())
        if route.request.url.startswith(cluster.origin + "/"):
            route.continue_()
        else:
            route.abort()

    context.context.route("**/*", answer)
    page = context.new_page().enter(link)
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    assert views.count() >= 2
    for number in range(views.count()):
        views.nth(number).click()
        page.page.wait_for_timeout(200)
    page.press("?")
    page.until_text("Nothing is loaded from elsewhere")
    assert asked and all(url.startswith(cluster.origin + "/") for url in asked)
    # The code of the link is in no address and no header.
    assert link.partition("#")[2] not in str(asked) + str(headers)
    assert len(headers) == len(asked) and not any("referer" in each for each in headers)
    # What was asked of the browser: no font, no image of another place, no cookie.
    assert page.evaluate("document.fonts.size") == 0
    assert page.evaluate(
        "performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))"
    )


def test_the_browser_of_all_tests_resolves_no_name(cluster: PageCluster, browser: Browser) -> None:
    """Not even this machine is found by its name, so whatever the page does in a test needs no DNS server."""
    page = browser.new_page()
    with pytest.raises(PlaywrightError, match="ERR_NAME_NOT_RESOLVED"):
        page.goto(cluster.origin.replace("127.0.0.1", "localhost"))
    page.close()


def test_files_are_small_and_stay_in_the_cache(cluster: PageCluster, new_context: NewContext) -> None:
    page = new_context().new_page()
    sizes: dict[str, int] = {}
    page.page.on("response", lambda one: sizes.update({one.url: int(one.headers.get("content-length", "0"))}))
    page.enter()
    page.until_text("Pods")
    assets = {url: size for url, size in sizes.items() if "/assets/" in url}
    assert len(assets) >= 3
    assert sum(sizes.values()) <= 80 * 1024, sizes
    answer = page.guard.context.request.get(next(iter(assets)))
    assert "immutable" in answer.headers["cache-control"]
