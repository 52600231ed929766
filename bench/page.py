"""The page in a real browser: how soon it can be used, how many bytes it needs, how soon a write is on the screen.

    python bench/page.py [--files DIRECTORY] [--rounds 5] [--writes 100]

It also takes the time until the first chain is drawn, the memory of the tab, the size of the wheel, and how long a
learner needs until a Pod of theirs runs in the first lesson.

`--files` names a built page other than that of the package. It needs Debian's chromium and the package playwright.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import GuardedContext
from page_client import enter
from page_cluster import STATIC, PageCluster
from page_learner import Learner
from playwright.sync_api import Browser, Page, sync_playwright

_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
_SLOWER = 4
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
_NOTE_LIST = """
new MutationObserver((_, observer) => {
  if (document.querySelector('.data-rows') === null) return;
  observer.disconnect();
  requestAnimationFrame(() => { window.listShown = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""
_NOTE_CHAIN = """
new MutationObserver((_, observer) => {
  if (document.querySelectorAll('.chain-box').length < 5) return;
  observer.disconnect();
  requestAnimationFrame(() => { window.chainShown = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""
_WATCH_ROWS = """
window.seen = {};
const look = () => {
  for (const cell of document.querySelectorAll('.data-cell.first')) seen[cell.textContent] ??= Date.now();
};
new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
"""


_FIRST_TASK = """
() => {
  const task = document.querySelector("[data-check=pod-runs]");
  const parts = [...task.parentElement.children];
  const before = parts.slice(0, parts.indexOf(task)).map((each) => each.innerText).join(" ");
  const commands = [...document.querySelectorAll("[data-run='0'] pre, [data-run='1'] pre")];
  return [before.split(/\\s+/).length, commands.map((each) => each.innerText.length + 1).reduce((a, b) => a + b)];
}
"""
"""The number of words before the first task of a lesson, and of the characters of its commands."""
_READ_A_MINUTE, _TYPED_A_MINUTE = 200, 30
"""Words that a novice reads, and types."""
_CHARACTERS = 5
"""Characters of a typed word."""


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def first_visit(browser: Browser, cluster: PageCluster, slower: int) -> tuple[float, float]:
    """Return the milliseconds until the first paint, and until the list of Pods is shown."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(_NOTE_LIST)
    page = context.new_page()
    if slower > 1:
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.goto(cluster.new_link(), wait_until="commit")
    page.wait_for_selector(".data-rows", state="attached")
    page.wait_for_function("() => window.listShown !== undefined")
    ready = float(page.evaluate("window.listShown"))
    painted = float(page.evaluate(_PAINT))
    context.close()
    return painted, ready


def first_chain(browser: Browser, cluster: PageCluster, slower: int) -> tuple[float, float]:
    """Return the milliseconds until the chain of a Deployment with three Pods is drawn on a first visit, and the
    megabytes of JavaScript objects that the tab then has."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(_NOTE_CHAIN)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    # The code is in the fragment: the key of the session is set first, so that the address can name the view.
    key = enter(cluster.new_link())
    context.add_init_script(f"if (location.protocol === 'http:') localStorage.setItem('setpoint.key', '{key}')")
    page.goto(f"{cluster.origin}/#/chain/apps.deployments/default/chain?ns=default", wait_until="commit")
    page.wait_for_function("() => window.chainShown !== undefined", polling=20)
    drawn = float(page.evaluate("window.chainShown"))
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    context.close()
    return drawn, heap / 2**20


def writes_on_screen(page: Page, cluster: PageCluster, writes: int) -> list[float]:
    """Return the milliseconds from the start of each request to the row on the screen."""
    page.evaluate("location.hash = '#/objects/configmaps?ns=default&filter=w-'")
    page.wait_for_selector(".data-rows", state="attached")
    page.evaluate(_WATCH_ROWS)
    began: dict[str, float] = {}
    for number in range(writes):
        name = f"w-{number:04}"
        began[name] = time.time() * 1000
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        cluster.create("/api/v1/namespaces/default/configmaps", made)
        page.wait_for_function("(name) => window.seen[name] !== undefined", arg=name, polling=5)
        cluster.api("DELETE", f"/api/v1/namespaces/default/configmaps/{name}")
    seen: dict[str, float] = page.evaluate("window.seen")
    return [seen[name] - began[name] for name in began]


def compressed_sizes(files: Path) -> tuple[int, int]:
    """Return the bytes of the first view and of everything."""
    document = (files / "index.html").read_text()
    first = {"index.html", *re.findall(r'(?:src|href)="\./(assets/[^"]+\.(?:js|css))"', document)}
    everything = {"index.html"} | {
        f"assets/{path.name}" for path in (files / "assets").glob("*.[jc]s*") if path.suffix != ".gz"
    }
    return tuple(sum((files / f"{name}.gz").stat().st_size for name in names) for names in (first, everything))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", type=Path, default=STATIC)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writes", type=int, default=100)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None or not (options.files / "index.html").is_file():
        sys.exit("this needs chromium and a built page")
    first, everything = compressed_sizes(options.files)
    print(f"bytes, compressed: first view {first / 1024:.1f} KB, everything {everything / 1024:.1f} KB")
    print(f"wheel: {wheel_size() / 1024:.0f} KB, of which the page {page_in_wheel(options.files) / 1024:.0f} KB")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as directory:
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        measure_start(browser, Path(directory), options.files, options.rounds)
        with running_cluster(Path(directory) / "last", options.files) as cluster:
            measure_visits(browser, cluster, options.rounds)
            measure_chain(browser, cluster, options.rounds)
            measure_writes(browser, cluster, options.writes)
            measure_learner(browser, cluster)


@contextmanager
def running_cluster(folder: Path, files: Path) -> Iterator[PageCluster]:
    folder.mkdir()
    cluster = PageCluster(folder, files)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def measure_start(browser: Browser, directory: Path, files: Path, rounds: int) -> None:
    times = []
    for number in range(rounds):
        began = time.monotonic()
        with running_cluster(directory / str(number), files) as cluster:
            started = time.monotonic()
            page = browser.new_context().new_page()
            page.goto(cluster.new_link(), wait_until="commit")
            page.wait_for_selector(".data-rows", state="attached")
            times.append((started - began, time.monotonic() - began))
            page.context.close()
    ready = [each[1] for each in times]
    print(f"from `setpoint up` to the list of Pods: median {statistics.median(ready):.2f} s, most {max(ready):.2f} s")
    print(f"    of that until the cluster is ready: median {statistics.median(each[0] for each in times):.2f} s")


def measure_visits(browser: Browser, cluster: PageCluster, rounds: int) -> None:
    for slower in (1, _SLOWER):
        found = [first_visit(browser, cluster, slower) for _ in range(rounds)]
        painted, shown = ([each[part] for each in found] for part in (0, 1))
        print(
            f"first visit, processor slowed {slower}x: first paint median {statistics.median(painted):.0f} ms, "
            f"most {max(painted):.0f} ms; list median {statistics.median(shown):.0f} ms, most {max(shown):.0f} ms"
        )


def measure_chain(browser: Browser, cluster: PageCluster, rounds: int) -> None:
    cluster.create_deployment("chain", 3)
    while len(cluster.ready_pods("app=chain")) < 3:
        time.sleep(0.1)
    for slower in (1, _SLOWER):
        found = [first_chain(browser, cluster, slower) for _ in range(rounds)]
        drawn, heap = ([each[part] for each in found] for part in (0, 1))
        print(
            f"first chain, processor slowed {slower}x: median {statistics.median(drawn):.0f} ms, "
            f"most {max(drawn):.0f} ms; memory of the tab's objects {statistics.median(heap):.1f} MB"
        )


def wheel_size() -> int:
    """Return the bytes of the wheel."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory]
        subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True)
        return next(Path(directory).glob("*.whl")).stat().st_size


def page_in_wheel(files: Path) -> int:
    """Return the bytes that the files of the page take in an archive, with their compressed forms."""
    return sum(len(zlib.compress(path.read_bytes())) for path in files.rglob("*") if path.is_file())


def measure_writes(browser: Browser, cluster: PageCluster, writes: int) -> None:
    page = browser.new_context().new_page()
    page.goto(cluster.new_link())
    page.wait_for_selector(".data-rows", state="attached")
    latencies = writes_on_screen(page, cluster, writes)
    print(
        f"write to screen, {writes} writes: median {statistics.median(latencies):.0f} ms, "
        f"p95 {percentile(latencies, 0.95):.0f} ms"
    )


def measure_learner(browser: Browser, cluster: PageCluster) -> None:
    """Take the first lesson until its first task is done, by its buttons."""
    page = GuardedContext(browser.new_context(viewport={"width": 1280, "height": 800})).begin(cluster).new_page()
    learner = Learner(page.enter())
    learner.to_lessons()
    page.locator(".learn-card").first.wait_for()
    began = time.monotonic()
    learner.open("manifest")
    ready = time.monotonic()
    learner.type(0)
    learner.until_met("pod-runs")
    done = time.monotonic()
    words, characters = page.evaluate(_FIRST_TASK)
    novice = words / _READ_A_MINUTE + characters / _CHARACTERS / _TYPED_A_MINUTE + (done - began) / 60
    print(
        f"first lesson, until a Pod of the learner runs: {done - began:.1f} s by its buttons, of which its cluster "
        f"takes {ready - began:.1f} s; {novice:.1f} minutes with {words} words read and {characters} characters typed"
    )


if __name__ == "__main__":
    main()
