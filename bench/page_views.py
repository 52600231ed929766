"""The fleet and the past in the page: `python bench/page_views.py [fleet] [server] [scrub] [--nodes 5000] [--pods 30]
[--seconds 10]`.

`fleet` draws a fleet from a fake feed, once by each painter: the time until the first picture, the time of the main
thread for each frame at 1,000 changes a second, frames while the picture is moved, long tasks, memory of the tab.
`server` lists and watches that many Pods through the client, as the page does: time, CPU, memory, what one iteration of
the event loop takes, and the CPU while changes arrive, with and without a viewer. `scrub` goes to moments of the past,
and takes the time until the list of Pods shows each. Needs chromium, and for the browser a built page
(SETPOINT_PAGE_FILES names its directory)."""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from fake_fleet import FakeFleet
from local_server import LocalServer, local_server
from page_cluster import PageCluster, page_files
from playwright.sync_api import Page, sync_playwright

from setpoint.cluster.interpreter_gc import GarbageCollection
from setpoint.store.interface import Put, Store
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.feeds import fleet

FLAGS = ["--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
PAINTERS = {
    "2d": ["--disable-gpu"],
    "gl": ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
}
CHANGES_A_SECOND = 1_000


def quantiles(values: Sequence[float]) -> str:
    ordered = sorted(values)
    shown = [("median", 0.5), ("p95", 0.95), ("p99", 0.99)]
    found = [f"{name} {ordered[min(len(ordered) - 1, int(len(ordered) * share))]:.1f}" for name, share in shown]
    return f"{', '.join(found)}, most {ordered[-1]:.1f}"


@contextmanager
def cluster(*flags: str) -> Iterator[PageCluster]:
    files = page_files()
    if files is None:
        raise SystemExit("The page is not built; SETPOINT_PAGE_FILES names the directory of another build.")
    with tempfile.TemporaryDirectory() as directory:
        found = PageCluster(Path(directory), files, *flags)
        try:
            found.start()
            yield found
        finally:
            found.stop()


@contextmanager
def tab(link: str, flags: Sequence[str], before: Callable[[Page], None] = lambda page: None) -> Iterator[Page]:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("There is no chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, *flags])
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        before(page)
        page.goto(link)
        page.wait_for_selector(".frame")
        yield page
        browser.close()


# -- the fleet in the browser ------------------------------------------------------------------------------------------

_LONG_TASKS = """
() => {
  window.longTasks = [];
  new PerformanceObserver((list) => list.getEntries().forEach((one) => window.longTasks.push(one.duration)))
    .observe({ type: "longtask" });
}
"""


def measure_fleet(painter: str, nodes: int, pods: int, seconds: float) -> None:
    fake = FakeFleet(nodes, pods)
    with cluster() as running, tab(running.new_link(), PAINTERS[painter], fake.install) as page:
        began = time.perf_counter()
        page.evaluate("(to) => { location.hash = to; }", f"#/fleet?renderer={painter}")
        while not page.evaluate("(window.__draws?.fleet?.count ?? 0) > 0"):
            page.wait_for_timeout(10)
        first = time.perf_counter() - began
        used = page.evaluate("window.__draws.fleet.renderer")
        print(f"{painter}: {nodes} nodes, {nodes * pods} Pods, drawn by {used}; first picture after {first:.2f} s")
        page.wait_for_timeout(1_000)
        page.evaluate(_LONG_TASKS)
        among = fake.indexes()
        print(f"  {CHANGES_A_SECOND} changes/s: {frames(page, seconds, lambda: fake.change_some(100, among))}")
        print(f"  moved and zoomed:  {frames(page, 5, lambda: move(page))}")
        tasks = page.evaluate("window.longTasks")
        print(f"  long tasks (> 50 ms): {len(tasks)}, {sum(tasks):.0f} ms")
        session = page.context.new_cdp_session(page)
        heap = session.send("Runtime.getHeapUsage")["usedSize"]
        print(f"  JavaScript heap: {heap / 2**20:.1f} MiB")


def frames(page: Page, seconds: float, act: Callable[[], None]) -> str:
    """The times of the frames while something is done ten times a second."""
    page.evaluate("() => { window.__draws.fleet.count = 0; }")
    began = time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        act()
        page.wait_for_timeout(max(1, 100 - (time.perf_counter() - began - passed) * 1_000))
    count = page.evaluate("window.__draws.fleet.count")
    times = page.evaluate("[...window.__draws.fleet.times.slice(0, Math.min(1000, window.__draws.fleet.count))]")
    return f"{count / passed:.1f} frames/s, ms of the main thread each: {quantiles(times)}"


def move(page: Page) -> None:
    step = int(time.perf_counter() * 10)
    page.mouse.move(400 + 40 * (step % 7), 350 + 30 * (step % 5))
    page.mouse.wheel(0, -120 if step // 8 % 2 else 120)


# -- the fleet on the server -------------------------------------------------------------------------------------------


class Viewer:
    """The side of the tab, which only counts."""

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0
        self.first = asyncio.Event()
        self.loaded = asyncio.Event()

    async def send(self, data: Any) -> None:
        if data["type"] == "loading" and "of" not in data:
            self.loaded.set()

    async def send_bytes(self, data: bytes) -> None:
        self.frames += 1
        self.bytes += len(data)
        self.first.set()

    async def receive(self) -> Any:
        await asyncio.Event().wait()


async def measure_server(nodes: int, pods: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with local_server(Path(directory)) as server:
            store = server.api.resources.store
            await build(server, store, nodes, nodes * pods)
            await store.compact(store.revision - 10)
            gc.collect()
            GarbageCollection(asyncio.get_running_loop(), lambda: nodes * (pods + 1)).start()  # as in a server
            await watch_server(server, store, nodes * pods, seconds)


async def watch_server(server: LocalServer, store: Store, pods: int, seconds: float) -> None:
    turns: list[float] = []

    async def count_turns() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            turns.append((time.thread_time() - before) * 1e3)

    context = PageContext(server.client, SystemClock(), "", "admin", "s")
    viewer = Viewer()
    idle = await busy(store, pods, seconds)
    base = resident()
    cpu, began = time.process_time(), time.perf_counter()
    async with child_tasks(fleet.run(context, {}, viewer)):
        async with child_tasks(count_turns()):
            await viewer.first.wait()
            first = time.perf_counter() - began
            await viewer.loaded.wait()
        took, used = time.perf_counter() - began, time.process_time() - cpu
        print(f"server: first frame after {first:.2f} s, all {pods} Pods after {took:.2f} s, {used:.2f} s of CPU")
        print(f"  event loop, ms of CPU in one iteration: {quantiles(turns)}")
        print(f"  memory: +{(resident() - base) / 2**20:.0f} MiB")
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        print(f"  watched, nothing changes: {(time.process_time() - cpu) / seconds:.2%} of a core")
        viewer.bytes = viewer.frames = 0
        watched = await busy(store, pods, seconds)
        rate = viewer.bytes / seconds / 1e3
        shares = f"{idle:.1%} of a core without a viewer, {watched:.1%} with one"
        print(f"  {CHANGES_A_SECOND} changes/s: {shares}, {rate:.1f} kB/s")
    after = await busy(store, pods, seconds)
    print(f"  after the last viewer: {after:.1%} of a core")


async def build(server: LocalServer, store: Store, nodes: int, pods: int) -> None:
    """Write nodes and Pods into the store, as copies of two that the server has made."""
    client, when = server.client, "2030-01-01T00:00:00Z"
    zone = {"topology.kubernetes.io/zone": "zone-0"}
    node = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0", "labels": zone}})
    node["status"] = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "8", "pods": "110"}}
    await client.update(node, subresource="status")
    variables = [{"name": f"V{number}", "value": "x"} for number in range(4)]
    spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "nginx:1.29", "env": variables}]}
    meta = {"name": "pod-0000000", "namespace": "default", "labels": {"app": "web", "pod-template-hash": "abcdef"}}
    pod = await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": each, "status": "True", "lastTransitionTime": when} for each in types]
    state = {"name": "c", "state": {"running": {"startedAt": when}}, "ready": True, "restartCount": 0, "image": "nginx"}
    pod["status"] = {"phase": "Running", "conditions": conditions, "containerStatuses": [{**state, "imageID": "i"}]}
    await client.update(pod, subresource="status")
    forms = {}
    for key in ("core/nodes/node-0", "core/pods/default/pod-0000000"):
        found = await store.get(key)
        assert found is not None
        forms[key] = found.value
    node_form, pod_form = forms.values()
    uids = [orjson.loads(each)["metadata"]["uid"].encode() for each in (node_form, pod_form)]
    for number in range(1, nodes):
        name = node_form.replace(b'"node-0"', b'"node-%d"' % number).replace(b"zone-0", b"zone-%d" % (number % 3))
        await store.txn([Put(f"core/nodes/node-{number}", name.replace(uids[0], uid(uids[0], number)))])
    for number in range(1, pods):
        form = copied(pod_form, number, nodes).replace(uids[1], uid(uids[1], number))
        await store.txn([Put(f"core/pods/default/pod-{number:07d}", form)])


def uid(of: bytes, number: int) -> bytes:
    return b"%08x" % number + of[8:]


def copied(form: bytes, number: int, nodes: int) -> bytes:
    node = b'"node-%d"' % (number % nodes)
    return form.replace(b"pod-0000000", b"pod-%07d" % number).replace(b'"node-0"', node)


async def busy(store: Store, pods: int, seconds: float) -> float:
    """Change Pods at the given rate; return the share of a core that the process used."""
    number, cpu, began = 0, time.process_time(), time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        while number < passed * CHANGES_A_SECOND:
            key = f"core/pods/default/pod-{(number * 7919) % (pods - 1) + 1:07d}"
            found = await store.get(key)
            assert found is not None
            ready = (b'"Ready","status":"True"', b'"Ready","status":"False"')
            old, new = ready if ready[0] in found.value else ready[::-1]
            await store.txn([Put(key, found.value.replace(old, new))])
            number += 1
        await asyncio.sleep(0.01)
    return (time.process_time() - cpu) / passed


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# -- moments of the past -----------------------------------------------------------------------------------------------

_GO = """
async (moments) => {
  const times = [];
  // Name, ready, status and restarts; the second column is that of the page.
  const cells = (row) => [...row.querySelectorAll("[role=gridcell]")].slice(1).map((cell) => cell.innerText.trim());
  const text = (row) => cells(row).toSpliced(1, 1).slice(0, 4).join(" ");
  const rows = () => [...document.querySelectorAll(".data-rows [role=row]")].map(text).sort().join("\\n");
  for (const [revision, expected] of moments) {
    const began = performance.now();
    location.hash = `#/objects/pods?ns=default&at=${revision}`;
    while (rows() !== expected) {
      await new Promise(requestAnimationFrame);
      if (performance.now() - began > 5000) throw new Error(`revision ${revision}: ${rows()} instead of ${expected}`);
    }
    times.push(performance.now() - began);
    await new Promise((done) => setTimeout(done, 30));
  }
  return times;
}
"""


def measure_scrub() -> None:
    with cluster() as running, tab(running.new_link(), PAINTERS["2d"]) as page:
        for number in range(3):  # as many Pods as are visible without scrolling
            running.create_deployment(f"web-{number}", 4)
            running.pod_names(f"app=web-{number}", at_least=4)
        time.sleep(3)
        moments = distinct_moments(running)
        page.evaluate("(to) => { location.hash = to; }", "#/objects/pods?ns=default")
        page.wait_for_selector("[role=row]")
        page.wait_for_timeout(2_000)
        times = page.evaluate(_GO, moments)
        print(f"scrub: {len(moments)} moments, ms until the list of Pods shows each: {quantiles(times)}")
        again = page.evaluate(_GO, moments[-40:][::-1])
        print(f"  kept ones, backwards: {quantiles(again)}")


def distinct_moments(running: PageCluster) -> list[tuple[int, str]]:
    """Moments with the text of the list of Pods, each other than the one before."""
    writes = running.api("GET", "/setpoint/v1/writes?limit=500")["writes"]
    revisions = [each["revision"] for each in writes if any(one["resource"] == "pods" for one in each["objects"])]
    found: list[tuple[int, str]] = []
    for revision in revisions:
        answer = table(running, f"/at/{revision}/api/v1/namespaces/default/pods")
        rows = sorted(" ".join(str(cell) for cell in row["cells"][:4]) for row in answer["rows"])
        text = "\n".join(rows)
        if text and (not found or found[-1][1] != text):
            found.append((revision, text))
    return found


def table(running: PageCluster, path: str) -> Any:
    connection = running._connection
    connection.request("GET", path, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
    return orjson.loads(connection.getresponse().read())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["fleet", "server", "scrub"])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=30, help="Pods of each node")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    if "fleet" in options.what:
        for painter in PAINTERS:
            measure_fleet(painter, options.nodes, options.pods, options.seconds)
    if "server" in options.what:
        asyncio.run(measure_server(options.nodes, options.pods, options.seconds))
    if "scrub" in options.what:
        measure_scrub()


if __name__ == "__main__":
    main()
