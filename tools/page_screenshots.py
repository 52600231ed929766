"""Make the pictures of the page in docs/images/page: `python tools/page_screenshots.py [--files DIRECTORY] [NAME ...]`.

A cluster with a little work in it is started, each scene is shown in chromium, in the light and the dark theme and at
the width of a phone, and its pictures are written; then the same for the board of a class with a few learners. They are
for people: look at each of them after a change. It needs Debian's chromium and the packages of the dev extra.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from class_server import ClassServer
from page_cluster import STATIC, PageCluster
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "images" / "page"
WIDE: ViewportSize = {"width": 1240, "height": 720}
PHONE: ViewportSize = {"width": 390, "height": 844}
MAX_BYTES = 150 * 1024
_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


_MANIFEST = """apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  colour: blue
"""


def _nothing(page: Page) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    address: str
    """The fragment; POD is replaced by the name of the latest Pod of the Deployment web."""
    prepare: Callable[[Page], None] = _nothing
    settle: float = 1.5
    """Seconds until the picture is taken."""


class Look(NamedTuple):
    """A theme and a size of the window."""

    scheme: Literal["light", "dark"]
    viewport: ViewportSize


def _type(*lines: str) -> Callable[[Page], None]:
    """Type lines into the terminal."""

    def prepare(page: Page) -> None:
        page.keyboard.press("`")
        page.wait_for_selector("#dock-terminal .xterm-helper-textarea", state="attached")
        page.wait_for_timeout(500)
        for line in lines:
            page.keyboard.type(line)
            page.keyboard.press("Enter")
            page.wait_for_timeout(1_000)

    return prepare


def _predict(page: Page) -> None:
    """Predict what happens if a node fails."""
    page.get_by_label("Node", exact=True).select_option(index=1)
    page.get_by_role("button", name="Predict").click()
    page.wait_for_timeout(4_000)


def _leave_inspector_on_phone(page: Page) -> None:
    """Close the inspector, which covers the whole view on a phone."""
    if page.viewport_size == PHONE:
        page.keyboard.press("Escape")


def _take_lesson(page: Page) -> None:
    """Do the first steps of an open lesson."""
    page.wait_for_selector(".learn-text .learn-command")
    if page.viewport_size == PHONE:
        return
    page.wait_for_selector(".terminal-screen .xterm-rows")
    page.get_by_role("button", name="Start over").click()
    page.get_by_role("dialog").get_by_role("button", name="Start over").click()
    page.wait_for_timeout(4_000)
    page.locator("[data-run='0']").get_by_role("button", name="Type").click()
    page.wait_for_timeout(500)
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-check=three][data-met=true]", timeout=60_000)
    page.locator("[data-check=three]").scroll_into_view_if_needed()


def _press(key: str) -> Callable[[Page], None]:
    return lambda page: page.keyboard.press(key)


def _edit_file(page: Page) -> None:
    """Open the editor with a new manifest."""
    more = page.get_by_role("button", name="More", exact=True)
    if more.is_visible():  # on a phone
        more.click()
    page.get_by_role("button", name="Editor", exact=True).click()
    page.get_by_label("Name of a new file").fill("web.yaml")
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_timeout(800)
    page.keyboard.insert_text(_MANIFEST)


SCENES = [
    Scene("objects", "#/objects/pods/default/POD?ns=default", _leave_inspector_on_phone),
    Scene("chain", "#/chain/apps.deployments/default/web?ns=default", _leave_inspector_on_phone),
    Scene("why", "#/objects/pods/default/POD?ns=default&tab=why"),
    Scene("history", "#/objects/apps.deployments/default/web?ns=default&tab=history"),
    Scene("yaml", "#/objects/apps.deployments/default/web?ns=default&tab=yaml"),
    Scene("events", "#/events?ns=default"),
    Scene("loops", "#/loops?ns=default"),
    Scene("fleet", "#/fleet?ns=*"),
    Scene("timeline", "#/timeline?ns=default"),
    Scene("what-if", "#/what-if?ns=default", _predict),
    Scene("learn", "#/learn?ns=default"),
    Scene("lesson", "#/learn?lesson=loop", _take_lesson),
    Scene(
        "terminal",
        "#/objects/pods?ns=default",
        _type("kubectl get deployments", "kubectl scale deployment web --replicas=3"),
    ),
    Scene("editor", "#/objects/pods?ns=default", _edit_file),
    Scene("faults", "#/objects/pods?ns=default", _press("x")),
]
LOOKS = {"light": Look("light", WIDE), "dark": Look("dark", WIDE), "phone": Look("light", PHONE)}


def furnish(cluster: PageCluster) -> None:
    """Put some work into the cluster: a Deployment that is settled, one that waits, a Pod that was deleted."""
    cluster.create_deployment("web", 3, image="nginx:1.29")
    cluster.create_deployment("api", 2, image="nignx:1.29")
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    cluster.create("/api/v1/namespaces/default/services", service)
    names = cluster.pod_names("app=web", at_least=3)
    cluster.api("DELETE", f"/api/v1/namespaces/default/pods/{names[0]}")
    cluster.pod_names("app=api", at_least=2)


def take(browser: Browser, cluster: PageCluster, scene: Scene, look: str) -> Path:
    context = new_context(browser, look)
    page = context.new_page()
    page.goto(cluster.new_link())
    page.wait_for_selector(".frame")
    pods = cluster.api("GET", "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb")["items"]
    latest = max(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]))["metadata"]["name"]
    page.evaluate("(to) => { location.hash = to; }", scene.address.replace("POD", latest))
    page.wait_for_timeout(800)
    scene.prepare(page)
    page.wait_for_timeout(scene.settle * 1000)
    return written(page, scene.name, look)


def new_context(browser: Browser, look: str, key: str = "") -> BrowserContext:
    """Return a context, of a browser with this key of a session."""
    scheme, viewport = LOOKS[look]
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    if key:
        context.add_init_script(f"localStorage.setItem('setpoint.key', '{key}')")
    return context


def written(page: Page, name: str, look: str) -> Path:
    """Write the picture of a page, and close its context."""
    path = PICTURES / f"{name}-{look}.png"
    page.screenshot(path=path)
    page.context.close()
    return path


LEARNERS = {"Ada": ("loop", 2), "Grace": ("loop", 1), "Edsger": ("rollouts", 1), "Barbara": ("manifest", 0)}
"""The learners of the class with the lesson that each takes, and how many of its commands they have run."""


@contextmanager
def a_class(browser: Browser) -> Iterator[tuple[str, str]]:
    """Run a class whose learners take lessons. Yield its address, and the key of the teacher."""
    server = ClassServer(12)
    try:
        learners = [learner(browser, server, name, *taken) for name, taken in LEARNERS.items()]
        page = new_context(browser, "light").new_page()
        page.goto(server.teacher_link)
        page.wait_for_selector(".frame")
        key = page.evaluate("localStorage.getItem('setpoint.key')")
        page.context.close()
        yield server.origin, str(key)
        for each in learners:
            each.context.close()
    finally:
        server.stop()


def learner(browser: Browser, server: ClassServer, name: str, lesson: str, commands: int) -> Page:
    page = new_context(browser, "light").new_page()
    page.goto(server.join_link)
    page.get_by_label("Your name").fill(name)
    page.keyboard.press("Enter")
    page.wait_for_selector(".frame")
    page.evaluate("(to) => { location.hash = to; }", f"#/learn?lesson={lesson}")
    page.wait_for_selector(".terminal-screen .xterm-rows")
    page.wait_for_timeout(2_000)
    for number in range(commands):
        page.locator(f"[data-run='{number}']").first.get_by_role("button", name="Type").click()
        page.wait_for_timeout(500)
        page.keyboard.press("Enter")
        page.wait_for_timeout(8_000)  # what the command causes is seen
    return page


def take_class(browser: Browser, looks: Sequence[str]) -> Iterator[Path]:
    """Take the pictures of the teacher's board."""
    with a_class(browser) as (origin, key):
        for look in looks:
            page = new_context(browser, look, key).new_page()
            page.goto(origin)
            page.get_by_text([*LEARNERS][-1]).first.wait_for()
            page.wait_for_timeout(1_500)
            yield written(page, "class", look)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the page in docs/images/page.")
    parser.add_argument("--files", type=Path, default=STATIC, help="a built page other than that of the package")
    parser.add_argument("names", nargs="*", help="the scenes or pictures to make; all by default")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None or not (options.files / "index.html").is_file():
        sys.exit("this needs chromium and a built page")
    names = {*options.names}

    def is_wanted(scene: str, look: str) -> bool:
        return not names or bool({scene, f"{scene}-{look}"} & names)

    wanted = [(scene, look) for scene in SCENES for look in LOOKS if is_wanted(scene.name, look)]
    of_class = [look for look in LOOKS if is_wanted("class", look)]
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        cluster = PageCluster(Path(directory), options.files)
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        try:
            if wanted:
                cluster.start()
                furnish(cluster)
            for scene, look in wanted:
                report(take(browser, cluster, scene, look))
            if of_class:
                for path in take_class(browser, of_class):
                    report(path)
        finally:
            browser.close()
            cluster.stop()


def report(path: Path) -> None:
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size / 1024:.0f} KB{' (too large)' if size > MAX_BYTES else ''}")


if __name__ == "__main__":
    main()
