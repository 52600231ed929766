"""Make the pictures of the page in docs/images/page: `python tools/page_screenshots.py [--files DIRECTORY] [NAME ...]`.

A cluster with a little work in it is started, each scene is shown in chromium, in the light and the dark theme and at
the width of a phone, and its pictures are written. They are for people: look at each of them after a change. It needs
Debian's chromium and the packages of the dev extra.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from page_cluster import STATIC, PageCluster
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

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
    """The fragment; POD is replaced by the name of a Pod of the Deployment web."""
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
    scheme, viewport = LOOKS[look]
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    page.goto(cluster.new_link())
    page.wait_for_selector(".frame")
    names = cluster.pod_names("app=web", at_least=3)
    page.evaluate("(to) => { location.hash = to; }", scene.address.replace("POD", names[-1]))
    page.wait_for_timeout(800)
    scene.prepare(page)
    page.wait_for_timeout(scene.settle * 1000)
    path = PICTURES / f"{scene.name}-{look}.png"
    page.screenshot(path=path)
    context.close()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the page in docs/images/page.")
    parser.add_argument("--files", type=Path, default=STATIC, help="a built page other than that of the package")
    parser.add_argument("names", nargs="*", help="the scenes or pictures to make; all by default")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None or not (options.files / "index.html").is_file():
        sys.exit("this needs chromium and a built page")
    wanted = [
        (scene, look)
        for scene in SCENES
        for look in LOOKS
        if not options.names or {scene.name, f"{scene.name}-{look}"} & {*options.names}
    ]
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        cluster = PageCluster(Path(directory), options.files)
        cluster.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        try:
            furnish(cluster)
            for scene, look in wanted:
                path = take(browser, cluster, scene, look)
                size = path.stat().st_size
                print(f"{path.relative_to(ROOT)}: {size / 1024:.0f} KB{' (too large)' if size > MAX_BYTES else ''}")
        finally:
            browser.close()
            cluster.stop()


if __name__ == "__main__":
    main()
