"""Clusters in real time: several at once are independent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from setpoint.client.https import connect
from setpoint.client.kubeconfig import Kubeconfig
from setpoint.client.resources import builtin
from setpoint.system import SystemClock
from setpoint.testing import LiveCluster, live_cluster

CONFIG_MAPS = builtin("configmaps")


async def names(cluster: LiveCluster, make: str = "") -> set[str]:
    client = connect(Kubeconfig.load([cluster.kubeconfig]).access(), SystemClock())
    try:
        if make:
            meta = {"name": make, "namespace": "default"}
            await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
        return {each["metadata"]["name"] for each in (await client.list(CONFIG_MAPS, "default")).items}
    finally:
        await client.close()


def test_two_clusters_at_the_same_time(tmp_path: Path) -> None:
    with live_cluster(tmp_path / "one", nodes=0) as one, live_cluster(tmp_path / "other", nodes=0) as other:
        assert one.url != other.url
        assert "here" in asyncio.run(names(one, make="here"))
        assert "here" not in asyncio.run(names(other))
    with live_cluster(tmp_path / "third", nodes=0) as third:
        assert "here" not in asyncio.run(names(third))
