from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import pytest
from certificate_chains import Issue, key_of, key_pem, pem
from host_runtime import make_pod, shell
from stopped_clock import StoppedClock, settle

from setpoint.meta.objects import Obj
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.messages import METHODS
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.hooks import HookRunner, HookTarget
from setpoint.node.host.probes import HostProber
from setpoint.node.runtime.interface import HookResult
from setpoint.system import SystemClock
from setpoint.wire.grpc import Code

CONTAINER = shell("sleep", ports=[{"name": "http", "containerPort": 8080}])
POD = make_pod(CONTAINER)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class ExecClient:
    """A container runtime that only executes commands."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self.answer: tuple[bytes, bytes, int] | CriError = (b"", b"", 0)

    async def call(self, method: str, request: Mapping[str, Any], *, timeout: float) -> Any:
        assert method == "ExecSync"
        self.requests.append({**request, "deadline": timeout})
        if isinstance(self.answer, CriError):
            raise self.answer
        stdout, stderr, code = self.answer
        return METHODS[method].response(stdout=stdout, stderr=stderr, exit_code=code)


@pytest.fixture
def client() -> ExecClient:
    return ExecClient()


@pytest.fixture
def prober(client: ExecClient) -> HostProber:
    return HostProber(cast(CriClient, client), SystemClock())


class Outcome(NamedTuple):
    success: bool
    output: str


async def probe(prober: HostProber, spec: Obj, ip: str = "127.0.0.1") -> Outcome:
    """Run a probe that can be carried out."""
    found = await prober.probe(CONTAINER, spec, POD, ip, lambda: "id")
    assert not found.errored
    return Outcome(found.success, found.output)


async def error_of(prober: HostProber, spec: Obj) -> str:
    """Return why a probe cannot be carried out."""
    found = await prober.probe(CONTAINER, spec, POD, "127.0.0.1", lambda: "id")
    assert found.errored and not found.success
    return found.output


Handler = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """An HTTP server that records the heads of requests."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.answers: list[bytes] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        if self.answers:
            writer.write(self.answers.pop(0))
            writer.close()
        else:
            await reader.read()  # until the client gives up
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    made = Server()
    made.answers = list(answers)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# -- exec ------------------------------------------------------------------------------------------------------------


async def test_exec(prober: HostProber, client: ExecClient) -> None:
    assert await probe(prober, {"exec": {"command": ["/check", "$(WHO)"]}, "timeoutSeconds": 3}) == (True, "")
    assert client.requests == [{"container_id": "id", "cmd": ["/check", "$(WHO)"], "timeout": 3, "deadline": 123.0}]
    client.answer = (b"out\n", b"err\n", 2)
    assert await probe(prober, {"exec": {"command": ["/check"]}}) == (False, "out\nerr\n")
    client.answer = (b"x" * 20000, b"", 1)
    assert len((await probe(prober, {"exec": {"command": ["/check"]}})).output) == 10240


async def test_exec_expands_static_variables(prober: HostProber, client: ExecClient) -> None:
    container = {**CONTAINER, "env": [{"name": "WHO", "value": "me"}, {"name": "REF", "valueFrom": {}}]}
    spec = {"exec": {"command": ["echo", "$(WHO)$(REF)$(OTHER)"]}}
    await prober.probe(container, spec, POD, "", lambda: "id")
    assert client.requests[0]["cmd"] == ["echo", "me$(OTHER)"]


async def test_exec_that_takes_too_long(prober: HostProber, client: ExecClient) -> None:
    client.answer = CriError(Code.DEADLINE_EXCEEDED, "timeout 1s exceeded: context deadline exceeded")
    found = await probe(prober, {"exec": {"command": ["sleep", "10"]}, "timeoutSeconds": 1})
    assert found == (False, 'command timed out: "sleep 10" timed out after 1s')
    found = await probe(prober, {"exec": {"command": ["sleep"]}, "timeoutSeconds": 90})
    assert found.output == 'command timed out: "sleep" timed out after 1m30s'


async def test_exec_that_cannot_be_carried_out_is_tried_three_times(prober: HostProber, client: ExecClient) -> None:
    client.answer = CriError(Code.UNKNOWN, "container is in CONTAINER_EXITED state")
    found = await error_of(prober, {"exec": {"command": ["a"]}})
    assert found == "rpc error: code = Unknown desc = container is in CONTAINER_EXITED state"
    assert len(client.requests) == 3


async def test_a_probe_without_an_action(prober: HostProber) -> None:
    name = f"web_default({POD['metadata']['uid']})"
    assert await error_of(prober, {}) == f"missing probe handler for {name}:main"


# -- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, (True, "")),
        (204, (True, "")),
        (399, (True, "Probe terminated redirects, Response body: ok")),
        (400, (False, "HTTP probe failed with statuscode: 400")),
        (503, (False, "HTTP probe failed with statuscode: 503")),
    ],
)
async def test_http_status(prober: HostProber, status: int, result: tuple[bool, str]) -> None:
    body = b"" if status == 204 else b"content-length: 2\r\n\r\nok"
    async with serving(b"HTTP/1.1 %d X\r\n" % status + (body or b"\r\n")) as server:
        assert await probe(prober, {"httpGet": {"port": server.port, "path": "/healthz?a=b c#x"}}) == result
        head = server.heads[0].split("\r\n")
        assert head[0] == "GET /healthz?a=b%20c HTTP/1.1"
        assert {f"host: 127.0.0.1:{server.port}", "User-Agent: kube-probe/1.37", "Accept: */*"} < set(head)
        assert "Connection: close" in head


async def test_http_headers(prober: HostProber) -> None:
    headers = [
        {"name": "Host", "value": "example.org"},
        {"name": "x-custom-NAME", "value": "a"},
        {"name": "X-Custom-Name", "value": "b"},
        {"name": "user-agent", "value": "mine"},
        {"name": "accept", "value": ""},
    ]
    async with serving(OK) as server:
        assert (await probe(prober, {"httpGet": {"port": server.port, "httpHeaders": headers}})).success
        lines = server.heads[0].split("\r\n")
        assert lines[0] == "GET / HTTP/1.1" and "host: example.org" in lines
        assert "X-Custom-Name: a" in lines and "X-Custom-Name: b" in lines and "User-Agent: mine" in lines
        assert not any(line.startswith("Accept") for line in lines)


async def test_http_redirects(prober: HostProber) -> None:
    def redirect(target: str) -> bytes:
        return f"HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 4\r\n\r\nbody".encode()

    async with serving(redirect("/next"), OK) as server:
        assert await probe(prober, {"httpGet": {"port": server.port, "path": "/"}}) == (True, "")
        assert server.heads[1].startswith("GET /next HTTP/1.1")
    async with serving(redirect("http://other.example/")) as server:
        found = await probe(prober, {"httpGet": {"port": server.port, "path": "/"}})
        assert found == (True, "Probe terminated redirects, Response body: body") and len(server.heads) == 1
    async with serving(*[redirect("/again")] * 11) as server:
        found = await probe(prober, {"httpGet": {"port": server.port, "path": "/"}})
        url = f"http://127.0.0.1:{server.port}/again"
        assert found == (False, f'Get "{url}": stopped after 10 redirects') and len(server.heads) == 10


async def test_http_failures_have_the_texts_of_go(prober: HostProber) -> None:
    port = free_port()
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    found = await probe(prober, {"httpGet": {"port": port, "path": "/a"}})
    assert found == (False, f'Get "http://127.0.0.1:{port}/a": {refused}')
    found = await probe(prober, {"httpGet": {"port": port, "path": "/", "host": "::1"}})
    assert found.output.startswith(f'Get "http://[::1]:{port}/": dial tcp [::1]:{port}: connect: ')
    async with serving(b"") as server:
        found = await probe(prober, {"httpGet": {"port": server.port, "path": "/"}})
        assert found == (False, f'Get "http://127.0.0.1:{server.port}/": EOF')
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-le") as server:
        found = await probe(prober, {"httpGet": {"port": server.port, "path": "/"}})
        assert found == (False, f'Get "http://127.0.0.1:{server.port}/": unexpected EOF')
    async with serving(b"SSH-2.0\r\n\r\n") as server:
        found = await probe(prober, {"httpGet": {"port": server.port, "path": "/"}})
        assert "malformed HTTP response" in found.output


async def test_http_timeout(client: ExecClient) -> None:
    clock = StoppedClock()
    prober = HostProber(cast(CriClient, client), clock)
    async with serving() as server, asyncio.TaskGroup() as group:
        task = group.create_task(probe(prober, {"httpGet": {"port": server.port, "path": "/"}, "timeoutSeconds": 2}))
        while not server.heads:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await clock.advance(1.9)
        assert not task.done()
        await clock.advance(0.2)
        exceeded = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        assert await task == (False, f'Get "http://127.0.0.1:{server.port}/": {exceeded}')


async def test_http_reads_at_most_10_kibibytes(prober: HostProber) -> None:
    async with serving(b"HTTP/1.1 302 Found\r\n\r\n" + b"x" * 100_000) as server:
        found = await probe(prober, {"httpGet": {"port": server.port, "path": "/"}})
        assert found.success and len(found.output) == len("Probe terminated redirects, Response body: ") + 10240


async def test_ports(prober: HostProber) -> None:
    assert await error_of(prober, {"httpGet": {"port": "none"}}) == 'port "none" not found'
    assert await error_of(prober, {"tcpSocket": {"port": 0}}) == "invalid port number: 0"
    found = await probe(prober, {"tcpSocket": {"port": "http"}})
    assert found == (False, "dial tcp 127.0.0.1:8080: connect: connection refused")


def server_tls(directory: Path) -> ssl.SSLContext:
    path = directory / "tls.pem"
    path.write_bytes(key_pem(key_of("probe", "ec")) + pem(Issue("probe").make()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


async def test_https_is_not_verified(prober: HostProber, tmp_path: Path) -> None:
    async with serving(OK, tls=server_tls(tmp_path)) as server:
        spec = {"httpGet": {"port": server.port, "path": "/", "scheme": "HTTPS"}}
        assert await probe(prober, spec) == (True, "")


async def test_https_to_a_server_without_tls(prober: HostProber) -> None:
    async with serving_plain(b"HTTP/1.0 400 Bad Request\r\n\r\n") as port:
        found = await probe(prober, {"httpGet": {"port": port, "path": "/", "scheme": "HTTPS"}})
        text = "http: server gave HTTP response to HTTPS client"
        assert found == (False, f'Get "https://127.0.0.1:{port}/": {text}')


@asynccontextmanager
async def serving_plain(answer: bytes) -> AsyncIterator[int]:
    """A server that answers anything with the same bytes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


# -- TCP -------------------------------------------------------------------------------------------------------------


async def test_tcp(prober: HostProber) -> None:
    async with serving_plain(b"") as port:
        assert await probe(prober, {"tcpSocket": {"port": port}}) == (True, "")
        assert await probe(prober, {"tcpSocket": {"port": port, "host": "localhost"}}, ip="192.0.2.1") == (True, "")
    port = free_port()
    found = await probe(prober, {"tcpSocket": {"port": port}})
    assert found == (False, f"dial tcp 127.0.0.1:{port}: connect: connection refused")
    found = await probe(prober, {"tcpSocket": {"port": port, "host": "no.such.host.invalid"}})
    assert found.output.startswith("dial tcp: lookup no.such.host.invalid")


# -- gRPC ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def health_server(answer: Callable[[bytes, Any], bytes] | None) -> AsyncIterator[int]:
    server = grpc.server(ThreadPoolExecutor(2))
    if answer is not None:
        handler = grpc.unary_unary_rpc_method_handler(answer)
        service = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})
        server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None)


async def test_grpc(prober: HostProber) -> None:
    requests: list[tuple[bytes, str]] = []
    answers = [b"\x08\x01", b"\x08\x02", b"", b"\x08\x03"]

    def check(request: bytes, context: Any) -> bytes:
        agent = dict(context.invocation_metadata())["user-agent"]
        requests.append((request, agent))
        return answers[len(requests) - 1]

    async with health_server(check) as port:
        assert await probe(prober, {"grpc": {"port": port}}) == (True, "")
        found = await probe(prober, {"grpc": {"port": port, "service": "a" * 200}})
        assert found == (False, 'service unhealthy (responded with "NOT_SERVING")')
        assert (await probe(prober, {"grpc": {"port": port}})).output == 'service unhealthy (responded with "UNKNOWN")'
        found = await probe(prober, {"grpc": {"port": port}})
        assert found.output == 'service unhealthy (responded with "SERVICE_UNKNOWN")'
    assert [request for request, _ in requests[:2]] == [b"", b"\x0a\xc8\x01" + b"a" * 200]
    assert requests[0][1].startswith("kube-probe/1.37")


async def test_grpc_failures(prober: HostProber) -> None:
    def denied(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        return b""

    async with health_server(denied) as port:
        found = await probe(prober, {"grpc": {"port": port}})
        text = "error: health rpc probe failed: rpc error: code = PermissionDenied desc = no"
        assert found == (False, text)
    async with health_server(None) as port:
        found = await probe(prober, {"grpc": {"port": port}})
        prefix = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
        assert found.output.startswith(prefix)


async def test_grpc_without_a_server(client: ExecClient) -> None:
    clock, port = StoppedClock(), free_port()
    prober = HostProber(cast(CriClient, client), clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(probe(prober, {"grpc": {"port": port}, "timeoutSeconds": 2}))
        while clock.sleeping < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await clock.advance(1.9)
        await settle()
        assert not task.done()
        await clock.advance(0.2)
        address = f"127.0.0.1:{port}"
        text = f'timeout: failed to connect service "{address}" within 2s: context deadline exceeded'
        assert await task == (False, text)


# -- hooks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def hooks(client: ExecClient, tmp_path: Path) -> AsyncIterator[HookRunner]:
    pool = BlockingPool(1)
    yield HookRunner(cast(CriClient, client), NodeDirectories(tmp_path), pool, SystemClock())
    pool.close()


async def run_hook(hooks: HookRunner, hook: Obj, *, pre_stop: bool = False, ip: str = "127.0.0.1") -> HookResult:
    return await hooks.run(HookTarget("uid", "web_default(uid)", "id", ip), CONTAINER, hook, pre_stop=pre_stop)


async def test_exec_hooks(hooks: HookRunner, client: ExecClient) -> None:
    hook = {"exec": {"command": ["/stop", "$(A)"]}}
    assert await run_hook(hooks, hook) == (True, "")
    assert client.requests[0]["cmd"] == ["/stop", "$(A)"] and client.requests[0]["timeout"] == 0
    client.answer = (b"out", b"err", 3)
    failed = 'for Container "main" in Pod "web_default(uid)" failed - error: command \'/stop $(A)\' exited with 3: err'
    text = f'Exec lifecycle hook ([/stop $(A)]) {failed}, message: "outerr"'
    assert await run_hook(hooks, hook) == (False, text)


async def test_http_hooks_accept_any_response(hooks: HookRunner) -> None:
    async with serving(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n") as server:
        assert await run_hook(hooks, {"httpGet": {"port": server.port, "path": "/stop"}}) == (True, "")
        assert "User-Agent: kube-lifecycle/1.37" in server.heads[0]
    port = free_port()
    url = f'Get "http://127.0.0.1:{port}/stop": dial tcp 127.0.0.1:{port}: connect: connection refused'
    text = f'HTTP lifecycle hook (/stop) for Container "main" in Pod "web_default(uid)" failed - error: {url}'
    assert await run_hook(hooks, {"httpGet": {"port": port, "path": "/stop"}}) == (False, text)
    assert not (await run_hook(hooks, {"httpGet": {"port": port}}, ip="")).success


async def test_https_hooks_fall_back_to_http(hooks: HookRunner) -> None:
    async with serving_plain(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as port:
        assert (await run_hook(hooks, {"httpGet": {"port": port, "path": "/", "scheme": "HTTPS"}})).success


async def test_other_hooks(hooks: HookRunner) -> None:
    assert await run_hook(hooks, {"sleep": {"seconds": 0}}) == (True, "")
    assert not (await run_hook(hooks, {"tcpSocket": {"port": 1}})).success


async def test_a_pre_stop_hook_is_marked_before_it_runs(hooks: HookRunner, client: ExecClient, tmp_path: Path) -> None:
    hook = {"exec": {"command": ["/stop"]}}
    client.answer = CriError(Code.UNAVAILABLE, "the agent ended")
    assert not (await run_hook(hooks, hook, pre_stop=True)).success
    assert await run_hook(hooks, hook, pre_stop=True) == (True, "") and len(client.requests) == 1
    assert [*NodeDirectories(tmp_path).container("uid", "main").iterdir()]
