"""A worker process of an API server (`cluster/api_workers.py`)."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from setpoint.cluster.api_workers import parse_settings
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.component_files import component_files
from setpoint.cluster.component_logs import API_SERVER
from setpoint.cluster.config import ConfigError
from setpoint.store.interface import StoreError
from setpoint.store.ipc.replica import StoreReplica
from setpoint.store.ipc.shared_numbers import SharedNumbers
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks

log = logging.getLogger("setpoint.cluster")


@asynccontextmanager
async def api_worker(settings: bytes) -> AsyncIterator[RunningApiServer]:
    """Serve the API on a replica while the block runs. The process ends at once if the one that owns the store ends.
    Raises ConfigError."""
    config, role, link, numbers = parse_settings(settings)
    try:
        replica = await StoreReplica.open(socket.socket(fileno=link), SharedNumbers(numbers))
    except StoreError as error:
        raise ConfigError(f"worker {role.number}: {error}") from None
    with component_files(config.data_dir, API_SERVER, SystemClock()):
        async with (
            apiserver(config, replica, alone=True, role=role) as running,
            child_tasks(_end_with_owner(replica)),
        ):
            replica.serving()
            yield running


async def _end_with_owner(replica: StoreReplica) -> None:
    """End this process when the connection to the owner has ended: nothing here is worth to be saved, and clients find
    another server sooner."""
    await replica.ended.wait()
    log.error("this worker ends: %s", replica.failure)
    logging.shutdown()
    os._exit(1)


__all__ = ["api_worker"]
