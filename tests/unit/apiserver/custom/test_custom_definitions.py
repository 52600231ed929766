"""Definitions: their names, conditions, versions and end."""

from __future__ import annotations

from typing import Any

import pytest
from custom_door import CRDS, FOOS, GROUP, CustomDoor, definition, foo, of, version
from front_door import settle

from setpoint.store.interface import Put

STORES = ("memory", "lagging")


async def test_a_definition_is_served_at_once(door: CustomDoor) -> None:
    assert (await door.get(FOOS)).status == 404
    made = await door.define()
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
    created = await door.make(FOOS, foo(spec={"a": 1}))
    assert (created["apiVersion"], created["kind"], created["metadata"]["generation"]) == (f"{GROUP}/v1", "Foo", 1)
    listed = (await door.get(FOOS)).json
    assert (listed["kind"], listed["items"][0]["kind"], listed["metadata"]["continue"]) == ("FooList", "Foo", "")
    assert (await door.get(f"/apis/{GROUP}/v1/foos")).json["items"] == listed["items"]


async def test_names_that_are_taken_are_not_accepted_until_they_are_free(door: CustomDoor) -> None:
    await door.define(names={"shortNames": ["fo"], "singular": "foo"})
    taken = {"singular": "foo", "shortNames": ["fo", "fresh"], "listKind": "FooList"}
    await door.make(CRDS, definition(plural="bars", kind="Foo", names=taken))
    await settle(40)
    bars = await door.definition(f"bars.{GROUP}")
    condition = bars["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("ListKindConflict", '"FooList" is already in use')
    assert bars["status"]["conditions"][1]["reason"] == "NotAccepted"
    assert bars["status"]["acceptedNames"] == {"plural": "bars", "kind": ""}
    assert (await door.get(f"/apis/{GROUP}/v1/namespaces/default/bars")).status == 404
    await door.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    bars = await door.definition(f"bars.{GROUP}")
    assert door.condition(bars, "Established") == "InitialNamesAccepted"
    assert (await door.get(f"/apis/{GROUP}/v1/namespaces/default/bars")).status == 200


async def test_objects_go_before_their_definition(door: CustomDoor) -> None:
    await door.define()
    await door.make(FOOS, foo("free"))
    await door.make(FOOS, foo("held", metadata={"finalizers": ["example.com/hold"]}))
    reply = await door.delete(f"{CRDS}/foos.{GROUP}")
    assert reply.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert door.condition(reply.json, "Terminating") == "InstanceDeletionPending"
    await settle(60)
    assert door.condition(await door.definition(), "Terminating") == "InstanceDeletionInProgress"
    listed = (await door.get(FOOS)).json["items"]
    assert [(item["metadata"]["name"], "deletionTimestamp" in item["metadata"]) for item in listed] == [("held", True)]
    refused = await door.post(FOOS, foo("late"))
    assert (refused.status, refused.json["message"]) == (
        403,
        'foos.example.com "late" is forbidden: create not allowed while custom resource definition is terminating',
    )
    verbs = (await door.get(f"/apis/{GROUP}/v1")).json["resources"][0]["verbs"]
    assert verbs == ["delete", "deletecollection", "get", "list", "watch"]
    await door.patch(f"{FOOS}/held", {"metadata": {"finalizers": None}})
    await settle(60)
    assert (await door.get(f"{CRDS}/foos.{GROUP}")).status == 404
    gone = await door.get(FOOS)
    assert (gone.status, gone.body) == (404, b"404 page not found\n")
    assert (await door.get(f"/apis/{GROUP}")).status == 404


async def test_objects_that_stay_are_reported_after_a_minute(door: CustomDoor) -> None:
    await door.define()
    await door.make(FOOS, foo("held", metadata={"finalizers": ["example.com/hold"]}))
    await door.delete(f"{CRDS}/foos.{GROUP}")
    await door.clock.advance(61)
    await settle(40)
    assert door.condition(await door.definition(), "Terminating") == "InstanceDeletionCheck"


async def test_a_definition_that_comes_back_knows_nothing_of_before(door: CustomDoor) -> None:
    made = await door.define()
    await door.make(FOOS, foo())
    await door.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    await door.define()
    assert (await door.get(FOOS)).json["items"] == []
    watcher = await door.watch(f"{FOOS}?resourceVersion={made['metadata']['resourceVersion']}")
    assert watcher.events[0]["object"]["reason"] == "Expired"


async def test_watches_end_when_a_definition_changes(door: CustomDoor) -> None:
    await door.define()
    watcher = await door.watch(FOOS)
    await door.make(FOOS, foo())
    await settle()
    assert watcher.summary == [("ADDED", "f")]
    columns = [{"name": "A", "type": "string", "jsonPath": ".spec.a"}]
    await door.redefine({"spec": {"versions": [version(additionalPrinterColumns=columns)]}})
    assert not watcher.ended
    await door.make(FOOS, foo("g"))
    await settle()
    assert watcher.summary[-1] == ("ADDED", "g")  # whoever still listens hears everything
    await door.clock.advance(1.5)
    assert watcher.ended
    again = await door.watch(f"{FOOS}?resourceVersion={watcher.events[-1]['object']['metadata']['resourceVersion']}")
    await door.make(FOOS, foo("h"))
    await settle()
    assert again.summary == [("ADDED", "h")]


async def test_watches_end_when_a_definition_goes(door: CustomDoor) -> None:
    await door.define()
    await door.make(FOOS, foo())
    watcher = await door.watch(FOOS)
    await door.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    assert watcher.summary == [("ADDED", "f"), ("DELETED", "f")]
    await door.clock.advance(1.5)
    assert watcher.ended


async def test_a_definition_that_makes_no_sense_does_not_stop_the_server(
    door: CustomDoor, quiet_log: pytest.LogCaptureFixture
) -> None:
    await door.define()
    key = f"apiextensions.k8s.io/customresourcedefinitions/foos.{GROUP}"
    stored = await door.store.get(key)
    assert stored is not None
    broken = stored.value.replace(b'"storage":true', b'"storage":false')
    await door.store.txn([Put(key, broken, stored.mod_revision)])
    again = await CustomDoor.open(door.store)
    assert (await again.get(FOOS)).status == 404
    await again.api.stop()
    assert "foos.example.com" in quiet_log.text
    await door.store.txn([Put(key, stored.value, door.store.revision)])
    await settle()
    quiet_log.clear()


async def test_approval_of_protected_groups(door: CustomDoor) -> None:
    group = "stable.k8s.io"
    note = {"api-approved.kubernetes.io": "unapproved, experimental-only"}
    await door.make(CRDS, definition(group=group, metadata={"annotations": note}))
    await settle(40)
    made = await door.definition(f"foos.{group}")
    condition = next(c for c in made["status"]["conditions"] if c["type"] == "KubernetesAPIApprovalPolicyConformant")
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False", "UnapprovedAnnotation", 'not approved: "unapproved, experimental-only"',
    )  # fmt: skip


async def test_what_is_built_in_stays_what_it_is(door: CustomDoor) -> None:
    note = {"api-approved.kubernetes.io": "unapproved"}
    made = definition(group="networking.k8s.io", plural="ingresses", kind="Ingress", metadata={"annotations": note})
    await door.make(CRDS, made)
    await settle(40)
    assert (await door.get("/apis/networking.k8s.io/v1/namespaces/default/ingresses")).json["kind"] == "IngressList"
    await door.delete(f"{CRDS}/ingresses.networking.k8s.io")
    await settle(40)
    assert (await door.get(f"{CRDS}/ingresses.networking.k8s.io")).status == 404
    assert (await door.get("/apis/networking.k8s.io/v1/namespaces/default/ingresses")).status == 200


async def test_versions_share_objects(door: CustomDoor) -> None:
    one = version("v1", of(a={"type": "string"}, d={"type": "string", "default": "one"}))
    two = version("v2", of(a={"type": "string"}, b={"type": "string", "default": "two"}), storage=False)
    await door.define(one, two)
    twos = FOOS.replace("/v1/", "/v2/")
    await door.make(FOOS, foo(spec={"a": "1"}))
    # Defaults are those of the version that is stored, as it is upstream.
    assert (await door.get(f"{twos}/f")).json["spec"] == {"a": "1"}
    created = await door.make(twos, foo("g", {"a": "2", "b": "x"}, version="v2"))
    assert (created["apiVersion"], created["spec"]) == (f"{GROUP}/v2", {"a": "2"})
    assert (await door.get(f"{FOOS}/g")).json["spec"] == {"a": "2", "d": "one"}
    assert (await door.get(f"/apis/{GROUP}")).json["preferredVersion"]["version"] == "v2"


async def test_the_stored_version_can_move(door: CustomDoor) -> None:
    await door.define(version("v1"), version("v2", storage=False))
    await door.make(FOOS, foo(spec={"a": 1}))
    moved = [version("v1", storage=False), version("v2")]
    reply = await door.redefine({"spec": {"versions": moved}})
    assert reply.json["status"]["storedVersions"] == ["v1", "v2"]
    twos = FOOS.replace("/v1/", "/v2/")
    assert (await door.get(f"{twos}/f")).json["spec"] == {"a": 1}
    await door.patch(f"{twos}/f", {"spec": {"b": 2}})
    assert (await door.get(f"{FOOS}/f")).json["spec"] == {"a": 1, "b": 2}
    dropped = await door.redefine({"spec": {"versions": [version("v2")]}})
    assert dropped.status == 422
    await door.patch(f"{CRDS}/foos.{GROUP}/status", {"status": {"storedVersions": ["v2"]}})
    assert (await door.redefine({"spec": {"versions": [version("v2")]}})).status == 200
    assert (await door.get(f"{FOOS}/f")).status == 404
    assert (await door.get(f"{twos}/f")).json["spec"] == {"a": 1, "b": 2}


async def test_deprecated_versions_say_so(door: CustomDoor) -> None:
    own = version("v1alpha1", deprecated=True, deprecationWarning="please stop", storage=False)
    await door.define(own, version("v1beta1", deprecated=True, storage=False), version("v1"))
    reply = await door.get(f"/apis/{GROUP}/v1alpha1/foos")
    assert reply.header("Warning") == '299 - "please stop"'
    reply = await door.get(f"/apis/{GROUP}/v1beta1/foos")
    assert reply.header("Warning") == '299 - "example.com/v1beta1 Foo is deprecated; use example.com/v1 Foo"'


async def test_groups_get_an_api_service(door: CustomDoor) -> None:
    await door.define(version("v1"), version("v2", storage=False))
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    made = (await door.get(f"{path}/v2.{GROUP}")).json
    assert made["spec"] == {"group": GROUP, "version": "v2", "groupPriorityMinimum": 1000, "versionPriority": 100}
    await door.redefine({"spec": {"versions": [version("v1")]}})
    assert (await door.get(f"{path}/v2.{GROUP}")).status == 404
    await door.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    assert (await door.get(f"{path}/v1.{GROUP}")).status == 404


async def test_definitions_outlive_the_server(door: CustomDoor) -> None:
    await door.define()
    await door.make(FOOS, foo(spec={"a": 1}))
    again = await CustomDoor.open(door.store)
    try:
        assert (await again.get(f"{FOOS}/f")).json["spec"] == {"a": 1}
        assert (await again.get(f"/apis/{GROUP}/v1")).status == 200
    finally:
        await again.api.stop()


@pytest.mark.parametrize(("sent", "shown"), [({}, "null"), ({"versions": None}, "null"), ({"versions": []}, "[]")])
async def test_versions_that_are_missing_and_versions_that_are_empty(door: CustomDoor, sent: Any, shown: str) -> None:
    obj = definition()
    del obj["spec"]["versions"]
    obj["spec"] |= sent
    reply = await door.post(CRDS, obj)
    assert f"spec.versions: Invalid value: {shown}: must have exactly one version" in reply.message
    made = await door.define()
    spec = {name: value for name, value in made["spec"].items() if name != "versions"}
    put = await door.put(f"{CRDS}/foos.{GROUP}", {**made, "spec": {**spec, **sent}})
    assert f"spec.versions: Invalid value: {shown}: must have exactly one version" in put.message
