"""`pods/portforward` from the API server to a server in a simulated container, over every protocol."""

from __future__ import annotations

import asyncio
import zlib
from struct import pack
from typing import Any
from urllib.parse import urlencode

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.meta.objects import Obj
from setpoint.node.kubelet_api.port_forward import ClientConnection
from setpoint.node.kubelet_api.simulated_connections import ForwardedConnection
from setpoint.node.runtime.network import PodResponse
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.message import Request, Response, UpgradeResponse
from setpoint.wire.spdy import DICTIONARY
from setpoint.wire.websocket import encode_frame

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WEBSOCKET = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SPDY = {"upgrade": "SPDY/3.1", "connection": "Upgrade", "x-stream-protocol-version": "portforward.k8s.io"}


class Wire:
    """The server's side of an upgraded connection; the test sends bytes and inspects what was written."""

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
        self.send(encode_frame(2, payload, mask=b"\x01\x02\x03\x04"))

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
    """Creates the client's frames and parses those of the server."""

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
    def reset(stream: int) -> bytes:
        return pack(">HHIII", 0x8003, 3, 8, stream, 5)

    @staticmethod
    def resets(raw: bytes) -> list[int]:
        """Return the streams that the server has reset."""
        found = []
        while raw:
            size = int.from_bytes(raw[5:8], "big")
            if raw[:4] == b"\x80\x03\x00\x03":
                found.append(int.from_bytes(raw[8:12], "big"))
            raw = raw[8 + size :]
        return found

    @staticmethod
    def streams(raw: bytes) -> dict[int, tuple[bytes, bool]]:
        """Return the data of each stream, and whether it has ended."""
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
    request = Request("GET", path, query, dict(headers), b"", in_process_peer("admin", ("system:masters",)))
    return await cluster.embedded.api.handle(request)


async def exchange(cluster: VirtualCluster, answer: Any, wire: Wire) -> asyncio.Future[None]:
    assert isinstance(answer, UpgradeResponse), answer
    talk = asyncio.ensure_future(answer.run(wire))
    await cluster.sleep(1)
    return talk


@virtual(nodes=1)
async def test_websocket_channels(cluster: VirtualCluster) -> None:
    """Our own command line uses two channels for each port, which begin with the port number."""
    await a_pod(cluster)
    wire = WebSocketClient()
    headers = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    talk = await exchange(cluster, await opened(cluster, headers, "80", "81"), wire)
    assert wire.channels()[0] == b"\x50\x00"
    refused = wire.channels()[3]
    assert refused.startswith(b"\x51\x00error forwarding port 81 to pod p, uid ")
    assert refused.endswith(b": failed to connect to localhost:81: dial tcp4 127.0.0.1:81: connect: connection refused")
    for _ in range(2):  # the connection is reused
        wire.message(b"\x00" + GET[:10])
        wire.message(b"\x00" + GET[10:])
    await cluster.sleep(1)
    head, _, rest = wire.channels()[0][2:].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\nDate: Thu, 01 Jan 2026 00:00:01 GMT\r\n" in head
    assert rest.count(b"<h1>Welcome to nginx!</h1>") == 2
    wire.send(b"")
    await talk


@virtual(nodes=1)
async def test_spdy_directly_and_tunneled_in_a_websocket(cluster: VirtualCluster) -> None:
    """kubectl uses a stream for errors and one for data for each connection."""
    await a_pod(cluster)
    for tunnelled in (True, False):
        wire, spdy = WebSocketClient(), Spdy()
        tunnel = {**WEBSOCKET, "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io"}
        talk = await exchange(cluster, await opened(cluster, tunnel if tunnelled else SPDY), wire)
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
async def test_spdy_streams_without_a_valid_partner_are_reset(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    wire, spdy = Wire(), Spdy()
    talk = await exchange(cluster, await opened(cluster, SPDY), wire)
    wire.send(spdy.open(1, "data", "80", "alone"))
    wire.send(spdy.open(3, "error", "x", "port") + spdy.open(5, "data", "http", "port"))
    wire.send(spdy.open(7, "error", "80", "kind") + spdy.open(9, "other", "80", "kind"))
    wire.send(spdy.open(11, "error", "80", "reset") + spdy.reset(11) + spdy.open(13, "data", "80", "reset"))
    wire.send(spdy.open(15, "error", "80", "twice") + spdy.open(17, "data", "80", "twice"))
    wire.send(spdy.open(19, "data", "80", "twice"))
    await cluster.sleep(1)
    assert spdy.resets(bytes(wire.written)) == [1, 5, 9, 13, 19]
    wire.send(spdy.data(17, GET))
    await cluster.sleep(1)
    assert b"Welcome to nginx!" in spdy.streams(bytes(wire.written))[17][0]
    assert not talk.done()
    wire.send(b"")
    await cluster.sleep(1)
    assert talk.done(), "open connections end with the client's"


@virtual(nodes=1)
async def test_data_for_a_connection_that_has_ended_does_not_block_the_others(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    wire, spdy = Wire(), Spdy()
    talk = await exchange(cluster, await opened(cluster, SPDY), wire)
    wire.send(spdy.open(1, "error", "80", "1") + spdy.open(3, "data", "80", "1"))
    wire.send(spdy.data(3, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))
    await cluster.sleep(1)
    page, ended = spdy.streams(bytes(wire.written))[3]
    assert b"Connection: close" in page and ended
    for _ in range(10):
        wire.send(spdy.data(3, GET))
    wire.send(spdy.open(5, "error", "80", "2") + spdy.open(7, "data", "80", "2") + spdy.data(7, GET))
    await cluster.sleep(1)
    assert b"Welcome to nginx!" in spdy.streams(bytes(wire.written))[7][0]
    wire.send(b"")
    await talk


@virtual(nodes=1)
async def test_a_connection_that_the_client_resets_ends_at_once(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    wire, spdy = Wire(), Spdy()
    talk = await exchange(cluster, await opened(cluster, SPDY), wire)
    for first in range(1, 400, 4):  # more often than connections may be open at once
        error, data = spdy.open(first, "error", "80", "x"), spdy.open(first + 2, "data", "80", "x")
        wire.send(error + spdy.data(first, b"", last=True) + data + spdy.reset(first + 2))
    await cluster.sleep(1)
    wire.send(spdy.open(401, "error", "80", "y") + spdy.open(403, "data", "80", "y"))
    await cluster.sleep(1)
    wire.send(spdy.reset(403) + spdy.data(403, GET) * 5)
    wire.send(spdy.open(405, "error", "80", "z") + spdy.open(407, "data", "80", "z") + spdy.data(407, GET))
    await cluster.sleep(1)
    found = spdy.streams(bytes(wire.written))
    assert b"Welcome to nginx!" in found[407][0] and found[1] == found[401] == (b"", True)
    wire.send(b"")
    await talk


async def test_a_connection_that_has_ended_releases_a_client_that_waits() -> None:
    async def drained() -> None: ...

    client = ClientConnection(bytearray().extend, drained)
    await client.feed(b"1")
    await client.feed(b"2")
    waiting = asyncio.ensure_future(client.feed(b"3"))
    await asyncio.sleep(0)
    assert not waiting.done()
    client.end()
    async with asyncio.timeout(5):
        await waiting
        for _ in range(5):
            await client.feed(b"4")


@virtual(nodes=1)
async def test_a_server_that_is_not_simulated_closes_the_connection(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "registry.example/app")
    wire = WebSocketClient()
    headers = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    talk = await exchange(cluster, await opened(cluster, headers, "80"), wire)
    wire.message(b"\x00" + GET)
    await cluster.sleep(1)
    assert talk.done()
    assert wire.channels()[0] == b"\x50\x00"
    assert wire.channels()[1].endswith(b": read tcp4 127.0.0.1:80: read: connection reset by peer")


@virtual(nodes=0)
async def test_a_slow_server_responds_late(cluster: VirtualCluster) -> None:
    written = bytearray()
    slow = PodResponse(200, "late", delay=5.0)

    async def drained() -> None: ...

    client = ClientConnection(written.extend, drained)
    running = asyncio.ensure_future(ForwardedConnection(80, lambda request: slow, cluster.clock, client).run())
    await client.feed(GET)
    await cluster.sleep(4)
    assert not written
    await cluster.sleep(2)
    assert written.endswith(b"\r\n\r\nlate")
    await client.feed(b"")
    assert await running == ""


@virtual(nodes=1)
async def test_empty_messages_do_not_end_a_tunnel(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    wire, spdy = WebSocketClient(), Spdy()
    tunnel = {**WEBSOCKET, "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io"}
    talk = await exchange(cluster, await opened(cluster, tunnel), wire)
    wire.message(spdy.open(1, "error", "80", "1"))
    wire.message(b"")
    wire.message(spdy.open(3, "data", "80", "1") + spdy.data(3, GET))
    await cluster.sleep(1)
    assert not talk.done()
    assert b"Welcome to nginx!" in spdy.streams(b"".join(wire.messages()))[3][0]
    wire.send(b"")
    await talk


@virtual(nodes=1)
async def test_malformed_streams_are_rejected(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "registry.k8s.io/e2e-test-images/agnhost:2.53", "netexec", "--http-port=80")
    headers = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    for sent, status in (
        (b"\x16\x03\x01 TLS\r\n\r\n", b"400 "),
        (b"GET /hostname HTTP/1.1\r\n\r\n", b"400 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", b"413 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", b"501 "),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, b"431 "),
        (b"HEAD /hostname HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /hostname HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200 OK"),
    ):
        wire = WebSocketClient()
        talk = await exchange(cluster, await opened(cluster, headers, "80"), wire)
        wire.message(b"\x00" + sent)
        await cluster.sleep(1)
        assert wire.channels()[0][2:].startswith(b"HTTP/1.1 " + status), sent[:30]
        assert talk.done(), "the server closes it"
        assert wire.channels()[0].endswith(b"\r\n\r\n") == sent.startswith(b"HEAD")


@virtual(nodes=1)
async def test_a_connection_continues_after_chunked_bodies_and_offers_to_upgrade(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "registry.k8s.io/e2e-test-images/agnhost:2.53", "netexec", "--http-port=80")
    headers = {**WEBSOCKET, "sec-websocket-protocol": "v4.channel.k8s.io"}
    wire = WebSocketClient()
    talk = await exchange(cluster, await opened(cluster, headers, "80"), wire)
    host = b"/hostname HTTP/1.1\r\nHost: x\r\n"
    for sent in (
        b"POST " + host + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"GET " + host + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET " + host + b"\r\n",
        b"POST " + host + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
    ):
        wire.message(b"\x00" + sent)
    await cluster.sleep(1)
    written = wire.channels()[0]
    assert written.count(b"HTTP/1.1 200 OK\r\n") == 3 and written.endswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    wire.message(b"\x00ab")
    await cluster.sleep(1)
    assert wire.channels()[0].count(b"HTTP/1.1 200 OK\r\n") == 4 and not talk.done()
    wire.send(b"")
    await talk


@virtual(nodes=1)
async def test_invalid_requests_are_rejected(cluster: VirtualCluster) -> None:
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
