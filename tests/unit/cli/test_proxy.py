from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from command_line import Typed


@asynccontextmanager
async def proxy(typed: Typed, path: Path, flags: str = "") -> AsyncIterator[str]:
    place = path / "proxy.sock"
    socket = str(place)
    task = asyncio.ensure_future(typed.run(f"proxy --unix-socket={socket} {flags}"))
    for _ in range(500):
        if place.exists() or task.done():
            break
        await asyncio.sleep(0.01)
    try:
        yield socket
    finally:
        task.cancel()
        await asyncio.wait([task])


async def ask(socket: str, request: str, body: bytes = b"") -> str:
    reader, writer = await asyncio.open_unix_connection(socket)
    lines = f"{request} HTTP/1.1\r\nHost: localhost:8001\r\nConnection: close\r\n"
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    writer.write(f"{lines}Content-Type: application/json\r\n{length}\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_requests_are_forwarded_with_the_users_credentials(typed: Typed, tmp_path: Path) -> None:
    async with proxy(typed, tmp_path) as socket:
        assert (tmp_path / "proxy.sock").stat().st_mode & 0o077 == 0
        got = await ask(socket, "GET /api/v1/namespaces/default")
        assert got.startswith("HTTP/1.1 200 OK\r\n") and '"name":"default"' in got
        made = await ask(
            socket, "POST /api/v1/namespaces/default/configmaps", b'{"metadata":{"name":"a"},"data":{"k":"v"}}'
        )
        assert made.startswith("HTTP/1.1 201 Created\r\n")
        listed = await ask(socket, "GET /api/v1/namespaces/default/configmaps?limit=1")
        assert '"k":"v"' in listed
        assert (await ask(socket, "GET /api/v1/nothing")).startswith("HTTP/1.1 404")


async def test_a_watch_is_streamed(typed: Typed, tmp_path: Path) -> None:
    async with proxy(typed, tmp_path) as socket:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        text = b""
        while b'"default"' not in text:
            text += await asyncio.wait_for(reader.read(65536), 10)
        writer.close()


@pytest.mark.parametrize(
    ("flags", "request_line", "status"),
    [
        ("", "GET /api/v1/namespaces/default/pods/p/exec?command=ls", 403),
        ("", "GET /api/v1/namespaces/default/pods/p/%65xec?command=ls", 403),
        ("--reject-methods=POST,PUT", "POST /api/v1/namespaces", 403),
        ("--accept-paths=^/version", "GET /api/v1/namespaces", 403),
        ("--accept-paths=^/version", "GET /version", 200),
        ("--accept-hosts=^elsewhere$", "GET /version", 403),
        ("--disable-filter --accept-hosts=^elsewhere$", "GET /version", 200),
        ("--api-prefix=/k8s", "GET /k8s/version", 200),
        ("--api-prefix=/k8s", "GET /version", 404),
        ("", "nonsense", 400),
        ("", "GET version", 400),
    ],
)
async def test_accepted_and_rejected_paths(
    typed: Typed, tmp_path: Path, flags: str, request_line: str, status: int
) -> None:
    async with proxy(typed, tmp_path, flags) as socket:
        assert (await ask(socket, request_line)).startswith(f"HTTP/1.1 {status} ")


async def test_static_files(typed: Typed, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "sub").mkdir(parents=True)
    (site / "page.html").write_text("<p>page")
    (tmp_path / "secret").write_text("secret")
    (site / "out").symlink_to(tmp_path / "secret")
    async with proxy(typed, tmp_path, f"--www={site}") as socket:
        page = await ask(socket, "GET /static/page.html")
        assert page.endswith("<p>page") and "content-type: text/html" in page
        assert '<a href="page.html">page.html</a>' in await ask(socket, "GET /static/")
        for path in ("../secret", "%2e%2e/secret", "/etc/passwd", "out", "nothing", "sub/../../secret", "%00"):
            got = await ask(socket, f"GET /static/{path}")
            assert got.startswith("HTTP/1.1 404 ") and "secret" not in got, path
        assert (await ask(socket, "POST /static/page.html")).startswith("HTTP/1.1 405 ")


async def test_invalid_flags(typed: Typed, tmp_path: Path) -> None:
    assert "cannot set --unix-socket and --port" in await typed.refused("proxy --port=1 --unix-socket=x")
    assert "Error compiling re" in await typed.refused("proxy --accept-paths=(")
    (tmp_path / "file").touch()
    assert "address already in use" in await typed.refused(f"proxy --unix-socket={tmp_path}/file")
    assert (tmp_path / "file").exists()
