"""`undo` and `restore --at`: plans, confirmation, execution."""

from __future__ import annotations

import json
import random
import re
from copy import deepcopy
from io import BytesIO
from typing import Any

from command_line import Typed, surroundings
from effort import tries

from setpoint.cli.main import run_within
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound
from setpoint.view.desired_state import desired

DEPLOYMENTS, CONFIGMAPS, SECRETS = builtin("deployments", "apps"), builtin("configmaps"), builtin("secrets")


async def last(typed: Typed, name: str) -> str:
    """The newest revision of an object that is not one of its status."""
    return (await typed(f"history {name}")).splitlines()[1].split()[0]


async def test_an_update_is_undone_and_the_undo_too(typed: Typed) -> None:
    client = typed.server.client
    await typed("create deployment web --image=nginx:1.27")
    await typed("scale deployment/web --replicas=4 --as alice --as-group system:masters")
    scaled = await last(typed, "deployment/web")
    await typed.server.clock.advance(41)
    plan = await typed(f"undo {scaled} --plan")
    assert plan.splitlines()[:3] == [
        f"Revision {scaled}, 41s ago, alice (cli), impersonated by kube-apiserver: "
        "deployment.apps/web (default): spec.replicas 1 -> 4",
        "To do:",
        "  ~ deployment.apps/web (default)  spec.replicas 4 -> 1",
    ], plan
    assert "nothing was changed; set --yes" in await typed.refused(f"undo {scaled}")
    assert (await client.get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"] == 4
    await typed("set image deployment/web nginx=nginx:1.28")
    assert "deployment.apps/web (default) updated (revision" in await typed(f"undo {scaled} --yes")
    found = await client.get(DEPLOYMENTS, "web", "default")
    assert found["spec"]["replicas"] == 1
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.28"  # of another write
    undone = await last(typed, "deployment/web")
    assert f'"undo of {scaled}"' in await typed("history deployment/web -o wide")
    assert f"undo of {scaled}" in await typed("why deployment/web spec.replicas")
    await typed(f"undo {undone} --yes")
    assert (await client.get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"] == 4

    # A field that was changed again is a conflict.
    await typed("scale deployment/web --replicas=7")
    done = await typed.run(f"undo {scaled} --yes")
    assert done.code == 1
    assert "! deployment.apps/web (default): spec.replicas is 7 by now, to be set back to 1 (--force)" in done.out
    assert "Nothing is to be done" not in done.out
    assert done.err == "error: there is a conflict, so nothing was changed; --force would resolve it\n"
    await typed(f"undo {scaled} --yes --force")
    assert (await client.get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"] == 1
    assert (await typed(f"undo {scaled} --yes")).endswith(
        "Nothing is to be done.\n"
        "Not done:\n"
        "  spec.replicas of deployment.apps/web (default): it has its former value already\n"
    )

    # The status is never set back.
    await client.patch(DEPLOYMENTS, "web", {"status": {"replicas": 3}}, "default", subresource="status")
    status = await typed(f"undo {await last(typed, 'deployment/web')} --yes")
    assert "Nothing is to be done." in status and "the status is what was observed" in status
    for line, problem in {
        "undo": "name the revision",
        "undo web": "name the revision",
        "undo 999999": "has not happened",
        f"undo {scaled} --cascade no": "--cascade must be one of",
        "restore": "name the backup to restore",
        "restore --all": "--all needs a moment",
        "restore --at -5m --all deployment/web": "not both",
        "restore --at -5m deployment/web --force": "--force is for backups",
    }.items():
        assert problem in await typed.refused(line), line


async def test_objects_are_deleted_and_created_anew(typed: Typed) -> None:
    client = typed.server.client
    await typed("create configmap a --from-literal=k=1")
    created = await last(typed, "configmap/a")
    await typed("create secret generic s --from-literal=password=geheim")
    await client.patch(
        SECRETS, "s", {"stringData": {"password": "other"}, "metadata": {"labels": {"l": "1"}}}, "default"
    )
    plan = await typed(f"undo {await last(typed, 'secret/s')} --plan")
    assert "data.password changed" in plan and "Z2VoZWlt" not in plan and "geheim" not in plan
    assert "Z2VoZWlt" not in await typed(f"undo {await last(typed, 'secret/s')} -o json")
    uid = (await client.get(CONFIGMAPS, "a", "default"))["metadata"]["uid"]
    plan = json.loads(await typed(f"undo {created} -o json"))
    assert [each["request"]["body"]["preconditions"] for each in plan["steps"]] == [{"uid": uid}]
    await typed(f"undo {created} --yes")
    assert "NotFound" in await typed.refused("get configmap a")
    deleted = await last(typed, "configmap/a")
    done = await typed(f"undo {deleted} --yes")
    assert "  + configmap/a (default)  created anew, with a new uid" in done
    found = await client.get(CONFIGMAPS, "a", "default")
    assert found["data"] == {"k": "1"} and found["metadata"]["uid"] != uid
    assert {each["manager"] for each in found["metadata"]["managedFields"]} == {"setpoint-undo"}
    again = await typed(f"undo {deleted} --yes")
    assert "Nothing is to be done." in again and "configmap/a (default): it exists again" in again


async def test_the_plan_names_the_user_who_asked_for_a_deletion(typed: Typed) -> None:
    await typed("create configmap a --from-literal=k=1")
    await typed("""patch configmap a -p '{"metadata": {"finalizers": ["example.com/backup"]}}' --type merge""")
    await typed("delete configmap a --wait=false --as alice --as-group system:masters")
    remover = """patch configmap a -p '{"metadata": {"finalizers": null}}' --type merge"""
    await typed(f"{remover} --as operator --as-group system:masters")
    plan = await typed(f"undo {await last(typed, 'configmap/a')} --plan")
    asked, completed = (f"{who} (cli), impersonated by kube-apiserver" for who in ("alice", "operator"))
    assert f", {asked}, completed by {completed}: configmap/a (default): deleted\n" in plan, plan


async def test_restore_of_named_objects_labels_and_everything(typed: Typed) -> None:
    client = typed.server.client
    await typed("create configmap a --from-literal=k=1")
    await typed("create configmap b --from-literal=k=1")
    await typed("label configmap b app=web")
    await typed("mark before")
    await client.patch(CONFIGMAPS, "a", {"data": {"k": "2", "more": "x"}}, "default")
    await typed("delete configmap b")
    await typed("create configmap c --from-literal=k=1")
    await typed("label configmap c app=web")

    plan = await typed("restore --at before configmap/a --plan")
    assert re.search(r"^Restore to revision \d+ of 2030-01-01 00:00:00 UTC\nTo do:\n", plan)
    assert "  ~ configmap/a (default)  data.k 2 -> 1, data.more removed (was x)\n" in plan
    done = await typed.run("restore --at before -l app=web --yes")
    assert done.code == 0 and "configmap/b (default) created" in done.out
    assert "configmap/c (default): it did not exist then; --prune deletes it" in done.out
    await typed("restore --at before -n default --prune --yes")
    assert sorted(await names(client)) == ["a", "b"]
    assert (await client.get(CONFIGMAPS, "a", "default"))["data"] == {"k": "1"}
    assert "Nothing is to be done." in await typed("restore --at before --all --prune --yes")
    assert "marks are kept" not in await typed("restore --at before -n default --yes")
    refused = await typed.refused("restore --at before configmap/no --yes")
    assert re.search(r'configmaps "no" not found, neither now nor at revision \d+$', refused.strip())


async def test_immutable_fields_are_replaced_only_if_wanted(typed: Typed) -> None:
    await typed("create rolebinding r --clusterrole=view --user=alice")
    await typed("create configmap a --from-literal=k=1")
    await typed("mark before")
    await typed("delete rolebinding r")
    await typed("create rolebinding r --clusterrole=edit --user=alice")
    await typed.server.client.patch(CONFIGMAPS, "a", {"data": {"k": "2"}}, "default")
    done = await typed.run("restore --at before -n default --yes")
    # The other objects are restored.
    assert done.code == 1 and "configmap/a (default) updated" in done.out
    assert done.err == "error: one conflict remains; --replace would resolve it\n"
    conflict = (
        "! rolebinding.rbac.authorization.k8s.io/r (default): roleRef.name cannot be changed in an existing object"
    )
    assert f"{conflict} (--replace)" in done.out
    await typed("restore --at before -n default --yes --replace")
    assert await typed("get rolebinding r -o jsonpath='{.roleRef.name}'") == "view"


async def names(client: Any) -> list[str]:
    page = await client.list(CONFIGMAPS, "default")
    return [each["metadata"]["name"] for each in page.items if each["metadata"]["name"] != "kube-root-ca.crt"]


# -- any history -------------------------------------------------------------------------------------------------------

_PATCHES: dict[str, tuple[Any, ...]] = {
    "configmaps": ({"data": {"a": "1"}}, {"data": {"a": "2", "b": "1"}}, {"data": {"a": None}}, {"data": {"b": "3"}}),
    "deployments": ({"spec": {"replicas": 3}}, {"spec": {"paused": True}}, {"spec": {"replicas": 1, "paused": None}}),
    "services": ({"spec": {"ports": [{"port": 81}]}}, {"spec": {"sessionAffinity": "ClientIP"}}),
}
_LABELS: tuple[Any, ...] = ({"l": "1"}, {"l": "2", "m": "1"}, {"l": None}, {"m": None})


def _made(plural: str, name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    if plural == "configmaps":
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"b": "0"}}
    if plural == "services":
        spec: dict[str, Any] = {"ports": [{"port": 80}], "selector": {"app": name}}
        return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    pod = {"containers": [{"name": "c", "image": "nginx"}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


class _RandomWrites:
    def __init__(self, typed: Typed, seed: int) -> None:
        self.client = typed.server.client
        self._random = random.Random(seed)
        self._resources = {each.plural: each for each in (CONFIGMAPS, DEPLOYMENTS, builtin("services"))}

    async def write(self) -> None:
        """Create, change or delete one of a few objects."""
        rng = self._random
        plural, name = rng.choice(list(self._resources)), rng.choice("xy")
        resource = self._resources[plural]
        try:
            if rng.random() < 0.25:
                await self.client.delete(resource, name, "default", propagation="Background")
            elif rng.random() < 0.4:
                await self.client.patch(resource, name, {"metadata": {"labels": rng.choice(_LABELS)}}, "default")
            else:
                await self.client.patch(resource, name, rng.choice(_PATCHES[plural]), "default")
        except NotFound:
            await self.client.create(_made(plural, name))

    async def state(self) -> dict[str, Any]:
        """The desired state of all objects."""
        found: dict[str, Any] = {}
        for resource in self._resources.values():
            for obj in (await self.client.list(resource, "default")).items:
                found[f"{resource}/{obj['metadata']['name']}"] = desired(obj)
        return found

    async def newest(self) -> int:
        return int((await self.client.list(CONFIGMAPS, "default")).resource_version)


def without_addresses(state: dict[str, Any]) -> dict[str, Any]:
    """The state without what the server has allocated: a Service that was created again has another address."""
    found: dict[str, Any] = deepcopy(state)
    for obj in found.values():
        for name in ("clusterIP", "clusterIPs"):
            obj.get("spec", {}).pop(name, None)
    return found


async def test_every_moment_of_a_history_can_be_restored_and_every_write_undone(typed: Typed) -> None:
    for seed in range(tries(5, 100)):
        writes = _RandomWrites(typed, seed)
        moments: list[tuple[int, dict[str, Any]]] = []
        for _ in range(18):
            await writes.write()
            moments.append((await writes.newest(), await writes.state()))
        rng = random.Random(seed)
        for revision, then in rng.sample(moments, 5):
            await typed(f"restore --at {revision} --all --prune --yes")
            assert without_addresses(await writes.state()) == without_addresses(then), (seed, revision)
        for _ in range(5):
            before = await writes.state()
            await writes.write()
            written, after = await writes.newest(), await writes.state()
            if before == after:
                continue
            await typed(f"undo {written} --yes")
            assert await writes.state() == before, (seed, written)
            await typed(f"undo {await writes.newest()} --yes")
            assert await writes.state() == after, (seed, written)


class _Terminal(BytesIO):
    def isatty(self) -> bool:
        return True


async def test_confirmation_on_a_terminal(typed: Typed) -> None:
    await typed("create configmap a --from-literal=k=1")
    created = await last(typed, "configmap/a")

    def connect(access: Access, _: float) -> Client:
        return Client(typed.transport, typed.server.clock)

    for answer, code in (("no", 1), ("", 1), ("yes", 0)):
        io, result = surroundings(typed.home, typed.server.clock, "", {}, connect)
        io.stdin = _Terminal(f"{answer}\n".encode())
        done = result(await run_within(["--server", "https://local", "undo", created], io))
        assert done.code == code and "Type yes to carry out this plan: " in done.out
        assert ("nothing was changed" in done.err) == bool(code)
    assert "NotFound" in await typed.refused("get configmap a")
