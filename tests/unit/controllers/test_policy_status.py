"""The status of a ValidatingAdmissionPolicy has the warnings of kube-controller-manager about its expressions."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.controllers.policy_status import matched_kinds, resolved
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

POLICIES = builtin("validatingadmissionpolicies", "admissionregistration.k8s.io")
DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")

Rule = tuple[list[str], list[str], list[str]]
APPS: Rule = (["apps"], ["v1"], ["deployments"])


def policy(*validations: str | tuple[str, str], rules: tuple[Rule, ...] = (APPS,), **more: Any) -> Obj:
    written = [
        {"expression": each} if isinstance(each, str) else {"expression": each[0], "messageExpression": each[1]}
        for each in validations
    ]
    matched = [
        {"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["CREATE"]}
        for groups, versions, resources in rules
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": matched}, "validations": written, **more},
    }


async def warned(cluster: VirtualCluster, wanted: Obj) -> dict[str, str]:
    await cluster.client.create(wanted)
    await cluster.instant()
    status = (await cluster.client.get(POLICIES, "p"))["status"]
    assert status["observedGeneration"] == 1
    await cluster.client.delete(POLICIES, "p")
    return {each["fieldRef"]: each["warning"] for each in status["typeChecking"].get("expressionWarnings") or ()}


@virtual(nodes=0)
async def test_expressions_are_checked_against_the_kinds_that_are_matched(cluster: VirtualCluster) -> None:
    assert await warned(cluster, policy("object.spec.replicas > 1")) == {}
    wrong = policy(
        ("object.spec.replicas > '1'", "'x' + object.spec.nothing"), "object.spec == 1", "object == oldObject"
    )
    assert await warned(cluster, wrong) == {
        "spec.validations[0].expression": (
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to "
            "'(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
        ),
        "spec.validations[0].messageExpression": (
            "apps/v1, Kind=Deployment: ERROR: <input>:1:18: undefined field 'nothing'\n"
            " | 'x' + object.spec.nothing\n | .................^\n"
        ),
        "spec.validations[1].expression": (
            "apps/v1, Kind=Deployment: ERROR: <input>:1:13: found no matching overload for '_==_' applied to "
            "'(Deployment.spec, int)'\n | object.spec == 1\n | ............^\n"
        ),
    }
    # One warning for all kinds. The core group, written as it is, stands for any group: both kinds of events.
    events = await warned(cluster, policy("object.note == 'x'", rules=(APPS, ([""], ["v1"], ["events"]))))
    assert events == {
        "spec.validations[0].expression": (
            "/v1, Kind=Event: ERROR: <input>:1:7: undefined field 'note'\n | object.note == 'x'\n | ......^\n\n"
            "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'note'\n | object.note == 'x'\n | ......^\n"
        )
    }


@virtual(nodes=0)
async def test_variables_and_parameters_have_types_too(cluster: VirtualCluster) -> None:
    variables = [
        {"name": "name", "expression": "object.metadata.name"},
        {"name": "spec", "expression": "object.spec"},
        {"name": "unknown", "expression": "object.nothing"},
    ]
    wanted = policy(
        "variables.name > 1",
        "variables.spec.nothing == 1",
        "variables.unknown == 1",
        "params.data['x'] == 1",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "dyn(object).nothing == 1",
        variables=variables,
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    found = await warned(cluster, wanted)
    assert list(found) == ["spec.validations[0].expression", "spec.validations[3].expression"]
    assert "'_>_' applied to '(string, int)'" in found["spec.validations[0].expression"]
    assert "'_==_' applied to '(string, int)'" in found["spec.validations[3].expression"]
    unknown = policy("params.data == 1", paramKind={"apiVersion": "nobody.example.com/v1", "kind": "Nothing"})
    assert await warned(cluster, unknown) == {}


@virtual(nodes=0)
async def test_custom_kinds_are_checked_with_their_schemas(cluster: VirtualCluster) -> None:
    spec = {
        "type": "object",
        "properties": {"size": {"type": "integer"}, "port": {"x-kubernetes-int-or-string": True}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"}
    await cluster.client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gizmos.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    await cluster.instant()
    rules: tuple[Rule, ...] = ((["example.com"], ["v1", "v2"], ["gizmos"]),)
    found = await warned(cluster, policy("object.spec.size == 'x'", "object.spec.port == 'x'", rules=rules))
    assert list(found) == ["spec.validations[0].expression"]
    assert found["spec.validations[0].expression"].startswith("example.com/v1, Kind=Gizmo: ERROR: <input>:1:18: ")


@virtual(nodes=0)
async def test_a_changed_policy_is_checked_again(cluster: VirtualCluster) -> None:
    await cluster.client.create(policy("object.nothing == 1"))
    await cluster.instant()
    before = await cluster.client.get(POLICIES, "p")
    assert before["status"]["typeChecking"]["expressionWarnings"]
    better = {"spec": {"validations": [{"expression": "object.kind == 'x'"}]}}
    await cluster.client.patch(POLICIES, "p", better)
    await cluster.instant()
    after = await cluster.client.get(POLICIES, "p")
    assert after["status"] == {
        "observedGeneration": 2
    }  # as upstream: what was owned and is gone takes its parent along
    managers = [
        (each["manager"], each["operation"], each.get("subresource")) for each in after["metadata"]["managedFields"]
    ]
    assert ("validatingadmissionpolicy-status", "Apply", "status") in managers


SERVED = [
    Resource("", "v1", "Pod", "pods", "pod", True),
    Resource("apps", "v1", "Deployment", "deployments", "deployment", True),
    Resource("apps", "v1beta1", "Deployment", "deployments", "deployment", True),
    *(
        Resource("many", "v1", f"Kind{number:02}", f"kind{number:02}s", f"kind{number:02}", True)
        for number in range(12)
    ),
]
BETA = "apps/v1beta1, Kind=Deployment"
MANY = ["many"], ["v1"], [f"kind{number:02}s" for number in range(12)]


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ([APPS], ["apps/v1, Kind=Deployment"]),
        ([(["apps"], ["v1beta1", "v1"], ["deployment"])], ["apps/v1, Kind=Deployment", BETA]),
        ([APPS, ([""], ["v1"], ["pods", "pods/status", "*"])], ["/v1, Kind=Pod", "apps/v1, Kind=Deployment"]),
        ([(["*"], ["v1"], ["pods"])], []),
        ([([""], ["*"], ["pods"]), APPS], ["apps/v1, Kind=Deployment"]),
        ([(["nobody"], ["v1"], ["pods"])], []),
        ([MANY, APPS], [f"many/v1, Kind=Kind{number:02}" for number in range(10)]),
    ],
)
async def test_which_kinds_are_checked(rules: list[Rule], wanted: list[str]) -> None:
    asked: list[bool] = []

    async def served(fresh: bool) -> list[Resource]:
        asked.append(fresh)
        return SERVED

    found = await matched_kinds(policy("true", rules=tuple(rules)), served)
    assert [str(each) for each in found] == wanted
    assert asked.count(True) <= 1


def test_a_recursive_schema_is_cut_off() -> None:
    schemas: Obj = {
        "Tree": {
            "type": "object",
            "properties": {"left": {"$ref": "#/components/schemas/Tree"}, "leaf": {"$ref": "Leaf"}},
        },
        "Leaf": {"type": "string"},
    }
    root = {"type": "object", "properties": {"tree": {"allOf": [{"$ref": "#/components/schemas/Tree"}], "default": {}}}}
    assert resolved(schemas, root, ())["properties"]["tree"]["properties"] == {
        "left": {"type": "object"},
        "leaf": {"type": "string"},
    }
