"""`label` and `annotate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Typed, typed_offline
from local_server import LocalServer

FILE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, labels: {app: web}}}"


@pytest.fixture
async def maps(typed: Typed) -> None:
    await typed("create -f -", FILE + "\n---\n" + FILE.replace("one", "two"))


async def meta(server: LocalServer, name: str = "one") -> dict[str, Any]:
    found: dict[str, Any] = (await server.client.get(("v1", "ConfigMap"), name, "default"))["metadata"]
    return found


@pytest.mark.usefixtures("maps")
async def test_labels_are_set_and_removed(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("label cm one a=b c=d") == "configmap/one labeled\n"
    assert await typed("label cm one a=b") == "configmap/one not labeled\n"
    assert await typed("label cm one a-") == "configmap/one unlabeled\n"
    assert await typed("label cm one a-") == 'label "a" not found.\nconfigmap/one not labeled\n'
    assert await typed("label cm one c- x=y") == "configmap/one modified\n"
    assert (await meta(local_server))["labels"] == {"app": "web", "x": "y"}
    assert await typed.refused("label cm one x=z") == ("error: 'x' already has a value (y), and --overwrite is false\n")
    assert await typed("label --overwrite cm one x=z") == "configmap/one labeled\n"


@pytest.mark.usefixtures("maps")
async def test_several_objects_are_labelled(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("label cm --all all=yes") == "configmap/one labeled\nconfigmap/two labeled\n"
    assert await typed("label cm -l app=web sel=yes") == "configmap/one labeled\nconfigmap/two labeled\n"
    assert await typed("label cm/one cm/two pair=yes -o name") == "configmap/one\nconfigmap/two\n"
    assert await typed("label -f - file=yes", FILE) == "configmap/one labeled\n"
    assert (await meta(local_server, "two"))["labels"] == {"app": "web", "all": "yes", "sel": "yes", "pair": "yes"}


@pytest.mark.usefixtures("maps")
async def test_labels_are_listed(typed: Typed) -> None:
    assert await typed("label cm one --list") == "app=web\n"
    assert await typed("label cm one two --list") == (
        "Listing labels for ConfigMap./one:\n app=web\nListing labels for ConfigMap./two:\n app=web\n"
    )


@pytest.mark.usefixtures("maps")
async def test_annotations(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("annotate cm one note='a b=c'") == "configmap/one annotated\n"
    assert (await meta(local_server))["annotations"] == {"note": "a b=c"}
    assert (
        "--overwrite is false but found the following declared annotation(s): 'note' already has a value (a b=c)"
        in (await typed.refused("annotate cm one note=x"))
    )
    assert await typed("annotate cm one note=x --overwrite") == "configmap/one annotated\n"
    assert await typed("annotate cm one note-") == "configmap/one annotated\n"
    assert "annotations" not in await meta(local_server)


@pytest.mark.usefixtures("maps")
async def test_resource_version_is_a_precondition(typed: Typed, local_server: LocalServer) -> None:
    version = (await meta(local_server))["resourceVersion"]
    assert await typed(f"label cm one a=b --resource-version={version}") == "configmap/one labeled\n"
    assert "Error from server (Conflict)" in await typed.refused(
        f"label cm one a=c --overwrite --resource-version={version}"
    )
    assert "--resource-version may only be used with a single resource" in await typed.refused(
        "label cm --all a=c --resource-version=1"
    )


@pytest.mark.usefixtures("maps")
async def test_dry_runs_and_records(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("label cm one a=b --dry-run=client") == "configmap/one labeled (dry run)\n"
    assert await typed("annotate cm one a=b --dry-run=server") == "configmap/one annotated (server dry run)\n"
    assert "annotations" not in await meta(local_server)
    done = await typed.run("label cm one a=b --record")
    assert done.err == "Flag --record has been deprecated, --record will be removed in the future\n"
    assert (await meta(local_server))["annotations"]["kubernetes.io/change-cause"].endswith(
        "label cm one a=b --server=https://local --namespace=default --record=true"
    )


def test_files_are_changed_without_a_server(tmp_path: Path) -> None:
    done = typed_offline("label --local -f - a=b -o json", tmp_path, FILE)
    assert json.loads(done.out)["metadata"] == {"name": "one", "labels": {"app": "web", "a": "b"}}
    done = typed_offline("annotate --local -f - a=b -o json", tmp_path, FILE)
    assert json.loads(done.out)["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("label cm one", "at least one label update is required"),
        ("label a=b", "one or more resources must be specified as <resource> <name> or <resource>/<name>"),
        ("label cm one a=b=c", "invalid label spec: a=b=c"),
        ("label cm one 'a=b c'", 'invalid label value: "a=b c": a valid label must be'),
        ("label cm one a=b a-", "can not both modify and remove a label in the same command"),
        ("label cm a=b one", "all resources must be specified before label changes: one"),
        ("label cm --all -l a=b c=d", "cannot set --all and --selector at the same time"),
        ("label cm one --list -o yaml", "--list and --output may not be specified together"),
        ("label cm none a=b", 'Error from server (NotFound): configmaps "none" not found'),
        ("annotate cm one", "at least one annotation update is required"),
        ("annotate cm one a=b a-", "can not both modify and remove the following annotation(s) in the same command: a"),
        ("annotate --local a=b", "one or more files must be specified as -f rsrc.yaml or --filename=rsrc.json"),
    ],
)
async def test_invalid_arguments_are_rejected(typed: Typed, line: str, complaint: str) -> None:
    assert complaint in await typed.refused(line)
