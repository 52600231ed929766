"""The page needs nothing but its own server."""

from __future__ import annotations

from collections.abc import Callable

from browser import GuardedContext
from page_cluster import PageCluster
from playwright.sync_api import Route


def test_no_request_leaves_the_origin(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    """Requests elsewhere would be a problem that fails the test; here they could not even be answered."""
    context = new_context()
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if route.request.url.startswith(cluster.origin + "/"):
            route.continue_()
        else:
            route.abort()

    context.context.route("**/*", answer)
    page = context.new_page().enter()
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    assert views.count() >= 2
    for number in range(views.count()):
        views.nth(number).click()
        page.page.wait_for_timeout(200)
    page.press("?")
    page.until_text("Nothing is loaded from elsewhere")
    assert asked and all(url.startswith(cluster.origin + "/") for url in asked)
    # What was asked of the browser: no font, no image of another place, no cookie.
    assert page.evaluate("document.fonts.size") == 0
    assert page.evaluate(
        "performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))"
    )


def test_files_are_small_and_stay_in_the_cache(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
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
