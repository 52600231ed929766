"""kubernetes_asyncio, against a real server process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from server_process import ServerProcess

NAMESPACE = "asynchronous"


@pytest.fixture
async def api(server: ServerProcess) -> AsyncIterator[client.ApiClient]:
    async with await config.new_client_from_config(str(server.kubeconfig)) as made:
        try:
            await client.CoreV1Api(made).create_namespace({"metadata": {"name": NAMESPACE}})
        except ApiException as error:
            assert error.status == 409  # another test made it
        async with asyncio.timeout(30):
            yield made


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


def config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


async def test_life_cycle_of_an_object(core: client.CoreV1Api) -> None:
    made = await core.create_namespaced_config_map(NAMESPACE, config_map("life", x="1"))
    made.data["x"] = "2"
    await core.replace_namespaced_config_map("life", NAMESPACE, made)
    with pytest.raises(ApiException) as caught:
        await core.replace_namespaced_config_map("life", NAMESPACE, made)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    with pytest.raises(ApiException) as caught:
        await core.create_namespaced_config_map(NAMESPACE, config_map("life"))
    assert "AlreadyExists" in str(caught.value.body)
    await core.delete_namespaced_config_map("life", NAMESPACE)
    with pytest.raises(ApiException) as caught:
        await core.read_namespaced_config_map("life", NAMESPACE)
    assert caught.value.status == 404


async def test_an_invalid_object(core: client.CoreV1Api) -> None:
    with pytest.raises(ApiException) as caught:
        await core.create_namespaced_service(
            NAMESPACE, client.V1Service(metadata=client.V1ObjectMeta(name="s"), spec=client.V1ServiceSpec(ports=[]))
        )
    assert caught.value.status == 422
    assert "spec.ports" in str(caught.value.body)


async def test_concurrent_requests_pages_and_watch(core: client.CoreV1Api) -> None:
    start = (await core.list_namespaced_config_map(NAMESPACE)).metadata.resource_version
    names = [f"c-{number:02}" for number in range(20)]
    await asyncio.gather(*(core.create_namespaced_config_map(NAMESPACE, config_map(name)) for name in names))
    seen: list[str] = []
    async with watch.Watch() as stream:
        async for event in stream.stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=start, timeout_seconds=20
        ):
            assert event["type"] == "ADDED"
            seen.append(event["object"].metadata.name)
            if len(seen) == len(names):
                break
    assert sorted(seen) == names
    paged: list[str] = []
    token = None
    while token != "":
        page = await core.list_namespaced_config_map(NAMESPACE, limit=7, _continue=token)
        paged += [item.metadata.name for item in page.items if item.metadata.name.startswith("c-")]
        token = page.metadata._continue or ""
    assert paged == names


async def test_patches_and_apply(core: client.CoreV1Api, api: client.ApiClient) -> None:
    await core.create_namespaced_config_map(NAMESPACE, config_map("patched", x="1"))
    strategic = await core.patch_namespaced_config_map(
        "patched", NAMESPACE, {"data": {"y": "2"}}, _content_type="application/strategic-merge-patch+json"
    )
    assert strategic.data == {"x": "1", "y": "2"}
    merged = await core.patch_namespaced_config_map(
        "patched", NAMESPACE, {"data": {"y": None}}, _content_type="application/merge-patch+json"
    )
    assert merged.data == {"x": "1"}
    operations = [{"op": "add", "path": "/data/z", "value": "3"}]
    patched = await core.patch_namespaced_config_map(
        "patched", NAMESPACE, operations, _content_type="application/json-patch+json"
    )
    assert patched.data == {"x": "1", "z": "3"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "patched"}, "data": {"x": "applied"}}
    options = {"_content_type": "application/apply-patch+yaml", "field_manager": "applier"}
    with pytest.raises(ApiException) as caught:
        await core.patch_namespaced_config_map("patched", NAMESPACE, body, **options)
    assert caught.value.status == 409
    assert "Apply failed with 1 conflict" in str(caught.value.body)
    applied = await core.patch_namespaced_config_map("patched", NAMESPACE, body, force=True, **options)
    assert applied.data["x"] == "applied"
