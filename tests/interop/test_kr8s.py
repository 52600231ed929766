"""kr8s, against a real server process."""

from __future__ import annotations

import asyncio

import kr8s
import pytest
from kr8s.asyncio.objects import ConfigMap, Deployment, Namespace, Pod
from server_process import ServerProcess

NAMESPACE = "krates"


@pytest.fixture
async def api(server: ServerProcess) -> kr8s.Api:
    made = await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig))
    namespace = await Namespace({"metadata": {"name": NAMESPACE}}, api=made)
    if not await namespace.exists():
        await namespace.create()
    return made


async def config_map(api: kr8s.Api, name: str, **data: str) -> ConfigMap:
    return await ConfigMap({"metadata": {"name": name, "namespace": NAMESPACE}, "data": data}, api=api)


async def test_life_cycle_of_an_object(api: kr8s.Api) -> None:
    made = await config_map(api, "life", x="1")
    await made.create()
    await made.patch({"data": {"x": "2"}})
    again = await ConfigMap.get("life", namespace=NAMESPACE, api=api)
    assert dict(again.data) == {"x": "2"}
    await again.label({"color": "red"})
    await again.annotate({"note": "hi"})
    found = [one async for one in api.get("configmaps", namespace=NAMESPACE, label_selector={"color": "red"})]
    assert [(one.name, one.annotations["note"]) for one in found] == [("life", "hi")]
    await again.delete()
    with pytest.raises(kr8s.NotFoundError):
        await ConfigMap.get("life", namespace=NAMESPACE, api=api, timeout=0.1)


async def test_rejected_requests(api: kr8s.Api) -> None:
    made = await config_map(api, "taken")
    await made.create()
    with pytest.raises(kr8s.ServerError, match="already exists") as caught:
        await (await config_map(api, "taken")).create()
    assert caught.value.response.status_code == 409
    bad = await Pod({"metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"containers": []}}, api=api)
    with pytest.raises(kr8s.ServerError, match=r"spec\.containers: Required value") as caught:
        await bad.create()
    assert caught.value.response.status_code == 422


async def test_json_patch_and_scale(api: kr8s.Api) -> None:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    made = await Deployment({"metadata": {"name": "d", "namespace": NAMESPACE}, "spec": spec}, api=api)
    await made.create()
    await made.patch([{"op": "replace", "path": "/spec/replicas", "value": 2}], type="json")
    assert made.spec.replicas == 2
    await made.scale(5)
    await made.refresh()
    assert made.spec.replicas == 5


async def test_watch_and_list(api: kr8s.Api) -> None:
    names = [f"w-{number}" for number in range(5)]
    seen: list[str] = []

    async def look() -> None:
        async for kind, one in api.watch("configmaps", namespace=NAMESPACE):
            if kind == "ADDED" and one.name.startswith("w-"):
                seen.append(one.name)
            if len(seen) == len(names):
                return

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        for name in names:
            await (await config_map(api, name)).create()
    assert seen == names
    listed = [one.name async for one in api.get("configmaps", namespace=NAMESPACE)]
    assert set(names) <= set(listed)


async def test_discovery_and_version(api: kr8s.Api) -> None:
    assert (await api.version())["major"] == "1"
    kinds = {one["kind"] for one in await api.api_resources()}
    assert {"Pod", "Deployment", "ClusterRole"} <= kinds
    assert await api.whoami() == "kubernetes-admin"
