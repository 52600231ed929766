"""Objects of the in-process client: shared between readers, and copied from writers."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from local_server import TOKEN, LocalServer

from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport, SharingTransport
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, Invalid

CONFIG_MAPS, PODS, DEPLOYMENTS = builtin("configmaps"), builtin("pods"), builtin("deployments", "apps")
AUTOSCALERS_V1 = builtin("horizontalpodautoscalers", "autoscaling", "v1")


@pytest.fixture
def sharing(local_server: LocalServer) -> Client:
    return Client(SharingTransport(local_server.entrance, TOKEN), local_server.clock, user_agent="tests")


@pytest.fixture
def private(local_server: LocalServer) -> Client:
    return Client(InProcessTransport(local_server.entrance, TOKEN), local_server.clock, user_agent="tests")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "0.5"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"b": "", "a": ""}},
        "spec": {"containers": [container], "nodeSelector": {"z": "1", "a": "2"}},
    }


def autoscaler(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3},
    }


async def test_readers_of_one_revision_share_the_object(sharing: Client) -> None:
    async with sharing.watch(CONFIG_MAPS, "default") as watch:
        await sharing.create(config_map("first"))
        await anext(watch)  # now somebody looks on
        made = await sharing.create(config_map("a", x="1"))
        assert (await anext(watch)).object is made
        assert await sharing.get(CONFIG_MAPS, "a", "default") is made
        found = (await sharing.list(CONFIG_MAPS, "default")).items
        assert next(one for one in found if one["metadata"]["name"] == "a") is made
        changed = await sharing.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, "default")
        assert (await anext(watch)).object is changed
        assert made["data"] == {"x": "1"}


async def test_the_copying_transport_shares_nothing(private: Client) -> None:
    made = await private.create(config_map("a", x="1"))
    made["data"]["x"] = "mine"
    assert (await private.get(CONFIG_MAPS, "a", "default"))["data"] == {"x": "1"}


@pytest.mark.parametrize("resource, make", [(CONFIG_MAPS, config_map), (PODS, pod), (AUTOSCALERS_V1, autoscaler)])
async def test_both_transports_give_equal_results(sharing: Client, private: Client, resource: Any, make: Any) -> None:
    made = await sharing.create(make("a"))
    assert list(made) == list(await private.get(resource, "a", "default"))
    assert made == await private.get(resource, "a", "default")
    await private.create(make("b"))
    listings: tuple[dict[str, Any], ...] = ({}, {"metadata_only": True}, {"label_selector": "a"}, {"page_size": 1})
    for how in listings:
        one, other = await sharing.list(resource, "default", **how), await private.list(resource, "default", **how)
        assert (one.items, one.resource_version, one.remaining) == (
            other.items,
            other.resource_version,
            other.remaining,
        )
    for metadata_only in (False, True):
        how = {"send_initial_events": True, "metadata_only": metadata_only, "timeout_seconds": 30}
        async with sharing.watch(resource, **how) as shared, private.watch(resource, **how) as own:
            for _ in range(3):
                assert await anext(shared) == await anext(own)
            assert shared.resource_version == own.resource_version
    assert await sharing.get(resource, "a", "default", metadata_only=True) == await private.get(
        resource, "a", "default", metadata_only=True
    )


async def test_both_transports_give_equal_watch_events(sharing: Client, private: Client) -> None:
    start = (await sharing.list(CONFIG_MAPS)).resource_version
    await sharing.create({**config_map("a"), "metadata": {"name": "a", "namespace": "default", "labels": {"l": "1"}}})
    await sharing.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"l": "2"}}}, "default")
    await sharing.delete(CONFIG_MAPS, "a", "default")
    for selector, types in (("", ["ADDED", "MODIFIED", "DELETED"]), ("l=1", ["ADDED", "DELETED"])):
        how: dict[str, Any] = {"resource_version": start, "label_selector": selector}
        async with sharing.watch(CONFIG_MAPS, **how) as shared, private.watch(CONFIG_MAPS, **how) as own:
            seen = [(await anext(shared), await anext(own)) for _ in types]
        assert [event.type for event, _ in seen] == types
        assert all(one == other for one, other in seen)


async def test_written_objects_are_not_modified(sharing: Client) -> None:
    sent: list[Any] = []

    def remember(value: Any) -> Any:
        sent.append((value, copy.deepcopy(value)))
        return value

    made = await sharing.create(remember(pod("a")))
    await sharing.update(remember({**copy.deepcopy(made), "metadata": {**made["metadata"], "labels": {"new": ""}}}))
    await sharing.patch(PODS, "a", remember({"metadata": {"labels": {"x": None, "y": "1"}}}), "default")
    strategic = {
        "metadata": {"uid": made["metadata"]["uid"]},
        "status": {"conditions": [{"type": "T", "status": "True"}]},
    }
    await sharing.patch(PODS, "a", remember(strategic), "default", kind="strategic", subresource="status")
    await sharing.patch(
        PODS, "a", remember([{"op": "add", "path": "/metadata/labels/z", "value": "1"}]), "default", kind="json"
    )
    applied = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"},
        "data": {"k": "v"},
    }
    await sharing.apply(remember(applied), field_manager="me")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n"},
    }
    await sharing.create(remember(binding), resource=PODS, namespace="default", subresource="binding")
    for value, before in sent:
        assert value == before
    stored = copy.deepcopy(await sharing.get(PODS, "a", "default"))
    for value, _ in sent:
        value.clear()
    assert await sharing.get(PODS, "a", "default") == stored


async def test_nested_values_of_written_objects_are_not_shared(sharing: Client) -> None:
    data = {"deep": {"list": [1, 2]}}
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "r", "namespace": "default"},
        "revision": 1,
        "data": data,
    }
    made = await sharing.create(revision)
    data["deep"]["list"].append(3)
    assert made["data"] == {"deep": {"list": [1, 2]}}
    assert (await sharing.get(builtin("controllerrevisions", "apps"), "r", "default"))["data"] == made["data"]


async def test_python_values_are_converted_as_json_would(sharing: Client) -> None:
    class Name(str):
        pass

    made = await sharing.create({**pod("a"), "spec": {"containers": ({"name": Name("c"), "image": "i"},)}})
    assert made["spec"]["containers"][0]["name"] == "c"
    patched = await sharing.patch(PODS, "a", {"metadata": {"finalizers": ("a.example/x",)}}, "default")
    assert patched["metadata"]["finalizers"] == ["a.example/x"]


async def test_both_transports_give_equal_errors(sharing: Client, private: Client) -> None:
    bad = pod("a")
    bad["spec"]["containers"] = [{"name": "C!", "image": "", "ports": [{"containerPort": 0}]}]
    attempts: tuple[Callable[[Client], Awaitable[object]], ...] = (
        lambda client: client.get(PODS, "none", "default"),
        lambda client: client.create(bad),
        lambda client: client.create({**pod("a"), "spec": {"containers": 7}}),
        lambda client: client.create({**pod("a"), "spec": {**pod("a")["spec"], "wrong": 1}}, field_validation="Strict"),
        lambda client: client.create({**pod("a"), "kind": "Node"}, resource=PODS),
        lambda client: client.patch(CONFIG_MAPS, "c", {"data": {"x": 1}}, "default"),
        lambda client: client.patch(CONFIG_MAPS, "c", [{"op": "remove", "path": "/no"}], "default", kind="json"),
        lambda client: client.update(
            {**config_map("c"), "metadata": {"name": "c", "namespace": "default", "uid": "u"}}
        ),
        lambda client: client.delete(CONFIG_MAPS, "c", "default", uid="other"),
        lambda client: client.list(CONFIG_MAPS, label_selector="!!"),
    )
    await sharing.create(config_map("c"))
    for attempt in attempts:
        said = []
        for client in (sharing, private):
            with pytest.raises(ApiError) as refusal:
                await attempt(client)
            said.append((type(refusal.value), refusal.value.code, refusal.value.message, refusal.value.details))
        assert said[0] == said[1]


async def test_warnings_reach_the_client(local_server: LocalServer) -> None:
    for kind in (InProcessTransport, SharingTransport):
        heard: list[str] = []
        client = Client(kind(local_server.entrance, TOKEN), local_server.clock, on_warning=heard.append)
        await client.create({**config_map(f"w-{kind.__name__.lower()}"), "unknown": 1})
        assert heard == ['unknown field "unknown"']


async def test_an_invalid_object_names_its_fields(sharing: Client) -> None:
    with pytest.raises(Invalid) as refusal:
        await sharing.create({**pod("a"), "spec": {}})
    assert [cause["field"] for cause in (refusal.value.details or {})["causes"]] == ["spec.containers"]
