"""Chromium for tests of the page. A page fails its test on anything that a user should never see.

    from browser import GuardedPage     # for annotations; the fixtures come from tests/page/conftest.py

    UP_FLAGS = ("--nodes", "5")         # optional: flags of `setpoint up` for this file

    def test_something(page: GuardedPage, cluster: PageCluster) -> None:
        cluster.create_deployment("web", 3)
        page.go("#/objects/pods")
        page.get_by_role("row", name="web-").first.click()

Each file has one cluster, and each test a page with a session and a storage of its own; `new_context` makes a browser
context that no other test has used. The tests must be synchronous functions. They need Debian's chromium and a built page (`page/README.md`; SETPOINT_PAGE_FILES names
another directory than the committed one); without them they are skipped. SETPOINT_REQUIRE_BROWSER makes it a failure
that there is no browser.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from page_cluster import PageCluster, page_files
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

MAX_LAYOUT_SHIFT = 0.1
"""The cumulative layout shift of a document, as browsers define it: the largest sum of unexpected shifts in a window
of at most five seconds, in which none follows another after more than one."""
_WINDOW, _GAP = 5_000.0, 1_000.0
Shift = tuple[float, float, str]
"""A layout shift: its time in milliseconds, its value, and the elements that moved."""
_NOT_NEEDED = [
    # Each window would load the pages of its address bar in processes of their own: half of the work of a context.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    # The next process would be started before it is known whether there is a next page.
    "SpareRendererForSitePerProcess",
    # What playwright itself disables, because Chromium takes the last flag alone.
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
]
"""Features of Chromium that cost time and that no page can see, and those that disturb tests."""
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(_NOT_NEEDED)}",
    # Pages of a context share a process: to start one is half of the work of opening a page.
    "--process-per-site",
    # No name can be resolved: whatever the page needs comes from this address.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
_OBSERVERS = """
addEventListener("securitypolicyviolation", (event) =>
  __problem("CSP", `${event.violatedDirective} blocked ${event.blockedURI || event.sample}`));
addEventListener("unhandledrejection", (event) => __problem("unhandled rejection", String(event.reason)));
const edges = (box) => [box.left, box.top, box.right, box.bottom].map(Math.round).join(",");
const moved = (entry) => entry.sources.slice(0, 3).map(({ node, previousRect, currentRect }) =>
  `${node?.nodeName ?? "?"}.${node?.className ?? ""} ${edges(previousRect)} -> ${edges(currentRect)}`).join("; ");
// A list with the latest entry first moves when something happens, which is what people look at it for.
const isOfLatest = ({ node }) => (node?.nodeType === 3 ? node.parentElement : node)?.closest?.(".event-list");
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    const expected = entry.hadRecentInput || (entry.sources.length > 0 && entry.sources.every(isOfLatest));
    if (!expected) __problem("layout shift", `${entry.startTime} ${entry.value} ${moved(entry)}`);
  }
}).observe({ type: "layout-shift", buffered: true });
"""


_UNTIL = """async (timeout) => {
  const deadline = performance.now() + timeout;
  while (!(%s)) {
    if (performance.now() > deadline) return false;
    await new Promise((done) => setTimeout(done, 50));
  }
  return true;
}"""


def _missing(what: str) -> None:
    if os.environ.get("SETPOINT_REQUIRE_BROWSER"):
        pytest.fail(f"{what} is missing, and SETPOINT_REQUIRE_BROWSER is set")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageCluster]:
    files = page_files()
    if files is None:
        _missing("the built page")
    assert files is not None
    found = PageCluster(tmp_path_factory.mktemp("up"), files, *getattr(request.module, "UP_FLAGS", ()))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = os.environ.get("SETPOINT_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        _missing("chromium")
    # Ended with the folder: the synchronous interface keeps an event loop running, which asynchronous tests cannot bear.
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        yield launched
        launched.close()


def cumulative_shift(shifts: list[Shift]) -> float:
    """Return the cumulative layout shift of a page. A document that was loaded anew begins at 0 milliseconds again."""
    largest = total = 0.0
    began = last = float("-inf")
    for at, value, _ in shifts:
        if not (began <= at < began + _WINDOW and at < last + _GAP):
            began, total = at, 0.0
        last, total = at, total + value
        largest = max(largest, total)
    return largest


class GuardedContext:
    """A browser context with a session, and the problems of its pages."""

    cluster: PageCluster

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.problems: list[str] = []
        self.allowed: list[str] = []
        """Parts of problems that the test expects."""
        self._shifts: dict[Any, list[Shift]] = {}
        self._kept: Page | None = None
        context.expose_binding("__problem", self._note)
        context.add_init_script(_OBSERVERS)
        context.on("console", self._note_console)
        context.on("weberror", lambda error: self._add(f"exception: {error.error}"))
        context.on("request", lambda request: self._check_origin(request.url))

    def begin(self, cluster: PageCluster) -> GuardedContext:
        """Begin a test with a cluster, without the problems of the test before."""
        self.cluster = cluster
        self.problems.clear()
        self.allowed.clear()
        self._shifts.clear()
        return self

    def keep_process(self) -> None:
        """Keep a page open that does nothing, so that the process of the next page runs already."""
        if self._kept is None:
            self._kept = self.context.new_page()
            self._kept.goto(f"{self.cluster.origin}/licenses.txt")

    def end(self) -> None:
        """Close the pages after their last problems were delivered."""
        for page in self.context.pages:
            if page == self._kept:
                continue
            with suppress(Exception):  # a page that was closed has delivered its problems
                page.evaluate("new Promise(requestAnimationFrame)")
            page.close()

    def _note(self, source: Any, kind: str, text: str) -> None:
        if kind == "layout shift":
            at, value, moved = text.split(" ", 2)
            self._shifts.setdefault(source["page"], []).append((float(at), float(value), moved))
        else:
            self._add(f"{kind}: {text}")

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and message.page != self._kept:  # whose icon is missing
            self._add(f"console: {message.text}")

    def _add(self, problem: str) -> None:
        self.problems.append(problem)

    def _check_origin(self, url: str) -> None:
        parts, own = urlsplit(url), urlsplit(self.cluster.origin)
        if parts.scheme not in ("data", "blob") and parts.netloc != own.netloc:
            self._add(f"request to another origin: {url}")

    def new_page(self) -> GuardedPage:
        page = self.context.new_page()
        page.on("websocket", lambda socket: self._check_origin(socket.url))
        page.set_default_timeout(15_000)
        return GuardedPage(page, self)

    def check(self) -> None:
        """Fail the test if there was a problem."""
        for shifts in self._shifts.values():
            if (total := cumulative_shift(shifts)) > MAX_LAYOUT_SHIFT:
                parts = "\n".join(f"  at {at:.0f} ms by {value:.3f}: {moved}" for at, value, moved in shifts)
                self.problems.append(f"the layout shifted by {total:.3f}:\n{parts}")
        found = [each for each in self.problems if not any(part in each for part in self.allowed)]
        if found:
            pytest.fail("the page had problems:\n" + "\n".join(dict.fromkeys(found)))


class GuardedPage:
    """A page of playwright, with what tests of this page need often."""

    def __init__(self, page: Page, context: GuardedContext) -> None:
        self.page = page
        self.guard = context
        self.keyboard = page.keyboard
        self.locator = page.locator
        self.get_by_role = page.get_by_role
        self.get_by_text = page.get_by_text
        self.get_by_label = page.get_by_label
        self.evaluate = page.evaluate

    def enter(self, link: str = "", then: str = "") -> GuardedPage:
        """Open a link, a new one by default, and wait until the page shows the cluster."""
        self.page.goto(link or self.guard.cluster.new_link())
        self.page.wait_for_selector(".frame")
        if then:
            self.go(then)
        return self

    def go(self, fragment: str) -> GuardedPage:
        """Go to an address within the page, such as `#/objects/pods?ns=default`."""
        self.page.evaluate("(to) => { location.hash = to; }", fragment)
        return self

    def press(self, *keys: str) -> GuardedPage:
        for key in keys:
            self.page.keyboard.press(key)
        return self

    def until(self, expression: str, timeout: float = 15.0) -> None:
        """Wait until a JavaScript expression is true. It is sent once, and evaluated by the page again and again."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = self.page.evaluate(_UNTIL % expression, (deadline - time.monotonic()) * 1000)
            except PlaywrightError as error:
                if "context was destroyed" not in str(error):  # by another document, which is asked then
                    raise
                continue
            if not found:
                pytest.fail(f"{expression} did not become true; the page shows:\n{self.text()}")
            return

    def session_key(self) -> str:
        """Return the key of the session as soon as the page has it: its frame is painted before."""
        self.until("localStorage.getItem('setpoint.key') !== null")
        found: str = self.evaluate("localStorage.getItem('setpoint.key')")
        return found

    def until_text(self, text: str, timeout: float = 15.0) -> None:
        """Wait until a text is visible on the page."""
        self.page.get_by_text(text).filter(visible=True).first.wait_for(timeout=timeout * 1000)

    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def announced(self) -> list[str]:
        """What the live regions say at the moment."""
        return [each for each in self.page.locator("[aria-live]").all_inner_texts() if each]


def _options(**options: Any) -> dict[str, Any]:
    return {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"} | options


@pytest.fixture
def new_context(browser: Browser, cluster: PageCluster) -> Iterator[Callable[..., GuardedContext]]:
    """Makes contexts, with the options of `Browser.new_context`. Their problems fail the test at its end."""
    made: list[GuardedContext] = []

    def make(**options: Any) -> GuardedContext:
        made.append(GuardedContext(browser.new_context(**_options(**options))).begin(cluster))
        return made[-1]

    yield make
    for each in made:
        each.end()
        each.context.close()
    for each in made:
        each.check()


@pytest.fixture(scope="package")
def shared_context(browser: Browser) -> GuardedContext:
    """A context for one test after the other: a new one would cost more than most tests do."""
    return GuardedContext(browser.new_context(**_options()))


@pytest.fixture
def page(shared_context: GuardedContext, cluster: PageCluster) -> Iterator[GuardedPage]:
    """A page of 1280 by 800 pixels in a session of its own, without anything that a test before has stored."""
    shared_context.begin(cluster).keep_process()
    found = shared_context.new_page()
    session = shared_context.context.new_cdp_session(found.page)
    session.send("Storage.clearDataForOrigin", {"origin": cluster.origin, "storageTypes": "all"})
    session.detach()
    yield found.enter()
    shared_context.end()
    shared_context.check()
