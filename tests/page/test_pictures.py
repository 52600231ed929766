"""What the main views look like after a deleted Pod was replaced: in both themes, in forced colours, and on a phone.

The pictures are compared with those in `pictures/`, loosely. After a change of the page that is meant, write them again
with SETPOINT_WRITE_PICTURES=1 and look at the difference.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from pictures import decoded, encoded, reduced_screenshot, share_of_difference
from playwright.sync_api import ViewportSize, WebSocketRoute

PICTURES = Path(__file__).parent / "pictures"
DESKTOP, PHONE = ViewportSize(width=1024, height=640), ViewportSize(width=390, height=640)
MODES: dict[str, tuple[ViewportSize, dict[str, Any]]] = {
    "light": (DESKTOP, {"color_scheme": "light", "forced_colors": "none"}),
    "dark": (DESKTOP, {"color_scheme": "dark", "forced_colors": "none"}),
    "forced-colors": (DESKTOP, {"color_scheme": "light", "forced_colors": "active"}),
    "phone": (PHONE, {"color_scheme": "light", "forced_colors": "none"}),
}
VIEWS = {
    "chain": ("#/chain/apps.deployments/default/heal?ns=default&tab=loop", "3 of 3 Pods ready"),
    # The inspector closes in between: another object in it would move what follows a longer title.
    "objects": ("#/objects/pods?ns=default", "settled"),
    "why": ("#/chain/pods/default/REPLACEMENT?ns=default&tab=why", "The root:"),
}
VARYING = ".timeline-strip"
"""What has times and revisions for its content."""
MOST = 0.01
"""The share of pixels that may differ."""
PROBE = "Setpoint 0123456789"
PROBE_WIDTH = 174.0
"""The width of a text with the font of the reference pictures, in pixels."""
_TEXT_WIDTH = """(text) => {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.font = `16px ${getComputedStyle(document.body).fontFamily}`;
  return context.measureText(text).width;
}"""


class Renamed:
    """Puts fixed texts in the place of those of one run: names of Pods, and the age of the replacement."""

    def __init__(self, pods: list[str]) -> None:
        """`pods` are the names in the order of creation."""
        self.names = {name: f"{name.rpartition('-')[0]}-abcd{number}" for number, name in enumerate(pods)}

    def install(self, page: GuardedPage) -> None:
        page.page.route_web_socket("**/page/v1/socket", self._connected)

    def _connected(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def from_page(message: str | bytes) -> None:
            text = str(message)
            for name, shown in self.names.items():
                text = text.replace(shown, name)
            server.send(text)

        def from_server(message: str | bytes) -> None:
            if isinstance(message, str):
                for name, shown in self.names.items():
                    message = message.replace(name, shown)
                message = re.sub(r"created \d+s ago", "created 90s ago", message)
            route.send(message)

        route.on_message(from_page)
        server.on_message(from_server)


@pytest.fixture(scope="module")
def healed(cluster: PageCluster) -> Iterator[tuple[Renamed, datetime]]:
    """A Deployment of which a Pod was deleted, and the time of its replacement."""
    cluster.create_deployment("heal", 3)
    before = ready(cluster)
    cluster.api("DELETE", f"/api/v1/namespaces/default/pods/{before[0]}")
    after = ready(cluster, without=before[0])
    (made,) = set(after) - set(before)
    at = cluster.api("GET", f"/api/v1/namespaces/default/pods/{made}")["metadata"]["creationTimestamp"]
    yield Renamed([*before, made]), datetime.fromisoformat(at)


def ready(cluster: PageCluster, without: str = "") -> list[str]:
    """The names of the three Pods, as soon as all are ready, and not one that was deleted."""
    deadline = time.monotonic() + 30
    while len(names := cluster.ready_pods("app=heal")) != 3 or without in names:
        assert time.monotonic() < deadline, names
        time.sleep(0.05)
    return names


def test_the_main_views_look_as_they_did(
    healed: tuple[Renamed, datetime], new_context: Callable[..., GuardedContext], tmp_path: Path
) -> None:
    renamed, at = healed
    page = new_context().new_page()
    # All ages are 90 minutes then.
    page.page.clock.set_fixed_time(at + timedelta(minutes=90, seconds=30))
    renamed.install(page)
    page.enter()
    width = page.evaluate(_TEXT_WIDTH, PROBE)
    if abs(width - PROBE_WIDTH) > 1:
        pytest.skip(f"the reference pictures were made with another font: a text has {width} pixels of {PROBE_WIDTH}")
    different = {}
    for view, (address, text) in VIEWS.items():
        page.go(address.replace("REPLACEMENT", [*renamed.names.values()][-1]))
        page.until_text(text)
        for mode, (size, media) in MODES.items():
            page.page.set_viewport_size(size)
            page.page.emulate_media(**media)
            reference = PICTURES / f"{view}-{mode}.png"
            if os.environ.get("SETPOINT_WRITE_PICTURES"):
                page.page.wait_for_timeout(1_000)
                reference.write_bytes(encoded(reduced_screenshot(page.page, VARYING)))
            share = difference(page, reference, tmp_path)
            if share > MOST:
                different[reference.name] = f"{share:.1%} of the pixels, see {tmp_path}"
    assert different == {}


def difference(page: GuardedPage, reference: Path, folder: Path) -> float:
    """Return the share of pixels that differ from a reference. The page has ten seconds to show the same."""
    wanted = decoded(page.page, reference.read_bytes())
    deadline = time.monotonic() + 10
    while (share := share_of_difference(shown := reduced_screenshot(page.page, VARYING), wanted)) > MOST:
        if time.monotonic() > deadline:
            (folder / reference.name).write_bytes(encoded(shown))
            page.page.screenshot(path=folder / f"whole-{reference.name}")
            break
        page.page.wait_for_timeout(200)
    return share
