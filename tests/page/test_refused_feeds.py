"""A feed that the server refuses: the page says why, and shows it when it is allowed, without being asked."""

from __future__ import annotations

import json
from typing import Any

from browser import GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import WebSocket, expect

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_a_refused_feed_is_tried_again_while_it_is_shown(cluster: PageCluster, page: GuardedPage) -> None:
    opened: list[dict[str, Any]] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framesent", lambda data: opened.append(json.loads(data)))

    cluster.create_deployment("granted", 1)
    page.page.on("websocket", listen)
    page.go("#/objects/pods?ns=default")
    page.press("g", "u")
    dialog = page.get_by_role("dialog", name="See as another user")
    dialog.get_by_label("User, or service account").fill("late")
    dialog.get_by_role("button", name="See as this user").click()
    main = page.get_by_role("main")
    refusal = main.get_by_text('User "late" cannot list resource "pods"')
    expect(refusal).to_be_visible()
    # The refusal stays there, the same element, while the feed is tried again with pauses.
    page.evaluate("document.querySelector('main .notice').dataset.first = 'yes'")
    opened.clear()
    page.page.wait_for_timeout(6_000)
    expect(page.locator("main .notice[data-first=yes]")).to_be_visible()
    tries = [each for each in opened if each["op"] == "open" and each["feed"] == "objects"]
    assert 1 <= len(tries) <= 2, "after four seconds, and not again within the next eight"

    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "late"}
    binding = {"metadata": {"name": "late"}, "subjects": [subject], "roleRef": role}
    cluster.create(f"{RBAC}/namespaces/default/rolebindings", binding)
    expect(main.get_by_text("granted-").first).to_be_visible(timeout=20_000)
    expect(refusal).to_have_count(0)
