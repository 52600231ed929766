"""Real etcd clusters for tests, with their data in a temporary directory; tests skip where none is installed, unless
SETPOINT_REQUIRE_ETCD is set."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

_START_TIMEOUT = 30.0
HINT = "etcd is not installed: apt-get install etcd-server"
LARGE = ("--max-txn-ops", "70000", "--max-request-bytes", str(64 << 20))
"""Flags that raise etcd's limits to those of the other stores."""


class EtcdProcess(NamedTuple):
    endpoint: str
    process: subprocess.Popen[bytes]


class TlsFiles(NamedTuple):
    certificate: Path
    key: Path
    client_ca: Path


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def etcd_process(directory: Path, *flags: str, tls: TlsFiles | None = None) -> Iterator[EtcdProcess]:
    """Run one member. Without flags, its limits are those of the other stores."""
    with etcd_cluster(directory, 1, flags or LARGE, tls) as (member,):
        yield member


@contextmanager
def etcd_cluster(
    directory: Path, size: int, flags: Sequence[str] = LARGE, tls: TlsFiles | None = None
) -> Iterator[list[EtcdProcess]]:
    program = _program()
    scheme = "https" if tls is not None else "http"
    clients, peers = ([free_port() for _ in range(size)] for _ in range(2))
    urls = [f"http://127.0.0.1:{port}" for port in peers]
    common = ["--initial-cluster", ",".join(f"m{number}={url}" for number, url in enumerate(urls)), *flags]
    common += ["--log-level", "error", *_no_fsync(program)]
    if tls is not None:
        common += ["--cert-file", str(tls.certificate), "--key-file", str(tls.key)]
        common += ["--client-cert-auth", "--trusted-ca-file", str(tls.client_ca)]
    with ExitStack() as stack:
        members = []
        for number, (client, url) in enumerate(zip(clients, urls, strict=True)):
            endpoint = f"{scheme}://127.0.0.1:{client}"
            command = [program, "--name", f"m{number}", "--data-dir", str(directory / f"etcd-{number}"), *common]
            command += ["--listen-client-urls", endpoint, "--advertise-client-urls", endpoint]
            command += ["--listen-peer-urls", url, "--initial-advertise-peer-urls", url]
            with (directory / f"etcd-{number}.log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            members.append(EtcdProcess(endpoint, process))
        for number, (client, member) in enumerate(zip(clients, members, strict=True)):
            _wait_for(client, member.process, directory / f"etcd-{number}.log")
        yield members


def _program() -> str:
    program = shutil.which("etcd")
    if program is None:
        if os.environ.get("SETPOINT_REQUIRE_ETCD"):
            raise AssertionError(HINT)
        pytest.skip(HINT)
    return program


@cache
def _no_fsync(program: str) -> Sequence[str]:
    """Return the flag that makes etcd faster, if it has one."""
    text = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
    return ["--unsafe-no-fsync"] if "--unsafe-no-fsync" in text else []


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"etcd did not start: {log.read_text()[-2000:]}")
