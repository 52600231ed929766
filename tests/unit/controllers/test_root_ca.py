"""The CA certificate of the API server is published in every namespace."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
NAMESPACES, MAPS = builtin("namespaces"), builtin("configmaps")
NAME = "kube-root-ca.crt"
ON = ControllerOptions(root_ca="certificate")


async def data(cluster: VirtualCluster, namespace: str) -> object:
    return ((await cluster.find(MAPS, NAME, namespace)) or {}).get("data")


@virtual(nodes=0, controller_options=ON)
async def test_the_config_map_is_created_and_restored_in_every_namespace(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
    await cluster.instant()
    for namespace in ("default", "kube-system", "kube-public", "kube-node-lease", "new"):
        assert await data(cluster, namespace) == {"ca.crt": "certificate"}
    made = await cluster.client.get(MAPS, NAME, "new")
    assert made["metadata"]["annotations"]["kubernetes.io/description"].startswith("Contains a CA bundle")
    await cluster.client.patch(MAPS, NAME, {"data": {"ca.crt": "forged", "more": "x"}}, "new")
    await cluster.instant()
    assert await data(cluster, "new") == {"ca.crt": "certificate"}
    await cluster.client.delete(MAPS, NAME, "new")
    await cluster.instant()
    assert await data(cluster, "new") == {"ca.crt": "certificate"}


@virtual(nodes=0, controller_options=ON)
async def test_a_namespace_with_the_config_map_can_be_deleted(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
    await cluster.instant()
    await cluster.client.delete(NAMESPACES, "new")

    async def gone() -> bool:
        return await cluster.find(NAMESPACES, "new", "") is None

    await cluster.until(gone, within=30)


@virtual(nodes=0)
async def test_without_a_certificate_nothing_is_published(cluster: VirtualCluster) -> None:
    await cluster.sleep(5)
    assert await cluster.find(MAPS, NAME) is None
