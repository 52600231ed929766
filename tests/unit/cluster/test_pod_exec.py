"""`pods/exec` and `pods/attach` from the API server to a simulated container, in virtual time."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Awaitable, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.message import Request, Response, UpgradeResponse

HANDSHAKE = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-protocol": "v5.channel.k8s.io",
}
ADMIN = ("admin", ("system:masters",))


class ClientConnection:
    """Both sides of an upgraded connection."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        self._got = bytearray()
        self.received: dict[int, bytes] = {}

    # For the server.

    def write(self, data: bytes) -> None:
        self._got += data
        while len(self._got) >= 2:
            size, at = self._got[1], 2
            if size == 126:
                size, at = int.from_bytes(self._got[2:4], "big"), 4
            payload = bytes(self._got[at : at + size])
            if self._got[0] == 0x82:
                self.received[payload[0]] = self.received.get(payload[0], b"") + payload[1:]
            del self._got[: at + size]

    async def read(self) -> bytes:
        return await self._sent.get()

    async def drained(self) -> None: ...

    def close(self) -> None: ...

    # For the client.

    def send(self, channel: int, data: bytes) -> None:
        payload = bytes((channel,)) + data
        size = bytes((0x80 | len(payload),)) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        self._sent.put_nowait(b"\x82" + size + bytes(4) + payload)

    def leave(self) -> None:
        self._sent.put_nowait(b"")

    @property
    def status(self) -> Obj:
        found: Obj = orjson.loads(self.received[3])
        return found


async def opened(
    cluster: VirtualCluster, what: str, query: list[tuple[str, str]], who: tuple[str, tuple[str, ...]] = ADMIN
) -> Any:
    path = f"/api/v1/namespaces/default/pods/p/{what}"
    request = Request("GET", path, urlencode(query), dict(HANDSHAKE), b"", in_process_peer(*who))
    return await cluster.embedded.api.handle(request)


def joined(body: bytes | Sequence[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


async def awaited(run: Awaitable[None]) -> None:
    await run


async def run(cluster: VirtualCluster, *command: str, stdin: bytes | None = None) -> ClientConnection:
    query = [("command", each) for each in command] + [("stdin", "true")] * (stdin is not None)
    answer = await opened(cluster, "exec", query)
    assert isinstance(answer, UpgradeResponse), answer
    assert ("Sec-WebSocket-Protocol", "v5.channel.k8s.io") in answer.headers
    client = ClientConnection()
    if stdin is not None:
        client.send(0, stdin)
        client.send(255, b"\x00")
    await answer.run(client)
    return client


async def a_pod(cluster: VirtualCluster, *command: str) -> None:
    container: Obj = {"name": "c", "image": "busybox", **({"command": list(command)} if command else {})}
    meta = {"name": "p", "namespace": "default"}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    )

    async def running() -> bool:
        found = await cluster.client.get(("v1", "Pod"), "p", "default")
        return bool(found["status"].get("phase") == "Running")

    await cluster.until(running)


@virtual(nodes=1)
async def test_commands_return_output_and_status(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sleep", "1000")
    client = await run(cluster, "echo", "hi", "there")
    assert client.received[1] == b"hi there\n" and client.status == {"metadata": {}, "status": "Success"}
    client = await run(cluster, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (client.received[1], client.received[2]) == (b"out\n", b"err\n")
    assert client.status["reason"] == "NonZeroExitCode"
    assert client.status["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}
    assert client.status["message"] == "command terminated with non-zero exit code: exit status 3"
    client = await run(cluster, "mysql")
    assert client.status["code"] == 500 and '"mysql": executable file not found' in client.status["message"]
    await run(cluster, "sh", "-c", "echo kept > /tmp/file")
    assert (await run(cluster, "cat", "/tmp/file")).received[1] == b"kept\n"


@virtual(nodes=1)
async def test_commands_read_standard_input(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sleep", "1000")
    assert (await run(cluster, "cat", stdin=b"one\ntwo\n")).received[1] == b"one\ntwo\n"
    assert (await run(cluster, "sh", stdin=b"echo $((1 + 2))\nhostname\n")).received[1] == b"3\np\n"
    await run(cluster, "sh", "-c", "cat > /tmp/given", stdin=b"given\n")
    assert (await run(cluster, "cat", "/tmp/given")).received[1] == b"given\n"


@virtual(nodes=1)
async def test_standard_input_is_bounded(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sleep", "1000")
    answer = await opened(cluster, "exec", [("command", "cat"), ("stdin", "true")])
    client = ClientConnection()
    for _ in range(100):
        client.send(0, b"x" * 60_000)
    await answer.run(client)
    assert "exceeds the limit" in client.status["message"]


@virtual(nodes=1)
async def test_tar_copies_files_in_and_out(cluster: VirtualCluster) -> None:
    """The commands are those of `kubectl cp`."""
    await a_pod(cluster, "sleep", "1000")
    packed = io.BytesIO()
    content = "tёxt\n".encode() + bytes(range(256))
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("given/file", "../../etc/outside"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    client = await run(cluster, "tar", "-xmf", "-", "-C", "/tmp", stdin=packed.getvalue())
    assert client.status["status"] == "Success" and b"outside of the directory" in client.received[2]
    assert (await run(cluster, "ls", "/etc/outside")).status["status"] == "Failure"
    client = await run(cluster, "tar", "cf", "-", "/tmp/given")
    with tarfile.open(fileobj=io.BytesIO(client.received[1])) as archive:
        assert archive.getnames() == ["tmp/given", "tmp/given/file"]
        found = archive.extractfile("tmp/given/file")
        assert found is not None and found.read() == content
    assert (await run(cluster, "tar", "cf", "-", "/tmp/none")).status["status"] == "Failure"


@virtual(nodes=1)
async def test_a_command_ends_when_the_client_disconnects(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sleep", "1000")
    started = cluster.clock.monotonic()
    client = await run(cluster, "sh", "-c", "echo first; sleep 5; echo last")
    assert client.received[1] == b"first\nlast\n" and round(cluster.clock.monotonic() - started) == 5
    answer = await opened(cluster, "exec", [("command", "sleep"), ("command", "500")])
    client = ClientConnection()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(awaited(answer.run(client)))
        await cluster.sleep(3)
        client.leave()
    assert cluster.clock.monotonic() - started < 20


@virtual(nodes=1)
async def test_output_waits_for_the_streams_of_the_client(cluster: VirtualCluster) -> None:
    """kubectl up to 1.33 discards messages that arrive before it has set up its streams."""
    await a_pod(cluster, "sleep", "1000")
    answer = await opened(cluster, "exec", [("command", "echo"), ("command", "hi"), ("stdout", "true")])
    client = ClientConnection()
    session = asyncio.create_task(awaited(answer.run(client)))
    await cluster.sleep(0.05)
    assert client.received == {}
    await session
    assert client.received[1] == b"hi\n" and client.status["status"] == "Success"


@virtual(nodes=1)
async def test_a_terminal_echoes_and_interrupts(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sleep", "1000")
    answer = await opened(cluster, "exec", [("command", "sh"), ("stdin", "true"), ("tty", "true")])
    client = ClientConnection()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(awaited(answer.run(client)))
        for keys in (b"echo x", b"\x7fhi\r", b"sleep 2; echo done\r", b"exit 4\r"):
            await cluster.sleep(3)
            client.send(0, keys)
    assert client.received[1] == (b"/ # echo x\b \bhi\r\nhi\r\n/ # sleep 2; echo done\r\ndone\r\n/ # exit 4\r\n")
    assert client.status["details"]["causes"][0]["message"] == "4"


@virtual(nodes=1)
async def test_attach_shows_new_output(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sh", "-c", "echo before; sleep 5; echo after; sleep 5; exit 0")
    answer = await opened(cluster, "attach", [("stdout", "true")])
    client = ClientConnection()
    await answer.run(client)
    assert client.received[1] == b"after\n" and client.status["status"] == "Success"


@virtual(nodes=1)
async def test_attach_sends_input_to_a_shell(cluster: VirtualCluster) -> None:
    """The Pod is that of `kubectl run -it --rm --restart=Never`."""
    container = {"name": "c", "image": "busybox", "stdin": True, "stdinOnce": True, "tty": True}
    meta = {"name": "p", "namespace": "default"}
    spec = {"containers": [container], "restartPolicy": "Never"}
    await cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    await cluster.sleep(60)
    answer = await opened(cluster, "attach", [("stdin", "true"), ("stdout", "true"), ("tty", "true")])
    client = ClientConnection()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(awaited(answer.run(client)))
        for keys in (b"echo hi\r", b"exit 2\r"):
            await cluster.sleep(1)
            client.send(0, keys)
    assert client.received[1] == b"/ # echo hi\r\nhi\r\n/ # exit 2\r\n"
    await cluster.sleep(1)
    status = (await cluster.client.get(("v1", "Pod"), "p", "default"))["status"]
    assert (status["phase"], status["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == ("Failed", 2)


@virtual(nodes=1)
async def test_the_main_program_survives_a_disconnect_without_stdin_once(cluster: VirtualCluster) -> None:
    script = "while read line; do echo got $line; done; echo over"
    container = {"name": "c", "image": "busybox", "stdin": True, "command": ["sh", "-c", script]}
    meta = {"name": "p", "namespace": "default"}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    )
    await cluster.sleep(5)
    for word in (b"first", b"second"):
        answer = await opened(cluster, "attach", [("stdin", "true"), ("stdout", "true")])
        client = ClientConnection()
        client.send(0, word + b"\n")
        client.send(255, b"\x00")
        await answer.run(client)
        assert client.status["status"] == "Success"
    reply = await cluster.client.sender.transport.request("GET", "/api/v1/namespaces/default/pods/p/log", "", [], b"")
    assert reply.body == b"got first\ngot second\n", "and it still waits for more"


@virtual(nodes=1)
async def test_logs_as_websocket_messages(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sh", "-c", "echo one; sleep 3; echo two; sleep 1000")
    path = "/api/v1/namespaces/default/pods/p/log"
    for query, protocol, wanted in (
        ("", "", b"\x82\x00\x82\x04one\n\x88\x02\x03\xe8"),
        ("", "base64.binary.k8s.io", b"\x81\x00\x81\x08b25lCg==\x88\x02\x03\xe8"),
    ):
        headers = {**HANDSHAKE, "sec-websocket-protocol": protocol}
        answer = await cluster.embedded.api.handle(Request("GET", path, query, headers, b"", in_process_peer(*ADMIN)))
        assert isinstance(answer, UpgradeResponse)
        written: list[bytes] = []
        client = ClientConnection()
        client.write = written.append  # type: ignore[method-assign, assignment]
        await answer.run(client)
        assert b"".join(written) == wanted
    headers = {**HANDSHAKE, "sec-websocket-protocol": "binary.k8s.io"}
    answer = await cluster.embedded.api.handle(Request("GET", path, "follow=1", headers, b"", in_process_peer(*ADMIN)))
    assert isinstance(answer, UpgradeResponse)
    written = []
    client = ClientConnection()
    client.write = written.append  # type: ignore[method-assign, assignment]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(awaited(answer.run(client)))
        await cluster.sleep(5)
        client.leave()
    assert written == [b"\x82\x00", b"\x82\x04one\n", b"\x82\x04two\n", b"\x88\x02\x03\xe8"]
    headers = {**HANDSHAKE, "sec-websocket-protocol": "other"}
    answer = await cluster.embedded.api.handle(Request("GET", path, "", headers, b"", in_process_peer(*ADMIN)))
    assert isinstance(answer, Response) and answer.status == 403


@virtual(nodes=1)
async def test_invalid_requests_are_rejected(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sh", "-c", "exit 0")
    await cluster.sleep(1)
    answer = await opened(cluster, "exec", [("command", "ls")])
    assert isinstance(answer, Response) and b'container not found (\\"c\\")' in joined(answer.body)
    path = "/api/v1/namespaces/default/pods/p/exec"
    plain = await cluster.client.sender.transport.request("GET", path, "command=ls", [], b"")
    assert plain.status == 400 and b"Upgrade request required" in plain.body


@virtual(nodes=1)
async def test_exec_needs_the_create_verb(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "sleep", "1000")
    rbac = "rbac.authorization.k8s.io"
    for name, verbs in (("reader", ["get"]), ("runner", ["get", "create"])):
        rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}]
        meta = {"name": name, "namespace": "default"}
        await cluster.client.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules})
        await cluster.client.create(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
            }
        )
    answer = await opened(cluster, "exec", [("command", "ls")], ("reader", ()))
    assert isinstance(answer, Response) and answer.status == 403
    assert orjson.loads(joined(answer.body))["message"] == 'pods "p" is forbidden: ', "in upstream's words"
    assert isinstance(await opened(cluster, "exec", [("command", "ls")], ("runner", ())), UpgradeResponse)
