"""Kustomizations. What kubectl makes of the same is in tests/interop/test_compare_kustomize.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import typed_offline

from setpoint.cli.failures import Failed
from setpoint.cli.files import HostFiles
from setpoint.cli.kustomize import build
from setpoint.cli.kustomize.patches import GONE, merged
from setpoint.cli.kustomize.replacements import split
from setpoint.cli.kustomize.target import split_image

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {volumes: [{name: c, configMap: {name: settings}}], containers: [{name: web, image: "nginx:1"}]}
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def built(folder: Path, kustomization: str, **files: str) -> dict[str, dict[str, Any]]:
    """By kind and name, both as they came out."""
    write(folder, {"kustomization.yaml": kustomization, "pod.yaml": POD, **files})
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in build(str(folder), HostFiles())}


def test_renaming_updates_references(tmp_path: Path) -> None:
    found = built(
        tmp_path,
        "resources: [pod.yaml]\nnamePrefix: p-\nconfigMapGenerator: [{name: settings, literals: [a=1]}]\n",
    )
    # The hash is kubectl's for this content.
    assert list(found) == ["ConfigMap/p-settings-h29d89cmmt", "Pod/p-web"]
    assert found["Pod/p-web"]["spec"]["volumes"][0]["configMap"]["name"] == "p-settings-h29d89cmmt"


def test_a_generated_object_may_be_merged_with_one_of_the_base(tmp_path: Path) -> None:
    base = "configMapGenerator: [{name: s, literals: [a=1, b=2]}]\n"
    write(tmp_path, {"base/kustomization.yaml": base})
    overlay = "resources: [base]\nconfigMapGenerator: [{name: s, behavior: BEHAVIOR, literals: [b=3]}]\n"
    options = "generatorOptions: {disableNameSuffixHash: true}\n"
    assert built(tmp_path, options + overlay.replace("BEHAVIOR", "merge"))["ConfigMap/s"]["data"] == {
        "a": "1",
        "b": "3",
    }
    assert built(tmp_path, options + overlay.replace("BEHAVIOR", "replace"))["ConfigMap/s"]["data"] == {"b": "3"}
    with pytest.raises(Failed, match="behavior must be merge or replace"):
        built(tmp_path, overlay.replace("BEHAVIOR", "create"))


def test_patches_images_and_labels(tmp_path: Path) -> None:
    found = built(
        tmp_path,
        """
resources: [pod.yaml]
namespace: prod
labels: [{pairs: {team: a}}]
images: [{name: nginx, newTag: "2"}]
patches:
- patch: '{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: side, image: s}]}}'
- {target: {kind: P.d}, patch: '[{"op": "add", "path": "/spec/nodeName", "value": "n1"}]'}
""",
    )["Pod/web"]
    assert found["metadata"] == {"name": "web", "namespace": "prod", "labels": {"team": "a"}}
    assert [one["image"] for one in found["spec"]["containers"]] == ["s", "nginx:2"]
    assert found["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("kustomization", "complaint"),
    [
        ("helmCharts: [{name: x}]\n", 'the field "helmCharts" of kustomizations is not supported'),
        (
            "transformers: ['{apiVersion: x/v1, kind: Own, metadata: {name: n}}']\n",
            'the transformer "Own" of "x/v1" is not',
        ),
        ("crds: [x]\n", 'the field "crds" of kustomizations is not supported'),
        ("resources: [https://example.com/x.yaml]\n", "are not fetched from the network"),
        ("resources: [github.com/someone/something?ref=v1]\n", "are not fetched from the network"),
        ("odd: 1\n", 'invalid Kustomization: json: unknown field "odd"'),
        ("resources: [../outside.yaml]\n", "security; file"),
        ("resources: [pod.yaml, pod.yaml]\n", "may not add resource with an already registered id: Pod.v1"),
        ("resources: [pod.yaml]\nimages: [{name: x, newTagg: y}]\n", 'unknown field "newTagg"'),
        ("resources: [pod.yaml]\nimages: [x]\n", 'an entry of "images" is not a mapping'),
        ("resources: pod.yaml\n", 'the field "resources" is not a list'),
    ],
)
def test_unsupported_features_are_rejected_by_name(tmp_path: Path, kustomization: str, complaint: str) -> None:
    write(tmp_path, {"outside.yaml": POD})
    with pytest.raises(Failed) as refused:
        built(tmp_path / "in", kustomization)
    assert complaint in str(refused.value)


def test_field_names_are_case_insensitive(tmp_path: Path) -> None:
    said = "RESOURCES: [pod.yaml]\nnameprefix: P-\nimages: [{NAME: nginx, newtag: v3}]\n"
    assert list(built(tmp_path, said)) == ["Pod/P-web"]


def test_words_that_are_strings_instead_of_booleans(tmp_path: Path) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: yes, on: off}}"
    assert built(tmp_path, "resources: [x.yaml]\n", **{"x.yaml": text})["ConfigMap/x"]["data"] == {
        "a": "yes",
        "on": "off",
    }


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"d": 2}}, {"b": {"c": 1, "d": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 1}}, {"a": {"c": 1}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {}),
        ({"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
        ({}, {"new": {"x": None, "y": {"$patch": "delete"}, "z": 1}}, {"new": {"z": 1}}),
    ],
)
def test_maps_merge(old: dict[str, Any], patch: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, patch) == new


def test_a_patch_may_delete_the_object() -> None:
    assert merged({"kind": "Pod"}, {"$patch": "delete"}) is GONE


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("nginx", ("nginx", "", "")),
        ("nginx:1", ("nginx", "1", "")),
        ("host:5000/a/b:1@sha256:x", ("host:5000/a/b", "1", "sha256:x")),
        ("host:5000/a@sha256:x", ("host:5000/a", "", "sha256:x")),
    ],
)
def test_image_references_are_parsed(image: str, parts: tuple[str, str, str]) -> None:
    assert split_image(image) == parts


def test_field_paths_are_parsed() -> None:
    assert split(r"a.b\.c.[name=x.y].0") == ["a", "b.c", "[name=x.y]", "0"]


def test_the_output_is_in_installation_order(tmp_path: Path) -> None:
    said = "resources: [pod.yaml]\nsecretGenerator: [{name: s, literals: [a=b]}]\n"
    write(tmp_path, {"kustomization.yaml": said, "pod.yaml": POD})
    done = typed_offline(f"kustomize {tmp_path}", tmp_path)
    assert [line for line in done.out.splitlines() if line.startswith("kind")] == ["kind: Secret", "kind: Pod"]
    written = tmp_path / "out.yaml"
    assert typed_offline(f"kustomize {tmp_path} -o {written}", tmp_path).out == ""
    assert written.read_text() == done.out
    assert typed_offline(f"kustomize {tmp_path / 'no'}", tmp_path).code == 1
