"""Make the pictures of the page in docs/images/page: `python tools/page_screenshots.py [--files DIRECTORY] [NAME ...]`.

A cluster with a little work in it is started, each scene is shown in chromium, and its picture is written. The pictures
are for people: look at each of them after a change. It needs Debian's chromium and the packages of the dev extra.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from page_cluster import STATIC, PageCluster
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "images" / "page"
WIDE, PHONE = {"width": 1240, "height": 720}, {"width": 390, "height": 844}
MAX_BYTES = 150 * 1024
_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def _nothing(page: Page) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    address: str
    """The fragment; POD is replaced by the name of a Pod of the Deployment web."""
    scheme: str = "light"
    phone: bool = False
    prepare: Callable[[Page], None] = _nothing
    settle: float = 1.5
    """Seconds until the picture is taken."""


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


SCENES = [
    Scene("objects-light", "#/objects/pods/default/POD?ns=default"),
    Scene("objects-dark", "#/objects/apps.deployments/default/web?ns=default", "dark"),
    Scene("objects-phone", "#/objects/pods?ns=default", phone=True),
    Scene("chain-light", "#/chain/apps.deployments/default/web?ns=default"),
    Scene("chain-dark", "#/chain/apps.deployments/default/web?ns=default", "dark"),
    Scene("why-light", "#/objects/pods/default/POD?ns=default&tab=why"),
    Scene("yaml-dark", "#/objects/apps.deployments/default/web?ns=default&tab=yaml", "dark"),
    Scene("loops-light", "#/loops?ns=default"),
    Scene("fleet-dark", "#/fleet?ns=*", "dark"),
    Scene("timeline-light", "#/timeline?ns=default"),
    Scene("learn-light", "#/learn?ns=default"),
    Scene("learn-phone", "#/learn?ns=default", "dark", phone=True),
    Scene("what-if-light", "#/what-if?ns=default", prepare=_predict),
    Scene(
        "terminal-dark",
        "#/objects/pods?ns=default",
        "dark",
        prepare=_type("kubectl get deployments", "kubectl scale deployment web --replicas=4"),
    ),
]


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


def take(browser: Browser, cluster: PageCluster, scene: Scene) -> Path:
    context = browser.new_context(viewport=PHONE if scene.phone else WIDE, color_scheme=scene.scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(cluster.new_link())
    page.wait_for_selector(".frame")
    names = cluster.pod_names("app=web", at_least=3)
    page.evaluate("(to) => { location.hash = to; }", scene.address.replace("POD", names[-1]))
    page.wait_for_timeout(800)
    scene.prepare(page)
    page.wait_for_timeout(scene.settle * 1000)
    path = PICTURES / f"{scene.name}.png"
    page.screenshot(path=path)
    context.close()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the page in docs/images/page.")
    parser.add_argument("--files", type=Path, default=STATIC, help="a built page other than that of the package")
    parser.add_argument("names", nargs="*", help="the pictures to make; all by default")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None or not (options.files / "index.html").is_file():
        sys.exit("this needs chromium and a built page")
    scenes = [each for each in SCENES if not options.names or each.name in options.names]
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        cluster = PageCluster(Path(directory), options.files)
        cluster.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        try:
            furnish(cluster)
            for scene in scenes:
                path = take(browser, cluster, scene)
                size = path.stat().st_size
                print(f"{path.relative_to(ROOT)}: {size / 1024:.0f} KB{' (too large)' if size > MAX_BYTES else ''}")
        finally:
            browser.close()
            cluster.stop()


if __name__ == "__main__":
    main()
