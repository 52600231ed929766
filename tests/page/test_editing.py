"""The tabs yaml, logs and shell, and the editor, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import expect

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
APPLY = "application/apply-patch+yaml"
TAB = "#/objects/apps.deployments/default/web?ns=default&tab=yaml"


@pytest.fixture(scope="module")
def web(cluster: PageCluster) -> PageCluster:
    """A Deployment with fields of two managers."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "nginx", "image": "nginx"}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    cluster.api("PATCH", f"{DEPLOYMENT}?fieldManager=ann", body, APPLY)
    scale = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}}
    cluster.api("PATCH", f"{DEPLOYMENT}?fieldManager=autoscaler&force=true", scale, APPLY)
    cluster.pod_names("app=web", at_least=2)
    return cluster


def set_text(page: GuardedPage, old: str, new: str) -> None:
    """Replace a part of the edited text, as a user does: select it and type."""
    page.evaluate(
        "(old) => { const field = document.querySelector('.editor-field'); field.focus();"
        "const at = field.value.indexOf(old); field.setSelectionRange(at, at + old.length); }",
        old,
    )
    page.keyboard.insert_text(new)


def test_lines_show_who_wrote_them(web: PageCluster, page: GuardedPage) -> None:
    page.go(TAB)
    line = page.page.locator(".yaml-line", has_text="replicas: 2").first
    expect(line).to_have_attribute("title", "spec.replicas: owned by autoscaler")
    image = page.page.locator(".yaml-line", has_text="image: nginx").first
    expect(image).to_have_attribute("title", "spec.template.spec.containers[0].image: owned by ann")
    status = page.page.locator(".yaml-line", has_text="readyReplicas").first
    expect(status).to_have_attribute("title", "status.readyReplicas: owned by kube-controller-manager (status)")
    default = page.page.locator(".yaml-line", has_text="revisionHistoryLimit").first
    expect(default).to_have_attribute(
        "title", "spec.revisionHistoryLimit: owned by no manager: a default, or set by the server"
    )
    colours = page.evaluate(
        "[...document.querySelectorAll('.yaml-owners button')].map((each) =>"
        "[each.textContent, each.querySelector('.yaml-swatch').className])"
    )
    swatches = {text.split(" ")[0].rstrip("0123456789smh"): name.split()[-1] for text, name in colours}
    mark = str(line.locator(".yaml-owner").get_attribute("class")).split()[-1]
    assert mark == swatches["autoscaler"] != swatches["ann"]
    page.get_by_role("button", name="autoscaler").click()
    expect(image).to_have_class("yaml-line dim")
    expect(line).to_have_class("yaml-line")
    page.get_by_role("button", name="As applied").click()
    page.until_text("Nothing was applied with")


def test_problems_are_shown_at_their_line(web: PageCluster, page: GuardedPage) -> None:
    page.go(TAB)
    page.get_by_role("button", name="Edit", exact=True).first.click()
    field = page.page.locator(".editor-field")
    field.wait_for()
    page.until_text("The server would accept this.")
    set_text(page, "image: nginx", "imge: nginx")
    page.until_text("unknown field spec.template.spec.containers[0].imge (did you mean image?)")
    number = field.input_value().split("\n").index("      - imge: nginx") + 1
    expect(page.page.locator(".editor-problems li")).to_contain_text(f"Line {number}:")
    expect(field).to_have_attribute("aria-invalid", "true")
    described = str(field.get_attribute("aria-describedby"))
    assert f"Line {number}" in page.evaluate("(id) => document.getElementById(id).textContent", described)
    page.page.locator(".editor-problems li button").click()
    expect(page.page.locator(".editor-number.error")).to_have_text(f"■{number}")
    assert findings(page) == []
    set_text(page, "progressDeadlineSeconds:", "progressDeadlineSecond:")
    expect(page.page.locator(".editor-problems li")).to_have_count(2)
    listed = page.page.locator(".editor-problems li").all_inner_texts()
    assert "progressDeadlineSecond" in listed[0], "problems are in the order of their lines"
    set_text(page, "progressDeadlineSecond:", "progressDeadlineSeconds:")
    expect(page.page.locator(".editor-problems li")).to_have_count(1)
    page.get_by_role("tab", name="Difference").click()
    expect(page.page.locator(".diff-added")).to_have_text("+       - imge: nginx")
    expect(page.page.locator(".diff-removed")).to_have_text("-       - image: nginx")
    page.get_by_role("button", name="Close (Ctrl-X)").click()
    page.get_by_role("dialog").get_by_role("button", name="Close without saving").click()
    field.wait_for(state="detached")


def test_fields_are_completed_and_explained(web: PageCluster, page: GuardedPage) -> None:
    page.go(TAB)
    page.get_by_role("button", name="Edit", exact=True).first.click()
    field = page.page.locator(".editor-field")
    field.wait_for()
    set_text(page, "  replicas: 2\n", "  replicas: 2\n  pau")
    page.press("Control+Space")
    expect(page.page.locator(".editor-completion li")).to_have_text("pausedboolean")
    page.press("Enter")
    page.keyboard.type("true\n")
    assert "  replicas: 2\n  paused: true\n" in field.input_value()
    page.press("ArrowUp", "ArrowUp", "Control+d")
    page.until_text("spec.replicas")
    expect(page.page.locator(".editor-documentation")).to_contain_text("integer")
    # Tab indents, and leaves the field only after Escape.
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "editor-field"
    page.press("Escape", "Tab")
    assert page.evaluate("document.activeElement.className") != "editor-field"
    page.get_by_role("button", name="Close (Ctrl-X)").click()
    page.get_by_role("dialog").get_by_role("button", name="Close without saving").click()


def test_a_change_is_applied_and_a_conflict_is_explained(web: PageCluster, page: GuardedPage) -> None:
    page.go(TAB)
    page.get_by_role("button", name="Edit", exact=True).first.click()
    page.page.locator(".editor-field").wait_for()
    set_text(page, "revisionHistoryLimit: 10", "revisionHistoryLimit: 4")
    page.press("Control+s")
    page.until("!document.querySelector('.editor-changed')")
    assert web.api("GET", DEPLOYMENT)["spec"]["revisionHistoryLimit"] == 4
    # Another manager changes a field meanwhile.
    set_text(page, "  replicas: 2\n", "  replicas: 5\n")
    scale = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
    web.api("PATCH", f"{DEPLOYMENT}?fieldManager=autoscaler&force=true", scale, APPLY)
    page.press("Control+s")
    dialog = page.get_by_role("dialog", name="It was changed meanwhile")
    row = dialog.get_by_role("row", name="spec.replicas")
    expect(row).to_contain_text("autoscaler")
    expect(row).to_contain_text("You changed it, too.")
    assert findings(page) == []
    assert web.api("GET", DEPLOYMENT)["spec"]["replicas"] == 3
    dialog.get_by_role("button", name="Take over: write mine").click()
    dialog.wait_for(state="detached")
    page.until("!document.querySelector('.editor-changed')")
    assert web.api("GET", DEPLOYMENT)["spec"]["replicas"] == 5
    line = page.page.locator(".yaml-line", has_text="replicas: 5").first
    expect(line).not_to_have_attribute("title", "spec.replicas: owned by autoscaler")


def test_the_values_of_secrets_are_hidden_until_asked_for(cluster: PageCluster, page: GuardedPage) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"password": "hunter2"}}
    cluster.api("POST", "/api/v1/namespaces/default/secrets", body)
    page.go("#/objects/secrets/default/key?ns=default&tab=yaml")
    page.until_text("The values of this Secret are hidden.")
    page.until_text("<hidden-1>")
    assert "aHVudGVyMg" not in page.page.content()
    page.get_by_role("button", name="Show the values").click()
    page.until_text("aHVudGVyMg==")
    page.get_by_role("button", name="Hide the values").click()
    page.until("!document.body.textContent.includes('aHVudGVyMg')")


def test_logs_and_a_shell(cluster: PageCluster, page: GuardedPage) -> None:
    script = "i=0; while true; do i=$((i+1)); echo tick $i; sleep 1; done"
    containers = [
        {"name": "a", "image": "busybox", "command": ["sh", "-c", script]},
        {"name": "b", "image": "busybox", "command": ["sh", "-c", "echo '<b>other</b>'; sleep 1d"]},
    ]
    meta = {"name": "talker", "labels": {"app": "talker"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}
    cluster.api("POST", "/api/v1/namespaces/default/pods", body)
    page.go("#/objects/pods/default/talker?ns=default&tab=logs")
    page.until_text("tick 2")
    page.until_text("<b>other</b>")
    page.get_by_label("Search", exact=True).last.fill("oth")
    page.until_text("1 of")
    expect(page.page.locator(".logs-line")).to_have_count(1)
    expect(page.page.locator(".logs-line mark")).to_have_text("oth")
    page.get_by_label("Search", exact=True).last.fill("")
    page.get_by_label("Container").select_option("a")
    page.until("![...document.querySelectorAll('.logs-line')].some((each) => each.textContent.includes('other'))")
    page.get_by_label("Previous").check()
    page.until_text("previous terminated container")
    assert findings(page) == []

    page.get_by_role("tab", name="Shell").click()
    page.get_by_role("button", name="Start a shell").click()
    rows = page.page.locator(".exec-screen .xterm-rows")
    expect(rows).to_contain_text("/ #")
    page.keyboard.type("echo $((6 * 7))\n")
    expect(rows).to_contain_text("42")
    page.keyboard.type("exit 3\n")
    expect(rows).to_contain_text("exit code 3")
    assert findings(page) == []
    page.keyboard.press("Control+Shift+Escape")
    assert page.evaluate("document.activeElement.id") == "tab-inspector-exec"


def test_the_editor_at_phone_width(web: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(viewport={"width": 390, "height": 800}, color_scheme="dark").new_page().enter()
    page.go(TAB)
    page.get_by_role("button", name="Edit", exact=True).first.click()
    box = page.page.locator(".editor-field").bounding_box()
    assert box is not None and box["width"] > 300 and box["height"] > 300
    assert findings(page) == []
