"""Rejected writes, with upstream's messages and precedence."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import APPLY, MERGE_PATCH, YAML, ServerHarness

OTHER = "the namespace of the provided object does not match the namespace sent on the request"
MAPS = "/api/v1/namespaces/default/configmaps"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def a_map(name: str = "m", namespace: str = "other") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


async def test_an_object_of_another_namespace(harness: ServerHarness) -> None:
    await harness.make(MAPS, a_map(namespace="default"))
    replies = [
        await harness.post(MAPS, a_map()),
        await harness.put(f"{MAPS}/m", a_map()),
        await harness.put(f"{MAPS}/m", a_map("n")),  # said before what is wrong with its name
        await harness.put(f"{MAPS}/absent", a_map("absent")),
        await harness.patch(f"{MAPS}/m", {"metadata": {"namespace": "other"}}, MERGE_PATCH),
        await harness.patch(f"{MAPS}/m", {"metadata": {"namespace": "other", "name": "n"}}, MERGE_PATCH),
        await harness.patch(f"{MAPS}/m?fieldManager=f", a_map(), APPLY),
    ]
    assert [(reply.status, reply.message) for reply in replies] == [(400, OTHER)] * len(replies)
    named = await harness.put(f"{MAPS}/m", a_map("n", "default"))
    assert named.message == "the name of the object (n) does not match the name on the URL (m)"


async def test_the_scale_of_an_object_of_another_namespace(harness: ServerHarness) -> None:
    where = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await harness.make(where, {"metadata": {"name": "d"}, "spec": spec})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "other"}}
    reply = await harness.put(f"{where}/d/scale", {**scale, "spec": {"replicas": 2}})
    assert (reply.status, reply.message) == (400, OTHER)


async def test_the_namespace_of_a_cluster_scoped_object_is_removed(harness: ServerHarness) -> None:
    obj = {"metadata": {"name": "c", "namespace": "other"}, "value": 1}
    made = await harness.make(CLASSES, obj)
    assert "namespace" not in made["metadata"]
    put = await harness.put(f"{CLASSES}/c", {**made, "metadata": {**made["metadata"], "namespace": "other"}})
    assert put.status == 200 and "namespace" not in put.json["metadata"]


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
async def test_system_priority_classes_cannot_be_deleted(name: str) -> None:
    harness = await ServerHarness.open(full=True)
    for query in ("", "?dryRun=All"):
        reply = await harness.delete(f"{CLASSES}/{name}{query}")
        assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
        assert reply.message == (
            f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: '
            "this is a system priority class and cannot be deleted"
        )
    assert (await harness.get(f"{CLASSES}/{name}")).status == 200
    await harness.close()


async def test_a_missing_system_priority_class_cannot_be_deleted_either(harness: ServerHarness) -> None:
    assert (await harness.delete(f"{CLASSES}/system-node-critical")).status == 403
    assert (await harness.delete(f"{CLASSES}/absent")).status == 404


_TWICE = b"""apiVersion: v1
kind: ConfigMap
metadata:
  name: m
data:
  a: b
  a: c
unknown: 1
"""
_SAID = 'yaml: unmarshal errors:\n  line 7: key "a" already set in map'


@pytest.mark.parametrize("body", [_TWICE, b'{"metadata": {"name": "m"},\n"data": {"a": "b",\n"a": "c"}, "unknown": 1}'])
async def test_duplicate_keys_in_yaml_are_named(harness: ServerHarness, body: bytes) -> None:
    said = _SAID if body is _TWICE else _SAID.replace("line 7", "line 3")
    strict = await harness.post(f"{MAPS}?fieldValidation=Strict", body, YAML)
    head = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
    assert (strict.status, strict.message) == (400, f'{head}{said}, unknown field "unknown"')
    warned = await harness.post(f"{MAPS}?fieldValidation=Warn", body, YAML)
    # The line breaks keep it out of a header, upstream too.
    assert (warned.status, warned.warnings) == (201, ['299 - "unknown field \\"unknown\\""'])
    assert (await harness.put(f"{MAPS}/m?fieldValidation=Strict", body, YAML)).message == strict.message
    assert (await harness.put(f"{MAPS}/m?fieldValidation=Ignore", body, YAML)).status == 200


async def test_duplicate_keys_in_an_apply_are_named(harness: ServerHarness) -> None:
    body = _TWICE.replace(b"unknown: 1\n", b"")
    strict = await harness.patch(f"{MAPS}/m?fieldManager=f&fieldValidation=Strict", body, APPLY)
    said = f"error strict decoding patch: error converting YAML to JSON: {_SAID}"
    assert (strict.status, strict.message) == (400, said)
    for validation in ("Warn", "Ignore"):
        reply = await harness.patch(f"{MAPS}/m?fieldManager=f&fieldValidation={validation}", body, APPLY)
        assert (reply.status, reply.warnings) in ((201, []), (200, []))
