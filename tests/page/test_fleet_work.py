"""The work of the fleet's picture, counted instead of timed.

The browser counts how often each block of the page's scripts runs (precise coverage). The sum over the script of the
fleet is a measure of the time on the main thread that depends neither on the machine nor on its load. These tests show
that a frame costs what has changed or what is visible, however many Pods there are. That keeps the time of a frame
below 4 ms, which bench/page_views.py measures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from browser import GuardedContext, GuardedPage
from fake_fleet import FakeFleet
from page_cluster import PageCluster
from playwright.sync_api import Browser

FRAMES = 5
LONGEST_TASK = 1_000
"""Milliseconds that a task of the main thread may take: a browser on a busy machine, and not a frozen page."""
_SOFTWARE_GL = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
_COUNT_UPLOADS = """
() => {
  const gl = document.querySelector(".fleet-canvas").getContext("webgl2");
  const counts = (window.__gl = { bytes: 0, calls: 0, draws: 0 });
  for (const name of ["texImage2D", "texSubImage2D", "drawArrays"]) {
    const call = gl[name].bind(gl);
    gl[name] = (...given) => {
      if (name === "drawArrays") counts.draws += 1;
      else counts.calls += 1, (counts.bytes += given.at(-1).byteLength);
      return call(...given);
    };
  }
}
"""
_LONG_TASKS = """
() => {
  window.__long = [];
  new PerformanceObserver((list) => window.__long.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask" });
}
"""


class OpenedFleet(FakeFleet):
    """A fleet that knows how often it was opened, and how often everything was sent."""

    opened = sent = 0

    def send_all(self) -> None:
        super().send_all()
        self.sent += 1
        self.opened += self._channel not in self._seen
        self._seen.add(self._channel)

    def __init__(self, nodes: int, pods_per_node: int) -> None:
        super().__init__(nodes, pods_per_node)
        self._seen: set[int] = set()


class CountedFleet:
    """A page with a fleet, and the work of its frames."""

    def __init__(self, context: GuardedContext, nodes: int, painter: str) -> None:
        self.fleet = OpenedFleet(nodes, 30)
        self._among = self.fleet.indexes()
        self.page: GuardedPage = context.new_page()
        self.fleet.install(self.page.page)
        self._session = self.page.page.context.new_cdp_session(self.page.page)
        # Before the scripts are loaded: what is compiled already counts functions, not blocks.
        self._session.send("Profiler.enable")
        self._session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
        self.page.enter(then=f"#/fleet?renderer={painter}")
        self.page.until_text(f"{len(self._among):,} Pods on {nodes:,} nodes")
        self._await_everything()
        assert self.page.evaluate("window.__draws.fleet.renderer") == painter
        size = self.page.evaluate("(({ width, height }) => [width, height])(document.querySelector('.fleet-canvas'))")
        self.pixels: int = size[0] * size[1]
        box = self.page.evaluate("document.querySelector('.fleet-canvas').getBoundingClientRect().toJSON()")
        self._middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.page.mouse.move(*self._middle)

    def _await_everything(self) -> None:
        """Wait until the page has applied what was sent: it shows the number of failing Pods of the last message."""
        self.page.page.wait_for_timeout(500)
        assert self.fleet.opened == 1, "the tab has opened the fleet more than once"
        self.fleet.change({next(index for index in self._among if self.fleet.slots[index] == 1): 3})
        failing = f"{sum(value == 3 for value in self.fleet.slots):,}"
        counts = "[...document.querySelectorAll('.fleet-count')].map((one) => one.textContent.trim())"
        self.page.until(f"{counts}.includes('{failing}') && window.__draws.fleet.count > 0")

    @property
    def frames(self) -> int:
        found: int = self.page.evaluate("window.__draws.fleet.count")
        return found

    def blocks(self) -> int:
        """The number of blocks that ran since the last call."""
        scripts: list[Any] = self._session.send("Profiler.takePreciseCoverage")["result"]
        own = [each for each in scripts if "/assets/fleet-" in each["url"]]
        return sum(part["count"] for script in own for one in script["functions"] for part in one["ranges"])

    def of_changes(self, count: int) -> float:
        """Change so many Pods in each of a few frames; return the blocks of a frame."""
        self.blocks()
        begin, sent = self.frames, self.fleet.sent
        for _ in range(FRAMES):
            before, chosen = self.frames, self.fleet.random.sample(self._among, count)
            self.fleet.change({index: 1 + self.fleet.slots[index] % 7 for index in chosen})
            self.page.until(f"window.__draws.fleet.count > {before}")
        assert self.fleet.sent == sent
        assert self.frames - begin == FRAMES, "one frame for each message"
        return self.blocks() / FRAMES

    def of_moves(self, *wheels: int) -> list[int]:
        """Zoom in steps, and drag the picture after each; return the blocks of each frame."""
        found = []
        mouse, (x, y) = self.page.page.mouse, self._middle
        for wheel in wheels:
            found.append(self._of_move(partial(mouse.wheel, 0, wheel)))
            mouse.down()
            found.append(self._of_move(partial(mouse.move, x - 40, y - 30)))
            mouse.up()
            mouse.move(x, y)
        return found

    def _of_move(self, move: Callable[[], None]) -> int:
        self.page.page.wait_for_timeout(150)  # texts follow ten times a second
        self.blocks()
        before = self.frames
        move()
        self.page.until(f"window.__draws.fleet.count > {before}")
        return self.blocks() // (self.frames - before)

    def assert_nothing_happens(self) -> None:
        """A picture that does not change costs nothing."""
        self.page.page.wait_for_timeout(300)
        self.blocks()
        before = self.frames
        self.page.page.wait_for_timeout(500)
        assert (self.frames - before, self.blocks()) == (0, 0)


def test_a_frame_costs_what_has_changed_and_what_is_visible(new_context: Callable[..., GuardedContext]) -> None:
    context = new_context(viewport={"width": 900, "height": 600})
    small = CountedFleet(context, 500, "2d")
    few = small.of_changes(10)
    large = CountedFleet(context, 5_000, "2d")
    large.page.evaluate(_LONG_TASKS)
    large.assert_nothing_happens()
    # Ten times the changes are ten times the work, and each costs the pixels of the box of its node.
    some, many = large.of_changes(10), large.of_changes(100)
    assert 5 * some < many < 15 * some, (some, many)
    assert many <= 100 * (20 * large.pixels / 5_000 + 200), (many, large.pixels)
    assert some <= few, "ten times the Pods are not more work for the same changes"
    # To move and to zoom costs the pixels that are visible.
    large.assert_nothing_happens()
    for fleet in (small, large):
        moves = fleet.of_moves(-150, -600, -600, 900)
        assert max(moves) <= 6 * fleet.pixels, (moves, fleet.pixels)
    large.assert_nothing_happens()
    tasks = large.page.evaluate("window.__long")
    assert max(tasks, default=0) < LONGEST_TASK, tasks


def test_a_frame_of_webgl_uploads_what_has_changed(browser: Browser, cluster: PageCluster) -> None:
    own = browser.browser_type.launch(executable_path="/usr/bin/chromium", args=_SOFTWARE_GL)
    try:
        context = GuardedContext(own.new_context(viewport={"width": 700, "height": 500})).begin(cluster)
        fleet = CountedFleet(context, 5_000, "gl")
        fleet.assert_nothing_happens()
        fleet.page.evaluate(_COUNT_UPLOADS)
        some = fleet.of_changes(2)
        many = fleet.of_changes(20)
        uploaded = fleet.page.evaluate("window.__gl")
        assert uploaded["draws"] == 2 * FRAMES
        # Two rows of a kilobyte for a change: the states of its node, and of its neighbours.
        assert uploaded["bytes"] <= FRAMES * (2 + 20) * 2 * 1_024, uploaded
        # What a frame costs besides its changes are the colours and zones, which are constants.
        assert many - some <= 18 * 100, (some, many)
        assert many <= 4_000, many
        moves = fleet.of_moves(-150, -600)
        assert fleet.page.evaluate("window.__gl.bytes") == uploaded["bytes"], "a move uploads nothing"
        assert max(moves) <= 20_000, moves
        # Very many changes are one upload of everything, once a frame.
        fleet.of_changes(1_000)
        last = fleet.page.evaluate("window.__gl")
        assert (last["bytes"] - uploaded["bytes"]) / FRAMES <= len(fleet.fleet.slots) + 20 * 2 * 1_024, last
        context.check()
    finally:
        own.close()
