"""What axe finds on a page of the browser."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from browser import GuardedPage

_ALL = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def findings(page: GuardedPage, *, colours_only: bool = False) -> list[str]:
    """Return what axe finds, by all rules or by those for colours, which are what another theme changes."""
    rules = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]} if colours_only else _ALL
    options = {"resultTypes": ["violations"], "runOnly": rules}
    found = Axe().run(page.page, options=options).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} ({node.get('failureSummary', '')[:300]})"
        for each in found
        for node in each["nodes"]
    ]
