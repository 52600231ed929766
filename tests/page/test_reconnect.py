"""Several tabs, and a server that goes away and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable

from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import WebSocketRoute, expect

UP_FLAGS = ("--store", "sqlite")


def test_two_tabs_see_the_same_and_survive_a_restart_of_the_server(cluster: PageCluster, page: GuardedPage) -> None:
    # A lost connection is an error of the console, which the browser writes itself.
    page.guard.allowed += ["ERR_CONNECTION_REFUSED", "WebSocket connection to"]
    cluster.create_deployment("web", 2)
    page.go("#/objects/pods?ns=default")
    second = page.guard.new_page().enter(cluster.origin + "/#/objects/pods?ns=default")
    for each in (page, second):
        expect(each.get_by_role("row", name="settled")).to_have_count(2)
    cluster.stop()
    page.until_text("Connection lost since", timeout=10)
    page.until("document.querySelector('.banner.lost').innerText.includes('since 3 s')", timeout=10)
    assert any("Connection lost" in each for each in page.announced())
    # The old state stays visible.
    expect(page.get_by_role("row", name="web-")).to_have_count(2)
    cluster.start()
    cluster.create_deployment("late", 1)
    for each in (page, second):
        expect(each.get_by_role("row", name="late-")).to_have_count(1, timeout=20_000)
        expect(each.get_by_role("row", name="settled")).to_have_count(3, timeout=20_000)
        expect(each.locator(".banner.lost")).to_have_count(0)
        names = each.locator(".data-rows .data-cell.first").all_inner_texts()
        assert len(names) == len(set(names)) == 3


def test_requests_made_while_the_connection_is_away_are_sent_later(cluster: PageCluster, page: GuardedPage) -> None:
    page.guard.allowed += ["ERR_CONNECTION_REFUSED", "WebSocket connection to"]
    page.go("#/objects/apps.deployments?ns=late")
    page.until_text("Nothing runs here yet")
    cluster.stop()
    page.until_text("Connection lost since", timeout=10)
    page.get_by_role("button", name="Create the example").click()
    cluster.start()
    # The namespace does not exist: the answer of the server arrives after the reconnection.
    page.until_text('namespaces "late" not found', timeout=20)


def test_a_feed_that_the_server_cannot_serve_now_is_opened_again(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    page = new_context().new_page()
    refused: list[int] = []

    def relay(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def from_page(message: str | bytes) -> None:
            read = json.loads(message)
            if read.get("feed") == "objects" and read["args"]["resource"] == "nodes" and not refused:
                refused.append(read["id"])
                error = {"kind": "Status", "code": 503, "message": "The API server restarts."}
                route.send(json.dumps({"id": read["id"], "type": "end", "error": error}))
            else:
                server.send(message)

        route.on_message(from_page)

    page.page.route_web_socket("**/page/v1/socket", relay)
    page.enter()
    page.until_text("Pods")
    page.go("#/objects/nodes")
    page.until_text("The API server restarts.")
    page.get_by_role("row", name="node-1").wait_for()
    assert len(refused) == 1
