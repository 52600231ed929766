"""`delete`."""

from __future__ import annotations

import asyncio
from typing import Any

from command_line import Typed
from local_server import LocalServer

from setpoint.meta.objects import Obj


def config_map(name: str, **meta: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", **meta}}


async def names(server: LocalServer) -> list[str]:
    found = await server.client.list(("v1", "ConfigMap"), "default")
    return [one["metadata"]["name"] for one in found.items]


async def make(server: LocalServer, *names: str, **meta: Any) -> None:
    for name in names:
        await server.client.create(config_map(name, **meta))


async def test_objects_are_deleted_by_kind_and_name(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a", "b", "c")
    assert await typed("delete cm a b") == (
        'configmap "a" deleted from default namespace\nconfigmap "b" deleted from default namespace\n'
    )
    assert await typed("delete configmap/c -o name") == "configmap/c\n"
    assert await names(local_server) == []


async def test_objects_are_deleted_by_labels_or_all(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a", "b", labels={"app": "web"})
    await make(local_server, "c")
    assert (await typed("delete cm -l app=web")).count("deleted from default namespace") == 2
    assert await names(local_server) == ["c"]
    assert await typed("delete cm -l app=web") == "No resources found\n"
    assert await typed("delete cm --all") == 'configmap "c" deleted from default namespace\n'


async def test_objects_are_deleted_by_file_and_missing_ones_reported(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a")
    file = "{kind: ConfigMap, apiVersion: v1, metadata: {name: a}}"
    assert await typed("delete -f -", file) == 'configmap "a" deleted from default namespace\n'
    done = await typed.run("delete -f -", file)
    assert done.err == 'Error from server (NotFound): error when deleting "STDIN": configmaps "a" not found\n'
    assert (await typed.run("delete -f - --ignore-not-found", file)).code == 0
    assert (await typed.run("delete cm a --ignore-not-found")).code == 0


async def test_dry_runs_delete_nothing(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a")
    assert await typed("delete cm a --dry-run=client") == 'configmap "a" deleted from default namespace (dry run)\n'
    assert "(server dry run)" in await typed("delete cm a --dry-run=server")
    assert await names(local_server) == ["a"]


async def test_delete_waits_until_finalizers_are_removed(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a", finalizers=["example.com/hold"])
    deleting = asyncio.ensure_future(typed.run("delete cm a"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not deleting.done()
    await local_server.client.patch(("v1", "ConfigMap"), "a", {"metadata": {"finalizers": None}}, "default")
    done = await asyncio.wait_for(deleting, 5)
    assert (done.code, done.out) == (0, 'configmap "a" deleted from default namespace\n')


async def test_delete_stops_waiting_at_the_timeout(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a", finalizers=["example.com/hold"])
    deleting = asyncio.ensure_future(typed.run("delete cm a --timeout=3s"))
    for _ in range(50):
        await asyncio.sleep(0)
    await local_server.clock.advance(3)
    done = await asyncio.wait_for(deleting, 5)
    assert (done.code, done.err) == (1, "error: timed out waiting for the condition on configmaps/a\n")
    assert (await typed.run("delete cm a --wait=false")).code == 0


async def test_force_warns_and_deletes_immediately(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a")
    done = await typed.run("delete cm a --force")
    assert done.out == 'configmap "a" force deleted from default namespace\n'
    assert done.err.startswith("Warning: Immediate deletion does not wait for confirmation")


async def test_an_interactive_delete_can_be_declined(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a")
    asked = "You are about to delete the following 1 resource(s):\nconfigmap/a\nDo you want to continue? (y/N): "
    assert await typed("delete cm a -i", "n\n") == asked + "deletion is cancelled\n"
    assert await typed("delete cm a -i", "y\n") == asked + 'configmap "a" deleted from default namespace\n'


async def test_deleting_cluster_scoped_objects_is_warned_of(typed: Typed, local_server: LocalServer) -> None:
    await local_server.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    done = await typed.run("delete ns x --wait=false")
    assert done.out == 'namespace "x" deleted\n'
    assert done.err == "Warning: deleting cluster-scoped resources, not scoped to the provided namespace\n"


async def test_invalid_arguments_are_rejected(typed: Typed) -> None:
    for line, complaint in (
        ("delete", "you must specify one or more resources"),
        ("delete pods", "resource(s) were provided, but no name was specified"),
        ("delete pods a --now --grace-period=3", "--now and --grace-period cannot be specified together"),
        ("delete pods a --force --grace-period=3", "--force and --grace-period greater than 0 cannot"),
        ("delete pods a --cascade=x", 'invalid cascade value (x). Must be "background", "foreground", or "orphan"'),
        ("delete pods a -o yaml", "unexpected -o output mode: yaml. We only support '-o name'"),
        ("delete pods --all -l a=b", "setting 'all' parameter but found a non empty selector. "),
    ):
        assert complaint in await typed.refused(line)


async def test_cascade_sets_the_propagation_policy(typed: Typed, local_server: LocalServer) -> None:
    await make(local_server, "a")
    await typed("delete cm a --cascade=orphan --wait=false")
    found = await local_server.client.get(("v1", "ConfigMap"), "a", "default")
    assert found["metadata"]["finalizers"] == ["orphan"]
