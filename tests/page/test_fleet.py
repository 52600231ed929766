"""The fleet: 5,000 nodes and 150,000 Pods from a fake feed, and a small real one."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from browser import GuardedContext, GuardedPage
from fake_fleet import FakeFleet
from kubectl_runner import until
from page_cluster import PageCluster
from playwright.sync_api import Browser, Locator, expect

_SOFTWARE_GL = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
_READ_PIXELS = """
async ([png, points]) => {
  const bytes = Uint8Array.from(atob(png), (one) => one.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return points.map(([x, y]) => [...context.getImageData(Math.floor(x), Math.floor(y), 1, 1).data.slice(0, 3)]);
}
"""
_PALETTE = """
() => {
  const style = getComputedStyle(document.querySelector(".fleet"));
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  return [0, 1, 2, 3, 4, 5, 6, 7].map((state) => {
    context.fillStyle = style.getPropertyValue(`--fleet-${state}`);
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  });
}
"""

_COUNT_PIXELS = """
() => {
  const canvas = document.querySelector(".fleet-canvas");
  const context = canvas.getContext("2d");
  const put = context.putImageData.bind(context);
  const counts = (window.__put = { calls: 0, pixels: 0, all: canvas.width * canvas.height });
  context.putImageData = (image, x, y, ...part) => {
    counts.calls += 1;
    counts.pixels += part.length ? part[2] * part[3] : image.width * image.height;
    put(image, x, y, ...part);
  };
}
"""


def entered(context: GuardedContext, fleet: FakeFleet, painter: str) -> GuardedPage:
    page = context.new_page()
    fleet.install(page.page)
    page.enter(then=f"#/fleet?renderer={painter}")
    page.until_text(f"{len(fleet.indexes()):,} Pods on {len(fleet.nodes):,} nodes")
    page.until("(window.__draws?.fleet?.count ?? 0) > 0")
    return page


def settle(page: GuardedPage) -> None:
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wrong_pixels(page: GuardedPage, fleet: FakeFleet, indexes: list[int]) -> list[Any]:
    """The Pods of these indexes that do not have the colour of their state on the screen."""
    settle(page)
    places = page.evaluate("(all) => all.map((one) => window.__draws.fleet.locate(one))", indexes)
    png = base64.b64encode(page.page.screenshot()).decode()
    found = page.evaluate(_READ_PIXELS, [png, [[each["x"], each["y"]] for each in places]])
    palette = page.evaluate(_PALETTE)
    wrong = []
    for index, colour in zip(indexes, found, strict=True):
        expected = palette[fleet.slots[index] & 0x7F]
        if max(abs(one - other) for one, other in zip(colour, expected, strict=True)) > 2:
            wrong.append((index, fleet.slots[index], colour, expected))
    return wrong


def check_picture(page: GuardedPage, fleet: FakeFleet) -> None:
    among = fleet.indexes()
    sample = fleet.random.sample(among, 50)
    assert wrong_pixels(page, fleet, sample) == []
    # Changes are drawn in their places, few of them and many.
    fleet.change({index: 1 + fleet.slots[index] % 7 for index in sample[:5]})
    fleet.change_some(3_000, among)
    page.page.wait_for_timeout(200)
    assert wrong_pixels(page, fleet, sample) == []
    # Theme and set of colours are uniforms: the states stay.
    page.page.emulate_media(color_scheme="dark")
    page.get_by_label("Colours").select_option("safe")
    assert wrong_pixels(page, fleet, sample) == []
    page.get_by_label("Colours").select_option("standard")


def test_all_pods_of_five_thousand_nodes_by_pixels(new_context: Callable[..., GuardedContext]) -> None:
    fleet = FakeFleet(5_000, 30)
    page = entered(new_context(), fleet, "2d")
    assert page.evaluate("window.__draws.fleet.renderer") == "2d"
    check_picture(page, fleet)
    # The cell below the pointer stays there.
    index = fleet.random.choice(fleet.indexes())
    place = page.evaluate("(one) => window.__draws.fleet.locate(one)", index)
    page.page.mouse.move(place["x"], place["y"])
    for _ in range(12):
        page.page.mouse.wheel(0, -150)
    settle(page)
    after = page.evaluate("(one) => window.__draws.fleet.locate(one)", index)
    assert abs(after["x"] - place["x"]) < 60 and abs(after["y"] - place["y"]) < 60
    # Names are text now, and the Pod below the pointer has its name in the tooltip.
    page.page.mouse.move(after["x"] + 1, after["y"] + 1)
    page.until_text(str(fleet.name(index)))
    page.page.mouse.click(after["x"], after["y"])
    page.until(f"location.hash.includes('{str(fleet.name(index)).partition('/')[2]}')")
    # A frame with 100 changes puts at most the boxes of their nodes on the canvas, and never everything.
    page.get_by_role("button", name="Show everything").click()
    settle(page)
    page.evaluate(_COUNT_PIXELS)
    among = fleet.indexes()
    for _ in range(10):
        before = page.evaluate("window.__draws.fleet.count")
        fleet.change_some(100, among)
        page.until(f"window.__draws.fleet.count > {before}")
    put = page.evaluate("window.__put")
    assert 0 < put["calls"] <= 10 * 100
    assert put["pixels"] <= put["calls"] * 2 * put["all"] / 5_000, "a call paints more than the box of a node"
    # 150,000 Pods are not 150,000 elements or objects: the labels are bounded, and the states are bytes.
    assert page.evaluate("document.querySelectorAll('.fleet *').length") < 1_000
    heap = page.page.context.new_cdp_session(page.page)
    heap.send("HeapProfiler.collectGarbage")
    used = heap.send("Runtime.getHeapUsage")["usedSize"]
    assert used < 100 * len(among), f"{used / len(among):.0f} bytes of the heap for each Pod"


def test_all_pods_by_webgl_also_after_a_lost_context(browser: Browser, cluster: PageCluster) -> None:
    own = browser.browser_type.launch(executable_path="/usr/bin/chromium", args=_SOFTWARE_GL)
    try:
        context = GuardedContext(own.new_context(viewport={"width": 700, "height": 500})).begin(cluster)
        fleet = FakeFleet(600, 25)
        page = entered(context, fleet, "gl")
        assert page.evaluate("window.__draws.fleet.renderer") == "gl"
        check_picture(page, fleet)
        page.evaluate(
            """async () => {
              const gl = document.querySelector(".fleet-canvas").getContext("webgl2");
              const lost = gl.getExtension("WEBGL_lose_context");
              lost.loseContext();
              await new Promise((done) => setTimeout(done, 100));
              lost.restoreContext();
              await new Promise((done) => setTimeout(done, 300));
            }"""
        )
        assert wrong_pixels(page, fleet, fleet.random.sample(fleet.indexes(), 50)) == []
        context.check()
    finally:
        own.close()


def test_the_table_and_the_search_have_the_same_content(new_context: Callable[..., GuardedContext]) -> None:
    fleet = FakeFleet(40, 12, zones=2)
    page = entered(new_context(), fleet, "")
    page.press("p")
    table = page.get_by_role("region", name="Zones, nodes and Pods")
    counts = [sum(value & 0x7F == state for value in fleet.slots) for state in (1, 2, 5, 3, 4, 6, 7)]
    rows = table.get_by_role("row")
    cells = [rows.nth(number).get_by_role("cell").all_inner_texts() for number in (1, 2)]
    assert [each[0] for each in cells] == ["20 / 20", "20 / 20"]
    sums = [sum(int(each[column]) for each in cells) for column in range(1, 9)]
    assert sums == [40 * 12, *counts]
    table.get_by_role("button", name="zone-1").click()
    table.get_by_role("button", name="node-25", exact=True).click()
    failing = next(index for index in range(25 * 128, 25 * 128 + 12))
    page.get_by_role("button", name=str(fleet.name(failing))).click()
    page.until(f"location.hash.includes('{str(fleet.name(failing)).partition('/')[2]}')")
    page.press("Escape")
    page.get_by_role("group", name="Pods by state").get_by_role("button", name="failing").click()
    expected = [index for index, value in enumerate(fleet.slots) if value & 0x7F == 3]
    page.until_text(f"{len(expected)} Pods match")
    listed = page.get_by_role("complementary", name="Pods that match").get_by_role("listitem")
    expect(listed).to_have_count(min(200, len(expected)))
    assert str(fleet.name(expected[0])) in listed.first.inner_text()


def test_three_nodes_by_keyboard_with_a_real_cluster(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("web", 6)
    cluster.create_deployment("huge", 1, image="no-such-image:missing")
    page.press("g", "f")
    picture = page.get_by_role("application", name="Picture of all nodes and Pods")
    picture.wait_for()
    # Names stand in the cells.
    page.until(
        "[...document.querySelectorAll('.fleet-pod:not([hidden])')].filter((one) => one.innerText.includes('web')).length === 6"
    )
    page.until(
        "[...document.querySelectorAll('.fleet-pod:not([hidden])')].some((one) => one.innerText.includes('failing'))"
    )
    picture.focus()
    page.press("Home")
    page.until("document.querySelector('#live-polite').innerText.includes(' on node-')")
    page.press("ArrowRight", "ArrowDown", "Enter")
    page.until("location.hash.includes('/fleet/pods/')")
    # A deleted Pod leaves, and its replacement appears.
    victim = cluster.pod_names("app=web", at_least=6)[0]
    cluster.api("DELETE", f"/api/v1/namespaces/default/pods/{victim}")
    page.until(
        f"![...document.querySelectorAll('.fleet-pod:not([hidden])')].some((one) => one.innerText.endsWith('{victim.rpartition('-')[2]}'))"
    )
    page.until(
        "[...document.querySelectorAll('.fleet-pod:not([hidden])')].filter((one) => one.innerText.includes('web')).length === 6"
    )
    # The table has exactly the Pods of the picture.
    names = sorted(each["metadata"]["name"] for each in cluster.api("GET", "/api/v1/pods")["items"])

    def are_all_shown(labels: Locator) -> bool:
        return sorted(next((name for name in names if name in text), "") for text in labels.all_inner_texts()) == names

    # Of a name that is too long for its cell, the end is shown.
    ends = sorted(name.rpartition("-")[2] for name in names)
    cells = page.locator(".fleet-pod:not([hidden])")
    until(lambda: sorted(re.split("[-\u2011]", text)[-1] for text in cells.all_inner_texts()) == ends)
    page.press("p")
    table = page.get_by_role("region", name="Zones, nodes and Pods")
    for node in ("node-1", "node-2", "node-3"):
        table.get_by_role("button", name=node, exact=True).press("Enter")
    until(lambda: are_all_shown(table.get_by_role("listitem")))
    page.press("p")
    picture.wait_for()
    # The past has its own picture, and the present comes back.
    slider = page.get_by_role("slider", name="Moment that the page shows")
    slider.focus()
    page.press("Home")
    page.until_text("There are no nodes and no Pods.")
    page.press("End")
    page.until(
        "[...document.querySelectorAll('.fleet-pod:not([hidden])')].filter((one) => one.innerText.includes('web')).length === 6"
    )


def test_the_table_shows_the_pods_of_all_nodes_that_are_opened_at_once(cluster: PageCluster, page: GuardedPage) -> None:
    """The names of each node are a message of their own; they arrive after all nodes were opened."""
    cluster.create_deployment("spread", 6)
    cluster.pod_names("app=spread", at_least=6)
    page.go("#/fleet?form=table")
    page.until("document.querySelectorAll('.fleet-node-row .fleet-expander').length === 3")
    page.evaluate("document.querySelectorAll('.fleet-node-row .fleet-expander').forEach((each) => each.click())")
    page.until("document.querySelectorAll('.fleet-pods').length === 3")
    page.until("[...document.querySelectorAll('.fleet-pods')].every((each) => each.textContent.includes('spread-'))")
