"""A fleet of any size for the page, without a cluster behind it: it answers the conversation `fleet` of a tab.

Everything else that the tab opens or requests goes to the real server.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocketRoute

STRIDE = 128
STATES = (1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7)


class FakeFleet:
    """Install it before the page is opened."""

    def __init__(self, nodes: int, pods_per_node: int, zones: int = 3, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.nodes = [[f"node-{number}", f"zone-{number * zones // nodes}", 1, False, 0] for number in range(nodes)]
        self.slots = bytearray(nodes * STRIDE)
        for node in range(nodes):
            for slot in range(pods_per_node):
                self.slots[node * STRIDE + slot] = self.random.choice(STATES)
        self.layout = 1
        self.searched = ""
        self._socket: WebSocketRoute | None = None
        self._channel = 0

    def install(self, page: Page) -> None:
        page.route_web_socket("**/page/v1/socket", self._connected)

    def name(self, index: int) -> str | None:
        return f"default/pod-{index:06d}" if self.slots[index] & 0x7F else None

    def index_of(self, name: str) -> int | None:
        place = int(name.rpartition("-")[2]) if name.startswith("default/pod-") else -1
        return place if 0 <= place < len(self.slots) and self.slots[place] & 0x7F else None

    def indexes(self) -> list[int]:
        """The indexes of all Pods."""
        return [index for index, value in enumerate(self.slots) if value & 0x7F]

    # -- the socket -------------------------------------------------------------------------------------------------

    def _connected(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        self._socket = route

        def from_tab(message: str | bytes) -> None:
            data = json.loads(message)
            if data.get("op") == "open" and data.get("feed") == "fleet":
                self._channel = data["id"]
                self.send_all()
            elif data["id"] != self._channel:
                server.send(message)
            elif data.get("op") == "say":
                self._answer(data["data"])

        route.on_message(from_tab)
        server.on_message(lambda message: route.send(message))

    def _send(self, data: dict[str, Any]) -> None:
        assert self._socket is not None
        self._socket.send(json.dumps({"id": self._channel, "type": "message", "data": data}))

    def _send_bytes(self, frame: bytes) -> None:
        assert self._socket is not None
        self._socket.send(struct.pack(">I", self._channel) + frame)

    def send_all(self) -> None:
        for start in range(0, len(self.nodes), 1_000):
            head = {"type": "layout", "layout": self.layout, "stride": STRIDE, "of": len(self.nodes), "from": start}
            self._send({**head, "nodes": self.nodes[start : start + 1_000]})
        packing = zlib.compressobj(1, zlib.DEFLATED, -15)
        packed = packing.compress(bytes(self.slots)) + packing.flush()
        self._send_bytes(struct.pack("<B3xIII", 0, self.layout, STRIDE, len(self.nodes)) + packed)
        self._send({"type": "loading", "pods": len(self.indexes())})

    def change(self, changes: dict[int, int]) -> None:
        """Set slots, and send them."""
        for index, value in changes.items():
            self.slots[index] = value
        head = struct.pack("<B3xII", 1, self.layout, len(changes))
        self._send_bytes(head + struct.pack(f"<{len(changes)}I", *changes) + bytes(changes.values()))

    def change_some(self, count: int, among: list[int]) -> None:
        """Give random Pods another state."""
        self.change({self.random.choice(among): self.random.randrange(1, 8) for _ in range(count)})

    def _answer(self, asked: dict[str, Any]) -> None:
        match asked:
            case {"pick": int(index)}:
                self._send(
                    {"type": "pod", "index": index, "name": self.name(index), "node": self._node(index), "state": 1}
                )
            case {"locate": str(name)}:
                self._send({"type": "pod", "index": self.index_of(name), "name": name})
            case {"names": positions}:
                rows = [[each, [self.name(each * STRIDE + slot) for slot in range(STRIDE)]] for each in positions]
                self._send({"type": "names", "layout": self.layout, "nodes": rows})
            case {"search": str(query)}:
                self.searched = query
                found = [index for index in self.indexes() if query == "failing" and self.slots[index] & 0x7F == 3]
                self.slots = bytearray(value & 0x7F for value in self.slots)
                for index in found:
                    self.slots[index] |= 0x80
                self.send_all()
                pods = [[index, self.name(index), self._node(index), 3] for index in found[:200]]
                self._send({"type": "found", "query": query, "count": len(found), "pods": pods})

    def _node(self, index: int) -> str:
        return str(self.nodes[index // STRIDE][0])
