"""Two real API servers on one etcd, each a process of its own, with common certificates and keys."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from etcd_process import etcd_process

from setpoint.system import outward_address


@dataclass(frozen=True, slots=True)
class ApiServerProcess:
    url: str
    directory: Path
    """Its data directory, with the kubeconfigs that name it."""
    process: subprocess.Popen[str]

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"


@contextmanager
def server_pair(directory: Path, *flags: str) -> Iterator[tuple[ApiServerProcess, ApiServerProcess]]:
    """They list each other as endpoints, so they need an address that is not loopback. Pods need no service account."""
    address = outward_address()
    if not address:
        pytest.skip("this machine has only loopback addresses")
    with ExitStack() as stack:
        etcd = stack.enter_context(etcd_process(directory))
        shared = ("--etcd-servers", etcd.endpoint, "--bind-address", address, *flags)
        first = stack.enter_context(_server(directory / "a", *shared))
        # Its keys and certificates are there by now.
        pki = str(first.directory / "pki")
        yield first, stack.enter_context(_server(directory / "b", *shared, "--cert-dir", pki))


@contextmanager
def _server(directory: Path, *flags: str) -> Iterator[ApiServerProcess]:
    directory.mkdir(mode=0o700)
    command = [sys.executable, "-m", "setpoint", "apiserver", "--port", "0", "--data-dir", str(directory)]
    command += ["--disable-admission-plugins", "ServiceAccount", *flags]
    log = directory.with_suffix(".log")
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert " ready at " in line, log.read_text()
        yield ApiServerProcess(line.split(" ready at ")[1].split()[0], directory, process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
