"""The board of control loops, faults and what-if, by mouse and keyboard."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from command_line import typed_offline
from page_cluster import PageCluster
from playwright.sync_api import Locator, expect

LOOPS, FAULTS = "/setpoint/v1/loops", "/setpoint/v1/faults"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(autouse=True)
def running_loops(cluster: PageCluster) -> Iterator[None]:
    """Let all loops run before the next test."""
    yield
    cluster.api("POST", LOOPS, {"action": "clear"})
    cluster.api("POST", LOOPS, {"action": "resume"})


def row(page: GuardedPage, loop: str) -> Locator:
    return page.locator(f"tbody[data-loop='{loop}']")


def eventually(check: Callable[[], Any], within: float = 20.0) -> Any:
    deadline = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < deadline, f"not true within {within:g} s"
        time.sleep(0.05)
    return found


def objects(cluster: PageCluster) -> dict[str, str]:
    """The digests of all objects except Leases and Events, by path. What nodes report of themselves with
    each heartbeat is left out."""
    groups = [each["preferredVersion"]["groupVersion"] for each in cluster.api("GET", "/apis")["groups"]]
    found: dict[str, str] = {}
    for path in ("/api/v1", *(f"/apis/{each}" for each in groups)):
        for kind in cluster.api("GET", path)["resources"]:
            if not {"list", "create"} <= set(kind["verbs"]) or kind["name"] in ("leases", "events"):
                continue
            for each in cluster.api("GET", f"{path}/{kind['name']}")["items"]:
                if kind["name"] == "nodes":
                    del each["metadata"]["resourceVersion"], each["metadata"]["managedFields"]
                    each["status"].pop("images", None)
                    for condition in each["status"]["conditions"]:
                        del condition["lastHeartbeatTime"]
                text = json.dumps(each, sort_keys=True).encode()
                found[f"{path}/{kind['name']}/{each['metadata']['uid']}"] = hashlib.sha256(text).hexdigest()
    return found


def settled_objects(cluster: PageCluster) -> dict[str, str]:
    """The digests of all objects, as soon as none has changed for a second."""
    found = objects(cluster)
    while True:
        time.sleep(1)
        before, found = found, objects(cluster)
        if found == before:
            return found


def test_pause_delete_step_and_resume(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("heal", 3)
    eventually(lambda: len(cluster.ready_pods("app=heal")) == 3)
    page.go("#/loops")
    loop = row(page, "replicaset-controller")
    loop.get_by_role("button", name="Pause replicaset-controller").click()
    expect(loop).to_have_attribute("data-mode", "paused")
    expect(page.get_by_text("Held back: replicaset.")).to_be_visible()
    expect(page.get_by_text("All run again in 9 m")).to_be_visible()
    for name in cluster.ready_pods("app=heal"):
        cluster.api("DELETE", f"/api/v1/namespaces/default/pods/{name}")
    # One key for three deletions and what followed them.
    expect(loop.locator("[data-depth]")).to_have_attribute("data-depth", "1")
    expect(loop.locator(".loops-queue").get_by_role("button")).to_have_text(re.compile(r"^default/heal-"))
    times = loop.get_by_text(re.compile(r"^×\d+$"))
    assert int(times.inner_text()[1:]) >= 3
    assert cluster.ready_pods("app=heal") == []
    loop.get_by_role("button", name="One reconcile of replicaset-controller").click()
    eventually(lambda: len(cluster.ready_pods("app=heal")) == 3)
    assert findings(page) == []
    # The latest reconcile says what it did, and why.
    loop.get_by_role("button", name="Show the latest reconciles of replicaset-controller").click()
    newest = loop.locator(".loops-runs tbody tr").first
    expect(newest).to_contain_text("revision")
    expect(newest).to_contain_text("default/heal-")
    newest.get_by_role("button", name="Why is default/heal-").click()
    expect(page.get_by_role("complementary", name="Selected object")).to_contain_text("heal-")
    loop.get_by_role("button", name="Pause replicaset-controller").click()
    expect(loop).to_have_attribute("data-mode", "run")
    expect(page.get_by_text("All loops run.", exact=True)).to_be_visible()


_KEY_COLOURS = """
(button) => [getComputedStyle(button.querySelector("kbd")).color, getComputedStyle(button.querySelector("kbd")).backgroundColor]
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_key_of_resume_can_be_read(new_context: Callable[..., GuardedContext], scheme: str) -> None:
    page = new_context(color_scheme=scheme).new_page().enter(then="#/loops")
    page.get_by_role("button", name="Pause all").click()
    resume = page.get_by_role("button", name="Resume all")
    resume.wait_for()
    page.page.mouse.move(0, 0)
    text, ground = resume.evaluate(_KEY_COLOURS)
    assert text != ground


def test_a_back_off_counts_down_and_a_step_tries_again(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "small"}})
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    cluster.create("/api/v1/namespaces/small/resourcequotas", quota)
    eventually(lambda: cluster.api("GET", "/api/v1/namespaces/small/resourcequotas/none")["status"].get("hard"))
    cluster.create_deployment("big", 1, namespace="small")
    page.go("#/loops")
    loop = row(page, "replicaset-controller")
    timer = loop.locator("[data-delayed^='small/big-'] .loops-timer")
    expect(timer).to_have_text(re.compile(r"^\d\.\d s$|^\d+ s$"), timeout=20_000)
    errors = page.get_by_role("region", name="Errors of keys that wait")
    expect(errors).to_contain_text("exceeded quota: none")
    seconds: list[float] = []
    while len(set(seconds)) < 3:
        if match := re.match(r"([\d.]+) s", timer.inner_text()):
            seconds.append(float(match[1]))
        page.page.wait_for_timeout(250)
    assert min(seconds) < max(seconds)
    failures = int(re.search(r"\((\d+) failures\)", loop.inner_text())[1])  # type: ignore[index]
    errors.get_by_role("button", name="Reconcile small/big-").click()
    expect(loop).to_contain_text(re.compile(rf"\(({failures + 1}|{failures + 2}) failures\)"))
    cluster.api("DELETE", f"{DEPLOYMENT}/big".replace("default", "small"))


def test_all_loops_by_keyboard(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("keys", 1)
    eventually(lambda: len(cluster.ready_pods("app=keys")) == 1)
    page.go("#/objects")
    page.press("g", "l")
    row(page, "kube-scheduler").wait_for()
    page.press(".")
    expect(page.get_by_text("All loops are paused.")).to_be_visible()
    cluster.api("PATCH", f"{DEPLOYMENT}/keys", {"spec": {"replicas": 2}}, "application/merge-patch+json")
    expect(row(page, "deployment-controller").locator("[data-depth]")).to_have_attribute("data-depth", "1")
    # The key steps the loop whose row has the focus.
    row(page, "deployment-controller").get_by_role("button", name="Show the latest reconciles").focus()
    page.press("s")
    page.until("document.querySelector('#live-polite').textContent.includes('reconciles default/keys')")
    expect(row(page, "replicaset-controller").locator(".loops-queue")).to_contain_text("default/keys-")
    assert len(cluster.ready_pods("app=keys")) == 1
    page.press(".")
    expect(page.get_by_text("All loops run.", exact=True)).to_be_visible()
    eventually(lambda: len(cluster.ready_pods("app=keys")) == 2)


def test_a_breakpoint_on_the_selected_object(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("stop", 1)
    eventually(lambda: len(cluster.ready_pods("app=stop")) == 1)
    page.go("#/loops/apps.deployments/default/stop")
    page.get_by_role("button", name="Break on deployment/stop").click()
    expect(page.get_by_text("Breakpoint: Deployment default/stop")).to_be_visible()
    cluster.api("PATCH", f"{DEPLOYMENT}/stop", {"spec": {"replicas": 2}}, "application/merge-patch+json")
    expect(page.get_by_text("Stopped: deployment-controller would reconcile default/stop next.")).to_be_visible()
    assert len(cluster.ready_pods("app=stop")) == 1
    page.get_by_role("button", name="Remove the breakpoint on Deployment default/stop").click()
    page.get_by_role("button", name="Resume all").click()
    eventually(lambda: len(cluster.ready_pods("app=stop")) == 2)
    # Slow motion is a choice, and goes back to full speed.
    page.get_by_label("Slow motion").select_option("2")
    expect(page.get_by_text("All loops together make one reconcile each 2 s.")).to_be_visible()
    page.get_by_label("Slow motion").select_option("")
    expect(page.get_by_text("All loops run.", exact=True)).to_be_visible()


def test_a_fault_is_injected_and_undone(cluster: PageCluster, page: GuardedPage) -> None:
    page.go("#/loops")
    row(page, "kube-scheduler").wait_for()
    page.press("x")
    panel = page.locator("#dock-faults")
    expect(panel).to_contain_text("Nothing is broken on purpose")
    panel.get_by_role("button", name="Power a node off").click()
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name="Break it")
    expect(button).to_have_attribute("aria-disabled", "true")
    dialog.get_by_label("Node", exact=True).select_option("node-2")
    assert findings(page) == []
    button.click()
    expect(panel.get_by_role("button", name="Undo: powered node-2 off")).to_be_visible()
    annotations = cluster.api("GET", "/api/v1/nodes/node-2")["metadata"]["annotations"]
    assert annotations["simulate.setpoint.dev/state"] == "stopped"
    panel.get_by_role("button", name="Undo: powered node-2 off").click()
    expect(panel).to_contain_text("Nothing is broken on purpose")
    assert "simulate.setpoint.dev/state" not in cluster.api("GET", "/api/v1/nodes/node-2")["metadata"]["annotations"]
    # What the server refuses is said, and the dialog stays.
    panel.get_by_role("button", name="Let a container use too much memory").click()
    names = eventually(lambda: cluster.pod_names("app=heal"))
    dialog.get_by_label("Pod", exact=True).select_option(names[0])
    dialog.get_by_role("button", name="Break it").click()
    expect(page.get_by_text("has no memory limit").first).to_be_visible()
    page.press("Escape")
    expect(dialog).to_have_count(0)


def compared(page: GuardedPage) -> dict[str, tuple[str, str, str]]:
    """The table of a prediction: now, what if, and the remark, by row."""
    rows = page.evaluate(
        """[...document.querySelectorAll(".whatif-compared tbody tr")].map((row) =>
             [...row.querySelectorAll("th, td")].map((cell) => cell.textContent.trim()))"""
    )
    return {name: (now, then, remark) for name, now, then, remark in rows}


def predicted(cluster: PageCluster, line: str, home: Path) -> dict[str, tuple[str, str, str]]:
    """The same rows, as `setpoint plan` prints them."""
    with ThreadPoolExecutor(1) as pool:  # the interface of the browser keeps an event loop in this thread
        kubeconfig = str(cluster.data_directory / "admin.kubeconfig")
        found = pool.submit(typed_offline, f"{line} -o json", home, KUBECONFIG=kubeconfig).result()
    assert found.code == 2, found.err
    rows = json.loads(found.out)["compared"]
    return {
        f"{row['kind'].lower()}/{row['name']}" if row["name"] else "Pods": (row["now"], row["then"], row["note"])
        for row in rows
    }


def without_times(rows: dict[str, tuple[str, str, str]]) -> dict[str, tuple[str, ...]]:
    """Two predictions begin at other seconds after the last heartbeat of a node."""
    return {name: tuple(re.sub(r"\+[0-9hms.]+", "+T", text) for text in row) for name, row in rows.items()}


def test_what_if_a_node_stops(cluster: PageCluster, page: GuardedPage, tmp_path: Path) -> None:
    cluster.create_deployment("shop", 3)
    service = {"selector": {"app": "shop"}, "ports": [{"port": 80}]}
    path = "/api/v1/namespaces/default/services"
    cluster.create(path, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": service})
    eventually(lambda: len(cluster.ready_pods("app=shop")) == 3)
    before = settled_objects(cluster)
    page.go("#/objects")
    page.press("g", "w")
    page.get_by_label("Node", exact=True).select_option("node-2")
    page.get_by_label("Let time pass").select_option("minutes")
    page.get_by_label("Minutes", exact=True).fill("6")
    page.get_by_role("button", name="Predict").click()
    table = page.get_by_role("table")
    expect(table.get_by_role("row", name="node/node-2")).to_contain_text("Unknown", timeout=60_000)
    expect(table.get_by_role("row", name="service/shop")).to_contain_text("fewer than 3 from +")
    expect(page.get_by_text(re.compile(r"^shop-\S+ on node-2 by shop-\S+ on node-[13]$"))).to_be_visible()
    expect(page.locator(".whatif-events")).to_contain_text("scheduled to")
    assert findings(page) == []
    page.until_text("6 m 0 s of virtual time passed")
    shown = compared(page)
    assert shown["node/node-2"] == ("Ready", "Unknown", "")
    assert re.search(r"fewer than 3 from \+[45]\d\.\ds to \+5m\d\ds$", shown["service/shop"][2])
    assert without_times(shown) == without_times(predicted(cluster, "plan --stop node-2 --until 6m", tmp_path))
    # The cluster itself is as it was: each object, and each resource version.
    assert objects(cluster) == before
    # All views show the copy, and the page leads back.
    page.get_by_role("button", name="Look around in the copy").click()
    page.go("#/objects/pods?ns=default&cluster=%2Fforks%2Fwhat-if")
    expect(page.get_by_text("fork what-if")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("shop-")).first).to_be_visible()
    page.get_by_role("button", name="Back to now").first.click()
    page.go("#/what-if")
    page.get_by_role("button", name="Remove the copy").click()
    expect(page.locator(".whatif-result")).to_have_count(0)
    assert all(each["name"] != "what-if" for each in cluster.api("GET", "/setpoint/v1/forks")["forks"])


def test_what_if_and_then_for_real(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("grow", 1)
    eventually(lambda: len(cluster.ready_pods("app=grow")) == 1)
    page.go("#/what-if/apps.deployments/default/grow")
    page.get_by_label("Change", exact=True).select_option("scale")
    page.get_by_label("Object", exact=True).select_option("deployments/default/grow")
    page.get_by_label("Replicas").fill("3")
    page.press("Enter")
    expect(page.get_by_role("row", name="deployment/grow")).to_contain_text("3 of 3 ready", timeout=60_000)
    assert len(cluster.ready_pods("app=grow")) == 1
    page.get_by_role("button", name="Make this change here").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("scale deployments/grow to 3")
    dialog.get_by_role("button", name="Make the change").click()
    eventually(lambda: len(cluster.ready_pods("app=grow")) == 3)
    # What cannot be is said in the words of the server.
    page.get_by_label("Change", exact=True).select_option("apply")
    page.get_by_label("YAML").fill("kind: Nothing\nmetadata: {name: a}")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_role("heading", name="The change would be refused.")).to_be_visible(timeout=60_000)


def test_what_if_with_faults_on_the_way(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("late", 1)
    eventually(lambda: len(cluster.ready_pods("app=late")) == 1)
    before = settled_objects(cluster)
    page.go("#/objects")
    page.press("x")
    page.get_by_role("link", name="a prediction").click()
    page.press("Escape")
    page.go("#/what-if/apps.deployments/default/late")
    page.get_by_label("Change", exact=True).select_option("scale")
    page.get_by_label("Object", exact=True).select_option("deployments/default/late")
    page.get_by_label("Replicas").fill("3")
    page.get_by_role("button", name="Add a fault").click()
    first = page.get_by_role("group", name="Fault 1")
    first.get_by_label("Fault", exact=True).select_option("Delay a watch")
    first.get_by_label("Seconds").fill("30")
    page.get_by_role("button", name="Add a fault").click()
    second = page.get_by_role("group", name="Fault 2")
    second.get_by_label("Fault", exact=True).select_option("Conflict with another client (409)")
    expect(second.get_by_label("Seconds")).to_have_count(0)
    # A mistake is named where one would send it.
    second.get_by_label("At write").fill("0")
    button = page.get_by_role("button", name="Predict")
    expect(button).to_have_attribute("title", re.compile("Every fault needs a number from 1 on"))
    second.get_by_label("At write").fill("2")
    assert findings(page) == []
    button.click()
    verdict = page.get_by_role("heading", name="It would end as without the faults, which takes")
    expect(verdict).to_be_visible(timeout=60_000)
    page.until_text("delay-watch:1/30s of the controllers: event 1 and the next events of the same watch are delayed")
    page.until_text("conflict:2 of the controllers: another client changes the object before write 2")
    page.get_by_text("What the components with faults received and wrote").click()
    expect(page.get_by_role("listitem").filter(has_text="controllers, event 1: MODIFIED Deployment")).to_contain_text(
        "← delay-watch"
    )
    assert findings(page) == []
    assert settled_objects(cluster) == before
    second.get_by_role("button", name="Remove fault 2").click()
    expect(page.get_by_role("group", name="Fault 2")).to_have_count(0)


def test_on_a_phone(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(viewport={"width": 390, "height": 844}, has_touch=True).new_page().enter(then="#/loops")
    row(page, "kube-scheduler").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert findings(page) == []
    page.go("#/what-if")
    page.get_by_role("button", name="Predict").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


_RUN_OVER = """
() => {
  const found = [];
  for (const line of document.querySelectorAll(".loops-keys li, .loops-depth > .number")) {
    const cell = line.closest("td").getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(line);
    const box = range.getBoundingClientRect();
    if (box.right > cell.right + 1 || box.left < cell.left - 1) found.push(line.textContent);
  }
  for (const key of document.querySelectorAll(".loops-key")) {
    if (key.getBoundingClientRect().width < Math.min(48, key.scrollWidth)) found.push(key.textContent);
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def waiting(cluster: PageCluster) -> Iterator[None]:
    """A Pod that fits nowhere, and a Deployment whose progress deadline is awaited."""
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "900"}}}
    pods = "/api/v1/namespaces/default/pods"
    cluster.create(pods, {"metadata": {"name": "huge"}, "spec": {"containers": [container]}})
    cluster.create_deployment("waits", 1, image="no-such-image:missing")
    yield
    cluster.api("DELETE", f"{pods}/huge")
    cluster.api("DELETE", f"{DEPLOYMENT}/waits")


@pytest.mark.parametrize("selected", ["", "/nodes/_/node-1"])
def test_keys_of_the_board_have_room(waiting: None, new_context: Callable[..., GuardedContext], selected: str) -> None:
    """Keys can be recognized, and nothing lies over the next column, also beside the inspector."""
    page = new_context(viewport={"width": 1440, "height": 720}).new_page().enter(then=f"#/loops{selected}")
    for width in (1440, 1240, 1100, 1024, 760):
        page.page.set_viewport_size({"width": width, "height": 720})
        row(page, "kube-scheduler").get_by_role("button", name="default/huge").wait_for()
        # Deployments of other tests may wait too, and be due before.
        row(page, "deployment-controller").locator(".loops-key").first.wait_for()
        assert page.evaluate(_RUN_OVER) == [], width
