from __future__ import annotations

import pytest
from admission_world import World, pod, resource, write

from setpoint.apiserver.admission.namespace_auto_provision import NamespaceAutoProvision
from setpoint.apiserver.admission.namespace_exists import NamespaceExists
from setpoint.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from setpoint.meta.errors import BadRequest, Forbidden, NotFound


async def test_nothing_is_created_where_there_is_no_namespace(world: World) -> None:
    with pytest.raises(NotFound, match='namespaces "gone" not found'):
        await NamespaceLifecycle(world).mutate(write("pods", pod(), namespace="gone"))


async def test_nothing_is_created_in_a_namespace_that_goes(world: World) -> None:
    world.put("", "namespaces", "", "ns", status={"phase": "Terminating"})
    with pytest.raises(Forbidden) as caught:
        await NamespaceLifecycle(world).mutate(write("configmaps", {"metadata": {"generateName": "a-"}}, name=""))
    assert caught.value.message == (
        'configmaps "a-" is forbidden: unable to create new content in namespace ns because it is being terminated'
    )
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_stay(world: World, name: str) -> None:
    old = {"metadata": {"name": name}}
    with pytest.raises(Forbidden, match="this namespace may not be deleted"):
        await NamespaceLifecycle(world).mutate(write("namespaces", old=old, name=name))


def test_updates_and_reviews_are_not_its_business(world: World) -> None:
    plugin = NamespaceLifecycle(world)
    assert not plugin.handles("UPDATE", resource("", "pods"), "")
    assert not plugin.handles("CREATE", resource("authorization.k8s.io", "localsubjectaccessreviews"), "")
    assert not plugin.handles("CREATE", resource("", "nodes"), "")
    assert plugin.handles("CREATE", resource("", "pods"), "binding")


async def test_no_write_at_all_without_a_namespace(world: World) -> None:
    await NamespaceExists(world).validate(write("pods", old=pod()))
    with pytest.raises(NotFound):
        await NamespaceExists(world).validate(write("pods", old=pod(), namespace="gone"))


async def test_a_namespace_is_made_when_it_is_needed(world: World) -> None:
    made: list[str] = []

    async def create(name: str) -> None:
        made.append(name)

    plugin = NamespaceAutoProvision(world, create)
    await plugin.mutate(write("pods", pod()))
    await plugin.mutate(write("pods", pod(), namespace="new", dry_run=True))
    assert made == []
    await plugin.mutate(write("pods", pod(), namespace="new"))
    assert made == ["new"]


async def test_a_namespace_that_cannot_be_made(world: World) -> None:
    async def create(name: str) -> None:
        raise BadRequest("no")

    with pytest.raises(Forbidden, match='pods "x" is forbidden: no'):
        await NamespaceAutoProvision(world, create).mutate(write("pods", pod(), namespace="new"))
