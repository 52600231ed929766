from __future__ import annotations

import pytest
from admission_attributes import ObjectReader, pod, resource, write

from setpoint.apiserver.admission.namespaces import NamespaceAutoProvision, NamespaceExists, NamespaceLifecycle
from setpoint.meta.errors import BadRequest, Forbidden, NotFound


async def test_creation_needs_a_namespace(reader: ObjectReader) -> None:
    with pytest.raises(NotFound, match='namespaces "gone" not found'):
        await NamespaceLifecycle(reader).mutate(write("pods", pod(), namespace="gone"))


async def test_no_creation_in_a_terminating_namespace(reader: ObjectReader) -> None:
    reader.put("", "namespaces", "", "ns", status={"phase": "Terminating"})
    with pytest.raises(Forbidden) as caught:
        await NamespaceLifecycle(reader).mutate(write("configmaps", {"metadata": {"generateName": "a-"}}, name=""))
    assert caught.value.message == (
        'configmaps "a-" is forbidden: unable to create new content in namespace ns because it is being terminated'
    )
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_protected_namespaces_cannot_be_deleted(reader: ObjectReader, name: str) -> None:
    old = {"metadata": {"name": name}}
    with pytest.raises(Forbidden, match="this namespace may not be deleted"):
        await NamespaceLifecycle(reader).mutate(write("namespaces", old=old, name=name))


def test_updates_and_reviews_are_not_handled(reader: ObjectReader) -> None:
    plugin = NamespaceLifecycle(reader)
    assert not plugin.handles("UPDATE", resource("", "pods"), "")
    assert not plugin.handles("CREATE", resource("authorization.k8s.io", "localsubjectaccessreviews"), "")
    assert not plugin.handles("CREATE", resource("", "nodes"), "")
    assert plugin.handles("CREATE", resource("", "pods"), "binding")


async def test_namespace_exists_denies_every_write(reader: ObjectReader) -> None:
    await NamespaceExists(reader).validate(write("pods", old=pod()))
    with pytest.raises(NotFound):
        await NamespaceExists(reader).validate(write("pods", old=pod(), namespace="gone"))


async def test_a_namespace_is_provisioned(reader: ObjectReader) -> None:
    made: list[str] = []

    async def create(name: str) -> None:
        made.append(name)

    plugin = NamespaceAutoProvision(reader, create)
    await plugin.mutate(write("pods", pod()))
    await plugin.mutate(write("pods", pod(), namespace="new", dry_run=True))
    assert made == []
    await plugin.mutate(write("pods", pod(), namespace="new"))
    assert made == ["new"]


async def test_a_namespace_that_cannot_be_created(reader: ObjectReader) -> None:
    async def create(name: str) -> None:
        raise BadRequest("no")

    with pytest.raises(Forbidden, match='pods "x" is forbidden: no'):
        await NamespaceAutoProvision(reader, create).mutate(write("pods", pod(), namespace="new"))
