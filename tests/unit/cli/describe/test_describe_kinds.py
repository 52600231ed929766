"""Descriptions of each family of kinds, with what they show of other objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from command_line import Typed
from local_server import LocalServer

from setpoint.cli.describe import DescribeContext, describe
from setpoint.client.resources import builtin
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj

Described = Callable[..., Awaitable[str]]


def obj(api_version: str, kind: str, name: str, spec: Any, **more: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "default", **more}
    return {"apiVersion": api_version, "kind": kind, "metadata": about, "spec": spec}


def owned_by(owner: dict[str, Any]) -> dict[str, Any]:
    about = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **about}


def template(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


async def test_a_service(described: Described) -> None:
    spec = {"clusterIP": "None", "trafficDistribution": "PreferClose", "ports": [{"port": 80, "appProtocol": "http"}]}
    text = await described(obj("v1", "Service", "web", {**spec, "selector": {"a": "b"}}))
    assert text == (
        "Name:                     web\n"
        "Namespace:                default\n"
        "Labels:                   <none>\n"
        "Annotations:              <none>\n"
        "Selector:                 a=b\n"
        "Type:                     ClusterIP\n"
        "IP Family Policy:         SingleStack\n"
        "IP Families:              IPv4\n"
        "IP:                       None\n"
        "IPs:                      None\n"
        "Port:                     <unset>  80/TCP\n"
        "TargetPort:               80/TCP\n"
        "AppProtocol:              http\n"
        "Endpoints:                <none>\n"
        "Session Affinity:         None\n"
        "Internal Traffic Policy:  Cluster\n"
        "Traffic Distribution:     PreferClose\n"
        "Events:                   <none>\n"
    )


async def test_a_statefulset_in_current_and_older_versions(
    described: Described, local_server: LocalServer, ctx: DescribeContext
) -> None:
    spec = {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template(app="db")}
    text = await described(obj("apps/v1", "StatefulSet", "db", spec))
    assert text == (
        "Name:                   db\n"
        "Namespace:              default\n"
        "CreationTimestamp:      Tue, 01 Jan 2030 00:00:00 +0000\n"
        "Selector:               app=db\n"
        "Labels:                 <none>\n"
        "Annotations:            <none>\n"
        "Service Name:           db\n"
        "Pod Management Policy:  OrderedReady\n"
        "Replicas:               1 desired | 0 total\n"
        "Update Strategy:        RollingUpdate\n"
        "  Partition:            0\n"
        "  MaxUnavailable:       1\n"
        "Persistent Volume Claim Retention Policy:\n"
        "  WhenDeleted:  Retain\n"
        "  WhenScaled:   Retain\n"
        "Pods Status:    0 Running / 0 Waiting / 0 Succeeded / 0 Failed\n"
        "Pod Template:\n"
        "  Labels:  app=db\n"
        "  Containers:\n"
        "   c:\n"
        "    Image:         x\n"
        "    Port:          <none>\n"
        "    Host Port:     <none>\n"
        "    Environment:   <none>\n"
        "    Mounts:        <none>\n"
        "  Volumes:         <none>\n"
        "  Node-Selectors:  <none>\n"
        "  Tolerations:     <none>\n"
        "Volume Claims:     <none>\n"
        "Events:            <none>\n"
    )
    found = await local_server.client.get(("apps/v1", "StatefulSet"), "db", "default")
    older = await describe(found, builtin("statefulsets", "apps"), ctx._replace(minor=36))
    assert "Retention" not in older
    assert "Pods Status:        0 Running" in older


async def test_a_deployment_lists_its_replica_sets(local_server: LocalServer, typed: Typed) -> None:
    client = local_server.client
    selector = {"matchLabels": {"app": "web"}}
    spec: Obj = {"selector": selector, "template": template(app="web")}
    deployment = await client.create(obj("apps/v1", "Deployment", "web", spec))
    owner = owned_by(deployment)
    for name, image, owners in (("old", "y", [owner]), ("new", "x", [owner]), ("unrelated", "x", [])):
        made = template(app="web", **{"pod-template-hash": name})
        made["spec"]["containers"][0]["image"] = image
        spec = {"replicas": 2, "selector": selector, "template": made}
        more = {"labels": {"app": "web"}, "ownerReferences": owners}
        await client.create(obj("apps/v1", "ReplicaSet", name, spec, **more))
    text = await typed("describe deployment web")
    assert "OldReplicaSets:    old (0/2 replicas created)\nNewReplicaSet:     new (0/2 replicas created)\n" in text


async def test_pods_of_a_replica_set_are_counted_by_owner(local_server: LocalServer, typed: Typed) -> None:
    client = local_server.client
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template(app="web")}
    owner = owned_by(await client.create(obj("apps/v1", "ReplicaSet", "web", spec)))
    for name, phase, owners in (("a", "Running", [owner]), ("b", "Failed", [owner]), ("c", "Running", [])):
        more = {"labels": {"app": "web"}, "ownerReferences": owners}
        await client.create(obj("v1", "Pod", name, template()["spec"], **more))
        await client.patch(("v1", "Pod"), name, {"status": {"phase": phase}}, "default", subresource="status")
    assert "Pods Status:  1 Running / 0 Waiting / 0 Succeeded / 1 Failed\n" in await typed("describe rs web")


async def test_a_node_sums_the_requests_of_its_pods(local_server: LocalServer, described: Described) -> None:
    pod = template()["spec"]
    pod["nodeName"] = "node-1"
    pod["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "5Gi"}}
    for name in ("one", "two"):
        await local_server.client.create(obj("v1", "Pod", name, pod))
    capacity = {"cpu": "2", "memory": "4Gi", "example.com/gpu": "1", "hugepages-2Mi": "0", "pods": "9"}
    text = await described(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"capacity": capacity}}
    )
    assert 'Lease:              Failed to get lease: leases.coordination.k8s.io "node-1" not found\n' in text
    assert text.partition("Non-terminated Pods")[2] == (
        ":          (2 in total)\n"
        "  Namespace                   Name    CPU Requests  CPU Limits  Memory Requests  Memory Limits  Age\n"
        "  ---------                   ----    ------------  ----------  ---------------  -------------  ---\n"
        "  default                     one     500m (25%)    0 (0%)      1Gi (25%)        5Gi (125%)     0s\n"
        "  default                     two     500m (25%)    0 (0%)      1Gi (25%)        5Gi (125%)     0s\n"
        "Allocated resources:\n"
        "  (Total limits may be over 100 percent, i.e., overcommitted.)\n"
        "  Resource           Requests   Limits\n"
        "  --------           --------   ------\n"
        "  cpu                1 (50%)    0 (0%)\n"
        "  memory             2Gi (50%)  10Gi (250%)\n"
        "  ephemeral-storage  0 (0%)     0 (0%)\n"
        "  hugepages-2Mi      0 (0%)     0 (0%)\n"
        "  example.com/gpu    0          0\n"
        "Events:              <none>\n"
    )


async def test_secrets_are_shown_by_size_only(described: Described) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"b": "Yg==", "a": "YWE="}}
    text = await described(secret)
    assert text.endswith("\nType:  Opaque\n\nData\n====\na:  2 bytes\nb:  1 bytes\n")


async def test_a_service_account(described: Described, ctx: DescribeContext) -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "runner"},
        "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
    }
    assert "Image pull secrets:  a\n                     b\nEvents:              <none>\n" in await described(account)
    account["metadata"] = {"name": "other"}
    assert (
        "Image pull secrets:  a (not found)\n"
        "                     b (not found)\n"
        "Mountable secrets:   <none>\n"
        "Tokens:              <none>\n"
    ) in await described(account, ctx._replace(minor=34))


async def test_rules_of_a_resource_are_joined_in_one_line(described: Described) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["web"], "verbs": ["patch"]},
        {"nonResourceURLs": ["/healthz"], "verbs": ["get", "post"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    assert (await described({**role, "rules": rules})).partition("PolicyRule:\n")[2] == (
        "  Resources               Non-Resource URLs  Resource Names  Verbs\n"
        "  ---------               -----------------  --------------  -----\n"
        "  pods                    []                 []              [get list]\n"
        "                          [/healthz]         []              [get]\n"
        "  pods/log                []                 []              [get]\n"
        "  deployments.apps/scale  []                 [web]           [patch]\n"
        "                          [/healthz]         []              [post]\n"
    )


async def test_kinds_without_a_description_of_their_own(described: Described) -> None:
    text = await described(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": "r", "labels": {"a": "b"}},
            "revision": 1,
            "data": {"list": [1, "x", {"b": None, "a": 1.5}], "nested": {"isOn": True}},
        }
    )
    head, _, rest = text.partition("Data:\n")
    assert head == (
        "Name:         r\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\nAPI Version:  apps/v1\n"
    )
    assert rest.startswith(
        "  List:\n"
        "    1\n"
        "    x\n"
        "    A:  1.5\n"
        "    B:  <nil>\n"
        "  Nested:\n"
        "    Is On:  true\n"
        "Kind:       ControllerRevision\n"
    )
    assert "Managed Fields" not in text


async def test_a_custom_resource_is_described_by_its_fields(ctx: DescribeContext) -> None:
    thing = {"metadata": {"name": "t", "namespace": "n", "uid": "u"}, "spec": {"replicas": 3}}
    text = await describe(thing, Resource("example.com", "v1", "Thing", "things"), ctx)
    assert text == (
        "Name:         t\n"
        "Namespace:    n\n"
        "Labels:       <none>\n"
        "Annotations:  <none>\n"
        "API Version:  example.com/v1\n"
        "Kind:         Thing\n"
        "Metadata:\n"
        "  UID:  u\n"
        "Spec:\n"
        "  Replicas:  3\n"
        "Events:      <none>\n"
    )


async def test_deeply_nested_objects_are_described(ctx: DescribeContext) -> None:
    deep: dict[str, Any] = {"end": 1}
    for _ in range(1000):
        deep = {"a": deep}
    text = await describe(
        {"metadata": {"name": "t"}, "spec": deep}, Resource("example.com", "v1", "Thing", "things"), ctx
    )
    assert f"{'  ' * 1001}End:  1\n" in text


ONLY_GETS = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "only-gets"},
        "rules": [{"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["get"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "only-gets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "only-gets"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    },
]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "describe node n --as=jane",
            "Pods:                         not authorized\nEvents:                       <none>\n",
        ),
        (
            "describe rs r --as=jane",
            'error in fetching pods: pods is forbidden: User "jane" cannot list resource "pods"',
        ),
        ("describe pod p --as=jane", "Events:           <none>\n"),
    ],
)
async def test_forbidden_objects_are_left_out(local_server: LocalServer, typed: Typed, line: str, said: str) -> None:
    replicas = {"selector": {"matchLabels": {"a": "b"}}, "template": template(a="b")}
    objects: tuple[Obj, ...] = (
        *ONLY_GETS,
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
        obj("apps/v1", "ReplicaSet", "r", replicas),
        obj("v1", "Pod", "p", template()["spec"]),
    )
    for one in objects:
        await local_server.client.create(one)
    assert said in await typed(line)
