"""MutatingAdmissionPolicies, through the API."""

from __future__ import annotations

from typing import Any

import pytest
from admission_policies import APPS, CORE, REGISTRATION, config, deployment, rule
from custom_resource_harness import CustomResourceHarness, foo, of, version

MAPS = f"{CORE}/configmaps"
POLICIES = f"{REGISTRATION}/mutatingadmissionpolicies"
BINDINGS = f"{REGISTRATION}/mutatingadmissionpolicybindings"


def apply(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def add(key: str, value: str = "'1'") -> dict[str, Any]:
    return json_patch(f"[JSONPatch{{op: 'add', path: '/data/{key}', value: {value}}}]")


async def enforce(
    harness: CustomResourceHarness, name: str, *mutations: Any, rules: Any = None, bound: Any = None, **spec: Any
) -> None:
    match = {"resourceRules": rules or [rule("configmaps")]}
    spec = {"matchConstraints": match, "mutations": list(mutations), "reinvocationPolicy": "Never", **spec}
    await harness.make(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"metadata": {"name": f"{name}-b"}, "spec": {"policyName": name, **(bound or {})}}
    await harness.make(BINDINGS, binding)


async def test_configurations_are_merged(harness: CustomResourceHarness) -> None:
    await enforce(harness, "p", apply("Object{metadata: Object.metadata{labels: {'by': object.metadata.name}}}"))
    made = await harness.make(MAPS, config(labels={"a": "b"}))
    assert made["metadata"]["labels"] == {"a": "b", "by": "c"}
    changed = await harness.patch(f"{MAPS}/c", {"metadata": {"labels": {"by": None}}})
    assert changed.json["metadata"]["labels"] == {"a": "b", "by": "c"}


async def test_containers_are_merged_by_name_and_defaulted(harness: CustomResourceHarness) -> None:
    text = """Object{spec: Object.spec{
      containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, tty: true}),
      initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}]
    }}"""
    await enforce(harness, "p", apply(text), rules=[rule("pods")])
    made = await harness.make(
        f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    (container,), (mesh,) = made["spec"]["containers"], made["spec"]["initContainers"]
    assert (container["image"], container["tty"]) == ("i", True)
    assert (mesh["imagePullPolicy"], mesh["terminationMessagePolicy"]) == ("IfNotPresent", "File")


async def test_json_patch_operations(harness: CustomResourceHarness) -> None:
    text = """[
      JSONPatch{op: 'test', path: '/data/k', value: 'v'},
      JSONPatch{op: 'copy', from: '/data/k', path: '/data/copied'},
      JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}},
      JSONPatch{op: 'add', path: '/metadata/annotations', value: {}},
      JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('x/y'), value: 'z'}
    ]"""
    await enforce(harness, "p", json_patch(text))
    made = await harness.make(MAPS, config())
    assert made["data"] == {"k": "v", "copied": "v"}
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]) == ({"a": "b"}, {"x/y": "z"})
    # A test that fails is no failure: the patch does not apply.
    other = await harness.make(MAPS, config("d", {"k": "w"}))
    assert other["data"] == {"k": "w"}


async def test_a_mutation_sees_the_earlier_ones(harness: CustomResourceHarness) -> None:
    await enforce(harness, "a", add("one"), add("two", "object.data.one + '1'"))
    await enforce(
        harness, "b", add("three", "object.data.two + variables.n"), variables=[{"name": "n", "expression": "'1'"}]
    )
    assert (await harness.make(MAPS, config()))["data"] == {"k": "v", "one": "1", "two": "11", "three": "111"}


@pytest.mark.parametrize(
    "mutation, text",
    [
        (add("x", "string(object.nothing)"), "resulted in error: no such key: nothing"),
        (json_patch("[JSONPatch{op: 'remove', path: '/nothing/at'}]"), "JSON Patch: "),
        (
            apply("Object{spec: Object.spec{x: 1}}"),
            "error applying patch: failed to convert patch object to typed object: .spec: field not declared in schema",
        ),
        (
            apply("Object{metadata: Object.wrong{name: 'x'}}"),
            'type mismatch: unexpected type name "Object.wrong", expected "Object.metadata", '
            "which matches field name path from root Object type",
        ),
    ],
)
@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_failures(harness: CustomResourceHarness, mutation: Any, text: str, failure_policy: str) -> None:
    await enforce(harness, "p", mutation, failurePolicy=failure_policy)
    reply = await harness.post(MAPS, config())
    if failure_policy == "Ignore":
        assert reply.status == 201
        return
    assert (reply.status, reply.json["reason"]) == (403, "Invalid")
    assert reply.message.startswith("policy 'p' with binding 'p-b' denied request: ")
    assert text in reply.message
    assert reply.json["details"] == {"name": "c", "kind": "configmaps", "causes": [{"message": reply.message}]}


async def test_a_patch_with_unknown_fields_is_refused(harness: CustomResourceHarness) -> None:
    await enforce(harness, "p", json_patch("[JSONPatch{op: 'add', path: '/spec', value: {'a': 1}}]"))
    reply = await harness.post(MAPS, config())
    assert reply.message == 'Internal error occurred: strict decoding error: unknown field "spec"'


async def test_replacing_an_atomic_value_is_refused(harness: CustomResourceHarness) -> None:
    text = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
    text += "tolerations: [Object.spec.template.spec.tolerations{key: 'k'}]}}}}"
    await enforce(harness, "p", apply(text), rules=[rule("deployments", group="apps")])
    reply = await harness.post(f"{APPS}/deployments", deployment("d", 1))
    assert reply.message.endswith(
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
        ".spec.template.spec.tolerations"
    )


async def test_parameters_and_conditions(harness: CustomResourceHarness) -> None:
    await harness.make(MAPS, config("settings", {"team": "red"}))
    await enforce(
        harness,
        "p",
        add("team", "params.data.team"),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        bound={"paramRef": {"name": "settings", "parameterNotFoundAction": "Deny"}},
        matchConditions=[{"name": "c", "expression": "request.name != 'free'"}],
    )
    assert (await harness.make(MAPS, config()))["data"] == {"k": "v", "team": "red"}
    assert (await harness.make(MAPS, config("free")))["data"] == {"k": "v"}
    await harness.delete(f"{MAPS}/settings")
    reply = await harness.post(MAPS, config("late"))
    text = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert (reply.status, reply.message) == (403, f"policy 'p' with binding 'p-b' denied request: {text}")
    assert reply.json["reason"] == "Forbidden"


async def test_policies_are_reinvoked_if_needed(harness: CustomResourceHarness) -> None:
    count = "has(object.data.count) ? object.data.count + '1' : '1'"
    await enforce(harness, "a", add("count", count), reinvocationPolicy="IfNeeded")
    await enforce(harness, "b", add("other"))
    assert (await harness.make(MAPS, config()))["data"] == {"k": "v", "count": "11", "other": "1"}


async def test_custom_objects_are_merged_by_their_schema(harness: CustomResourceHarness) -> None:
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
    }
    items = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    await harness.define(version("v1", of(items=items)))
    text = "Object{spec: Object.spec{items: [Object.spec.items{name: 'a', n: 5}]}}"
    await enforce(harness, "p", apply(text), rules=[rule("foos", group="example.com")])
    made = await harness.make(
        "/apis/example.com/v1/namespaces/default/foos", foo(spec={"items": [{"name": "a"}, {"name": "b"}]})
    )
    assert made["spec"]["items"] == [{"name": "a", "n": 5}, {"name": "b"}]


async def test_a_scale_can_be_changed(harness: CustomResourceHarness) -> None:
    await harness.make(f"{APPS}/deployments", deployment("d", 1))
    text = "Object{spec: Object.spec{replicas: 2}}"
    await enforce(harness, "p", apply(text), rules=[rule("deployments/scale", group="apps")])
    assert (await harness.patch(f"{APPS}/deployments/d/scale", {"spec": {"replicas": 9}})).json["spec"] == {
        "replicas": 2
    }


async def test_validating_policies_see_the_mutated_object(harness: CustomResourceHarness) -> None:
    await enforce(harness, "p", add("made"))
    judged = {"matchConstraints": {"resourceRules": [rule("configmaps")]}}
    judged["validations"] = [{"expression": "has(object.data.made)"}]  # type: ignore[assignment]
    await harness.make(f"{REGISTRATION}/validatingadmissionpolicies", {"metadata": {"name": "v"}, "spec": judged})
    bound = {"metadata": {"name": "v"}, "spec": {"policyName": "v", "validationActions": ["Deny"]}}
    await harness.make(f"{REGISTRATION}/validatingadmissionpolicybindings", bound)
    assert (await harness.post(MAPS, config())).status == 201
    await harness.delete(f"{BINDINGS}/p-b")
    assert (await harness.post(MAPS, config("d"))).status == 422
