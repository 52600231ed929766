"""The page over real sockets: clients without a key, slow clients, TLS for other machines, and foreign clusters."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from page_client import handshake, open_tab, redeem
from process_memory import resident
from server_process import server_process

from setpoint.client import Client, Unreachable
from setpoint.cluster import page as composition
from setpoint.cluster.certificates import ensure_certificates
from setpoint.cluster.config import ConfigError
from setpoint.cluster.page import PageConfig, RunningPage, page
from setpoint.system import SystemClock
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.server import PageExtensions
from setpoint.web.sessions import PageUser


class Transport:
    """A server that has nothing."""

    async def request(self, *_: Any) -> Any:
        raise Unreachable("there is no server")

    async def stream(self, *_: Any) -> Any:
        raise Unreachable("there is no server")

    async def close(self) -> None: ...


async def busy(context: PageContext, args: Args, output: FeedOutput) -> None:
    """A feed with 100 large items that all change fifty times a second, and 25,000 log entries a second."""
    count = 0
    while True:
        for _ in range(500):
            count += 1
            output.log({"n": count})
        for key in range(100):
            output.set(f"k{key}", {"n": count, "text": "x" * 5_000})
        await context.clock.sleep(0.02)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "index.html").write_text("<!doctype html>")
    return tmp_path / "files"


@asynccontextmanager
async def served(files: Path, **options: Any) -> AsyncIterator[RunningPage]:
    def client(_: PageUser) -> Client:
        return Client(cast(Any, Transport()), SystemClock())

    config = PageConfig(port=0, files=files, extensions=lambda: PageExtensions(feeds={"busy": busy}), **options)
    async with page(config, SystemClock(), client) as running:
        yield running


async def enter(running: RunningPage) -> str:
    status, found = await asyncio.to_thread(redeem, running.new_link())
    assert status == 201
    return str(found["key"])


async def get(url: str) -> float:
    """The seconds that it takes to get the document."""
    host, _, port = url.removeprefix("http://").partition(":")
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: %b:%b\r\nConnection: close\r\n\r\n" % (host.encode(), port.encode()))
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
    return time.monotonic() - began


async def test_a_thousand_sockets_without_a_key_are_refused(files: Path) -> None:
    async with served(files) as running:
        statuses: dict[int, int] = {}
        for _ in range(10):
            async with asyncio.TaskGroup() as tasks:
                attempts = [tasks.create_task(handshake(running.url, "wrong" * (n % 2))) for n in range(100)]
            for attempt in attempts:
                status, _, writer = attempt.result()
                statuses[status] = statuses.get(status, 0) + 1
                writer.close()
            assert await get(running.url) < 2.0
        assert statuses == {401: 1000}


async def test_connections_that_say_nothing_are_closed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that never ends takes no place for long, and the number of connections is bounded."""
    assert composition.LIMITS.head_timeout <= 5 and composition.LIMITS.connections <= 512
    limits = composition.LIMITS._replace(head_timeout=0.1, tick=0.05, connections=20, linger=0.1)
    monkeypatch.setattr(composition, "LIMITS", limits)
    async with served(files) as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        for _, writer in slow:
            writer.write(b"GET / HTTP/1.1\r\nHost: ")
        reader, one_too_many = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            for reader, _ in slow:
                assert (await reader.read()).startswith(b"HTTP/1.1 408")
        for writer in (*(writer for _, writer in slow), one_too_many):
            writer.close()
            await writer.wait_closed()
        assert await get(running.url) < 2.0


async def test_a_tab_that_does_not_read_costs_little(files: Path) -> None:
    """It has credit, but reads nothing for a while: the memory of the server stays flat, and the tab then gets the
    latest state and the number of entries that it missed."""
    async with served(files) as running:
        key = await enter(running)
        async with open_tab(running.url, key) as (tab, _):
            tab.send(1, "open", feed="busy", cluster="", args={})
            tab.send(1, "credit", n=10_000)
            assert await tab.receive() is not None
            await asyncio.sleep(0.3)
            before = resident()
            await asyncio.sleep(1.0)
            assert resident() - before < 16 << 20
            skipped, latest = 0, -1
            for _ in range(200):
                update = await tab.receive()
                assert update is not None
                skipped += update["skipped"]
                latest = max([latest, *(item["n"] for item in update["set"].values())])
                if skipped:
                    break
            assert skipped > 0 and latest > 1_000


async def test_other_machines_need_tls(files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs TLS"):
        async with served(files, address="0.0.0.0"):
            pass
    made = ensure_certificates(tmp_path / "pki", datetime.now(UTC), extra_names=["class.example"])
    tls = {"tls_cert_file": str(made.certificate), "tls_private_key_file": str(made.key)}
    with pytest.raises(ConfigError, match="cannot use --page-tls-cert-file"):
        async with served(files, address="0.0.0.0", tls_cert_file="missing", tls_private_key_file="missing"):
            pass
    async with served(files, address="0.0.0.0", hosts=["class.example"], **tls) as running:
        assert running.url == f"https://class.example:{running.port}"
        trust = ssl.create_default_context(cafile=made.ca)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.port, ssl=trust, server_hostname="class.example"
        )
        host = running.url.removeprefix("https://")
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 200") and "Strict-Transport-Security: max-age=31536000" in answer


async def test_both_loopback_addresses_are_served_and_no_other(files: Path) -> None:
    async with served(files) as running:
        for address in ("127.0.0.1", *(["::1"] if _has_ipv6() else [])):
            _, writer = await asyncio.open_connection(address, running.port)
            writer.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.2", running.port)
        async with served(files) as other:
            assert other.port != running.port


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_the_page_of_any_cluster_is_served_from_here(tmp_path: Path, files: Path) -> None:
    """An API server alone has no page, no loops and no nodes. The page is then served by its client."""
    (tmp_path / "server").mkdir()
    with server_process(tmp_path / "server", "--store", "memory", "--authorization-mode", "RBAC") as server:
        command = [sys.executable, "-m", "setpoint", "page", "--kubeconfig", str(server.kubeconfig)]
        command += ["--page-port", "0", "--page-files", str(files)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(20):
                first = (await process.stdout.readline()).decode()
                link = (await process.stdout.readline()).decode().strip()
            assert first == f"The page shows the cluster at {server.url} as kubernetes-admin. Ctrl-C stops it.\n"
            status, found = await asyncio.to_thread(redeem, link)
            assert status == 201
            origin = link.partition("/#")[0]
            async with open_tab(origin, found["key"]) as (tab, hello):
                assert hello["user"] == "kubernetes-admin"
                assert "loops" not in hello["features"] and "why" in hello["features"]
                assert (await tab.request("/api/v1/namespaces", query="limit=1"))["status"] == 200
                assert (await tab.request("/setpoint/v1/page/codes", "POST"))["status"] == 404
                made = {"metadata": {"name": "made"}}
                assert (await tab.request("/api/v1/namespaces", "POST", body=made))["status"] == 201
                process.send_signal(signal.SIGINT)
                assert await tab.receive() is None
            async with asyncio.timeout(10):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
