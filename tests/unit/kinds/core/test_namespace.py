from __future__ import annotations

from typing import Any

import pytest

UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


@pytest.fixture
def namespaces(lifecycle: Any) -> Any:
    return lifecycle("v1", "Namespace")


def test_a_new_namespace_gets_phase_label_and_finalizer(namespaces: Any) -> None:
    obj = namespaces.created({"spec": {"finalizers": ["a/b"]}, "status": {"phase": "Terminating"}})
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert obj["spec"] == {"finalizers": ["a/b", "kubernetes"]}
    assert obj["status"] == {"phase": "Active"}
    assert not namespaces.strategy.removable(obj)
    assert namespaces.strategy.removable({"metadata": {}, "spec": {}})


def test_a_generated_name_is_labelled_too(namespaces: Any) -> None:
    obj = namespaces.decoded({"metadata": {"name": "", "generateName": "x-"}})
    assert not obj["metadata"].get("labels")
    obj["metadata"]["name"] = "x-1"
    namespaces.strategy.prepare_for_create(obj, namespaces.ctx)
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x-1"}


def test_names_must_be_dns_labels(namespaces: Any) -> None:
    assert namespaces.strategy.validate_name("a.b", False) == ["must not contain dots"]
    assert namespaces.strategy.validate_name("a-", True) == []


def test_finalizers_change_only_through_finalize(namespaces: Any) -> None:
    old = namespaces.created({})
    assert namespaces.put(old, {"spec": {"finalizers": []}})[0]["spec"] == {"finalizers": ["kubernetes"]}
    assert namespaces.put(old, {"spec": {"finalizers": []}}, "finalize")[0]["spec"] == {}
    errors = namespaces.put(old, {"spec": {"finalizers": ["kubernetes", "foo"]}}, "finalize")[1]
    assert errors == [f'spec.finalizers[1]: Invalid value: "foo": {UNQUALIFIED}']
    assert namespaces.errors({"spec": {"finalizers": ["foo"]}}) == [
        f'spec.finalizers: Invalid value: "foo": {UNQUALIFIED}'
    ]


def test_phase_follows_deletion(namespaces: Any) -> None:
    old = namespaces.created({})
    errors = namespaces.put(old, {"status": {"phase": "Terminating"}}, "status")[1]
    assert errors == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]
    leaving = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    body = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}}
    errors = namespaces.put(leaving, body, "status")[1]
    assert errors == [
        "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
    ]


def test_service_account_secret_references_are_reduced_to_names(lifecycle: Any) -> None:
    accounts = lifecycle("v1", "ServiceAccount")
    obj = accounts.created({"secrets": [{"name": "a", "kind": "Secret", "namespace": "b"}, {}]})
    assert obj["secrets"] == [{"name": "a"}, {}]
    annotated = {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}}
    [warning] = accounts.warnings(annotated)
    assert warning.startswith("metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+")
    old = accounts.created(annotated)
    assert accounts.strategy.warnings_on_update(old, old, accounts.ctx) == []
