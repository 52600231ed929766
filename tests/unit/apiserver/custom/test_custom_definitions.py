"""Definitions: their names, conditions, versions and removal."""

from __future__ import annotations

from typing import Any

import pytest
from custom_resource_harness import CRDS, FOOS, GROUP, CustomResourceHarness, definition, foo, of, version
from server_harness import settle

from setpoint.store.interface import Put

STORES = ("memory", "lagging")


async def test_a_definition_is_served_at_once(harness: CustomResourceHarness) -> None:
    assert (await harness.get(FOOS)).status == 404
    made = await harness.define()
    assert [(c["type"], c["status"], c["reason"], c["message"]) for c in made["status"]["conditions"]] == [
        ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    assert made["status"]["acceptedNames"] == {
        "plural": "foos",
        "singular": "foo",
        "kind": "Foo",
        "listKind": "FooList",
    }
    assert made["status"]["storedVersions"] == ["v1"]
    assert {entry["manager"] for entry in made["metadata"]["managedFields"]} == {"tests", "kube-apiserver"}
    created = await harness.make(FOOS, foo(spec={"a": 1}))
    assert (created["apiVersion"], created["kind"], created["metadata"]["generation"]) == (f"{GROUP}/v1", "Foo", 1)
    listed = (await harness.get(FOOS)).json
    assert (listed["kind"], listed["items"][0]["kind"], listed["metadata"]["continue"]) == ("FooList", "Foo", "")
    assert (await harness.get(f"/apis/{GROUP}/v1/foos")).json["items"] == listed["items"]


async def test_names_in_use_are_accepted_when_they_are_free(harness: CustomResourceHarness) -> None:
    await harness.define(names={"shortNames": ["fo"], "singular": "foo"})
    taken = {"singular": "foo", "shortNames": ["fo", "fresh"], "listKind": "FooList"}
    await harness.make(CRDS, definition(plural="bars", kind="Foo", names=taken))
    await settle(40)
    bars = await harness.definition(f"bars.{GROUP}")
    condition = bars["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("ListKindConflict", '"FooList" is already in use')
    assert bars["status"]["conditions"][1]["reason"] == "NotAccepted"
    assert bars["status"]["acceptedNames"] == {"plural": "bars", "kind": ""}
    assert (await harness.get(f"/apis/{GROUP}/v1/namespaces/default/bars")).status == 404
    await harness.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    bars = await harness.definition(f"bars.{GROUP}")
    assert harness.condition(bars, "Established") == "InitialNamesAccepted"
    assert (await harness.get(f"/apis/{GROUP}/v1/namespaces/default/bars")).status == 200


async def test_objects_are_deleted_before_their_definition(harness: CustomResourceHarness) -> None:
    await harness.define()
    await harness.make(FOOS, foo("free"))
    await harness.make(FOOS, foo("held", metadata={"finalizers": ["example.com/hold"]}))
    reply = await harness.delete(f"{CRDS}/foos.{GROUP}")
    assert reply.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert harness.condition(reply.json, "Terminating") == "InstanceDeletionPending"
    await settle(60)
    assert harness.condition(await harness.definition(), "Terminating") == "InstanceDeletionInProgress"
    listed = (await harness.get(FOOS)).json["items"]
    assert [(item["metadata"]["name"], "deletionTimestamp" in item["metadata"]) for item in listed] == [("held", True)]
    refused = await harness.post(FOOS, foo("late"))
    assert (refused.status, refused.json["message"]) == (
        403,
        'foos.example.com "late" is forbidden: create not allowed while custom resource definition is terminating',
    )
    verbs = (await harness.get(f"/apis/{GROUP}/v1")).json["resources"][0]["verbs"]
    assert verbs == ["delete", "deletecollection", "get", "list", "watch"]
    await harness.patch(f"{FOOS}/held", {"metadata": {"finalizers": None}})
    await settle(60)
    assert (await harness.get(f"{CRDS}/foos.{GROUP}")).status == 404
    gone = await harness.get(FOOS)
    assert (gone.status, gone.body) == (404, b"404 page not found\n")
    assert (await harness.get(f"/apis/{GROUP}")).status == 404


async def test_remaining_objects_are_reported_after_a_minute(harness: CustomResourceHarness) -> None:
    await harness.define()
    await harness.make(FOOS, foo("held", metadata={"finalizers": ["example.com/hold"]}))
    await harness.delete(f"{CRDS}/foos.{GROUP}")
    await harness.clock.advance(61)
    await settle(40)
    assert harness.condition(await harness.definition(), "Terminating") == "InstanceDeletionCheck"


async def test_a_recreated_definition_has_no_objects(harness: CustomResourceHarness) -> None:
    made = await harness.define()
    await harness.make(FOOS, foo())
    await harness.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    await harness.define()
    assert (await harness.get(FOOS)).json["items"] == []
    watcher = await harness.watch(f"{FOOS}?resourceVersion={made['metadata']['resourceVersion']}")
    assert watcher.events[0]["object"]["reason"] == "Expired"


async def test_watches_end_when_a_definition_changes(harness: CustomResourceHarness) -> None:
    await harness.define()
    watcher = await harness.watch(FOOS)
    await harness.make(FOOS, foo())
    await settle()
    assert watcher.summary == [("ADDED", "f")]
    columns = [{"name": "A", "type": "string", "jsonPath": ".spec.a"}]
    await harness.redefine({"spec": {"versions": [version(additionalPrinterColumns=columns)]}})
    assert not watcher.ended
    await harness.make(FOOS, foo("g"))
    await settle()
    assert watcher.summary[-1] == ("ADDED", "g")  # existing watches get all events
    await harness.clock.advance(1.5)
    assert watcher.ended
    again = await harness.watch(f"{FOOS}?resourceVersion={watcher.events[-1]['object']['metadata']['resourceVersion']}")
    await harness.make(FOOS, foo("h"))
    await settle()
    assert again.summary == [("ADDED", "h")]


async def test_watches_end_when_a_definition_is_deleted(harness: CustomResourceHarness) -> None:
    await harness.define()
    await harness.make(FOOS, foo())
    watcher = await harness.watch(FOOS)
    await harness.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    assert watcher.summary == [("ADDED", "f"), ("DELETED", "f")]
    await harness.clock.advance(1.5)
    assert watcher.ended


async def test_an_invalid_definition_does_not_stop_the_server(
    harness: CustomResourceHarness, quiet_log: pytest.LogCaptureFixture
) -> None:
    await harness.define()
    key = f"apiextensions.k8s.io/customresourcedefinitions/foos.{GROUP}"
    stored = await harness.store.get(key)
    assert stored is not None
    broken = stored.value.replace(b'"storage":true', b'"storage":false')
    await harness.store.txn([Put(key, broken, stored.mod_revision)])
    again = await CustomResourceHarness.open(harness.store)
    assert (await again.get(FOOS)).status == 404
    await again.api.stop()
    assert "foos.example.com" in quiet_log.text
    await harness.store.txn([Put(key, stored.value, harness.store.revision)])
    await settle()
    quiet_log.clear()


async def test_approval_of_protected_groups(harness: CustomResourceHarness) -> None:
    group = "stable.k8s.io"
    note = {"api-approved.kubernetes.io": "unapproved, experimental-only"}
    await harness.make(CRDS, definition(group=group, metadata={"annotations": note}))
    await settle(40)
    made = await harness.definition(f"foos.{group}")
    condition = next(c for c in made["status"]["conditions"] if c["type"] == "KubernetesAPIApprovalPolicyConformant")
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "UnapprovedAnnotation",
        'not approved: "unapproved, experimental-only"',
    )


async def test_built_in_kinds_cannot_be_replaced(harness: CustomResourceHarness) -> None:
    note = {"api-approved.kubernetes.io": "unapproved"}
    made = definition(group="networking.k8s.io", plural="ingresses", kind="Ingress", metadata={"annotations": note})
    await harness.make(CRDS, made)
    await settle(40)
    assert (await harness.get("/apis/networking.k8s.io/v1/namespaces/default/ingresses")).json["kind"] == "IngressList"
    await harness.delete(f"{CRDS}/ingresses.networking.k8s.io")
    await settle(40)
    assert (await harness.get(f"{CRDS}/ingresses.networking.k8s.io")).status == 404
    assert (await harness.get("/apis/networking.k8s.io/v1/namespaces/default/ingresses")).status == 200


async def test_versions_share_objects(harness: CustomResourceHarness) -> None:
    one = version("v1", of(a={"type": "string"}, d={"type": "string", "default": "one"}))
    two = version("v2", of(a={"type": "string"}, b={"type": "string", "default": "two"}), storage=False)
    await harness.define(one, two)
    twos = FOOS.replace("/v1/", "/v2/")
    await harness.make(FOOS, foo(spec={"a": "1"}))
    # Defaults are those of the stored version, as upstream.
    assert (await harness.get(f"{twos}/f")).json["spec"] == {"a": "1"}
    created = await harness.make(twos, foo("g", {"a": "2", "b": "x"}, version="v2"))
    assert (created["apiVersion"], created["spec"]) == (f"{GROUP}/v2", {"a": "2"})
    assert (await harness.get(f"{FOOS}/g")).json["spec"] == {"a": "2", "d": "one"}
    assert (await harness.get(f"/apis/{GROUP}")).json["preferredVersion"]["version"] == "v2"


async def test_the_storage_version_can_change(harness: CustomResourceHarness) -> None:
    await harness.define(version("v1"), version("v2", storage=False))
    await harness.make(FOOS, foo(spec={"a": 1}))
    moved = [version("v1", storage=False), version("v2")]
    reply = await harness.redefine({"spec": {"versions": moved}})
    assert reply.json["status"]["storedVersions"] == ["v1", "v2"]
    twos = FOOS.replace("/v1/", "/v2/")
    assert (await harness.get(f"{twos}/f")).json["spec"] == {"a": 1}
    await harness.patch(f"{twos}/f", {"spec": {"b": 2}})
    assert (await harness.get(f"{FOOS}/f")).json["spec"] == {"a": 1, "b": 2}
    dropped = await harness.redefine({"spec": {"versions": [version("v2")]}})
    assert dropped.status == 422
    await harness.patch(f"{CRDS}/foos.{GROUP}/status", {"status": {"storedVersions": ["v2"]}})
    assert (await harness.redefine({"spec": {"versions": [version("v2")]}})).status == 200
    assert (await harness.get(f"{FOOS}/f")).status == 404
    assert (await harness.get(f"{twos}/f")).json["spec"] == {"a": 1, "b": 2}


async def test_deprecated_versions_warn(harness: CustomResourceHarness) -> None:
    own = version("v1alpha1", deprecated=True, deprecationWarning="please stop", storage=False)
    await harness.define(own, version("v1beta1", deprecated=True, storage=False), version("v1"))
    reply = await harness.get(f"/apis/{GROUP}/v1alpha1/foos")
    assert reply.header("Warning") == '299 - "please stop"'
    reply = await harness.get(f"/apis/{GROUP}/v1beta1/foos")
    assert reply.header("Warning") == '299 - "example.com/v1beta1 Foo is deprecated; use example.com/v1 Foo"'


async def test_groups_get_an_api_service(harness: CustomResourceHarness) -> None:
    await harness.define(version("v1"), version("v2", storage=False))
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    made = (await harness.get(f"{path}/v2.{GROUP}")).json
    assert made["spec"] == {"group": GROUP, "version": "v2", "groupPriorityMinimum": 1000, "versionPriority": 100}
    await harness.redefine({"spec": {"versions": [version("v1")]}})
    assert (await harness.get(f"{path}/v2.{GROUP}")).status == 404
    await harness.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    assert (await harness.get(f"{path}/v1.{GROUP}")).status == 404


async def test_an_established_definition_is_in_the_discovery_documents(harness: CustomResourceHarness) -> None:
    made = await harness.define()
    registered = (await harness.get(f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}")).json
    # The condition was the last write: clients that see it may ask for the documents at once.
    assert int(registered["metadata"]["resourceVersion"]) < int(made["metadata"]["resourceVersion"])


async def test_definitions_survive_a_restart(harness: CustomResourceHarness) -> None:
    await harness.define()
    await harness.make(FOOS, foo(spec={"a": 1}))
    again = await CustomResourceHarness.open(harness.store)
    try:
        assert (await again.get(f"{FOOS}/f")).json["spec"] == {"a": 1}
        assert (await again.get(f"/apis/{GROUP}/v1")).status == 200
    finally:
        await again.api.stop()


@pytest.mark.parametrize(("sent", "shown"), [({}, "null"), ({"versions": None}, "null"), ({"versions": []}, "[]")])
async def test_missing_and_empty_versions(harness: CustomResourceHarness, sent: Any, shown: str) -> None:
    obj = definition()
    del obj["spec"]["versions"]
    obj["spec"] |= sent
    reply = await harness.post(CRDS, obj)
    assert f"spec.versions: Invalid value: {shown}: must have exactly one version" in reply.message
    made = await harness.define()
    spec = {name: value for name, value in made["spec"].items() if name != "versions"}
    put = await harness.put(f"{CRDS}/foos.{GROUP}", {**made, "spec": {**spec, **sent}})
    assert f"spec.versions: Invalid value: {shown}: must have exactly one version" in put.message
