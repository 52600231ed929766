"""End states of clusters: random values are ignored, and differences name the fields."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from setpoint.testing import VirtualCluster, run_virtual, virtual_cluster
from setpoint.testing.end_state import EndState, differences, end_state

BARE: dict[str, Any] = {"nodes": 0, "controllers": (), "scheduler": False}


def config_map(name: str, **data: str) -> dict[str, Any]:
    kind = "generateName" if name.endswith("-") else "name"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {kind: name, "namespace": "default"}, "data": data}


def ended(*objects: dict[str, Any], leave_out: tuple[str, ...] = (), seed: int = 1, only: Any = None) -> EndState:
    async def main() -> EndState:
        async with virtual_cluster(seed=seed, **BARE) as cluster:
            await made(cluster)
            return await end_state(cluster.client, leave_out, only)

    async def made(cluster: VirtualCluster) -> None:
        for each in objects:
            created = await cluster.client.create(each)
            if each["metadata"].get("generateName"):
                text = {"data": {"me": f"I am {created['metadata']['name']} {created['metadata']['uid']}"}}
                await cluster.client.patch(("v1", "ConfigMap"), created["metadata"]["name"], text, "default")

    return run_virtual(main)


def test_random_values_are_ignored_and_others_compared() -> None:
    first = ended(config_map("box-"), config_map("a", x="1"))
    assert differences(first, ended(config_map("box-"), config_map("a", x="1"), seed=7)) == ""
    found = ended(config_map("box-"), config_map("box-"), config_map("a", x="2"), config_map("extra", y="1"), seed=7)
    assert differences(first, found).splitlines() == [
        "differs: ConfigMap default/a",
        '    .data.x: "1" -> "2"',
        'too many: ConfigMap default/box-* {"data": {"me": "I am box-* <x>"}}',
        'too many: ConfigMap default/extra {"data": {"y": "1"}}',
    ]
    assert "missing: ConfigMap default/extra" in differences(found, first)
    assert set(ended(only=("core/configmaps",))) == {"core/configmaps"}


def test_ignored_fields_are_left_out() -> None:
    first = ended(config_map("a", x="1", y="2"))
    assert "configmaps" not in {key.partition("/")[2] for key in ended(leave_out=("configmaps",))}
    left_out = ended(config_map("a", x="3", y="2"), leave_out=("configmaps:data.x", "configmaps:spec.none"))
    assert differences(first, left_out).splitlines() == ["differs: ConfigMap default/a", '    .data.x: "1" -> nothing']


def test_scaling_annotations_of_empty_replica_sets_are_ignored() -> None:
    def replica_set(replicas: int, desired: str) -> dict[str, Any]:
        noted = {"deployment.kubernetes.io/desired-replicas": desired, "deployment.kubernetes.io/revision": "1"}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "default", "annotations": noted},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        }

    def compared(replicas: int) -> str:
        only = ("apps/replicasets",)
        return differences(*(ended(replica_set(replicas, desired), only=only) for desired in ("3", "1")))

    assert compared(0) == ""
    assert '.metadata.annotations.deployment.kubernetes.io/desired-replicas: "3" -> "1"' in compared(2)


def test_list_items_are_identified_by_name() -> None:
    def state(*items: dict[str, Any]) -> EndState:
        return {"x": Counter([json.dumps({"kind": "Pod", "metadata": {"name": "p"}, "status": {"conditions": items}})])}

    ready, old = {"type": "Ready", "status": "True"}, {"type": "Old", "status": "True"}
    assert differences(state(ready), state({**ready, "status": "False"}, old)).splitlines() == [
        "differs: Pod p",
        '    .status.conditions[Old]: nothing -> {"status": "True", "type": "Old"}',
        '    .status.conditions[Ready].status: "True" -> "False"',
    ]
    assert ".status.conditions: [" in differences(state(ready, ready), state(ready))
