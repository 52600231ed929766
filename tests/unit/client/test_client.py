"""Reads and writes through the whole pipeline of a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from local_server import LocalServer

from setpoint.client import Client, Impersonation, retry_on_conflict
from setpoint.client.resources import builtin
from setpoint.meta.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
)
from setpoint.meta.objects import Obj

CONFIG_MAPS = builtin("configmaps")
PODS = builtin("pods")
DEPLOYMENTS = builtin("deployments", "apps")


def config_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def deployment(name: str) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


async def test_an_object_is_created_read_updated_and_deleted(client: Client) -> None:
    made = await client.create(config_map("a", x="1"))
    assert made["metadata"]["uid"]
    assert await client.get(CONFIG_MAPS, "a", "default") == made
    changed = await client.update({**made, "data": {"x": "2"}})
    assert changed["data"] == {"x": "2"}
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    gone = await client.delete(CONFIG_MAPS, "a", "default")
    assert gone["status"] == "Success"
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await client.get(CONFIG_MAPS, "a", "default")


@pytest.mark.parametrize("ref", [CONFIG_MAPS, ("v1", "ConfigMap"), ("", "v1", "configmaps")])
async def test_a_resource_can_be_named_in_three_ways(client: Client, ref: object) -> None:
    await client.create(config_map("a"))
    assert (await client.get(ref, "a", "default"))["kind"] == "ConfigMap"  # type: ignore[arg-type]


async def test_errors_are_those_of_the_server(client: Client) -> None:
    first = await client.create(config_map("a"))
    with pytest.raises(AlreadyExists):
        await client.create(config_map("a"))
    await client.update({**first, "data": {"k": "v"}})
    with pytest.raises(Conflict, match="the object has been modified"):
        await client.update({**first, "data": {"k": "w"}})
    with pytest.raises(Invalid) as caught:
        await client.create({**deployment("d"), "spec": {}})
    assert caught.value.details is not None
    assert {cause["field"] for cause in caught.value.details["causes"]} >= {"spec.selector"}
    with pytest.raises(BadRequest):
        await client.create(config_map("b", x=1))  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await client.list(("nowhere.io", "v1", "things"))


async def test_every_kind_of_patch(client: Client) -> None:
    await client.create(deployment("d"))
    merged = await client.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 3}}, "default")
    assert merged["spec"]["replicas"] == 3
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert (await client.patch(DEPLOYMENTS, "d", operations, "default", kind="json"))["spec"]["replicas"] == 4
    container = {"spec": {"template": {"spec": {"containers": [{"name": "e", "image": "j"}]}}}}
    strategic = await client.patch(DEPLOYMENTS, "d", container, "default", kind="strategic")
    assert sorted(c["name"] for c in strategic["spec"]["template"]["spec"]["containers"]) == ["c", "e"]


async def test_server_side_apply_owns_fields(client: Client) -> None:
    await client.apply(config_map("a", x="1"), field_manager="one")
    with pytest.raises(Conflict) as caught:
        await client.apply(config_map("a", x="2"), field_manager="two")
    assert caught.value.details is not None
    assert [cause["field"] for cause in caught.value.details["causes"]] == [".data.x"]
    taken = await client.apply(config_map("a", x="2"), field_manager="two", force=True)
    assert taken["data"] == {"x": "2"}
    assert [entry["manager"] for entry in taken["metadata"]["managedFields"]] == ["two"]


async def test_dry_run_changes_nothing(client: Client) -> None:
    await client.create(config_map("a"), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", "default")
    await client.create(config_map("a", x="1"))
    await client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, "default", dry_run=True)
    await client.delete(CONFIG_MAPS, "a", "default", dry_run=True)
    assert (await client.get(CONFIG_MAPS, "a", "default"))["data"] == {"x": "1"}


async def test_unknown_fields_are_rejected_with_strict_validation(client: Client) -> None:
    odd = {**config_map("a"), "oddity": 1}
    with pytest.raises(BadRequest, match='unknown field "oddity"'):
        await client.create(odd, field_validation="Strict")
    assert "oddity" not in await client.create(odd)


async def test_status_and_scale_subresources(client: Client) -> None:
    made = await client.create(deployment("d"))
    status = {"replicas": 2, "readyReplicas": 1}
    assert (await client.update({**made, "status": status}, subresource="status"))["status"]["readyReplicas"] == 1
    scale = await client.get(DEPLOYMENTS, "d", "default", subresource="scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 2)
    await client.update({**scale, "spec": {"replicas": 5}}, resource=DEPLOYMENTS, subresource="scale")
    assert (await client.get(DEPLOYMENTS, "d", "default"))["spec"]["replicas"] == 5


async def test_a_pod_is_bound_through_its_subresource(client: Client) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    )
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    await client.create(binding, resource=PODS, namespace="default", subresource="binding")
    assert (await client.get(PODS, "p", "default"))["spec"]["nodeName"] == "n"


async def test_preconditions_of_a_delete(client: Client) -> None:
    made = await client.create(config_map("a"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", uid="another")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", resource_version="1")
    await client.delete(CONFIG_MAPS, "a", "default", uid=made["metadata"]["uid"])


async def test_a_collection_is_deleted_by_selector(client: Client) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        made = config_map(name)
        made["metadata"]["labels"] = {"color": color}
        await client.create(made)
    await client.delete_collection(CONFIG_MAPS, "default", label_selector="color=red")
    left = await client.list(CONFIG_MAPS, "default", label_selector="color")
    assert [item["metadata"]["name"] for item in left.items] == ["c"]


async def test_lists_are_complete_and_their_items_have_kind_and_api_version(client: Client) -> None:
    for number in range(7):
        await client.create(config_map(f"c{number}"))
    found = await client.list(CONFIG_MAPS, "default", page_size=2, field_selector="metadata.name!=kube-root-ca.crt")
    assert [item["metadata"]["name"] for item in found.items] == [f"c{number}" for number in range(7)]
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "ConfigMap")}
    assert found.continue_token == ""


async def test_all_pages_are_of_one_revision(client: Client) -> None:
    for number in range(4):
        await client.create(config_map(f"c{number}"))
    first = await client.list_page(CONFIG_MAPS, "default", limit=2)
    assert first.continue_token
    await client.delete(CONFIG_MAPS, "c3", "default")
    second = await client.list_page(CONFIG_MAPS, "default", limit=2, continue_token=first.continue_token)
    assert [item["metadata"]["name"] for item in second.items] == ["c2", "c3"]
    assert second.resource_version == first.resource_version


async def test_a_list_whose_continue_token_expires_is_read_again(
    client: Client, local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        await client.create(config_map(f"c{number}"))
    real, asked = client.list_page, []

    async def list_page(*args: Any, **options: Any) -> Any:
        asked.append(options.get("limit", 0))
        if options.get("continue_token"):
            raise Expired("The provided continue parameter is too old")
        return await real(*args, **options)

    monkeypatch.setattr(client, "list_page", list_page)
    found = await client.list(CONFIG_MAPS, "default", page_size=2)
    assert (len(found.items), asked) == (4, [2, 2, 0])


async def test_metadata_only_reads(client: Client) -> None:
    await client.create(config_map("a", x="1"))
    one = await client.get(CONFIG_MAPS, "a", "default", metadata_only=True)
    assert (one["kind"], "data" in one) == ("PartialObjectMetadata", False)
    found = await client.list(CONFIG_MAPS, "default", metadata_only=True)
    assert [item["kind"] for item in found.items] == ["PartialObjectMetadata"] * len(found.items)


async def test_impersonation_is_subject_to_authorization(client: Client) -> None:
    nobody = client.named("nobody", Impersonation("jane", groups=("dev", "ops"), extra={"Scopes": ("a", "b")}))
    with pytest.raises(Forbidden, match='User "jane" cannot list resource "configmaps"'):
        await nobody.list(CONFIG_MAPS, "default")
    review = await nobody.sender.json(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    info = review["status"]["userInfo"]
    assert info == {
        "username": "jane",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
    }


async def test_an_invalid_token_is_rejected(local_server: LocalServer) -> None:
    from setpoint.client.inprocess import InProcessTransport

    anonymous = Client(InProcessTransport(local_server.entrance, "wrong"), local_server.clock)
    with pytest.raises(Unauthorized):
        await anonymous.list(CONFIG_MAPS)


async def test_the_user_agent_names_the_field_manager(client: Client) -> None:
    made = await client.named("deployment-controller/1.0").create(config_map("a", x="1"))
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["deployment-controller"]
    made = await client.create(config_map("b", x="1"), field_manager="me")
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["me"]


async def test_a_conflict_is_retried_on_the_latest_object(client: Client, local_server: LocalServer) -> None:
    await client.create(config_map("a", n="0"))
    raced = 0

    async def attempt() -> Obj:
        nonlocal raced
        current = await client.get(CONFIG_MAPS, "a", "default")
        if raced < 2:
            raced += 1
            await client.patch(CONFIG_MAPS, "a", {"data": {"n": str(raced)}}, "default")
        return await client.update({**current, "data": {**current["data"], "mine": "yes"}})

    import asyncio

    async with asyncio.TaskGroup() as tasks:
        done = tasks.create_task(retry_on_conflict(attempt, local_server.clock))
        while not done.done():
            await local_server.clock.advance(0.01)
    assert done.result()["data"] == {"n": "2", "mine": "yes"}


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb"])
async def test_names_cannot_change_the_url_path(client: Client, name: str) -> None:
    with pytest.raises(ValueError, match="invalid resource name"):
        await client.get(CONFIG_MAPS, name, "default")


async def test_a_namespace_is_required(client: Client) -> None:
    with pytest.raises(ValueError, match="configmaps are namespaced"):
        await client.get(CONFIG_MAPS, "a")


async def test_warnings_are_passed_to_the_handler(local_server: LocalServer) -> None:
    from setpoint.client.inprocess import InProcessTransport

    heard: list[str] = []
    client = Client(InProcessTransport(local_server.entrance, "loopback"), local_server.clock, on_warning=heard.append)
    await client.list(builtin("endpoints"), "default")
    assert heard == ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]
