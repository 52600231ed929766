"""The first frame: the document contains header and navigation, and nothing moves when the page takes their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage

PHONE = {"width": 390, "height": 844}
_BOXES = """(frame) => {
  const box = (element) => { const { x, y, width, height } = element.getBoundingClientRect(); return [x, y, width, height]; };
  const found = document.querySelector(frame);
  const shown = (selector) => [...found.querySelectorAll(selector)].filter((each) => each.checkVisibility());
  return {
    header: shown(".header").map(box),
    mark: shown(".header .mark").map((each) => [box(each), [...each.children].map((path) => path.getAttribute("d"))]),
    name: shown(".brand-name").map((each) => [box(each), each.textContent]),
    navigation: shown(".navigation").map((each) => box(each)),
    views: shown(".view-link").map((each) => [box(each), each.textContent, each.querySelector("path")?.getAttribute("d")]),
  };
}"""
_SHIFTED = """new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((each) => { sum += each.value; }))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 200);
})"""
_PAINTS = "performance.getEntriesByName('first-contentful-paint').length"


def first_frame(context: GuardedContext) -> GuardedPage:
    """Return a page that has only the first frame, because the script with everything else does not arrive."""
    page = context.new_page()
    context.allowed += ["Failed to load resource", "dynamically imported module"]
    page.page.route("**/assets/first*.js", lambda route: route.abort())
    page.page.goto(context.cluster.new_link(), wait_until="commit")
    page.locator(".first-frame").wait_for(state="attached")
    page.until(f"{_PAINTS} > 0")
    return page


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": PHONE}], ids=str)
def test_the_first_frame_is_that_of_the_page(
    new_context: Callable[..., GuardedContext], options: dict[str, Any]
) -> None:
    """Painted before the page has loaded, and at the same places with the same content as afterwards."""
    context = new_context(**options)
    early = first_frame(context)
    before = early.evaluate(_BOXES, ".first-frame")
    assert before["header"] and before["mark"] and (before["views"] or options.get("viewport") == PHONE)
    assert early.evaluate("document.documentElement.dataset.theme") == options.get("color_scheme", "light")
    background = "getComputedStyle(document.body).backgroundColor"
    painted = early.evaluate(background)
    early.page.close()

    page = context.new_page().enter()
    page.locator(".data-rows, .notice").first.wait_for(state="attached")
    after = page.evaluate(_BOXES, ".frame")
    if options.get("viewport") == PHONE:
        assert before["navigation"] == [], "the bar at the bottom comes with the page"
        before["navigation"], before["views"] = after["navigation"], after["views"]
    assert before == after
    assert page.evaluate(background) == painted
    assert page.locator(".first-frame").count() == 0
    assert page.evaluate(_SHIFTED) <= 0.02


def test_the_chosen_theme_is_that_of_the_first_frame(new_context: Callable[..., GuardedContext]) -> None:
    context = new_context(color_scheme="light")
    context.context.add_init_script(
        "if (location.protocol === 'http:') localStorage.setItem('setpoint.theme', '\"dark\"')"
    )
    early = first_frame(context)
    assert early.evaluate("document.documentElement.dataset.theme") == "dark"


def test_assistive_technology_waits_for_the_page(new_context: Callable[..., GuardedContext]) -> None:
    """The frame cannot be used yet, so it is not announced, and nothing in it takes the focus."""
    early = first_frame(new_context())
    assert early.get_by_role("link").count() == 0
    early.press("Tab")
    assert early.evaluate("document.activeElement === document.body")
    problems = [each for each in findings(early) if not each.startswith(("landmark", "page-has-heading", "region"))]
    assert problems == []


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark", "viewport": PHONE}], ids=str)
def test_a_page_that_does_not_load_says_so(new_context: Callable[..., GuardedContext], options: dict[str, Any]) -> None:
    """Its main script does not arrive: the frame alone would leave one waiting."""
    page = first_frame(new_context(**options))
    alert = page.get_by_role("alert")
    alert.get_by_text("The page could not be loaded").wait_for()
    assert "setpoint status" in alert.inner_text()
    assert page.evaluate(_SHIFTED) <= 0.02
    problems = [each for each in findings(page) if not each.startswith(("landmark", "page-has-heading", "region"))]
    assert problems == []
