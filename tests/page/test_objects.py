"""The list of objects: live, with the server's columns, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import expect

CRONTAB: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "additionalPrinterColumns": [{"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"}],
            }
        ],
    },
}


def config_map(name: str, namespace: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


def make_namespace(cluster: PageCluster, name: str) -> None:
    cluster.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def test_a_new_user_creates_something_deletes_a_pod_and_sees_it_come_back(page: GuardedPage) -> None:
    page.get_by_role("button", name="Create the example").click()
    rows = page.get_by_role("grid").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(page.get_by_role("row", name="settled")).to_have_count(3)
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Deployments 1").wait_for()
    # The columns are those of the server.
    assert [each.strip() for each in page.get_by_role("columnheader").all_inner_texts()] == [
        "", "Name", "Loop", "Ready", "Status", "Restarts", "Age",
    ]  # fmt: skip
    first = rows.nth(1)
    name = first.get_by_role("gridcell").nth(1).inner_text()
    first.click()
    inspector = page.get_by_role("complementary", name="Selected object")
    inspector.get_by_role("heading", name=name).wait_for()
    inspector.get_by_role("button", name="Delete this object").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row", name=name)).to_have_count(0)
    expect(page.get_by_role("row", name="settled")).to_have_count(3)


def test_everything_by_keyboard(cluster: PageCluster, page: GuardedPage) -> None:
    make_namespace(cluster, "keys")
    for number in range(1, 6):
        cluster.create("/api/v1/namespaces/keys/configmaps", config_map(f"c{number}", "keys"))
    page.page.mouse.click = None  # type: ignore[method-assign, assignment]
    page.go("#/objects/configmaps?ns=keys")
    rows = page.get_by_role("grid").get_by_role("row")
    expect(rows).to_have_count(7)  # with the header and kube-root-ca.crt
    page.press("f")
    page.keyboard.type("c")
    page.press("ArrowDown")
    page.until("document.activeElement.getAttribute('role') === 'row'")
    page.press("Home", "Space", "ArrowDown", "Shift+ArrowDown")
    page.until_text("3 selected")
    page.press("Delete")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Delete 3 ConfigMaps?").wait_for()
    page.press("Escape")
    page.until_text("3 selected")
    page.press("Delete", "Enter")
    expect(rows).to_have_count(4)
    page.until_text("3 objects are being deleted.")
    # Search, and the keys of the frame.
    page.press("/")
    page.keyboard.type("c5")
    page.get_by_role("option", name="c5 ConfigMap").wait_for()
    page.press("Enter")
    page.get_by_role("complementary").get_by_role("heading", name="c5").wait_for()
    page.press("g", "v")
    page.until("document.title.endsWith('Events · Setpoint')")
    page.press("Escape", "?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_custom_kinds_appear_with_their_columns(cluster: PageCluster, page: GuardedPage) -> None:
    page.go("#/objects/pods?ns=default")
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRONTAB)
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="CronTab").click()
    page.until_text("There are no CronTabs in namespace default")
    made = {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "nightly"}}
    cluster.create(
        "/apis/stable.example.com/v1/namespaces/default/crontabs", {**made, "spec": {"cronSpec": "0 3 * * *"}}
    )
    page.get_by_role("row", name="nightly").get_by_text("0 3 * * *").wait_for()


COUNTS_STAY = """
// The counts of the objects arrive once, and never again: as if the server took very long to count them.
const send = WebSocket.prototype.send;
let channel = 0;
WebSocket.prototype.send = function (data) {
  const message = JSON.parse(data);
  if (message.op === "open" && message.feed === "kinds" && message.args.counts) channel = message.id;
  send.call(this, data);
};
let counted = false;
const data = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "data").get;
Object.defineProperty(MessageEvent.prototype, "data", {
  get() {
    const text = data.call(this);
    const message = typeof text === "string" ? JSON.parse(text) : {};
    if (message.type !== "update" || message.id !== channel) return text;
    if (counted) return JSON.stringify({ ...message, set: {}, removed: [] });
    counted = message.synced;
    return text;
  },
});
window.__counted = () => counted;
"""


def test_a_new_kind_does_not_wait_until_objects_are_counted(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    page = new_context().new_page()
    page.page.add_init_script(COUNTS_STAY)
    page.enter(then="#/objects/pods?ns=default")
    page.until("window.__counted()")
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    spec = {**CRONTAB["spec"], "group": "new.example.com", "names": names}
    definition = {**CRONTAB, "metadata": {"name": "gadgets.new.example.com"}, "spec": spec}
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Gadget").click()
    page.until_text("There are no Gadgets in namespace default")


def test_a_long_list_keeps_only_visible_rows_and_sorts_and_filters(cluster: PageCluster, page: GuardedPage) -> None:
    make_namespace(cluster, "many")
    for number in range(300):
        cluster.create("/api/v1/namespaces/many/configmaps", config_map(f"item-{number}", "many"))
    page.go("#/objects/configmaps?ns=many")
    page.until_text("301")
    grid = page.get_by_role("grid")
    assert grid.get_attribute("aria-rowcount") == "302"
    assert page.evaluate("document.querySelectorAll('.data-rows > [role=row]').length") < 60
    page.get_by_role("button", name="Name").click()
    assert grid.get_by_role("row").nth(1).inner_text().startswith("item-0")
    page.get_by_role("button", name="Name").click()
    assert page.get_by_role("columnheader", name="Name").get_attribute("aria-sort") == "descending"
    page.until("document.querySelector('.data-rows').innerText.includes('item-299')")
    page.page.locator(".data-rows [role=row]").first.focus()
    page.press("End")
    page.until("document.activeElement.innerText.includes('item-0')")
    page.get_by_label("Filter these objects by text").fill("item-29")
    page.until_text("11 of 301")
    assert "filter=item-29" in page.evaluate("location.hash")
    page.get_by_label("Filter these objects by text").fill("nothing like this")
    page.get_by_role("button", name="Clear the filter").click()
    page.until_text("301")


def test_namespaces_are_chosen_in_the_header(cluster: PageCluster, page: GuardedPage) -> None:
    make_namespace(cluster, "elsewhere")
    cluster.create("/api/v1/namespaces/elsewhere/configmaps", config_map("only-there", "elsewhere"))
    page.go("#/objects/configmaps?ns=default")
    expect(page.get_by_role("row", name="only-there")).to_have_count(0)
    page.get_by_role("combobox", name="Namespace").select_option("all namespaces")
    page.get_by_role("row", name="only-there elsewhere").wait_for()
    assert "Namespace" in page.get_by_role("columnheader").all_inner_texts()
    page.page.reload()
    page.get_by_role("row", name="only-there elsewhere").wait_for()


def test_events_of_an_object_and_of_the_cluster(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("broken", 1, image="no-such-image:missing")
    (name,) = cluster.pod_names("app=broken", at_least=1)
    path = "/api/v1/namespaces/default/events"
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1"}, "involvedObject": about, "count": 7}
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}
    cluster.create(path, {**event, **times, "type": "Warning", "reason": "Burning", "message": "It <b>burns</b>."})
    page.go(f"#/objects/pods/default/{name}?ns=default&tab=events")
    inspector = page.get_by_role("complementary")
    entry = inspector.get_by_role("listitem").filter(has_text="Burning")
    entry.get_by_text("It <b>burns</b>.").wait_for()
    entry.get_by_text("7 times").wait_for()
    assert "Warning" in entry.inner_text()
    burning = page.get_by_role("listitem").filter(has_text="Burning")
    page.go("#/events?ns=*")
    expect(burning).to_contain_text("namespace default")
    page.go("#/events?ns=default")
    page.get_by_role("button", name="Warnings only").click()
    expect(burning).not_to_contain_text("namespace default")
    burning.get_by_role("button", name=f"pod/{name}").click()
    inspector.get_by_role("heading", name=name).wait_for()


def test_less_motion_means_no_transitions(cluster: PageCluster, page: GuardedPage) -> None:
    """A transition of any length would let the layout follow a frame after the content."""
    page.go("#/objects/nodes")
    page.get_by_role("row", name="node-1").first.wait_for()
    changed = "(() => { const rows = document.querySelector('.data-rows'); rows.style.height = '9px'; return rows.offsetHeight; })()"
    assert page.evaluate(changed) == 9
