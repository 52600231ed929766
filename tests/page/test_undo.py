"""Undo in a browser: values of Secrets reach neither the screen nor the tab."""

from __future__ import annotations

from base64 import b64encode

from browser import GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import WebSocket, expect

SECRETS = "/api/v1/namespaces/default/secrets"
VALUES = [form for text in ("hunter2", "correct-horse") for form in (text, b64encode(text.encode()).decode())]


def test_a_change_of_a_secret_is_undone_without_its_values(cluster: PageCluster, page: GuardedPage) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "undone"}, "stringData": {"password": "hunter2"}}
    cluster.api("POST", SECRETS, body)
    cluster.api(
        "PATCH", f"{SECRETS}/undone", {"stringData": {"password": "correct-horse"}}, "application/merge-patch+json"
    )
    received: list[str] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda data: received.append(str(data)))

    page.page.on("websocket", listen)
    page.page.reload()
    page.go("#/objects/secrets/default/undone?ns=default&tab=history")
    entry = page.locator(".history-entry", has_text="data.password").first
    entry.get_by_role("button", name="Undo…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("data.password changed")
    dialog.get_by_role("button", name="Carry out the plan").click()
    dialog.wait_for(state="detached")
    assert cluster.api("GET", f"{SECRETS}/undone")["data"] == {"password": VALUES[1]}
    entries = page.locator(".history-entry", has_text="data.password")
    expect(entries).to_have_count(2)
    for number in range(2):
        entries.nth(number).get_by_role("checkbox").check()
    expect(page.locator(".history-line.added", has_text="password: <hidden-").first).to_be_visible()
    assert received, "the WebSocket was not seen"
    assert [each for each in VALUES if any(each in text for text in (*received, page.page.content()))] == []
