"""The chain, the loop, why and history: a Pod is deleted, and the page says why it comes back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from page_typist import Typist
from playwright.sync_api import expect

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
STORY = "#live-story"


def pods(cluster: PageCluster, app: str) -> list[str]:
    found = cluster.api("GET", f"{PODS}?labelSelector=app%3D{app}")["items"]
    return [each["metadata"]["name"] for each in found if not each["metadata"].get("deletionTimestamp")]


def with_deployment(cluster: PageCluster, page: GuardedPage, name: str, view: str = "chain") -> list[str]:
    """Create a Deployment of three Pods, show it, and wait until all are ready."""
    cluster.create_deployment(name, 3)
    return shown(cluster, page, name, view)


def shown(cluster: PageCluster, page: GuardedPage, name: str, view: str = "chain") -> list[str]:
    """Show a Deployment of three Pods, and wait until all are ready."""
    page.go(f"#/{view}/apps.deployments/default/{name}?tab=loop")
    inspector = page.get_by_role("complementary", name="Selected object")
    expect(inspector.get_by_text("3 of 3 Pods ready")).to_be_visible(timeout=20_000)
    return pods(cluster, name)


def test_the_page_says_why_a_deleted_pod_comes_back(cluster: PageCluster, page: GuardedPage) -> None:
    """Without a question: within a second, in one sentence, with the right cause."""
    typist = Typist(page).open()
    assert typist.line("kubectl create deployment heal --image=nginx --replicas=3") == "deployment.apps/heal created"
    page.get_by_role("button", name="Close Terminal", exact=True).click()
    names = shown(cluster, page, "heal")
    boxes = page.locator(".chain-box")
    expect(boxes.filter(has_text="Pod")).to_have_count(3)
    expect(boxes.filter(has_text="ReplicaSet")).to_have_count(1)
    expect(boxes.filter(has_text="Deployment")).to_have_count(1)
    victim = names[0]
    page.locator(f'.chain-box[data-box="/pods/default/{victim}"]').click()
    inspector = page.get_by_role("complementary", name="Selected object")
    inspector.get_by_role("heading", name=victim).wait_for()
    page.page.wait_for_timeout(2_000)  # what the creation has caused is said by then
    inspector.get_by_role("button", name="Delete this object").click()
    page.evaluate("""() => {
        window.__story = [];
        const region = document.getElementById("live-story");
        new MutationObserver(() => window.__story.push([performance.now(), region.textContent]))
            .observe(region, {characterData: true, childList: true, subtree: true});
        document.querySelector("dialog .button.primary").addEventListener("click",
            () => { window.__deleted = performance.now(); }, true);
    }""")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.until(f"window.__story.some(([, text]) => text.includes('because you deleted Pod {victim}'))")
    said = page.evaluate(f"window.__story.find(([, text]) => text.includes('because you deleted Pod {victim}'))")
    took = said[0] - page.evaluate("window.__deleted")
    sentence = (
        f"replicaset-controller created Pod (\\S+) because you deleted Pod {victim}: 2 Pods exist, 3 are wanted\\."
    )
    found = re.fullmatch(sentence, said[1])
    assert found is not None, said
    assert took <= 1_000, f"the sentence came after {took:.0f} ms"
    # The graph shows the new Pod, and why leads back to this user.
    replacement = found[1]
    page.locator(f'.chain-box[data-box="/pods/default/{replacement}"]').click()
    inspector.get_by_role("heading", name=replacement).wait_for()
    page.press("w")
    root = page.locator(".why-root")
    expect(root).to_contain_text(f"you deleted pod/{victim}")
    expect(page.locator(".why-sentence")).to_contain_text("by replicaset-controller: 2 Pods exist, 3 are wanted.")
    # The table has the same objects.
    expect(boxes.filter(has_text="Pod")).to_have_count(3)
    page.get_by_role("button", name="Table", exact=True).click()
    rows = page.get_by_role("treegrid").get_by_role("row")
    expect(rows.filter(has_text="Pod heal-")).to_have_count(3)
    row = rows.filter(has_text=replacement).first
    assert row.get_attribute("aria-level") == "3"
    expect(row).to_contain_text("because")


def dots(page: GuardedPage) -> int:
    found = page.evaluate("window.__draws?.chain?.moved ?? 0")
    assert isinstance(found, int)
    return found


def until_nothing_moves(page: GuardedPage) -> None:
    """Wait until no write has been drawn for longer than a second: of many in a second, only the number is shown, and a
    label gives way to that of the next write."""
    found = -1
    while found != (found := dots(page)):
        page.page.wait_for_timeout(1_500)


def test_writes_travel(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(reduced_motion="no-preference").new_page().enter()
    names = with_deployment(cluster, page, "travel")
    page.page.wait_for_timeout(1_500)
    before = dots(page)
    cluster.api("DELETE", f"{PODS}/{names[0]}")
    page.until(f"window.__draws.chain.moved >= {before} + 4")  # you, the ReplicaSet's controller, scheduler, kubelet
    box = page.locator(".chain-box-label")
    expect(box.first).to_be_visible()
    assert page.evaluate("window.__draws.chain.quantile(0.95)") < 16, "a frame takes too long"
    # A write arrives on the screen while it is fresh: the label names the changed field.
    until_nothing_moves(page)
    began = time.monotonic()
    patch = {"metadata": {"labels": {"seen": "yes"}}}
    cluster.api("PATCH", f"{DEPLOYMENTS}/travel", patch, "application/merge-patch+json")
    page.locator(".chain-box-label", has_text="labels.seen set to yes").wait_for()
    assert time.monotonic() - began < 3


def test_without_motion_the_box_is_outlined(cluster: PageCluster, page: GuardedPage) -> None:
    with_deployment(cluster, page, "still")
    page.page.wait_for_timeout(1_000)
    patch = {"metadata": {"labels": {"seen": "yes"}}}
    cluster.api("PATCH", f"{DEPLOYMENTS}/still", patch, "application/merge-patch+json")
    box = page.locator('.chain-box[data-box="apps/deployments/default/still"]')
    expect(box.locator(".chain-box-label")).to_have_text("metadata.labels.seen set to yes")
    expect(box).to_have_class(re.compile("part-metadata"))
    assert dots(page) == 0
    expect(box.locator(".chain-box-label")).to_have_count(0)


def test_a_mistake_is_undone(cluster: PageCluster, page: GuardedPage) -> None:
    with_deployment(cluster, page, "undo", "objects")
    inspector = page.get_by_role("complementary", name="Selected object")
    inspector.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Scale…").click()
    page.get_by_label("Number of Pods").fill("1")
    page.get_by_role("dialog").get_by_role("button", name="Scale", exact=True).click()
    expect(inspector.get_by_text("1 of 1 Pods ready")).to_be_visible()
    page.press("h")
    entry = page.locator(".history-entry", has_text="spec.replicas 3 -> 1")
    expect(entry).to_contain_text("by you ·")
    entry.get_by_role("button", name="Undo…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("spec.replicas 1 -> 3")
    dialog.get_by_role("button", name="Carry out the plan").click()
    expect(page.locator(".history-entry", has_text="spec.replicas 1 -> 3")).to_be_visible()
    assert cluster.api("GET", f"{DEPLOYMENTS}/undo")["spec"]["replicas"] == 3
    history = cluster.api("GET", "/setpoint/v1/history?group=apps&resource=deployments&namespace=default&name=undo")
    reasons = [each["cause"].get("reason", "") for each in history["changes"]]
    assert any(re.fullmatch(r"undo of \d+", each) for each in reasons), reasons
    # Two versions side by side.
    for change in ("spec.replicas 3 -> 1", "spec.replicas 1 -> 3"):
        page.locator(".history-entry", has_text=change).get_by_role("checkbox").check()
    expect(page.locator(".history-line.added", has_text="replicas: 3").first).to_be_visible()
    expect(page.locator(".history-line.removed", has_text="replicas: 1").first).to_be_visible()
    # And the moment of the mistake: as it was then, and nothing can be changed.
    mistake = page.locator(".history-entry", has_text="spec.replicas 3 -> 1")
    mistake.get_by_role("button", name="Go to this moment").click()
    inspector.get_by_role("tab", name="Loop").click()
    expect(inspector.locator(".loop-panel")).to_contain_text("1 replica")
    expect(inspector.locator(".loop-panel")).to_contain_text("generation 2 is not observed yet")
    expect(inspector.get_by_role("button", name="Delete this object")).to_have_attribute("aria-disabled", "true")
    expect(page.locator(STORY)).to_contain_text("This is a past moment.")


def test_why_not_names_what_blocks(cluster: PageCluster, page: GuardedPage) -> None:
    spec: dict[str, Any] = {
        "containers": [{"name": "a", "image": "nginx", "resources": {"requests": {"cpu": "500"}}}],
    }
    cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge"}, "spec": spec})
    page.go("#/chain/pods/default/huge?tab=loop")
    inspector = page.get_by_role("complementary", name="Selected object")
    expect(inspector.locator(".loop-panel .phase")).to_contain_text("waiting")
    expect(inspector.locator(".loop-reason")).to_contain_text("Insufficient cpu")
    page.press("w")
    expect(page.locator(".why-sentence")).to_contain_text("has waited for a node")
    expect(page.locator(".why-evidence").first).to_contain_text("cpu: requests 500")
    inspector.get_by_role("button", name="Why image?").click()
    expect(page.locator(".why-sentence")).to_contain_text("image of Pod huge is nginx since its creation")


def test_why_not_shows_the_end_of_a_log(cluster: PageCluster, page: GuardedPage) -> None:
    command = ["sh", "-c", "echo first; echo 'no <b>database</b>'; exit 1"]
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "a", "image": "busybox", "command": command}],
    }
    cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "failing"}, "spec": spec})
    page.go("#/chain/pods/default/failing?tab=loop")
    inspector = page.get_by_role("complementary", name="Selected object")
    expect(inspector.locator(".loop-reason")).to_contain_text("exited with code 1")
    page.press("w")
    expect(page.locator(".why-sentence")).to_contain_text("container a exited with code 1")
    expect(page.locator(".why-log pre")).to_have_text("first\nno <b>database</b>")
    expect(page.locator(".why-log figcaption")).to_have_text("The end of the log of container a")


def keys_of(page: GuardedPage, attribute: str) -> list[str]:
    """The values of a data attribute in the document, sorted."""
    read = "(elements, name) => elements.map((each) => each.getAttribute(name))"
    return sorted(page.locator(f"[data-{attribute}]").evaluate_all(read, f"data-{attribute}"))


_IN_SIGHT = """
(() => {
  const box = document.querySelector(".chain-box.chosen")?.getBoundingClientRect();
  const view = document.querySelector(".chain-scroll").getBoundingClientRect();
  return box && box.top >= view.top && box.bottom <= view.bottom && box.left >= view.left && box.right <= view.right + 1;
})()
"""


def test_the_selected_object_is_in_sight(cluster: PageCluster, page: GuardedPage) -> None:
    """In a namespace with more than fits into the window."""
    cluster.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}})
    for number in range(12):
        cluster.create_deployment(f"many-{number:02}", 0, "many")
    page.go("#/chain/apps.deployments/many/many-11?ns=many")
    page.locator(".chain-box").nth(23).wait_for(state="attached")
    page.until(_IN_SIGHT)
    page.go("#/chain/apps.deployments/many/many-01?ns=many")
    page.until(_IN_SIGHT)


def test_the_chain_by_keyboard(cluster: PageCluster, page: GuardedPage) -> None:
    """Create, open, delete, ask why and go back; any use of a pointer fails the test."""
    page.evaluate(
        "for (const kind of ['mousedown', 'pointerdown', 'touchstart'])"
        "addEventListener(kind, () => __problem('pointer', kind), true)"
    )
    typist = Typist(page).open()
    assert typist.line("kubectl create deployment keys --image=nginx --replicas=3") == "deployment.apps/keys created"
    page.press("Control+Shift+Escape")
    page.get_by_role("button", name="Close Terminal", exact=True).press("Enter")
    names = shown(cluster, page, "keys")
    page.press("g", "c")
    box = page.locator('.chain-box[data-box="apps/deployments/default/keys"]')
    box.focus()
    page.press("ArrowRight", "ArrowRight")
    page.until("document.activeElement.dataset.box?.startsWith('/pods/default/keys-')")
    page.press("Enter")
    inspector = page.get_by_role("complementary", name="Selected object")
    inspector.get_by_role("heading", name="keys-").wait_for()
    assert page.evaluate("location.hash").startswith("#/chain/pods/default/keys-")
    victim = page.evaluate("location.hash.split('?')[0].split('/').at(-1)")
    inspector.get_by_role("button", name="Delete this object").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    page.locator(f'.chain-box[data-box="/pods/default/{victim}"]').wait_for(state="detached")
    expect(page.locator('.chain-box[data-box^="/pods/default/keys-"]')).to_have_count(3)
    (replacement,) = set(pods(cluster, "keys")) - set(names)
    page.locator(f'.chain-box[data-box="/pods/default/{replacement}"]').press("Enter")
    page.press("w")
    expect(page.locator(".why-sentence")).to_contain_text("replicaset-controller")
    expect(page.locator(".why-root")).to_contain_text(f"you deleted pod/{victim}")
    page.press("Escape")
    expect(inspector).to_have_count(0)
    # The table has exactly the objects of the picture.
    boxes = keys_of(page, "box")
    page.get_by_role("button", name="Table", exact=True).press("Enter")
    grid = page.get_by_role("treegrid")
    grid.get_by_role("row").nth(1).focus()
    assert keys_of(page, "row") == boxes
    page.press("End")
    page.until("document.activeElement.dataset.row !== undefined")
    page.press("Home", "ArrowLeft")
    top = grid.get_by_role("row").nth(1)
    expect(top).to_have_attribute("aria-expanded", "false")
    page.press("ArrowRight")
    expect(top).to_have_attribute("aria-expanded", "true")
