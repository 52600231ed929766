"""`pods/portforward` from the front door to a server in a simulated container and back, over every protocol."""

from __future__ import annotations

import asyncio
import zlib
from struct import pack
from typing import Any
from urllib.parse import urlencode

from setpoint.apiserver.filters.in_process import peer_of
from setpoint.apiserver.http.message import Request, Response, UpgradeResponse
from setpoint.meta.websocket import BINARY, frame
from setpoint.node.kubelet_api.spdy import DICTIONARY
from setpoint.testing import VirtualCluster, virtual

Obj = dict[str, Any]
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WEBSOCKET = {
    "upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip
SPDY = {"upgrade": "SPDY/3.1", "connection": "Upgrade", "x-stream-protocol-version": "portforward.k8s.io"}


class Wire:
    """The server's view of an upgraded connection; the test sends and looks at what was written."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    async def read(self) -> bytes:
        return await self._sent.get()

    async def drained(self) -> None: ...

    def close(self) -> None: ...

    def send(self, data: bytes) -> None:
        self._sent.put_nowait(data)


class WebSocketClient(Wire):
    def message(self, payload: bytes) -> None:
        self.send(frame(BINARY, payload, mask=b"\x01\x02\x03\x04"))

    def messages(self) -> list[bytes]:
        raw, found = bytes(self.written), []
        while raw:
            size, at = raw[1], 2
            if size == 126:
                size, at = int.from_bytes(raw[2:4], "big"), 4
            if raw[0] == 0x82:
                found.append(raw[at : at + size])
            raw = raw[at + size :]
        return found

    def channels(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for message in self.messages():
            found[message[0]] = found.get(message[0], b"") + message[1:]
        return found


class Spdy:
    """The client's frames, and what the server's mean."""

    def __init__(self) -> None:
        self._packing = zlib.compressobj(zdict=DICTIONARY)

    def open(self, stream: int, kind: str, port: str, request: str) -> bytes:
        headers = {"streamtype": kind, "port": port, "requestid": request}
        block = pack(">I", len(headers))
        for name, value in headers.items():
            block += pack(">I", len(name)) + name.encode() + pack(">I", len(value)) + value.encode()
        packed = self._packing.compress(block) + self._packing.flush(zlib.Z_SYNC_FLUSH)
        payload = pack(">IIH", stream, 0, 0) + packed
        return pack(">HHI", 0x8003, 1, len(payload)) + payload

    @staticmethod
    def data(stream: int, payload: bytes, last: bool = False) -> bytes:
        return pack(">II", stream, (1 << 24 if last else 0) | len(payload)) + payload

    @staticmethod
    def streams(raw: bytes) -> dict[int, tuple[bytes, bool]]:
        """What came over each stream, and whether it has ended."""
        found: dict[int, tuple[bytes, bool]] = {}
        while raw:
            first, second = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
            size = second & 0xFFFFFF
            if not first & 0x80000000:
                before = found.get(first, (b"", False))[0]
                found[first] = (before + raw[8 : 8 + size], bool(second >> 24))
            raw = raw[8 + size :]
        return found


async def a_pod(cluster: VirtualCluster, image: str = "nginx", *args: str) -> None:
    container: Obj = {"name": "c", "image": image, "args": list(args), "ports": [{"containerPort": 80}]}
    meta = {"name": "p", "namespace": "default"}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    )

    async def running() -> bool:
        found = await cluster.client.get(("v1", "Pod"), "p", "default")
        return bool(found["status"].get("phase") == "Running")

    await cluster.until(running)


async def opened(cluster: VirtualCluster, headers: dict[str, str], *ports: str) -> Any:
    path = "/api/v1/namespaces/default/pods/p/portforward"
    query = urlencode([("ports", port) for port in ports])
    request = Request("GET", path, query, dict(headers), b"", peer_of("admin", ("system:masters",)))
    return await cluster.embedded.api.handle(request)


async def talking(cluster: VirtualCluster, answer: Any, wire: Wire) -> asyncio.Future[None]:
    assert isinstance(answer, UpgradeResponse), answer
    talk = asyncio.ensure_future(answer.run(wire))
    await cluster.sleep(1)
    return talk


@virtual(nodes=1)
async def test_channels_of_a_websocket(cluster: VirtualCluster) -> None:
    """As our own command line forwards: two channels for each port, which begin with its number."""
    await a_pod(cluster)
    wire = WebSocketClient()
    headers = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    talk = await talking(cluster, await opened(cluster, headers, "80", "81"), wire)
    assert wire.channels()[0] == b"\x50\x00"
    refused = wire.channels()[3]
    assert refused.startswith(b"\x51\x00error forwarding port 81 to pod p, uid ")
    assert refused.endswith(b": failed to connect to localhost:81: dial tcp4 127.0.0.1:81: connect: connection refused")
    for _ in range(2):  # the connection is kept
        wire.message(b"\x00" + GET[:10])
        wire.message(b"\x00" + GET[10:])
    await cluster.sleep(1)
    head, _, rest = wire.channels()[0][2:].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nDate: ")
    assert rest.count(b"<h1>Welcome to nginx!</h1>") == 2
    wire.send(b"")
    await talk


@virtual(nodes=1)
async def test_spdy_in_a_websocket_and_by_itself(cluster: VirtualCluster) -> None:
    """As kubectl forwards: a stream for errors and one for data, for each of many connections."""
    await a_pod(cluster)
    for tunnelled in (True, False):
        wire, spdy = WebSocketClient(), Spdy()
        tunnel = {**WEBSOCKET, "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io"}
        talk = await talking(cluster, await opened(cluster, tunnel if tunnelled else SPDY), wire)
        send = wire.message if tunnelled else wire.send
        for number in range(100):  # more than may be open at once
            error, data = 4 * number + 1, 4 * number + 3
            send(spdy.open(error, "error", "80", str(number)) + spdy.data(error, b"", last=True))
            send(spdy.open(data, "data", "80", str(number)) + spdy.data(data, GET) + spdy.data(data, b"", last=True))
            await cluster.sleep(0.1)
        send(spdy.open(1001, "error", "99", "x") + spdy.data(1001, b"", last=True) + spdy.open(1003, "data", "99", "x"))
        await cluster.sleep(1)
        found = spdy.streams(b"".join(wire.messages()) if tunnelled else bytes(wire.written))
        assert all(found[4 * number + 1] == (b"", True) for number in range(100))
        pages = [found[4 * number + 3] for number in range(100)]
        assert all(b"Welcome to nginx!" in page and ended for page, ended in pages)
        assert b"connect: connection refused" in found[1001][0] and found[1001][1]
        wire.send(b"")
        await talk


@virtual(nodes=1)
async def test_requests_that_are_none(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "registry.k8s.io/e2e-test-images/agnhost:2.53", "netexec", "--http-port=80")
    headers = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    for sent, status in (
        (b"\x16\x03\x01 TLS\r\n\r\n", b"400 "),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413 "),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411 "),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, b"431 "),
        (b"HEAD /hostname HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /hostname HTTP/1.1\r\nConnection: close\r\n\r\n", b"200 OK"),
    ):
        wire = WebSocketClient()
        talk = await talking(cluster, await opened(cluster, headers, "80"), wire)
        wire.message(b"\x00" + sent)
        await cluster.sleep(1)
        assert wire.channels()[0][2:].startswith(b"HTTP/1.1 " + status), sent[:30]
        assert talk.done(), "the server closes it"
        assert wire.channels()[0].endswith(b"\r\n\r\n") == sent.startswith(b"HEAD")


@virtual(nodes=1)
async def test_what_is_refused(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    channels = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    for headers, ports, status in (
        (channels, (), 400),
        (channels, ("0",), 400),
        (channels, ("http",), 400),
        (channels, ("70000",), 400),
        (channels, tuple(map(str, range(1, 100))), 400),
        ({**WEBSOCKET, "sec-websocket-protocol": "v5.channel.k8s.io"}, ("80",), 403),
        ({**SPDY, "x-stream-protocol-version": "v4.channel.k8s.io"}, (), 403),
        ({"upgrade": "other", "connection": "Upgrade"}, ("80",), 400),
        ({}, ("80",), 400),
    ):
        answer = await opened(cluster, headers, *ports)
        assert isinstance(answer, Response) and answer.status == status, (headers, ports, answer)
