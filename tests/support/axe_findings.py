"""What axe finds on a page of the browser."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from browser import GuardedPage

_ALL = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """async (options) => (await axe.run(options)).violations.flatMap(({ id, nodes }) =>
  nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 160)} (${(failureSummary ?? "").slice(0, 300)})`))"""


def findings(page: GuardedPage, *, colours_only: bool = False) -> list[str]:
    """Return what axe finds, by all rules or by those for colours, which are what another theme changes."""
    rules = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]} if colours_only else _ALL
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[str] = page.evaluate(_RUN, {"resultTypes": ["violations"], "runOnly": rules})
    return found
