"""The network transports, on an event loop and in blocking calls: unusual cases with a scripted peer, common ones with a
real server."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from blocking_in_thread import TRANSPORTS, Make
from server_process import ServerProcess, server_process

from setpoint.client import Client, Unreachable
from setpoint.client.cluster_choice import find_access
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.client.transport import Transport
from setpoint.meta.errors import Expired, NotFound, TooManyRequests, Unauthorized
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock
from setpoint.wire.http_exchange import encode_request

CONFIG_MAPS = builtin("configmaps")
Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(script: Script) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers each request by `script`; gives its address and the heads of the requests it saw."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen.append(head)
                await script(head, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}", seen
    finally:
        server.close()


def ok(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Make:
    """Makes a transport to a URL."""
    make = TRANSPORTS[request.param]
    return lambda url, **options: make(Access(url), **options)


async def get(over: Transport, path: str = "/x") -> bytes:
    return (await over.request("GET", path, "", [], b"")).body


async def test_a_connection_is_reused(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(str(writer.get_extra_info("peername")[1]).encode()))

    async with peer(script) as (url, seen):
        over = transport(url)
        assert await get(over) == await get(over)
        assert len(seen) == 2
        await over.close()


async def test_a_closed_pooled_connection_is_replaced_for_reads_but_not_for_writes(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        count[0] += 1
        if count[0] in (2, 4):
            writer.close()
        else:
            writer.write(ok(b"fine"))

    count = [0]
    async with peer(script) as (url, _):
        over = transport(url)
        assert [await get(over), await get(over)] == [b"fine", b"fine"]
        with pytest.raises(Unreachable, match="closed the connection"):
            await over.request("POST", "/x", "", [], b"{}")
        await over.close()


async def test_chunked_and_gzipped_bodies_and_bodies_that_end_with_the_connection(transport: Make) -> None:
    packed = gzip.compress(b"z" * 100_000)

    async def script(head: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/chunked" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            await writer.drain()
            writer.write(b"2\r\nde\r\n0\r\n\r\n")
        elif b"/gzip" in head:
            writer.write(ok(packed, "Content-Encoding: gzip"))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
            writer.close()

    async with peer(script) as (url, _):
        over = transport(url)
        assert await get(over, "/chunked") == b"abcde"
        assert await get(over, "/gzip") == b"z" * 100_000
        assert await get(over, "/closing") == b"until the end"
        assert await get(over, "/chunked") == b"abcde"
        await over.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"nonsense\r\n\r\n", "is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "before its answer was complete"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "another protocol"),
        (b"", "before its answer was complete"),
    ],
)
async def test_a_malformed_response_gives_a_clear_error(answer: bytes, says: str, transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with peer(script) as (url, _):
        with pytest.raises(Unreachable, match=says):
            await get(transport(url))


async def test_a_silent_server_times_out(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        pass

    async with peer(script) as (url, _):
        with pytest.raises(Unreachable, match="did not answer within"):
            await get(transport(url, timeout=0.05))


async def test_a_response_must_be_complete_within_the_timeout(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    async with peer(script) as (url, _):
        with pytest.raises(Unreachable, match="did not answer within"):
            await get(transport(url, timeout=0.05))
        # For a stream, the timeout is that of its head.
        stream = await transport(url, timeout=30.0).stream("GET", "/x", "", [], b"")
        assert (stream.status, await anext(stream)) == (200, b"abc")
        stream.close()


async def test_a_server_that_does_not_answer_the_handshake(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        pass

    async with peer(script) as (url, _):
        over = transport(url.replace("http:", "https:"), connect_timeout=0.05)
        with pytest.raises(Unreachable, match=r"could not be reached within 0\.05 seconds"):
            await get(over)
        over = transport(url.replace("http:", "https:"), timeout=0.05)
        with pytest.raises(Unreachable, match=r"did not answer within 0\.05 seconds"):
            await get(over)


async def test_a_server_that_speaks_no_tls(transport: Make) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"no TLS with the server at {url}: "):
        await get(transport(url))
    server.close()


async def test_a_long_response_is_read_completely(transport: Make) -> None:
    body = bytes(range(256)) * 80_000

    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(body))

    async with peer(script) as (url, _):
        over = transport(url)
        assert await get(over) == body
        assert await get(over) == body
        await over.close()


async def test_a_server_may_refuse_a_large_body_before_it_has_read_it(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
        await writer.drain()
        writer.close()  # the connection is reset, because the body was not read

    async with peer(script) as (url, _):
        reply = await transport(url).request("POST", "/x", "", [], b"x" * 20_000_000)
        assert (reply.status, reply.body) == (413, b"big")


async def test_a_connection_is_used_again_after_a_stream_that_was_read_to_its_end(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(str(writer.get_extra_info("peername")[1]).encode()))

    async with peer(script) as (url, _):
        over = transport(url)
        stream = await over.stream("GET", "/x", "", [], b"")
        first = b"".join([chunk async for chunk in stream])
        assert await get(over) == first
        unread = await over.stream("GET", "/x", "", [], b"")
        unread.close()
        assert await get(over) != first
        await over.close()


async def test_the_response_to_head_has_no_body(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")

    async with peer(script) as (url, _):
        over = transport(url)
        for _ in range(2):
            reply = await over.request("HEAD", "/x", "", [], b"")
            assert (reply.status, reply.body) == (200, b"")
        await over.close()


async def test_an_unreachable_server_gives_a_clear_error(transport: Make) -> None:
    async with peer(lambda *_: asyncio.sleep(0)) as (url, _):
        pass
    with pytest.raises(Unreachable, match="refused"):
        await get(transport(url))


async def test_a_stream_has_backpressure(transport: Make) -> None:
    block = b"x" * 65536
    sent = [0]

    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _block in range(2000):
            writer.write(b"10000\r\n" + block + b"\r\n")
            await writer.drain()
            sent[0] += 1
        writer.write(b"0\r\n\r\n")

    async with peer(script) as (url, _):
        stream = await transport(url).stream("GET", "/x", "", [], b"")
        before = -1
        while before != sent[0]:  # until nothing moves
            before = sent[0]
            await asyncio.sleep(0.05)
        assert sent[0] < 500
        size = 0
        async for chunk in stream:
            size += len(chunk)
        assert size == 2000 * 65536


async def test_retry_after_is_honoured(transport: Make) -> None:
    refusal = json.dumps({"kind": "Status", "reason": "TooManyRequests", "message": "later", "code": 429}).encode()

    async def script(head: bytes, writer: asyncio.StreamWriter) -> None:
        count[0] += 1
        if count[0] < limit[0]:
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(refusal), refusal))
        else:
            writer.write(ok(b'{"metadata":{}}'))

    class Clock(SystemClock):
        slept: list[float] = []

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    count, limit = [0], [3]
    async with peer(script) as (url, _):
        client = Client(transport(url), Clock())
        await client.get(CONFIG_MAPS, "a", "default")
        assert Clock.slept == [7, 7]
        count[0], limit[0] = 0, 1000
        with pytest.raises(TooManyRequests, match="later"):
            await client.get(CONFIG_MAPS, "a", "default")
        assert count[0] == 11
        await client.close()


async def test_plain_text_errors_become_api_errors(transport: Make) -> None:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n404 page not found\n")

    async with peer(script) as (url, _):
        with pytest.raises(NotFound, match="could not find the requested resource"):
            await Client(transport(url), SystemClock()).get(CONFIG_MAPS, "a", "default")


async def test_watch_events_may_arrive_in_fragments(transport: Make) -> None:
    event = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"%d"}}}\n'

    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        data = b"".join(event % number for number in range(20))
        for start in range(0, len(data), 37):
            piece = data[start : start + 37]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Gone","message":"too old"}}\n'
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(gone), gone))

    async with peer(script) as (url, _):
        watch = Client(transport(url), SystemClock()).watch(CONFIG_MAPS)
        seen = []
        with pytest.raises(Expired, match="too old"):
            async for one in watch:
                seen.append(one.object["metadata"]["resourceVersion"])
        assert seen == [str(number) for number in range(20)]
        assert watch.resource_version == "19"


def test_line_breaks_in_request_parts_are_rejected() -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_request("GET", "/x", "x", [("a", "b\r\nc: d")], b"")


# -- a real server ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("server"), "--store", "memory") as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def make(request: pytest.FixtureRequest) -> Make:
    return TRANSPORTS[request.param]


@asynccontextmanager
async def connected(kubeconfig: Path, make: Make = TRANSPORTS["event loop"]) -> AsyncIterator[Client]:
    access = find_access(str(kubeconfig))
    client = Client(make(access), SystemClock(), user_agent="tests", default_namespace=access.namespace)
    try:
        async with asyncio.timeout(20):
            yield client
    finally:
        await client.close()


def config_map(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v" * 2000}}


async def test_authentication_by_client_certificate(server: ServerProcess, make: Make) -> None:
    async with connected(server.kubeconfig, make) as client:
        made = await client.create({**config_map(""), "metadata": {"generateName": "by-certificate-"}})
        assert await client.get(CONFIG_MAPS, made["metadata"]["name"]) == made


async def test_authentication_by_token(server: ServerProcess, make: Make) -> None:
    async with connected(server.kubeconfig_with_token("admin-token"), make) as client:
        await client.list(CONFIG_MAPS)
    async with connected(server.kubeconfig_with_token("wrong"), make) as client:
        with pytest.raises(Unauthorized):
            await client.list(CONFIG_MAPS)


async def test_a_certificate_of_an_unknown_authority_is_rejected(server: ServerProcess, make: Make) -> None:
    client = Client(make(Access(server.url, token="admin-token")), SystemClock())
    with pytest.raises(Unreachable, match=r"is not trusted: .*signed by unknown authority"):
        await client.list(CONFIG_MAPS)
    careless = Client(make(Access(server.url, token="admin-token", insecure=True)), SystemClock())
    await careless.list(CONFIG_MAPS)
    await careless.close()


async def test_concurrent_requests_with_a_watch(server: ServerProcess) -> None:
    async with connected(server.kubeconfig) as client:
        start = (await client.list(CONFIG_MAPS, "default")).resource_version
        async with client.watch(CONFIG_MAPS, "default", resource_version=start) as watch:
            async with asyncio.TaskGroup() as tasks:
                for number in range(200):
                    tasks.create_task(client.create(config_map(f"many-{number:03}")))
            seen = [(await anext(watch)).object for _ in range(200)]
        revisions = [int(obj["metadata"]["resourceVersion"]) for obj in seen]
        assert revisions == sorted(set(revisions))
        listed = await client.list(CONFIG_MAPS, "default", page_size=30)
        assert sum(item["metadata"]["name"].startswith("many-") for item in listed.items) == 200
        assert len(client.sender.transport._idle._connections) <= 32  # type: ignore[attr-defined]


async def test_custom_kinds_are_found_by_discovery(server: ServerProcess) -> None:
    async with connected(server.kubeconfig) as client:
        resources = await client.discovery.resources()
        assert any(one.plural == "pods" and "po" in one.short for one in resources)
        assert (await client.discovery.search("deploy")).kind == "Deployment"
        assert (await client.discovery.search("deployments.v1.apps")).group == "apps"
        with pytest.raises(NotFound, match='doesn\'t have a resource type "nothing"'):
            await client.discovery.search("nothing")
        with pytest.raises(NotFound, match=r'no matches for kind "Thing" in version "nowhere\.io/v1"'):
            await client.get(("nowhere.io/v1", "Thing"), "a")


async def test_invalid_unicode_is_sent_as_go_sends_it(transport: Make) -> None:
    sent: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
        sent.append(await reader.readexactly(length))
        writer.write(ok(b"{}", "Content-Type: application/json"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = Client(transport(f"http://{host}:{port}"), SystemClock())
    try:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a\udcff"}}
        await client.create(body, namespace="default")
    finally:
        await client.close()
        server.close()
    assert json.loads(sent[0])["metadata"]["name"] == "a\ufffd"
