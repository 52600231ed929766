"""Each problem of etcd is a clear sentence, shown by `unavailable` while it lasts; no data is lost by it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from certificate_chains import Issue, key_of, key_pem, pem
from cryptography.x509.oid import ExtendedKeyUsageOID
from cuttable_relay import Cuttable
from etcd_process import EtcdProcess, TlsFiles, etcd_cluster, etcd_process

from setpoint.store.interface import Delete, Event, NotProcessed, Put, StoreError, Unavailable
from setpoint.system import SystemClock
from setpoint.wire.grpc import Channel
from setpoint.wire.tls import TlsClient, Trust

pytest.importorskip("google.protobuf")

from setpoint.store.etcd import replica
from setpoint.store.etcd.member_status import check_version
from setpoint.store.etcd.store import EtcdStore

grpc: Any = pytest.importorskip("grpc")
NO_SPACE = "alarm NOSPACE.*compact its history, defragment every member, then disarm the alarm"
CORRUPT = "members have different data .alarm CORRUPT."


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    with etcd_process(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "CHECK_INTERVAL", 0.1)


async def opened(*endpoints: str, tls: TlsClient | None = None) -> EtcdStore:
    return await EtcdStore.open(endpoints, tls=tls, number=partial(os.urandom, 16))


async def until_unavailable(store: EtcdStore, pattern: str) -> None:
    async with asyncio.timeout(20):
        while not re.search(pattern, store.unavailable or ""):  # noqa: ASYNC110 (the store has no event for it)
            await asyncio.sleep(0.05)


async def until_available(store: EtcdStore) -> None:
    async with asyncio.timeout(20):
        while store.unavailable is not None:  # noqa: ASYNC110 (the store has no event for it)
            await asyncio.sleep(0.05)


async def call(etcd: EtcdProcess, method: str, request: bytes, token: str = "") -> bytes:
    """Call a method of etcd that the store does not use."""
    channel = await Channel.connect(etcd.endpoint, metadata={"etcdserverpb.Auth": {"token": token} if token else {}})
    try:
        return await channel.unary(f"/etcdserverpb.{method}", request, timeout=10)
    finally:
        channel.close()


class Sink:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, events: Sequence[Event], revision: int) -> None:
        self.events += events


# -- versions and alarms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("3.3.27", "lacks parts of the API"),
        ("2.3.8", "lacks parts of the API"),
        ("", "of an unknown version lacks parts of the API"),
        ("3.5.0", "can lose committed transactions"),
        ("3.5.2", "can lose committed transactions"),
    ],
)
def test_versions_that_are_refused(version: str, reason: str) -> None:
    with pytest.raises(StoreError, match=rf"etcd .*{reason}.*: use 3\.5\.21 or newer"):
        check_version(version)


@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.4.23", True), ("3.5.3", True), ("3.5.20", True), ("3.5.21", False), ("3.6.0-rc.1", False), ("3.7.0", False)],
)
def test_versions_that_are_used(version: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    check_version(version)
    assert [record.getMessage() for record in caplog.records] == warned * [
        f"etcd {version} has known bugs in watches and reads; use 3.5.21 or newer in production"
    ]


async def test_a_full_database(tmp_path: Path) -> None:
    with etcd_process(tmp_path, "--quota-backend-bytes", str(4 << 20)) as etcd:
        store = await opened(etcd.endpoint)
        _, (made,) = await store.txn([Put("a", b"1")])
        with pytest.raises(NotProcessed, match=NO_SPACE):
            for _ in range(100):
                last, _ = await store.txn([Put("large", bytes(500_000))])
        assert store.unavailable and re.search(NO_SPACE, store.unavailable), "at once"
        await until_unavailable(store, NO_SPACE)
        await store.sync()
        with pytest.raises(NotProcessed, match=NO_SPACE):
            await store.txn([Delete("a")])
        assert await store.get("a") == made
        late = await opened(etcd.endpoint)
        assert late.unavailable and re.search(NO_SPACE, late.unavailable), "a server that starts knows it too"
        await late.close()

        await store.compact(last)
        await call(etcd, "Maintenance/Defragment", b"")
        await call(etcd, "Maintenance/Alarm", b"\x08\x02\x18\x01")
        members = await call(etcd, "Maintenance/Alarm", b"")  # one is stored with the member's identifier
        for alarm in re.findall(rb"\x12.(\x08.{8,11})\x10\x01", members, re.DOTALL):
            await call(etcd, "Maintenance/Alarm", b"\x08\x02\x10" + alarm[1:] + b"\x18\x01")
        await until_available(store)
        await store.txn([Put("b", b"")])
        await store.close()


async def test_members_with_different_data(etcd: EtcdProcess) -> None:
    store = await opened(etcd.endpoint)
    _, (made,) = await store.txn([Put("a", b"1")])
    await call(etcd, "Maintenance/Alarm", b"\x08\x01\x18\x02")
    await until_unavailable(store, CORRUPT)
    with pytest.raises(NotProcessed, match=CORRUPT):
        await store.txn([Put("a", b"2")])
    with pytest.raises(Unavailable, match=CORRUPT):
        await store.sync()
    with pytest.raises(StoreError, match=CORRUPT):
        await opened(etcd.endpoint)
    assert await store.get("a") == made
    await call(etcd, "Maintenance/Alarm", b"\x08\x02\x18\x02")
    await until_available(store)
    await store.txn([Put("a", b"2")])
    await store.close()


# -- permissions, certificates, other servers -------------------------------------------------------------------------


async def test_etcd_with_passwords(etcd: EtcdProcess) -> None:
    store = await opened(etcd.endpoint)
    await store.txn([Put("a", b"1")])
    root = b"\x0a\x04root"
    await call(etcd, "Auth/UserAdd", root + b"\x12\x04root")
    await call(etcd, "Auth/RoleAdd", root)
    await call(etcd, "Auth/UserGrantRole", root + b"\x12\x04root")
    await call(etcd, "Auth/AuthEnable", b"")
    refused = "etcd does not authorize this server .*: check its client certificate"
    await until_unavailable(store, refused)
    with pytest.raises(NotProcessed, match=refused):
        await store.txn([Put("a", b"2")])
    with pytest.raises(StoreError, match=refused):
        await opened(etcd.endpoint)
    answer = await call(etcd, "Auth/Authenticate", root + b"\x12\x04root")
    token = re.search(rb"[A-Za-z]+\.[0-9]+$", answer)
    assert token is not None
    await call(etcd, "Auth/AuthDisable", b"", token[0].decode())
    await until_available(store)
    await store.txn([Put("a", b"2")])
    await store.close()


def _written(directory: Path, name: str, issue: Issue) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(pem(issue.make(datetime.now(UTC))))
    key.write_bytes(key_pem(key_of(issue.subject, issue.key_kind)))
    return certificate, key


def _tls(ca: Path, own: tuple[Path, Path] | None) -> TlsClient:
    pair = (own[0].read_bytes(), own[1].read_bytes()) if own else None
    return TlsClient(Trust(SystemClock(), ca.read_bytes()), pair, protocol="h2")


async def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    ca, _ = _written(tmp_path, "ca", Issue("root", ca=True))
    other_ca, _ = _written(tmp_path, "other-ca", Issue("other", "other", ca=True))
    server = _written(tmp_path, "server", Issue("server", names=("127.0.0.1",), usages=both))
    client = _written(tmp_path, "client", Issue("client", usages=both))
    strange = _written(tmp_path, "strange", Issue("strange", "other", usages=both))
    with etcd_process(tmp_path, tls=TlsFiles(*server, ca)) as etcd:
        store = await opened(etcd.endpoint, tls=_tls(ca, client))
        await store.txn([Put("a", bytes(100_000))])
        await store.close()
        monkeypatch.setattr("setpoint.store.etcd.client.CALL_TIMEOUT", 2.0)
        for tls, reason in (
            (_tls(other_ca, client), "x509: certificate signed by unknown authority; .* --etcd-cafile"),
            (_tls(ca, strange), "the peer did not accept the client certificate .*; .* --etcd-certfile"),
            (_tls(ca, None), "the peer did not accept the client certificate .*; .* --etcd-certfile"),
        ):
            with pytest.raises(Unavailable, match=f"etcd cannot be reached: .*{etcd.endpoint}.*{reason}"):
                await opened(etcd.endpoint, tls=tls)
        plain = etcd.endpoint.replace("https", "http")
        with pytest.raises(Unavailable, match=f"etcd cannot be reached: .*{plain}.*does it expect https"):
            await opened(plain)


async def test_endpoints_that_are_not_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.store.etcd.client.CALL_TIMEOUT", 2.0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as web:
        port = web.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}: the peer .*it sent an answer of HTTP/1"):
            await opened(f"http://127.0.0.1:{port}")
    monkeypatch.setattr("setpoint.store.etcd.client._CONNECT_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot connect to http://127.0.0.1:{port}: no answer within 0.3 s"):
            await opened(f"http://127.0.0.1:{port}")
    monkeypatch.undo()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(StoreError, match="the endpoint is not an etcd of version 3"):
            await opened(f"http://127.0.0.1:{port}")
    finally:
        server.stop(0)


# -- members that fail ------------------------------------------------------------------------------------------------


async def test_a_watch_that_delivers_nothing_moves(etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is open, calls are answered, and events do not arrive."""
    monkeypatch.setattr(replica, "MAX_LAG", 0.5)
    monkeypatch.setattr("setpoint.store.etcd.client._KEEPALIVE", 60.0)
    async with Cuttable(etcd.endpoint).running() as relay:
        store, other = await opened(relay.url, etcd.endpoint), await opened(etcd.endpoint)
        sink = Sink()
        store.watch("", store.revision, sink)
        relay.swallow_events = True
        revisions = [(await other.txn([Put("a", b"%d" % number)]))[0] for number in range(5)]
        await until_unavailable(store, "the watch has not delivered revision|the watch of etcd ended")
        await until_available(store)
        await store.sync()
        assert [event.revision for event in sink.events] == revisions
        await store.close()
        await other.close()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_member_of_three_fails(tmp_path: Path, how: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    """The one that the store is connected to, whether it leads or not. The store uses another one."""
    caplog.set_level(logging.ERROR)
    with etcd_cluster(tmp_path, 3) as members:
        store = await opened(*(member.endpoint for member in members))
        sink = Sink()
        store.watch("", store.revision, sink)
        acknowledged, unknown = list[int](), 0

        async def write(writer: int) -> None:
            nonlocal unknown
            for number in range(60):
                try:
                    acknowledged.append((await store.txn([Put(f"{writer}/{number}", b"")]))[0])
                except NotProcessed:
                    pass
                except Unavailable:
                    unknown += 1
                await asyncio.sleep(0.02)

        writing = asyncio.gather(*(write(writer) for writer in range(4)))
        await asyncio.sleep(0.3)
        members[0].process.send_signal(how)
        async with asyncio.timeout(25):
            while True:
                try:
                    await store.sync()
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)
            await writing
        await until_available(store)
        await store.sync()
        seen = [event.revision for event in sink.events]
        assert seen == sorted(set(seen)), "ordered, without duplicates"
        assert set(acknowledged) <= set(seen), "what was acknowledged happened"
        assert len(seen) <= len(acknowledged) + unknown
        assert len(acknowledged) > 120
        if how == signal.SIGSTOP:
            members[0].process.send_signal(signal.SIGCONT)
        await store.close()


async def test_the_first_endpoint_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure of another member then does not matter. Nothing is lost and nothing is refused by the return."""
    monkeypatch.setattr(replica, "RETURN_PAUSE", 0.2)
    with etcd_cluster(tmp_path, 2) as members:
        async with Cuttable(members[0].endpoint).running() as relay:
            store = await opened(relay.url, members[1].endpoint)
            client, sink = store._keyspace.client, Sink()
            store.watch("", store.revision, sink)
            async with asyncio.timeout(20):  # an election may have moved it
                while not client.uses_first:  # noqa: ASYNC110 (there is no event for it)
                    await asyncio.sleep(0.02)
            relay.refuse = True
            relay.cut()
            async with asyncio.timeout(20):
                while client.uses_first or store.unavailable is not None:  # noqa: ASYNC110 (there is no event for it)
                    await asyncio.sleep(0.02)
            relay.refuse = False
            revisions = list[int]()
            async with asyncio.timeout(20):
                while not client.uses_first or len(revisions) < 50:
                    revisions.append((await store.txn([Put("a", b"%d" % len(revisions))]))[0])
                    assert store.unavailable is None
            await store.sync()
            assert [event.revision for event in sink.events] == revisions
            await store.close()


async def test_a_member_without_a_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses calls and ends the watch at once, so that the store knows that its state may be old."""
    with etcd_cluster(tmp_path, 3) as members:
        store = await opened(members[0].endpoint)
        monkeypatch.setattr("setpoint.store.etcd.client.CALL_TIMEOUT", 1.0)
        _, (made,) = await store.txn([Put("a", b"1")])
        for member in members[1:]:
            member.process.send_signal(signal.SIGSTOP)
        await until_unavailable(store, "no leader")
        with pytest.raises(NotProcessed, match="no leader; more than half of its members must run"):
            await store.txn([Put("a", b"2")])
        assert await store.get("a") == made
        monkeypatch.setattr("setpoint.store.etcd.client.CALL_TIMEOUT", 5.0)
        for member in members[1:]:
            member.process.send_signal(signal.SIGCONT)
        await until_available(store)
        await store.txn([Put("a", b"2")])
        await store.close()
