"""`apply`, client-side and server-side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import Typed
from local_server import LocalServer

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "nginx:1", env: [{name: A, value: "1"}, {name: B, value: "2"}]}
      - {name: side, image: "busybox:1"}
"""


def config_map(name: str = "cm", data: str = "{a: b}", more: str = "") -> str:
    return f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}{more}}}, data: {data}}}\n"


async def live(server: LocalServer, kind: tuple[str, str], name: str) -> dict[str, Any]:
    return await server.client.get(kind, name, "default")


MAP, DEPLOYMENT = ("v1", "ConfigMap"), ("apps/v1", "Deployment")


async def test_created_unchanged_configured(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("apply -f -", config_map()) == "configmap/cm created\n"
    assert await typed("apply -f -", config_map()) == "configmap/cm unchanged\n"
    assert await typed("apply -f -", config_map(data="{a: c, d: e}")) == "configmap/cm configured\n"
    assert await typed("apply -f -", config_map(data="{d: e}")) == "configmap/cm configured\n"
    found = await live(local_server, MAP, "cm")
    assert found["data"] == {"d": "e"}
    assert json.loads(found["metadata"]["annotations"][ANNOTATION]) == {
        "apiVersion": "v1",
        "data": {"d": "e"},
        "kind": "ConfigMap",
        "metadata": {"annotations": {}, "name": "cm", "namespace": "default"},
    }


async def test_fields_of_others_stay_and_removed_fields_are_deleted(typed: Typed, local_server: LocalServer) -> None:
    await typed("apply -f -", WEB)
    await local_server.client.patch(
        DEPLOYMENT,
        "web",
        {
            "metadata": {"labels": {"other": "x"}},
            "spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "injected", "image": "i"}]}}},
        },
        "default",
        kind="strategic",
    )
    changed = WEB.replace("  replicas: 2\n", "").replace(', {name: B, value: "2"}', "").replace("nginx:1", "nginx:2")
    changed = changed.replace('      - {name: side, image: "busybox:1"}\n', "")
    assert await typed("apply -f -", changed) == "deployment.apps/web configured\n"
    found = await live(local_server, DEPLOYMENT, "web")
    assert found["metadata"]["labels"] == {"app": "web", "other": "x"}
    assert found["spec"]["replicas"] == 1  # what nobody wants any longer gets its default
    containers = found["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in containers] == [("injected", "i"), ("web", "nginx:2")]
    assert containers[1]["env"] == [{"name": "A", "value": "1"}]


async def test_a_missing_last_applied_annotation_is_warned_of(typed: Typed) -> None:
    await typed("create -f -", config_map())
    done = await typed.run("apply -f -", config_map())
    assert (done.code, done.out) == (0, "configmap/cm configured\n")
    assert done.err.startswith(
        f"Warning: resource configmaps/cm is missing the {ANNOTATION} annotation which is required by setpoint apply."
    )


async def test_dry_runs(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("apply -f - --dry-run=client", config_map()) == "configmap/cm created (dry run)\n"
    assert await typed("apply -f - --dry-run=server", config_map()) == "configmap/cm created (server dry run)\n"
    await typed("apply -f -", config_map())
    assert await typed("apply -f - --dry-run=client", config_map()) == "configmap/cm unchanged (dry run)\n"
    out = await typed("apply -f - --dry-run=client -o json", config_map(data="{x: z}"))
    assert json.loads(out)["data"] == {"x": "z"}
    assert (await live(local_server, MAP, "cm"))["data"] == {"a": "b"}


async def test_applied_objects_are_printed_as_one_list(typed: Typed) -> None:
    out = json.loads(await typed("apply -f - -o json", config_map("a") + "---\n" + config_map("b")))
    assert (out["kind"], [one["metadata"]["name"] for one in out["items"]]) == ("List", ["a", "b"])
    assert json.loads(await typed("apply -f - -o json", config_map("a")))["kind"] == "ConfigMap"


async def test_a_failure_does_not_stop_the_others(typed: Typed) -> None:
    done = await typed.run("apply -f -", config_map("a") + "---\n{kind: X, apiVersion: v9}\n---\n" + config_map("b"))
    assert (done.code, done.out) == (1, "configmap/a created\nconfigmap/b created\n")
    assert 'no matches for kind "X" in version "v9"\nensure CRDs are installed first' in done.err


async def test_immutable_fields_are_reported_or_replaced_with_force(typed: Typed, local_server: LocalServer) -> None:
    await typed("apply -f -", WEB)
    other = WEB.replace("matchLabels: {app: web}", "matchLabels: {app: other}").replace(
        "metadata: {labels: {app: web}}", "metadata: {labels: {app: other}}"
    )
    assert 'The Deployment "web" is invalid: spec.selector: Invalid value' in await typed.refused("apply -f -", other)
    before = (await live(local_server, DEPLOYMENT, "web"))["metadata"]["uid"]
    assert await typed("apply -f - --force", other) == "deployment.apps/web configured\n"
    assert (await live(local_server, DEPLOYMENT, "web"))["metadata"]["uid"] != before


async def test_without_overwrite_a_concurrent_change_is_a_conflict(typed: Typed, local_server: LocalServer) -> None:
    await typed("apply -f -", config_map())
    await local_server.client.patch(MAP, "cm", {"data": {"a": "theirs"}}, "default")
    assert "conflicts with changes made from original to current" in await typed.refused(
        "apply -f - --overwrite=false", config_map(data="{a: ours}")
    )
    await typed("apply -f -", config_map(data="{a: ours}"))
    assert (await live(local_server, MAP, "cm"))["data"] == {"a": "ours"}


async def test_server_side_apply(typed: Typed, local_server: LocalServer) -> None:
    line = "apply --server-side -f -"
    assert await typed(line, config_map()) == "configmap/cm serverside-applied\n"
    complaint = await typed.refused(f"{line} --field-manager=other", config_map(data="{a: mine}"))
    assert complaint.startswith('error: Apply failed with 1 conflict: conflict with "kubectl": .data.a\nPlease review')
    assert (await typed(f"{line} --field-manager=other --force-conflicts", config_map(data="{a: mine}"))) == (
        "configmap/cm serverside-applied\n"
    )
    found = await live(local_server, MAP, "cm")
    assert found["data"] == {"a": "mine"}
    assert ANNOTATION not in (found["metadata"].get("annotations") or {})


async def test_ownership_of_client_side_apply_is_migrated(typed: Typed, local_server: LocalServer) -> None:
    await typed("apply -f -", config_map(data="{a: b, gone: x}"))
    assert await typed("apply --server-side -f -", config_map()) == "configmap/cm serverside-applied\n"
    found = await live(local_server, MAP, "cm")
    managers = {(one["manager"], one["operation"]) for one in found["metadata"]["managedFields"]}
    assert managers == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    assert found["data"] == {"a": "b"}


async def test_pruning_by_label(typed: Typed, local_server: LocalServer) -> None:
    labels = ", labels: {app: x}"
    await typed("apply -f -", config_map("a", more=labels) + "---\n" + config_map("b", more=labels))
    await typed("create -f -", config_map("c", more=labels))
    done = await typed("apply -f - --prune -l app=x --prune-allowlist core/v1/ConfigMap", config_map("a", more=labels))
    assert done == "configmap/a unchanged\nconfigmap/b pruned\n"
    names = [one["metadata"]["name"] for one in (await local_server.client.list(MAP, "default")).items]
    assert names == ["a", "c"]


async def test_pruning_by_an_applyset(typed: Typed, local_server: LocalServer) -> None:
    line = "apply -f - --prune --applyset=parts"
    assert await typed(line, config_map("a") + "---\n" + config_map("b")) == (
        "configmap/a created\nconfigmap/b created\n"
    )
    parent = await live(local_server, ("v1", "Secret"), "parts")
    assert parent["metadata"]["annotations"] == {
        "applyset.kubernetes.io/additional-namespaces": "",
        "applyset.kubernetes.io/contains-group-kinds": "ConfigMap",
        "applyset.kubernetes.io/tooling": "kubectl/v1.37.0",
    }
    name = parent["metadata"]["labels"]["applyset.kubernetes.io/id"]
    assert (await live(local_server, MAP, "a"))["metadata"]["labels"] == {"applyset.kubernetes.io/part-of": name}
    assert await typed(line, config_map("b")) == "configmap/b unchanged\nconfigmap/a pruned\n"


async def test_last_applied_is_shown_and_set(typed: Typed, local_server: LocalServer) -> None:
    await typed("apply -f -", config_map())
    assert await typed("apply view-last-applied cm/cm") == (
        "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  annotations: {}\n  name: cm\n"
        "  namespace: default\n"
    )
    assert (await typed("apply view-last-applied cm cm -o json")).startswith('{\n  "apiVersion": "v1",\n')
    assert await typed("apply set-last-applied -f -", config_map()) == "set-last-applied cm: no changes required.\n"
    assert await typed("apply set-last-applied -f -", config_map(data="{z: z}")) == "configmap/cm configured\n"
    assert "z: z" in await typed("apply view-last-applied cm/cm")
    assert (await live(local_server, MAP, "cm"))["data"] == {"a": "b"}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--force-conflicts", "--force-conflicts only works with --server-side"),
        ("--server-side --dry-run=client", "--dry-run=client doesn't work with --server-side"),
        ("--server-side --force", "--force cannot be used with --server-side"),
        ("--prune", "all resources selected for prune without explicitly passing --all."),
        ("--prune --all -l a=b", "cannot set --all and --selector at the same time"),
        ("--applyset=x", "--applyset requires --prune"),
        ("--subresource=status", "--subresource can only be specified for --server-side"),
        ("--prune --all --prune-allowlist=x", "invalid GroupVersionKind format: x"),
        ("--validate=odd", 'invalid - validate option "odd"; must be one of'),
    ],
)
async def test_invalid_flag_combinations_are_rejected(typed: Typed, flags: str, complaint: str) -> None:
    assert complaint in await typed.refused(f"apply -f - {flags}", config_map())


async def test_a_name_is_required(typed: Typed) -> None:
    assert "from x-: cannot use generate name with apply" in await typed.refused(
        "apply -f -", "{kind: ConfigMap, apiVersion: v1, metadata: {generateName: x-}}"
    )
    assert await typed.refused("apply") == "error: must specify one of -f and -k\n"
    assert "files are not fetched from the network" in await typed.refused("apply -f https://example.com/x.yaml")
