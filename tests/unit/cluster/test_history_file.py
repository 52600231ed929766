"""`history.db` of a server: filled by compaction, read after a restart, with the flags that concern it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from setpoint.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.store.interface import Store
from setpoint.system import SystemClock

CONFIGMAPS, LEASES = builtin("configmaps"), builtin("leases", "coordination.k8s.io")


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[tuple[RunningApiServer, Client]]:
    config = ApiServerConfig(folder, port=0, insecure_http=True, compaction_interval=0.2, **settings)
    async with apiserver(config, alone=True) as running:
        client = connect(Access(running.url, token=running.loopback_token), SystemClock())
        try:
            yield running, client
        finally:
            await client.close()


async def archived(store: Store, revision: int, client: Client) -> None:
    """Wait until a revision can be read from the file only."""
    for number in range(500):
        if store.compacted > revision:
            return
        await client.patch(CONFIGMAPS, "c", {"data": {"tick": str(number)}}, "default")
        await asyncio.sleep(0.02)
    raise AssertionError("nothing was compacted")


async def test_the_file_of_a_server(tmp_path: Path) -> None:
    async with serving(tmp_path, history_retention=3600.0) as (running, client):
        made = await client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
        )
        revision = made["metadata"]["resourceVersion"]
        await archived(running.api.resources.store, int(revision), client)
        past = f"/at/{revision}/api/v1/namespaces/default/configmaps/c"
        assert (await client.sender.json("GET", past))["metadata"] == made["metadata"]
    assert (tmp_path / "history.db").stat().st_mode & 0o777 == 0o600
    # After a restart, and without the flag: the file is there, but nothing is read from it.
    async with serving(tmp_path, history_retention=3600.0) as (_, client):
        assert (await client.sender.json("GET", past))["metadata"] == made["metadata"]
    async with serving(tmp_path) as (running, client):
        assert running.api.resources.store.archive is None
        await archived(running.api.resources.store, running.api.resources.store.revision, client)
    # What was compacted in between is missing, so states before it are not shown.
    async with serving(tmp_path, history_retention=3600.0, history_exclude=["configmaps"]) as (running, client):
        oldest = running.api.resources.store.compacted
        with pytest.raises(Exception, match="is not in the history"):
            await client.sender.json("GET", past)
        await archived(running.api.resources.store, oldest + 1, client)
        kept = f"/at/{oldest + 1}/api/v1/namespaces"
        assert (await client.sender.json("GET", kept))["items"]
        with pytest.raises(Exception, match="core/configmaps is not kept in the history that long"):
            await client.sender.json("GET", f"/at/{oldest + 1}/api/v1/configmaps")


@pytest.mark.parametrize(
    "settings", [{"history_retention": -1.0}, {"history_max_size": "much"}, {"history_max_size": "0"}]
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="--history-"):
        ApiServerConfig(Path("/tmp"), **settings).check()
