"""lightkube, synchronous and asynchronous, against a real server process."""

from __future__ import annotations

import asyncio

import pytest
from lightkube import AsyncClient, Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import PatchType
from server_process import ServerProcess

NAMESPACE = "light"


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Client:
    made = Client(KubeConfig.from_file(str(server.kubeconfig)), namespace=NAMESPACE, field_manager="lightkube")
    made.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    return made


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=NAMESPACE), data=data)


def deployment(name: str) -> Deployment:
    from lightkube.models.apps_v1 import DeploymentSpec

    pod = PodSpec(containers=[Container(name="c", image="i")])
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": name}), spec=pod)
    spec = DeploymentSpec(replicas=1, selector=LabelSelector(matchLabels={"app": name}), template=template)
    return Deployment(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec)


def test_life_cycle_of_an_object(api: Client) -> None:
    made = api.create(config_map("life", x="1"))
    made.data = {"x": "2"}
    api.replace(made)
    assert api.get(ConfigMap, "life").data == {"x": "2"}
    with pytest.raises(ApiError) as caught:
        api.replace(made)
    assert (caught.value.status.code, caught.value.status.reason) == (409, "Conflict")
    api.delete(ConfigMap, "life")
    with pytest.raises(ApiError) as caught:
        api.get(ConfigMap, "life")
    assert (caught.value.status.code, caught.value.status.message) == (404, 'configmaps "life" not found')


def test_rejected_requests(api: Client) -> None:
    bad = deployment("bad")
    assert bad.spec is not None
    bad.spec.replicas = -1
    with pytest.raises(ApiError) as caught:
        api.create(bad)
    assert caught.value.status.code == 422
    assert caught.value.status.details is not None
    assert [cause.field for cause in caught.value.status.details.causes or []] == ["spec.replicas"]


def test_patches_scale_and_apply(api: Client) -> None:
    api.create(deployment("d"))
    more = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j"}]}}}}
    strategic = api.patch(Deployment, "d", more, patch_type=PatchType.STRATEGIC)
    assert strategic.spec is not None
    assert len(strategic.spec.template.spec.containers) == 2  # type: ignore[union-attr]
    merged = api.patch(Deployment, "d", {"spec": {"replicas": 3}}, patch_type=PatchType.MERGE)
    assert merged.spec is not None and merged.spec.replicas == 3
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    patched = api.patch(Deployment, "d", operations, patch_type=PatchType.JSON)
    assert patched.spec is not None and patched.spec.replicas == 4
    scale = api.get(Deployment.Scale, "d")
    scale.spec = ScaleSpec(replicas=6)
    assert api.replace(scale, "d").spec.replicas == 6  # type: ignore[union-attr]
    api.apply(config_map("applied", x="1"))
    with pytest.raises(ApiError) as caught:
        api.apply(config_map("applied", x="2"), field_manager="other")
    assert caught.value.status.code == 409
    assert api.apply(config_map("applied", x="2"), field_manager="other", force=True).data == {"x": "2"}


def test_pages(api: Client) -> None:
    for number in range(5):
        api.create(config_map(f"page-{number}"))
    names = [one.metadata.name for one in api.list(ConfigMap, chunk_size=2) if one.metadata]
    assert [name for name in names if name and name.startswith("page-")] == [f"page-{number}" for number in range(5)]


async def test_watch(server: ServerProcess, api: Client) -> None:
    client = AsyncClient(KubeConfig.from_file(str(server.kubeconfig)), namespace=NAMESPACE)
    seen: list[tuple[str, str | None]] = []
    begun = asyncio.Event()

    async def look() -> None:
        async for kind, one in client.watch(ConfigMap, fields={"metadata.name": "watched"}):
            seen.append((kind, one.metadata.name if one.metadata else None))
            begun.set()
            if kind == "DELETED":
                return

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look())
        await client.create(config_map("watched"))
        await begun.wait()
        await client.patch(ConfigMap, "watched", {"data": {"a": "b"}})
        await client.delete(ConfigMap, "watched")
        await looking
    assert seen == [("ADDED", "watched"), ("MODIFIED", "watched"), ("DELETED", "watched")]
