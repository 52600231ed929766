"""A tab that cannot keep up: the server coalesces for it, and it then shows the present."""

from __future__ import annotations

import threading
from pathlib import Path

from browser import GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import WebSocketRoute

BUSY = "() => { const end = performance.now() + 2500; while (performance.now() < end); }"
PATH = "/api/v1/namespaces/default/configmaps"


def resident(process: int) -> int:
    """Bytes of memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def test_a_busy_tab_costs_little_and_catches_up(cluster: PageCluster, page: GuardedPage) -> None:
    page.go("#/objects/configmaps?ns=default")
    page.until_text("kube-root-ca.crt")
    process = cluster.pid
    before = resident(process)

    def write() -> None:
        for number in range(600):
            name = f"short-{number % 20}"
            if number % 40 < 20:
                cluster.create(PATH, {"metadata": {"name": name}, "data": {"text": "x" * 5_000}})
            else:
                cluster.api("DELETE", f"{PATH}/{name}")
        cluster.create(PATH, {"metadata": {"name": "the-last-one"}})

    writer = threading.Thread(target=write)
    writer.start()
    page.evaluate(BUSY)  # the tab neither reads nor grants credit
    writer.join()
    page.until_text("the-last-one", timeout=5.0)
    assert page.get_by_text("short-").count() == 0
    # The history of the writes themselves is a part of it.
    assert resident(process) - before < 64 << 20


def test_the_page_says_what_a_slow_tab_has_missed(cluster: PageCluster, page: GuardedPage) -> None:
    """The number of writes that the server left out is shown; tests/unit/web shows that the server counts them."""

    def connected(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def from_server(message: str | bytes) -> None:
            if isinstance(message, str) and '"log":[{' in message and "slow-one" in message:
                message = message.replace('"skipped":0', '"skipped":412', 1)
            route.send(message)

        route.on_message(server.send)
        server.on_message(from_server)

    page.page.route_web_socket("**/page/v1/socket", connected)
    page.go("#/objects/configmaps?ns=default")
    page.page.reload()
    page.until_text("kube-root-ca.crt")
    page.get_by_role("button", name="Show all", exact=True).click()
    cluster.create(PATH, {"metadata": {"name": "slow-one"}})
    page.until_text("412 writes are not listed: this tab was too slow to receive them.")
