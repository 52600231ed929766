"""The timeline: every tenth moment of the past, by slider and by keys, and the differences of a range."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import cycle, dropwhile, pairwise
from pathlib import Path
from typing import Any

import pytest
from browser import GuardedPage
from page_cluster import PageCluster
from page_moments import OTHER_LISTS, PastCommands, differences
from playwright.sync_api import expect

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"


def writes(cluster: PageCluster, after: int = 0) -> list[dict[str, Any]]:
    """The writes that are not routine."""
    found: list[dict[str, Any]] = []
    while True:
        page = cluster.api("GET", f"/setpoint/v1/writes?limit=500&after={after}")
        found += page["writes"]
        after = page["next"]
        if not after:
            break
    routine = ("leases", "events")
    return [each for each in found if any(one["resource"] not in routine for one in each["objects"])]


@pytest.fixture(scope="module")
def written(cluster: PageCluster) -> list[dict[str, Any]]:
    """At least 300 writes of a rollout, a replacement and two ConfigMaps, from the creation of the Deployment on."""
    begin = cluster.api("GET", "/setpoint/v1/writes?limit=1")["newest"]
    cluster.create_deployment("web", 4)
    cluster.pod_names("app=web", at_least=4)
    path = "/api/v1/namespaces/default/configmaps"
    for name, patches in (("counter", 60), ("other", 140)):
        cluster.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        for number in range(patches):
            cluster.api("PATCH", f"{path}/{name}", {"data": {"n": str(number)}}, "application/merge-patch+json")
    cluster.api("PATCH", DEPLOYMENT, {"spec": {"replicas": 7}}, "application/merge-patch+json")
    cluster.pod_names("app=web", at_least=7)
    cluster.api("DELETE", f"/api/v1/namespaces/default/pods/{cluster.pod_names('app=web')[0]}")
    template = {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}
    cluster.api("PATCH", DEPLOYMENT, {"spec": {"template": template}}, "application/strategic-merge-patch+json")
    for _ in range(100):
        deployment = cluster.api("GET", DEPLOYMENT)
        status, observed = deployment["status"], deployment["status"]["observedGeneration"]
        is_current = observed == deployment["metadata"]["generation"]
        if is_current and status.get("updatedReplicas") == status.get("availableReplicas") == status["replicas"] == 7:
            break
        time.sleep(0.1)
    # A node may have reported its status between the first two requests, when there was no Deployment yet.
    found = [*dropwhile(lambda each: all(one["name"] != "web" for one in each["objects"]), writes(cluster, begin))]
    assert len(found) >= 300
    return found


def enter_the_past(page: GuardedPage) -> None:
    """By a key: the banner moves everything below it, which is no surprise after an input."""
    slider = page.get_by_role("slider", name="Moment that the page shows")
    slider.wait_for()
    page.until("Number(document.querySelector('[role=slider]').getAttribute('aria-valuemin')) > 0")
    slider.focus()
    page.press("ArrowLeft")
    page.locator(".banner.past").wait_for()


def test_every_tenth_moment_is_what_the_command_line_shows(
    cluster: PageCluster, page: GuardedPage, written: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Every view of each tenth write has the text that the commands with `--at` print; the lists of other kinds than
    Pods take turns."""
    commands = PastCommands(cluster.data_directory / "admin.kubeconfig", tmp_path)
    page.go("#/objects/pods?ns=default")
    page.get_by_role("row", name="web-").first.wait_for()
    enter_the_past(page)
    others = cycle(OTHER_LISTS)
    with ThreadPoolExecutor(1) as pool:  # the interface of the browser keeps an event loop in this thread
        moments = [
            pool.submit(commands.views, each["revision"], moment_of(each), next(others)) for each in written[::10]
        ]
        for each in moments:
            assert [*differences(page, each.result())] == []


def moment_of(write: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(write["cause"]["at"] / 1000, UTC)


def test_nothing_can_be_changed_in_the_past(
    cluster: PageCluster, page: GuardedPage, written: list[dict[str, Any]]
) -> None:
    middle = written[len(written) // 2]["revision"]
    enter_the_past(page)
    page.go(f"#/objects/apps.deployments/default/web?ns=default&at={middle}")
    delete = page.get_by_role("complementary").get_by_role("button", name="Delete this object")
    delete.wait_for()
    assert delete.get_attribute("aria-disabled") == "true"
    assert "past moment" in str(delete.get_attribute("title"))
    delete.click(force=True)
    page.page.wait_for_timeout(100)
    expect(page.get_by_role("dialog")).to_have_count(0)
    # The server refuses too.
    with pytest.raises(RuntimeError, match="the past cannot be changed"):
        cluster.api("DELETE", f"/at/{middle}{DEPLOYMENT}")
    # Back to now is live.
    page.press(",")
    expect(page.locator(".banner.past")).to_have_count(0)
    assert delete.get_attribute("aria-disabled") is None
    cluster.api("PATCH", DEPLOYMENT, {"metadata": {"labels": {"fresh": "yes"}}}, "application/merge-patch+json")
    page.go("#/objects/pods?ns=default")
    cluster.create_deployment("late", 1)
    page.get_by_role("row", name="late-").wait_for()


def test_the_slider_by_pointer_and_keys(cluster: PageCluster, page: GuardedPage, written: list[dict[str, Any]]) -> None:
    page.go("#/objects/pods?ns=default")
    slider = page.get_by_role("slider", name="Moment that the page shows")
    slider.wait_for()
    page.until("document.querySelector('[role=slider]').getAttribute('aria-valuetext').startsWith('now, revision')")
    box, before = slider.bounding_box(), None
    while box is None or box != before:  # the tools around it may still be loading
        page.page.wait_for_timeout(300)
        box, before = slider.bounding_box(), box
    mouse = page.page.mouse
    mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 40)
    mouse.down()
    for step in range(9, 4, -1):
        mouse.move(box["x"] + box["width"] * step / 10, box["y"] + 40)
    # While it is dragged, the views follow and the address does not.
    page.until("document.querySelector('.banner.past') !== null")
    assert "at=" not in page.evaluate("location.hash")
    mouse.up()
    page.until("location.hash.includes('at=')")
    moment = int(page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('at')"))
    revisions = [each["revision"] for each in writes(cluster)]
    assert moment in revisions

    def shown() -> int:
        return int(page.evaluate("Number(document.querySelector('[role=slider]').getAttribute('aria-valuenow'))"))

    slider.focus()
    at = revisions.index(moment)
    page.press("ArrowRight")
    assert shown() == revisions[at + 1]
    page.press("ArrowLeft", "ArrowLeft")
    assert shown() == revisions[at - 1]
    # One write of the selected object, and one reconcile.
    page.go(f"#/objects/configmaps/default/counter?ns=default&at={revisions[-1]}")
    page.get_by_role("complementary").get_by_role("heading", name="counter").wait_for()
    slider.focus()
    page.press("Shift+ArrowLeft")
    counter = [each["revision"] for each in writes(cluster) if each["objects"][0]["name"] == "counter"]
    assert shown() == counter[-1]
    page.press("Shift+ArrowLeft")
    assert shown() == counter[-2]
    reconciles = {each["revision"]: each["cause"].get("reconcile", "") for each in writes(cluster)}
    several = next(
        revision
        for revision, other in pairwise(revisions)
        if reconciles[revision] and reconciles[revision] == reconciles[other]
    )
    page.go(f"#/objects/pods?ns=default&at={several}")
    slider.focus()
    page.press("Control+ArrowRight")
    assert reconciles[shown()] != reconciles[several]
    page.press("Home")
    assert shown() == revisions[0]
    page.press("End")
    expect(page.locator(".banner.past")).to_have_count(0)
    # Play goes on from write to write, and ends with now.
    page.go(f"#/objects/pods?ns=default&at={revisions[-4]}")
    page.get_by_label("Speed").select_option("20")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".banner.past")).to_have_count(0, timeout=10_000)


def test_the_view_lists_writes_and_compares_a_range(
    cluster: PageCluster, page: GuardedPage, written: list[dict[str, Any]]
) -> None:
    page.press("g", "t")
    rows = page.get_by_role("table").get_by_role("row")
    rows.nth(5).wait_for()
    page.get_by_label("Filter writes").fill("counter patch")
    expect(rows).to_have_count(61)
    rows.nth(1).get_by_role("button", name=re.compile("Show the cluster at revision")).click()
    page.until("location.hash.includes('at=')")
    expect(page.get_by_role("row").and_(page.locator("[aria-current=true]"))).to_have_count(1)
    page.press(",")
    first, last = written[0]["revision"] - 1, written[-1]["revision"]
    page.go(f"#/timeline?range={first}-{last}")
    found = page.get_by_role("region", name=re.compile("What changed from revision"))
    found.get_by_text("Deployment web").wait_for()
    differences = found.get_by_role("listitem").all_inner_texts()
    expected = cluster.api("GET", f"/at/{last}/api/v1/namespaces/default/pods")["items"]
    pods = [each for each in differences if "Pod " in each]
    assert len(pods) == len(expected) and all(each.startswith("+") for each in pods)
    assert any("ConfigMap counter" in each for each in differences)
    page.go(f"#/timeline?range={last - 1}-{last}")
    # Zoom and the other axis leave the moment alone.
    page.get_by_role("button", name="By time").click()
    page.get_by_role("button", name="Show everything that is kept").click()
    page.get_by_role("slider").focus()
    page.press("+", "-", "-")
    assert "at=" not in page.evaluate("location.hash")
    page.get_by_role("button", name="By revision").click()


def test_a_moment_outside_of_history_says_what_is_kept(cluster: PageCluster, page: GuardedPage) -> None:
    enter_the_past(page)
    page.go("#/objects/pods?ns=default&at=99999999")
    page.until_text("revision 99999999 has not happened yet")
    page.get_by_role("button", name="Back to now").click()
    page.get_by_role("row").first.wait_for()
