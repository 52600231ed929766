"""What axe finds on a page of the browser."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from browser import GuardedPage


def findings(page: GuardedPage) -> list[str]:
    options = {
        "resultTypes": ["violations"],
        "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    }
    found = Axe().run(page.page, options=options).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} ({node.get('failureSummary', '')[:300]})"
        for each in found
        for node in each["nodes"]
    ]
