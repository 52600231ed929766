"""`patch` and `replace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Typed, typed_offline
from local_server import LocalServer

MAP = ("v1", "ConfigMap")
ONE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}"
DEPLOYMENT = """
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {a: b}},
 template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: i}, {name: z, image: i}]}}}}
"""


async def data(server: LocalServer) -> dict[str, str]:
    found: dict[str, str] = (await server.client.get(MAP, "one", "default"))["data"]
    return found


async def test_patches_of_every_type(typed: Typed, local_server: LocalServer) -> None:
    await typed("create -f -", ONE)
    assert await typed("""patch cm one -p '{"data":{"c":"d"}}'""") == "configmap/one patched\n"
    assert await typed("""patch cm one -p '{"data":{"c":"d"}}'""") == "configmap/one patched (no change)\n"
    await typed("""patch cm/one --type=merge -p 'data: {a: null}'""")
    await typed("""patch cm one --type=json -p '[{"op":"add","path":"/data/e","value":"f"}]'""")
    assert await data(local_server) == {"c": "d", "e": "f"}


async def test_lists_are_merged_and_subresources_are_patched(typed: Typed, local_server: LocalServer) -> None:
    await typed("create -f -", DEPLOYMENT)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "z", "image": "new"}]}}}}
    await typed(f"patch deploy web -p '{json.dumps(patch)}'")
    await typed("""patch deploy web --subresource=scale --type=merge -p '{"spec":{"replicas":4}}'""")
    found = await local_server.client.get(("apps/v1", "Deployment"), "web", "default")
    assert found["spec"]["replicas"] == 4
    assert {one["name"]: one["image"] for one in found["spec"]["template"]["spec"]["containers"]} == {
        "x": "i",
        "z": "new",
    }


async def test_dry_runs_change_nothing(typed: Typed, local_server: LocalServer) -> None:
    await typed("create -f -", ONE)
    line = """patch cm one -p '{"data":{"c":"d"}}' """
    assert await typed(line + "--dry-run=client") == "configmap/one patched (dry run)\n"
    assert await typed(line + "--dry-run=server") == "configmap/one patched (server dry run)\n"
    assert await data(local_server) == {"a": "b"}


def test_files_are_patched_without_a_server(tmp_path: Path) -> None:
    done = typed_offline("""patch --local -f - -p '{"data":{"c":"d"}}' -o json""", tmp_path, ONE)
    assert json.loads(done.out)["data"] == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("patch cm one", "must specify --patch or --patch-file containing the contents of the patch"),
        ("patch cm one -p {} --patch-file=x", "cannot specify --patch and --patch-file together"),
        ("patch cm one -p {} --type=x", '--type must be one of [json merge strategic], not "x"'),
        ("patch cm one -p '[' --type=json", 'unable to parse "["'),
        ("patch cm two -p {}", 'Error from server (NotFound): configmaps "two" not found'),
        ("patch cm -p {}", "resource(s) were provided, but no name was specified"),
        ("patch cm one --patch-file=nowhere", "unable to read patch file: open nowhere: no such file or directory"),
        ("replace", "must specify one of -f and -k"),
        ("replace -f - --grace-period=3", "--grace-period must have --force specified"),
        ("replace -f - --timeout=3s", "--timeout must have --force specified"),
        ("replace -f - --force --dry-run=server", "--dry-run can not be used when --force is set"),
    ],
)
async def test_invalid_arguments_are_rejected(typed: Typed, line: str, complaint: str) -> None:
    await typed("create -f -", ONE)
    assert complaint in await typed.refused(line)


async def test_replace_updates_the_whole_object(typed: Typed, local_server: LocalServer) -> None:
    await typed("create -f -", ONE)
    assert await typed("replace -f -", ONE.replace("a: b", "c: d")) == "configmap/one replaced\n"
    assert await data(local_server) == {"c": "d"}
    assert await typed("replace -f - --dry-run=server", ONE) == "configmap/one replaced (server dry run)\n"
    assert await data(local_server) == {"c": "d"}
    missing = await typed.refused("replace -f -", ONE.replace("one", "two"))
    assert missing == 'Error from server (NotFound): error when replacing "STDIN": configmaps "two" not found\n'
    stale = ONE.replace("name: one", 'name: one, resourceVersion: "1"')
    assert 'Error from server (Conflict): error when replacing "STDIN"' in await typed.refused("replace -f -", stale)


async def test_replace_with_force_deletes_and_creates(typed: Typed, local_server: LocalServer) -> None:
    await typed("create -f -", ONE)
    before = (await local_server.client.get(MAP, "one", "default"))["metadata"]["uid"]
    assert await typed("replace --force -f -", ONE) == (
        'configmap "one" deleted from default namespace\nconfigmap/one replaced\n'
    )
    assert (await local_server.client.get(MAP, "one", "default"))["metadata"]["uid"] != before
    assert await typed("replace --force -f -", ONE.replace("one", "two")) == "configmap/two replaced\n"
