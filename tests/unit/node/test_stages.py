"""Stages, image rules and the fleet file that contains them."""

from __future__ import annotations

import asyncio

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.node.fleet import add_fleet
from setpoint.node.options import FleetFileError, parse_fleet_options
from setpoint.node.runtime.images import SimulatedImageService, parse_reference
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.stages import StageError, get_path, parse_path, parse_stage, render
from setpoint.reconcile import Manager
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

FLEET = """
nodes: {count: 2, capacity: {cpu: 16, memory: 64Gi}, labels: {pool: batch}, zones: [a, b]}
images:
- {pattern: "library/nginx:", pullSeconds: 2.5, sizeBytes: 7}
- {pattern: "registry.example/secret", error: "no access to {name}"}
pullSeconds: 1
stages:
- name: starts
  kind: ConfigMap
  when: {labels: {staged: "yes"}, fields: [{path: .data.phase, operator: DoesNotExist}]}
  after: {seconds: 5}
  then:
    patch: {data: {phase: Running, since: "{now}", of: "{.metadata.name}"}}
    event: {type: Normal, reason: Begun, message: "{.metadata.name} has begun"}
    finalizers: {add: [example.com/held]}
- name: ends
  kind: ConfigMap
  when: {labels: {staged: "yes"}, fields: [{path: .metadata.deletionTimestamp, operator: Exists}]}
  after: {seconds: 3, jitterSeconds: 2}
  then: {finalizers: {remove: [example.com/held]}}
- name: pod-runs
  kind: Pod
  when: {labels: {staged: "yes"}, fields: [{path: .status.phase, values: [Pending]}]}
  after: {seconds: 2}
  then: {status: {phase: Running, message: by hand}}
"""


def test_a_fleet_file() -> None:
    options = parse_fleet_options(FLEET)
    assert (options.nodes, options.template.zones, options.pull_seconds) == (2, ("a", "b"), 1.0)
    assert options.template.capacity["cpu"] == "16" and options.template.capacity["pods"] == "110"
    images = options.image_service()
    nginx, secret, other = (images.info(each) for each in ("nginx", "registry.example/secret:1", "redis"))
    missing = images.info("nginx:does-not-exist")
    assert missing and missing.error and missing.pull_seconds == 2.5, "each rule says what it says"
    assert nginx and (nginx.pull_seconds, nginx.size_bytes) == (2.5, 7)
    assert secret and secret.error == "no access to registry.example/secret:1"
    assert other and other.pull_seconds == 1.0
    assert [stage.name for stage in options.stages] == ["starts", "ends", "pod-runs"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes: {count: many}", "nodes.count: must be a whole number, not 'many'"),
        ("nodes: {leaseDurationSeconds: 0}", "nodes.leaseDurationSeconds: must be a whole number from 1 on, not 0"),
        ("node: {}", "node: is not a known field; use one of nodes, images, pullSeconds, stages"),
        ("nodes: {capacity: {cpu: lots}}", "nodes.capacity: quantities must match"),
        ("images: [{pattern: '('}]", "images[0].pattern: "),
        ("images: [{pullSeconds: 1}]", "images[0].pattern: is required"),
        ("stages: [{name: x, kind: Pod}]", "stages[0]: then: is required"),
        ("stages: [{name: x, kind: Pod, then: {explode: true}}]", "stages[0]: then: 'explode' is not a known field"),
        (
            "stages: [{name: x, kind: Pod, when: {fields: [{path: .a, operator: Is}]}, then: {delete: true}}]",
            "stages[0]: when.fields[0].operator: 'Is' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            "stages: [{name: x, kind: Pod, after: {seconds: -1}, then: {delete: true}}]",
            "stages[0]: after.seconds: must be a number of seconds, not -1",
        ),
        ("[", "not YAML: "),
    ],
)
def test_messages_for_invalid_fleet_files(text: str, problem: str) -> None:
    with pytest.raises(FleetFileError) as raised:
        parse_fleet_options(text)
    assert str(raised.value).startswith(problem)


def test_paths_and_templates() -> None:
    obj: Obj = {"metadata": {"name": "x", "annotations": {"a/b": "c"}}, "list": [{"k": True}]}
    assert parse_path(".metadata.annotations['a/b']") == ("metadata", "annotations", "a/b")
    assert get_path(obj, parse_path(".list[0].k")) is True
    assert get_path(obj, parse_path(".list[1].k")) is None
    assert render({"a": ["{.metadata.name} {now} {.list[0].k}"], "b": 1}, obj, "T") == {"a": ["x T true"], "b": 1}
    with pytest.raises(StageError):
        parse_stage({"name": "x", "kind": "Pod", "when": {"fields": [{"path": "no dots"}]}, "then": {"delete": True}})


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("a/b:1", "docker.io/a/b:1"),
        ("host:50/a/b", "host:50/a/b:latest"),
        ("docker.io/nginx", "docker.io/library/nginx:latest"),
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ("UPPER", None),
        ("a b", None),
        ("", None),
    ],
)
def test_image_references_are_normalized(image: str, name: str | None) -> None:
    found = parse_reference(image)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("image", "exists"),
    [
        ("nginx:1.29", True),
        ("ghcr.io/me/app:v1", True),
        ("nginx:does-not-exist", False),
        ("no-such-image", False),
        ("invalid.registry.k8s.io/invalid/alpine:3.1", False),
        ("nginx:nonexistent", False),
        ("me/validator", True),
    ],
)
def test_which_images_exist(image: str, exists: bool) -> None:
    found = SimulatedImageService().info(image)
    assert found is not None and (not found.error) is exists


@virtual(nodes=0)
async def test_stages_are_applied(cluster: VirtualCluster) -> None:
    client = cluster.client
    manager = Manager(client, cluster.clock, RandomIds(3))
    fleet = add_fleet(
        manager,
        parse_fleet_options(FLEET),
        SimulatedRuntime(cluster.clock, RandomIds(4)),
        client_for=lambda _: client,
        stage_client=client,
        version="v1.37.0",
        runtime_version="1",
    )
    task = asyncio.ensure_future(manager.run())
    try:
        await fleet.registered.wait()
        nodes = await cluster.all(builtin("nodes"), "")
        assert [node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes] == ["a", "b"]
        await cluster.sleep(10)
        meta = {"name": "x", "namespace": "default", "labels": {"staged": "yes"}}
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
        spec = {"containers": [{"name": "c", "image": "nginx"}], "tolerations": [{"operator": "Exists"}]}
        await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        maps, pods = builtin("configmaps"), builtin("pods")
        await cluster.sleep(4.5)
        assert "data" not in await client.get(maps, "x", "default")
        await cluster.sleep(1)
        found = await client.get(maps, "x", "default")
        assert (found["data"]["phase"], found["data"]["of"]) == ("Running", "x")
        assert found["metadata"]["finalizers"] == ["example.com/held"]
        pod = await client.get(pods, "x", "default")
        assert (pod["status"]["phase"], pod["status"]["message"]) == ("Running", "by hand")
        assert "containerStatuses" not in pod["status"], "it is left to its stages"
        assert ("Normal", "Begun", "x has begun") in await cluster.events("x")
        await client.delete(maps, "x", "default")
        await cluster.sleep(2.5)
        assert await cluster.find(maps, "x")
        await cluster.sleep(3)
        assert await cluster.find(maps, "x") is None
        await client.delete(pods, "x", "default")
        await cluster.sleep(35)
        assert await cluster.find(pods, "x") is None, "and what no stage ends, its node ends"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
