"""Texts have room: names of lanes stay clear of the marks, cards show whole lines, and tables whole words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster

_CUT = """
() => [...document.querySelectorAll(".fleet-pod:not([hidden]) span")].filter((one) => one.textContent).map((one) => {
  const line = parseFloat(getComputedStyle(one).lineHeight);
  const lines = one.getBoundingClientRect().height / line;
  return [one.textContent, Math.abs(lines - Math.round(lines)) < 0.1 && lines >= 1];
})
"""
_GAPS = """
() => {
  const lanes = document.querySelector(".timeline-lanes");
  const track = document.querySelector(".timeline-track").getBoundingClientRect();
  const range = document.createRange();
  return [...lanes.children].map((one) => {
    range.selectNodeContents(one);
    return track.left - Math.min(range.getBoundingClientRect().right, one.getBoundingClientRect().right);
  });
}
"""
_SHORTENED = """
() => [...document.querySelectorAll(".data-rows .data-cell")].filter((one) => {
  const { paddingLeft, paddingRight } = getComputedStyle(one);
  const room = one.getBoundingClientRect().width - parseFloat(paddingLeft) - parseFloat(paddingRight);
  const range = document.createRange();
  range.selectNodeContents(one);
  return !one.querySelector(".soft") && range.getBoundingClientRect().width > room;
}).map((one) => one.textContent)
"""
_LAST_LINES = """
() => [...document.querySelectorAll(".data-rows > .data-row")].map((row) => {
  const lines = [...row.querySelectorAll(".data-cell")].map((cell) => cell.getBoundingClientRect().bottom);
  return row.getBoundingClientRect().bottom - Math.max(...lines);
})
"""
_BROKEN_WORDS = """
([within, words]) => {
  const found = [];
  const texts = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of words) {
      const at = texts.currentNode.data.indexOf(word);
      if (at < 0) continue;
      const range = document.createRange();
      range.setStart(texts.currentNode, at);
      range.setEnd(texts.currentNode, at + word.length);
      if (range.getClientRects().length > 1) found.push(word);
    }
  }
  return found;
}
"""


_OUT_OF_SIGHT = """
(selector) => [...document.querySelectorAll(selector)].filter((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return [...range.getClientRects()].some((box) => box.right > innerWidth || box.left < 0);
}).map((one) => one.textContent)
"""
_WITH_ELLIPSIS = """
(selector) => [...document.querySelectorAll(selector)].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent)
"""
PHONE = {"width": 390, "height": 844}


def test_names_of_lanes_and_of_pods_have_room(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    cluster.create_deployment("a-name-that-needs-several-lines", 2)
    page = new_context(viewport={"width": 900, "height": 620}).new_page().enter(then="#/fleet")
    # Looked at in one step: names are asked for again when the layout changes.
    several = "some(([name]) => name.includes('a\u2011name'))"
    page.until(f"(window.names = ({_CUT})()).length >= 4 && window.names.{several}")
    assert [name for name, whole in page.evaluate("window.names") if not whole] == []
    page.until("document.querySelectorAll('.timeline-lanes > li').length > 1")
    gaps = page.evaluate(_GAPS)
    assert min(gaps) >= 4, gaps


_CELLS = """
() => [...document.querySelectorAll(".fleet-pod:not([hidden])")].map((one) => [...one.children].map((part) => part.textContent))
"""


_LINES_LOST = """
() => [...document.querySelectorAll(".fleet-pod:not([hidden]) span")].filter((one) => one.scrollHeight > one.clientHeight + 1)
  .map((one) => one.textContent)
"""


def test_cells_of_the_fleet_tell_pods_of_a_set_apart(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    name = "checkout-service-with-a-long-name"
    cluster.create_deployment(name, 24)
    pods = cluster.pod_names(f"app={name}", at_least=24)
    page = new_context(viewport={"width": 1240, "height": 720}).new_page().enter(then="#/fleet")
    ends = [pod.rpartition("-")[2] for pod in pods]
    page.until(f"{ends}.every((end) => ({_CELLS})().some(([, name]) => name.endsWith(end)))".replace("'", '"'))
    cells = page.evaluate(_CELLS)
    assert {state for state, _ in cells} <= {"", "ready"}, "a state is named or marked, not cut"
    assert page.evaluate(_WITH_ELLIPSIS, ".fleet-pod:not([hidden]) b") == []
    assert page.evaluate(_LINES_LOST) == []
    cluster.api("DELETE", f"/apis/apps/v1/namespaces/default/deployments/{name}")


def test_kinds_are_told_apart(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(viewport={"width": 1240, "height": 720}).new_page().enter(then="#/objects/pods")
    page.get_by_role("button", name="Show all").first.click()
    page.locator(".kind-link", has_text="PersistentVolumeClaims").wait_for()
    assert page.evaluate(_WITH_ELLIPSIS, ".kind-name") == []


def test_messages_leave_the_tools_free(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "going"}})
    page.go("#/objects/configmaps/default/going?ns=default")
    page.get_by_role("complementary").get_by_role("button", name="Delete this object").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    message = page.get_by_role("region", name="Messages").locator(".toast")
    message.wait_for()
    tools = page.get_by_role("toolbar", name="Tools").bounding_box()
    place = message.bounding_box()
    assert tools is not None
    assert place is not None
    assert place["y"] + place["height"] <= tools["y"]


def test_cells_show_ages_and_other_short_values(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    """An age of seconds becomes one of minutes and seconds while the list is shown."""
    page = new_context(viewport={"width": 1240, "height": 720}).new_page()
    created = cluster.api("GET", "/api/v1/nodes/node-1")["metadata"]["creationTimestamp"]
    began = datetime.fromisoformat(created)
    page.page.clock.set_fixed_time(began + timedelta(seconds=61))
    page.enter(then="#/objects/nodes/_/node-1")
    page.get_by_role("row", name="<none>").first.wait_for()
    for passed in (61, 119, 239):
        page.page.clock.set_fixed_time(began + timedelta(seconds=passed))
        page.page.reload()
        page.get_by_role("row", name="<none>").first.wait_for()
        assert page.evaluate(_SHORTENED) == [], f"after {passed} s"


def test_a_table_of_the_chain_breaks_no_words(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    """Beside the inspector it has as little room as on a phone."""
    cluster.create_deployment("narrow", 1)
    page = new_context(viewport={"width": 1240, "height": 720}).new_page()
    page.enter(then="#/chain/apps.deployments/default/narrow?ns=default")
    page.get_by_role("complementary").get_by_role("heading", name="narrow").wait_for()
    page.get_by_role("button", name="Table", exact=True).click()
    page.until("document.querySelectorAll('.chain-table tbody tr').length >= 3")
    words = ["replicas", "Deployment", "controller", "ReplicaSet", "created"]
    assert page.evaluate(_BROKEN_WORDS, [".chain-table", words]) == []


def test_the_chain_of_a_deployment_fits_beside_the_inspector(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    """Its last column, the nodes, is seen without scrolling, also if there are more Pods than fit in the height."""
    cluster.create_deployment("tall", 7)
    cluster.pod_names("app=tall", at_least=7)
    page = new_context(viewport={"width": 1240, "height": 720}).new_page()
    page.enter(then="#/chain/apps.deployments/default/tall?ns=default")
    page.get_by_role("complementary").get_by_role("heading", name="tall").wait_for()
    page.until("document.querySelectorAll('.chain-box[data-box*=\"nodes\"]').length >= 2", 30)
    page.until(
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.chain-scroll'))"
    )


def test_cards_of_a_phone_have_room_for_their_lines(
    cluster: PageCluster, new_context: Callable[..., GuardedContext]
) -> None:
    cluster.create_deployment("unpullable", 1, image="no-such-image:missing")
    page = new_context(viewport=PHONE).new_page().enter(then="#/objects/pods?ns=default")
    page.until("document.querySelector('.data-rows')?.textContent.includes('ImagePullBackOff')")
    assert min(page.evaluate(_LAST_LINES)) >= 4, page.evaluate(_LAST_LINES)


def test_names_of_authors_are_whole(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    """All actors are named in the picture, not in a tooltip alone."""
    cluster.create_deployment("authored", 1)
    cluster.pod_names("app=authored", at_least=1)
    service = {"metadata": {"name": "authored"}, "spec": {"selector": {"app": "authored"}, "ports": [{"port": 80}]}}
    cluster.create("/api/v1/namespaces/default/services", service)
    page = new_context(viewport={"width": 1240, "height": 720}).new_page()
    page.enter(then="#/chain/apps.deployments/default/authored?ns=default")
    page.locator(".chain-actor", has_text="endpointslice-controller").wait_for()
    assert page.evaluate(_WITH_ELLIPSIS, ".chain-actor") == []
    page.go("#/timeline")
    lanes = ".timeline > .timeline-chart .timeline-lanes > li"
    page.locator(lanes, has_text="clusterrole-aggregation-controller").wait_for()
    assert page.evaluate(_WITH_ELLIPSIS, lanes) == []


def test_results_of_a_search_on_a_phone(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(viewport=PHONE).new_page().enter()
    page.get_by_role("combobox", name="Search views, kinds, objects").fill("kube")
    page.locator(".search-hits").get_by_role("option", name="kube-system Namespace").wait_for()
    words = ["kube-system", "Namespace"]
    assert page.evaluate(_BROKEN_WORDS, [".search-hits", words]) == []
    assert page.evaluate(_OUT_OF_SIGHT, ".search-hits span") == []


def test_differences_of_a_range_on_a_phone(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    begin = cluster.api("GET", "/setpoint/v1/writes?limit=1")["newest"]
    annotations = {"adomainofsomelength.example.com/andanameofsomelength": "0"}
    cluster.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "long"}})
    path = "/api/v1/namespaces/default/configmaps/long"
    cluster.api("PATCH", path, {"metadata": {"annotations": annotations}}, "application/merge-patch+json")
    page = new_context(viewport=PHONE).new_page().enter(then=f"#/timeline?range={begin + 1}-{begin + 2}")
    page.locator(".timeline-differences li").first.wait_for()
    page.until_text("andanameofsomelength")
    assert page.evaluate(_OUT_OF_SIGHT, ".timeline-differences span") == []


def test_commands_of_a_lesson_on_a_phone(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    """A command is broken between its words: `--` at the end of a line would look like a word."""
    page = new_context(viewport=PHONE, has_touch=True).new_page().enter(then="#/learn?lesson=loop")
    page.locator(".learn-command").first.wait_for()
    words = ["--image=nginx:1.25", "--replicas=3", "-l"]
    assert page.evaluate(_BROKEN_WORDS, [".learn-text", words]) == []


def keys(page: GuardedPage) -> set[str]:
    page.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    dialog.wait_for()
    found = {"".join(each.split()) for each in dialog.locator("dt").all_inner_texts()}
    page.press("Escape")
    return found


def test_help_and_menu_list_what_has_an_effect(
    cluster: PageCluster, page: GuardedPage, new_context: Callable[..., GuardedContext]
) -> None:
    listed = keys(page)
    assert {"go", "ge", "gu"} <= {each.replace("then", "") for each in listed}
    assert "gb" not in {each.replace("then", "") for each in listed}, "only the teacher of a class has this view"
    narrow = new_context(viewport=PHONE).new_page().enter(then="#/objects/pods?ns=default")
    narrow.get_by_role("button", name="More", exact=True).click()
    menu = narrow.get_by_role("dialog", name="Menu")
    names = menu.locator(".label").all_inner_texts()
    assert "Timeline" not in names, "it is in the bar, and the strip does not exist here"
    story = narrow.get_by_role("group", name="What happens")
    story.wait_for()
    menu.get_by_role("button", name="What happens").click()
    story.wait_for(state="detached")
