"""Restoration of the default roles at the start."""

from __future__ import annotations

from server_harness import ServerHarness

from setpoint.apiserver.bootstrap import bootstrap, missing_of_binding, missing_of_role
from setpoint.meta.objects import Obj

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"


async def test_nothing_is_written_when_nothing_is_missing(full_harness: ServerHarness) -> None:
    before = full_harness.store.revision
    await bootstrap(full_harness.api.resources)
    assert full_harness.store.revision == before


async def test_missing_rules_are_restored_and_added_ones_retained(full_harness: ServerHarness) -> None:
    path = f"{RBAC}/clusterroles/system:discovery"
    mine = {"verbs": ["get"], "nonResourceURLs": ["/mine"]}
    await full_harness.patch(path, {"rules": [mine], "metadata": {"labels": None}})
    await bootstrap(full_harness.api.resources)
    role = (await full_harness.get(path)).json
    assert role["rules"][0] == mine
    assert {"verbs": ["get"], "nonResourceURLs": ["/version"]} in role["rules"]
    assert role["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}


async def test_auto_update_can_be_disabled(full_harness: ServerHarness) -> None:
    path = f"{RBAC}/clusterroles/system:discovery"
    await full_harness.patch(path, {"rules": [], "metadata": {"annotations": {AUTO_UPDATE: "false"}}})
    await bootstrap(full_harness.api.resources)
    assert (await full_harness.get(path)).json["rules"] is None


async def test_subjects_and_role_of_bindings_are_restored(full_harness: ServerHarness) -> None:
    path = f"{RBAC}/clusterrolebindings/system:discovery"
    other = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}
    await full_harness.patch(path, {"subjects": [other]})
    await bootstrap(full_harness.api.resources)
    assert [subject["name"] for subject in (await full_harness.get(path)).json["subjects"]] == [
        "me",
        "system:authenticated",
    ]
    await full_harness.delete(path)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await full_harness.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "system:discovery"}, "roleRef": role, "subjects": [other]}
    )
    await bootstrap(full_harness.api.resources)
    binding = (await full_harness.get(path)).json
    assert binding["roleRef"]["name"] == "system:discovery"
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]


def test_aggregation_is_completed_or_removed() -> None:
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    bare: Obj = {"metadata": {}}
    full: Obj = {"metadata": {}, "aggregationRule": selectors}
    assert missing_of_role(bare, full) == {"aggregationRule": selectors}
    assert missing_of_role(full, bare) == {"aggregationRule": None}
    assert missing_of_role(full, full) == {}


def test_subjects_are_compared_whole() -> None:
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "b"}
    existing = {"metadata": {}, "subjects": [subject | {"namespace": "c"}]}
    assert missing_of_binding(existing, {"metadata": {}, "subjects": [subject]}) == {
        "subjects": [subject | {"namespace": "c"}, subject]
    }
