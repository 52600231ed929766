"""A cluster in real time, served over HTTPS on a loopback port: for operators in any language, and for kubectl."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_TIMEOUT = 60.0


class LiveCluster(NamedTuple):
    url: str
    kubeconfig: Path
    """Path of the administrator's kubeconfig."""


@contextmanager
def live_cluster(directory: Path, *, nodes: int = 3) -> Iterator[LiveCluster]:
    """Run a cluster in its own thread, on a free port, with the memory store: concurrent tests do not affect each
    other."""
    # Imported here because a test run without a live cluster need not load a server.
    from setpoint.cluster.allinone import cluster
    from setpoint.cluster.config import ApiServerConfig

    started = threading.Event()
    found: list[LiveCluster | BaseException] = []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        config = ApiServerConfig(directory, port=0, store="memory", authorization_mode=["Node", "RBAC"])
        end = asyncio.Event()
        async with cluster(config, nodes=nodes) as running:
            found.append(LiveCluster(running.apiserver.url, running.apiserver.kubeconfig))
            stop.append((asyncio.get_running_loop(), end))
            started.set()
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            found.append(error)
            started.set()

    thread = threading.Thread(target=run, name="setpoint-cluster", daemon=True)
    thread.start()
    if not started.wait(_TIMEOUT):
        raise TimeoutError(f"the cluster is not ready after {_TIMEOUT:.0f} s")
    if isinstance(found[0], BaseException):
        raise found[0]
    try:
        yield found[0]
    finally:
        loop, end = stop[0]
        loop.call_soon_threadsafe(end.set)
        thread.join(_TIMEOUT)
