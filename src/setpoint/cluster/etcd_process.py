"""The etcd of this machine: the distribution's binary as a child process, restarted if it dies."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from setpoint.cluster.certificates import CertificateFiles
from setpoint.cluster.config import ConfigError
from setpoint.cluster.processes import die_with_parent, stop_process
from setpoint.store.interface import StoreError

_STOP_TIMEOUT: Final = 10.0
"""Seconds that etcd has to end after SIGTERM. It passes its leadership on to another member in this time."""
_MAX_LOG_SIZE: Final = 10 * 1024 * 1024
_LOG_TAIL: Final = 16 * 1024
_QUOTA: Final = 8 * 1024 * 1024 * 1024
_FLAGS: Final = (
    "--max-txn-ops=1024",
    f"--max-request-bytes={4 * 1024 * 1024}",
    f"--quota-backend-bytes={_QUOTA}",
    "--auto-compaction-retention=0",  # the API servers compact
    "--pre-vote=true",  # a member that returns does not disturb the leader
    "--enable-grpc-gateway=false",
    "--logger=zap",
    "--log-level=warn",
)


REMOVED: Final = "its member was removed from the cluster"
"""The reason why etcd ends by itself without an error."""


class EtcdExited(StoreError):
    """The process of etcd has ended."""


def find_etcd() -> str:
    """Return the path of etcd's binary. Raises ConfigError."""
    program = shutil.which("etcd")
    if program is None:
        raise ConfigError(
            "--etcd embedded needs the program etcd, which is not on the PATH; install it: apt-get install etcd-server "
            "(Debian, Ubuntu), dnf install etcd (Fedora), or a release from https://github.com/etcd-io/etcd/releases"
        )
    return program


def etcd_flags(
    *,
    name: str,
    data_dir: Path,
    files: CertificateFiles,
    client_urls: Sequence[str],
    peer_url: str,
    initial_cluster: str = "",
    existing: bool = False,
) -> list[str]:
    """Return the command line of a member, without the program. The last of `client_urls` is advertised.
    `initial_cluster` and `existing` count at the first start only."""
    found = [
        *_FLAGS,
        f"--name={name}",
        f"--data-dir={data_dir}",
        f"--listen-client-urls={','.join(dict.fromkeys(client_urls))}",
        f"--advertise-client-urls={client_urls[-1]}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster={initial_cluster or f'{name}={peer_url}'}",
        f"--initial-cluster-state={'existing' if existing else 'new'}",
    ]
    for prefix in ("", "peer-"):
        found += [
            f"--{prefix}cert-file={files.certificate}",
            f"--{prefix}key-file={files.key}",
            f"--{prefix}trusted-ca-file={files.ca}",
            f"--{prefix}client-cert-auth=true",
        ]
    return found


class EtcdProcess:
    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self.exited = asyncio.Event()
        """Set when the process has ended for the first time."""
        self.error = ""
        """Why it ended, in etcd's words; empty while it has not."""
        self.started = asyncio.Event()
        """Set by the caller when the member works. A process that ends before is not started again."""

    async def run(self) -> None:
        """Run etcd until this task is cancelled, then stop it. Raises EtcdExited if it ends by itself after it has
        started; if it ends before, the caller sees `exited` and cancels this task."""
        process, log_size = await self._start()
        try:
            code = await process.wait()
        finally:
            await stop_process(process, _STOP_TIMEOUT)
        self.error = REMOVED if code == 0 else _last_error(self._log, log_size) or f"exit code {code}"
        self.exited.set()
        await self.started.wait()
        raise EtcdExited(f"etcd ended: {self.error}; its log is {self._log}")

    async def _start(self) -> tuple[asyncio.subprocess.Process, int]:
        """Start etcd and return its process and the size that its log had before."""
        with suppress(FileNotFoundError):
            if self._log.stat().st_size > _MAX_LOG_SIZE:
                self._log.replace(self._log.with_suffix(".log.1"))
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        log_size = os.fstat(log).st_size
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),  # etcd survives SIGKILL as it survives a power failure
                start_new_session=True,  # Ctrl-C in the terminal must not stop it before the API server
            )
            return process, log_size
        finally:
            os.close(log)


def _last_error(log: Path, start: int) -> str:
    """Return the last error in the log of etcd after the position `start`; empty if there is none."""
    with open(log, "rb") as file:
        file.seek(max(start, log.stat().st_size - _LOG_TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            if line.startswith(("panic:", "flag provided")):
                return line
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal", "panic"):
            reason = entry.get("error")
            return f"{entry.get('msg')}: {reason}" if reason else str(entry.get("msg"))
    return ""
