"""The port of the page if the usual one is in use: the same at each start, as browsers know pages by their ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from setpoint.client import Client
from setpoint.cluster.config import ConfigError
from setpoint.cluster.page import PageConfig, page
from setpoint.system import SystemClock
from setpoint.web.sessions import PageUser


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def client(user: PageUser) -> Client:
    raise AssertionError("no browser comes")


async def served_port(config: PageConfig, data_dir: Path | None) -> int:
    async with page(config, SystemClock(), client, data_dir) as running:
        return running.port


async def test_the_other_port_is_the_same_at_each_start(tmp_path: Path, used_port: int) -> None:
    config = PageConfig(port=used_port, may_use_other_port=True)
    first = await served_port(config, tmp_path)
    assert first != used_port
    assert [await served_port(config, tmp_path) for _ in range(3)] == [first] * 3
    with socket.create_server(("127.0.0.1", first)):
        second = await served_port(config, tmp_path)
    assert second not in (first, used_port)
    assert await served_port(config, tmp_path) == second
    assert await served_port(config, None) not in (used_port, 0)


async def test_the_usual_port_comes_first(tmp_path: Path, used_port: int) -> None:
    other = await served_port(PageConfig(port=used_port, may_use_other_port=True), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    assert await served_port(PageConfig(port=free, may_use_other_port=True), tmp_path) == free
    assert await served_port(PageConfig(port=used_port, may_use_other_port=True), tmp_path) == other


@pytest.mark.parametrize("damaged", [b"", b"x", b"99999\n", b"-1", b"0", b"80", b"1" * 5_000, "\u0664".encode()])
async def test_a_damaged_record_is_ignored(tmp_path: Path, used_port: int, damaged: bytes) -> None:
    (tmp_path / "page-port").write_bytes(damaged)
    config = PageConfig(port=used_port, may_use_other_port=True)
    assert await served_port(config, tmp_path) == await served_port(config, tmp_path) > 1023


async def test_a_chosen_port_must_be_free(tmp_path: Path, used_port: int) -> None:
    (tmp_path / "page-port").write_bytes(b"40000\n")
    with pytest.raises(ConfigError, match=f"cannot use port {used_port}, because another program does"):
        await served_port(PageConfig(port=used_port), tmp_path)
    await served_port(PageConfig(port=0), tmp_path)
    assert (tmp_path / "page-port").read_bytes() == b"40000\n"
