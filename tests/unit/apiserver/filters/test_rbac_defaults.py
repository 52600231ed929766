"""What a start does to the default roles."""

from __future__ import annotations

from front_door import FrontDoor

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.rbac_defaults import missing_of_binding, missing_of_role

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"


async def test_nothing_is_written_when_nothing_is_missing(full_door: FrontDoor) -> None:
    before = full_door.store.revision
    await bootstrap(full_door.api)
    assert full_door.store.revision == before


async def test_lost_rules_come_back_and_added_ones_stay(full_door: FrontDoor) -> None:
    path = f"{RBAC}/clusterroles/system:discovery"
    mine = {"verbs": ["get"], "nonResourceURLs": ["/mine"]}
    await full_door.patch(path, {"rules": [mine], "metadata": {"labels": None}})
    await bootstrap(full_door.api)
    role = (await full_door.get(path)).json
    assert role["rules"][0] == mine
    assert {"verbs": ["get"], "nonResourceURLs": ["/version"]} in role["rules"]
    assert role["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}


async def test_an_owner_may_say_no(full_door: FrontDoor) -> None:
    path = f"{RBAC}/clusterroles/system:discovery"
    await full_door.patch(path, {"rules": [], "metadata": {"annotations": {AUTO_UPDATE: "false"}}})
    await bootstrap(full_door.api)
    assert (await full_door.get(path)).json["rules"] is None


async def test_bindings_get_their_subjects_and_their_role_back(full_door: FrontDoor) -> None:
    path = f"{RBAC}/clusterrolebindings/system:discovery"
    other = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}
    await full_door.patch(path, {"subjects": [other]})
    await bootstrap(full_door.api)
    assert [subject["name"] for subject in (await full_door.get(path)).json["subjects"]] == [
        "me",
        "system:authenticated",
    ]
    await full_door.delete(path)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await full_door.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "system:discovery"}, "roleRef": role, "subjects": [other]}
    )
    await bootstrap(full_door.api)
    binding = (await full_door.get(path)).json
    assert binding["roleRef"]["name"] == "system:discovery"
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]


def test_aggregation_is_completed_or_removed() -> None:
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    bare, full = {"metadata": {}}, {"metadata": {}, "aggregationRule": selectors}
    assert missing_of_role(bare, full) == {"aggregationRule": selectors}
    assert missing_of_role(full, bare) == {"aggregationRule": None}
    assert missing_of_role(full, full) == {}


def test_subjects_are_compared_whole() -> None:
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "b"}
    existing = {"metadata": {}, "subjects": [subject | {"namespace": "c"}]}
    assert missing_of_binding(existing, {"metadata": {}, "subjects": [subject]}) == {
        "subjects": [subject | {"namespace": "c"}, subject]
    }
