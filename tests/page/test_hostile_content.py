"""Content of the cluster is text: it runs no script, starts no request, and is shown as it is."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from browser import GuardedPage
from hostile_page import assert_harmless, shown
from hostile_texts import CANARY, hostile_names, hostile_texts
from page_cluster import PageCluster
from playwright.sync_api import expect

from setpoint.view.terminal_text import TerminalFilter

TEXTS = hostile_texts()
GROUP = "hostile.example.com"


def custom_kind() -> dict[str, Any]:
    """Its columns have hostile titles and cells."""
    columns = [
        {"name": text, "type": "string", "jsonPath": f".spec.t{number}", "description": text}
        for number, text in enumerate(TEXTS)
    ]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "additionalPrinterColumns": columns,
    }
    names = {"plural": "bombs", "singular": "bomb", "kind": "Bomb"}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": f"bombs.{GROUP}"}, "spec": spec}


def event(number: int, text: str) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "loud"}
    time = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"e{number}", "annotations": {"text": text}},
        "involvedObject": about,
        "type": "Warning" if number % 2 else "Normal",
        "reason": text[:100],
        "message": text,
        "source": {"component": text[:100]},
        "firstTimestamp": time,
        "lastTimestamp": time,
    }


@pytest.fixture(scope="module")
def hostile(cluster: PageCluster) -> PageCluster:
    annotations = {f"text-{number}": text for number, text in enumerate(TEXTS)}
    log = "\n".join(TEXTS)
    container = {"name": "loud", "image": "busybox", "command": ["sh", "-c", f"cat <<'END'\n{log}\nEND\nsleep 3600"]}
    pod = {"metadata": {"name": "loud", "annotations": annotations}, "spec": {"containers": [container]}}
    cluster.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **pod})
    for number, text in enumerate(TEXTS):
        cluster.create("/api/v1/namespaces/default/events", event(number, text))
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    for name in hostile_names():
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
        cluster.create(roles, {**role, "metadata": {"name": name, "annotations": {"text": name}}})
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", custom_kind())
    cells: dict[str, Any] = {f"t{number}": text for number, text in enumerate(TEXTS)}
    cells["keys"] = {text: text for text in TEXTS}
    bomb = {"apiVersion": f"{GROUP}/v1", "kind": "Bomb", "metadata": {"name": "bomb"}, "spec": cells}
    cluster.create(f"/apis/{GROUP}/v1/namespaces/default/bombs", bomb, kind_within=10)
    return cluster


def test_events_are_shown_as_they_are(hostile: PageCluster, page: GuardedPage) -> None:
    page.go("#/events?ns=default")
    page.get_by_role("listitem").nth(len(TEXTS) - 1).wait_for(state="attached")
    messages = page.evaluate("[...document.querySelectorAll('.event-message')].map((one) => one.textContent)")
    assert {shown(text) for text in TEXTS} <= set(messages)
    assert_harmless(page)
    page.get_by_label("Filter events by text").fill(TEXTS[0])
    page.until(f"document.querySelectorAll('.event').length >= 1 && window.{CANARY} === undefined")


def test_names_are_shown_as_they_are(hostile: PageCluster, page: GuardedPage) -> None:
    page.go("#/objects/rbac.authorization.k8s.io.clusterroles")
    name = TEXTS[4]
    page.get_by_label("Filter these objects by text").fill(name)
    expect(page.locator(".data-rows .data-cell.first").first).to_contain_text(name)
    page.locator(".data-rows > [role=row]").filter(has_text=name).first.click()
    page.get_by_role("complementary").get_by_role("heading", name=name).wait_for()
    assert name in page.page.title()
    page.page.reload()
    page.get_by_role("complementary").get_by_role("heading", name=name).wait_for()
    page.get_by_role("button", name="Delete this object").click()
    page.get_by_role("dialog").get_by_text(name).wait_for()
    page.press("Escape", "/")
    page.keyboard.type("<img")
    page.get_by_role("listbox").get_by_role("option").first.wait_for()
    assert_harmless(page)


def test_columns_and_cells_of_custom_kinds_are_shown_as_they_are(hostile: PageCluster, page: GuardedPage) -> None:
    page.go(f"#/objects/{GROUP}.bombs?ns=default")
    page.get_by_role("row", name="bomb").wait_for()
    texts = {shown(text) for text in TEXTS}
    assert texts <= set(page.locator("[role=columnheader] button").all_text_contents())
    assert texts <= set(page.locator("[role=gridcell]").all_text_contents())
    assert_harmless(page)


_YAML = """
[...document.querySelectorAll('.yaml-line')].map((line) => {
  const copy = line.cloneNode(true);
  copy.querySelectorAll('.yaml-number-column, .yaml-owner, .visually-hidden').forEach((one) => one.remove());
  return copy.textContent;
}).join('\\n')
"""


def test_annotations_and_keys_are_shown_as_they_are(hostile: PageCluster, page: GuardedPage) -> None:
    page.go("#/objects/pods/default/loud?ns=default&tab=yaml")
    page.locator(".yaml-line", has_text=f"text-{len(TEXTS) - 1}:").wait_for()
    # In YAML 1.1, U+2028 and U+2029 end a line, and such a line begins a new one here.
    texts = {shown(re.sub("[\u2028\u2029]", " ", text)) for text in TEXTS}
    annotations = yaml.safe_load(page.evaluate(_YAML))["metadata"]["annotations"]
    assert {shown(text) for text in annotations.values()} >= texts
    assert_harmless(page)
    page.go(f"#/objects/{GROUP}.bombs/default/bomb?ns=default&tab=yaml")
    page.locator(".yaml-line", has_text="keys:").wait_for()
    keys = yaml.safe_load(page.evaluate(_YAML))["spec"]["keys"]
    assert {shown(text) for text in keys} == {shown(text) for text in keys.values()} == texts
    assert_harmless(page)


_LINES = """
async () => {
  const box = document.querySelector('.logs-box');
  const found = new Set();
  for (box.scrollTop = 0; ; box.scrollTop += box.clientHeight) {
    const at = box.scrollTop;
    for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
    document.querySelectorAll('.logs-line').forEach((line) => found.add(line.textContent));
    if (at + box.clientHeight >= box.scrollHeight) return [...found];
  }
}
"""


def test_output_of_containers_is_shown_as_it_is(hostile: PageCluster, page: GuardedPage) -> None:
    """Control sequences are left out, or shown."""
    page.go("#/objects/pods/default/loud?ns=default&tab=logs")
    page.until(f"document.querySelector('.logs-all')?.clientHeight >= {len(TEXTS)} * 10")
    lines = set(page.evaluate(_LINES))
    filtered = (re.sub(r"\x1b\[\d*m", "", TerminalFilter().filtered(text)) for text in TEXTS)
    assert {shown(text) for text in filtered} - lines == set()
    assert_harmless(page)


TARGETS = ("pods/default/loud", f"{GROUP}.bombs/default/bomb", "rbac.authorization.k8s.io.clusterroles/_/ROLE")


def test_every_tab_of_the_inspector_and_every_view_is_harmless(hostile: PageCluster, page: GuardedPage) -> None:
    for target in TARGETS:
        page.go(f"#/objects/{target}?ns=default".replace("ROLE", quote(TEXTS[4])))
        tabs = page.get_by_role("complementary").get_by_role("tab")
        tabs.first.wait_for()
        for number in range(tabs.count()):
            tabs.nth(number).click()
            page.page.wait_for_timeout(200)
            assert_harmless(page)
    page.go(f"#/objects/{TARGETS[0]}?ns=default")
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    for number in range(views.count()):
        views.nth(number).click()
        page.page.wait_for_timeout(200)
        assert_harmless(page)


ADDRESSES = [
    "#/objects/%3Cimg%20src=x%20onerror=window.__canary=1%3E",
    "#/<svg onload=window.__canary=1>",
    "#/objects/pods/default/<img src=x onerror=window.__canary=1>?tab=<script>&ns=<b>&at=<i>&filter=<u>&cluster=//a.invalid",
    "#/objects/pods?cluster=javascript:window.__canary=1&ns=../..",
    "#/objects/__proto__.constructor/__proto__/toString?__proto__=1",
    "#/objects/%E0%A4%A",
]


def test_addresses_are_harmless(hostile: PageCluster, page: GuardedPage) -> None:
    for address in ADDRESSES:
        page.go(address)
        page.page.wait_for_timeout(100)
        assert_harmless(page)
    page.page.reload()
    page.page.wait_for_selector(".frame")
    assert_harmless(page)
