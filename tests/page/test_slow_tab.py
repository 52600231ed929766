"""A tab that cannot keep up: the server coalesces for it, and it then shows the present."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from browser import GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import WebSocketRoute
from process_memory import resident

BUSY = "() => { const end = performance.now() + 2500; while (performance.now() < end); }"
PATH = "/api/v1/namespaces/default/configmaps"


def on_their_way(port: int) -> int:
    """Bytes that are in the buffers of TCP connections to a port of this machine."""
    total = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues = line.split()[:5]
        unsent, unread = (int(each, 16) for each in queues.split(":"))
        total += unsent * local.endswith(f":{port:04X}") + unread * remote.endswith(f":{port:04X}")
    return total


class Writer:
    """Changes five ConfigMaps, at most 500 times a second, while the block runs."""

    def __init__(self, cluster: PageCluster) -> None:
        self._cluster = cluster
        self._thread = threading.Thread(target=self._write)
        self._stopped = False
        self.writes = 0

    def __enter__(self) -> Writer:
        for number in range(5):
            self._cluster.create(PATH, {"metadata": {"name": f"busy-{number}"}, "data": {"number": ""}})
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped = True
        self._thread.join()

    def _write(self) -> None:
        began = time.monotonic()
        while not self._stopped:
            path, body = f"{PATH}/busy-{self.writes % 5}", {"data": {"number": str(self.writes)}}
            self._cluster.api("PATCH", path, body, "application/merge-patch+json")
            self.writes += 1
            time.sleep(max(0.0, began + self.writes / 500 - time.monotonic()))


def test_a_tab_with_a_slow_connection_is_told_the_latest(cluster: PageCluster, page: GuardedPage) -> None:
    page.go("#/objects/configmaps?ns=default")
    page.until_text("kube-root-ca.crt")
    page.get_by_role("button", name="Show all", exact=True).click()
    page.guard.allowed.append("the layout shifted")  # the list of writes, all the time
    throttled = page.guard.context.new_cdp_session(page.page)
    throttled.send("Network.enable")
    rate = {"downloadThroughput": 50 << 10, "uploadThroughput": 50 << 10}
    throttled.send("Network.emulateNetworkConditions", {"offline": False, "latency": 0, **rate})
    port, before = urlsplit(cluster.origin).port or 0, resident(cluster.pid)
    most = 0
    with Writer(cluster) as writer:
        deadline = time.monotonic() + 120
        while not page.get_by_text("this tab was too slow to receive them").count():
            assert time.monotonic() < deadline, f"{writer.writes} writes"
            most = max(most, on_their_way(port))
            page.page.wait_for_timeout(200)
    cluster.create(PATH, {"metadata": {"name": "the-last-one-of-many"}})
    page.until_text("the-last-one-of-many")
    # The server did not wait for the tab, and what it knows of it are numbers, not the writes.
    assert writer.writes > 2_000
    assert most < 512 << 10, f"{most} bytes"
    assert resident(cluster.pid) - before < 64 << 20


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
