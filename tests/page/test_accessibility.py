"""Accessibility of every view, tab and panel, in both themes: axe, tab order, zoom."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster

TARGETS = ("pods/default/POD", "apps.deployments/default/web", "nodes/_/node-1")


def views_and_tabs(page: GuardedPage, targets: tuple[str, ...] = TARGETS) -> Iterator[str]:
    """Each view that the navigation offers, and each tab of the inspector for some objects."""
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    yield from (str(links.nth(number).get_attribute("href")) for number in range(links.count()))
    for target in targets:
        page.go(f"#/objects/{target}?ns=default".replace("POD", page.guard.cluster.pod_names("app=web", at_least=1)[0]))
        tabs = page.get_by_role("complementary").get_by_role("tab")
        tabs.first.wait_for()
        yield from (f"tab {tabs.nth(number).get_attribute('id')}" for number in range(tabs.count()))


@pytest.fixture(scope="module")
def furnished(cluster: PageCluster) -> PageCluster:
    """A cluster with something in each view."""
    cluster.create_deployment("web", 2)
    cluster.create_deployment("stuck", 1, image="no-such-image:missing")
    cluster.pod_names("app=web", at_least=2)
    return cluster


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(furnished: PageCluster, new_context: Callable[..., GuardedContext], scheme: str) -> None:
    page = new_context(color_scheme=scheme).new_page().enter()
    page.until_text("web-")
    problems: list[str] = []
    # Tabs are named after the address is changed, so that each is visited where it was found.
    for place in views_and_tabs(page, TARGETS if scheme == "light" else TARGETS[:1]):
        if place.startswith("tab "):
            page.page.locator(f"[id='{place.removeprefix('tab ')}']").click()
        else:
            page.go(place)
        page.page.wait_for_timeout(250)
        problems += [f"{place}: {each}" for each in findings(page, colours_only=scheme == "dark")]
    tools = page.get_by_role("toolbar", name="Tools").get_by_role("button")
    for number in range(tools.count()):
        tools.nth(number).click()
        page.page.wait_for_timeout(250)
        problems += [
            f"{tools.nth(number).inner_text()}: {each}" for each in findings(page, colours_only=scheme == "dark")
        ]
        tools.nth(number).click()
    page.go("#/objects/pods?ns=nowhere")
    page.until_text("Nothing runs here yet")
    page.press("?")
    page.get_by_role("dialog").wait_for()
    problems += [f"help: {each}" for each in findings(page, colours_only=scheme == "dark")]
    assert problems == []


def test_axe_finds_nothing_on_a_phone(furnished: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(viewport={"width": 390, "height": 844}, has_touch=True).new_page().enter()
    page.until_text("web-")
    problems = findings(page)
    page.get_by_role("row", name="web-").first.click()
    page.get_by_role("complementary").get_by_role("tab").first.wait_for()
    problems += findings(page)
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="More").click()
    problems += findings(page)
    assert problems == []
    # Nothing is wider than the screen.
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_nothing_is_lost_at_four_hundred_percent(
    furnished: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    """A window of 1280 pixels at 400 % has 320 CSS pixels."""
    page = new_context(viewport={"width": 320, "height": 256}).new_page().enter()
    page.until_text("web-")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.get_by_role("row", name="web-").first.click()
    page.get_by_role("complementary").get_by_role("heading", name="web-").wait_for()


def test_the_tab_order_follows_the_page(furnished: PageCluster, page: GuardedPage) -> None:
    page.until_text("web-")
    order = []
    for _ in range(9):
        page.press("Tab")
        order.append(
            page.evaluate(
                "((e) => (e.getAttribute('aria-label') || e.id || e.innerText || e.tagName).trim().split('\\n')[0])(document.activeElement)"
            )
        )
    assert order[:7] == [
        "Skip to the view",
        "Setpoint",
        "namespace",
        "Search views, kinds, objects",
        "See as another user…",
        "Theme: as the system",
        "Help and keys",
    ]
    assert order[7] == "Objects"
    # The first key of the page leads past all of it.
    page.page.reload()
    page.until_text("web-")
    page.press("Tab", "Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_colours_are_not_forced_on_people(furnished: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(forced_colors="active").new_page().enter()
    page.get_by_role("row", name="settled").first.wait_for()
    # Phases are told apart by shape and word.
    assert "●" in page.text() and "settled" in page.text()
    selected = page.page.locator("[aria-current=page]").first
    assert selected.evaluate("(e) => getComputedStyle(e).outlineStyle") == "solid"


def test_shortcuts_of_one_key_can_be_turned_off(page: GuardedPage) -> None:
    page.press("?")
    page.get_by_label("Single-letter keys").uncheck()
    page.press("Escape", "g", "v")
    page.page.wait_for_timeout(100)
    assert "/events" not in page.evaluate("location.hash")
