"""The worker processes of an API server: each serves the API on a replica of the store of this process.

The workers listen on one port, and the kernel distributes the connections among them. A worker that ends is started
again. All of them end with this process, however it ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from setpoint.cluster.config import AccessConfig, ApiServerConfig, AuditConfig, BackendConfig, ConfigError
from setpoint.cluster.processes import die_with_parent, stop_process
from setpoint.cluster.supervisor import Supervisor
from setpoint.store.interface import StoreError
from setpoint.store.ipc.server import OwnedStore, StoreServer
from setpoint.store.ipc.shared_numbers import SharedNumbers
from setpoint.tasks import child_tasks

_COMMAND: Final = (sys.executable, "-m", "setpoint", "__apiserver-worker")
"""The command of a worker, which reads its settings from its standard input."""
_STOP_TIMEOUT: Final = 20.0
"""Seconds, after the delay of --shutdown-delay-duration, that a worker has to answer its requests and end."""
_LOST_TIMEOUT: Final = 2.0
"""Seconds that a worker has to end after its connection has ended."""


class WorkerEnded(StoreError):
    """A worker has ended, although it was not stopped."""


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """The settings of one worker that the process with the store determines."""

    number: int
    """Its number, from 1 on."""
    host: str
    """The address on which the workers listen."""
    port: int
    token: str
    """The token of the administrator in kubeconfigs of servers without TLS."""


@asynccontextmanager
async def api_workers(
    config: ApiServerConfig, store: OwnedStore, address: tuple[str, int], token: str, supervisor: Supervisor
) -> AsyncIterator[None]:
    """Run the workers while the block runs; it begins when all of them serve. At its end they answer the requests that
    they have, and end. Raises ConfigError."""
    descriptor = SharedNumbers.create()
    server = StoreServer(store, SharedNumbers(descriptor))
    try:
        workers = [
            _Worker(config, WorkerRole(number, *address, token), server, descriptor)
            for number in range(1, config.workers + 1)
        ]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(supervisor.run(each.name, each.run)) for each in workers]
            try:
                for each in workers:
                    await each.first_start
                yield
            finally:
                for task in running:
                    task.cancel()
    finally:
        server.close()
        os.close(descriptor)


class _Worker:
    """One worker, and the process that it has at the moment."""

    def __init__(self, config: ApiServerConfig, role: WorkerRole, server: StoreServer, numbers: int) -> None:
        self.name = f"worker {role.number} of the API server"
        self._config = config
        self._role = role
        self._server = server
        self._numbers = numbers
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first process serves; it fails with ConfigError if that ends before."""

    async def run(self) -> None:
        """Run one process. Raises WorkerEnded when it ends; when this is cancelled, it is stopped."""
        ours, theirs = socket.socketpair()
        try:
            process = await self._start(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        timeout, reason = self._config.shutdown_delay_duration + _STOP_TIMEOUT, ""
        try:
            connection = await self._server.connect(ours, self._serves)
            async with child_tasks(process.wait()) as (ended,):
                await asyncio.wait((ended, connection.closed), return_when=asyncio.FIRST_COMPLETED)
            timeout, reason = _LOST_TIMEOUT, connection.reason
        finally:
            code = await stop_process(process, timeout)
        problem = f"{self.name} has ended with {code}" + (f": {reason}" if reason else "")
        if not self.first_start.done():
            self.first_start.set_exception(ConfigError(problem))
            self.first_start.exception()  # it is not awaited if the start was cancelled
        raise WorkerEnded(problem)

    def _serves(self) -> None:
        if not self.first_start.done():
            self.first_start.set_result(None)

    async def _start(self, link: socket.socket) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(link.fileno(), self._numbers),
            preexec_fn=die_with_parent(),
            start_new_session=True,  # Ctrl-C in the terminal is for this process, which stops the workers
        )
        assert process.stdin is not None
        process.stdin.write(worker_settings(self._config, self._role, link.fileno(), self._numbers) + b"\n")
        process.stdin.close()
        return process


def worker_settings(config: ApiServerConfig, role: WorkerRole, link: int, numbers: int) -> bytes:
    """Return the settings of a worker as one line. `link` and `numbers` are descriptors that it inherits."""
    settings = {"config": asdict(config), "role": asdict(role), "link": link, "numbers": numbers}
    return orjson.dumps(settings, default=str)


def parse_settings(line: bytes) -> tuple[ApiServerConfig, WorkerRole, int, int]:
    """Return what `worker_settings` was called with; the configuration is that of the worker."""
    settings: dict[str, Any] = orjson.loads(line)
    role, fields = WorkerRole(**settings["role"]), settings["config"]
    audit = fields["audit"]
    backends = {name: BackendConfig(**audit[name]) for name in ("log", "webhook")}
    path = _of_worker(audit["log_path"], role.number)
    fields["audit"] = AuditConfig(**{**audit, **backends, "log_path": path})
    fields["access"] = AccessConfig(**fields["access"])
    for name in ("data_dir", "cert_dir"):
        fields[name] = Path(fields[name]) if fields[name] is not None else None
    return ApiServerConfig(**fields), role, settings["link"], settings["numbers"]


def _of_worker(path: str, number: int) -> str:
    """Return the path of a log of one worker: processes cannot rotate a file that others write too."""
    if path in ("", "-"):
        return path
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}-worker{number}{whole.suffix}"))
