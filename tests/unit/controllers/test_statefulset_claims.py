"""The owners of the claims of a StatefulSet's Pods."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.controllers.statefulset.controller import max_unavailable, to_replace
from setpoint.controllers.statefulset.identity import (
    belongs_to_predecessor,
    claims_for,
    has_conflicting_controller,
    owners_up_to_date,
    parent_and_ordinal,
    with_owners,
)
from setpoint.meta.objects import Obj

NOW: Any = None


def stateful_set(deleted: str = "Retain", scaled: str = "Retain", **spec: Any) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "set"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"a": "b"}}}],
            **spec,
        },
    }


POD: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "default", "uid": "pod"}}


def reference(kind: str, name: str, uid: str, *, controller: bool = True) -> Obj:
    version = "v1" if kind == "Pod" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": controller}


OF_SET, OF_POD = reference("StatefulSet", "web", "set"), reference("Pod", "web-0", "pod")


def claim(*references: Obj) -> Any:
    return {"metadata": {"name": "data-web-0", "ownerReferences": list(references)}}


def owners(found: Obj) -> list[str]:
    return [each["uid"] for each in found["metadata"].get("ownerReferences") or ()]


@pytest.mark.parametrize(
    ("deleted", "scaled", "beyond", "expected"),
    [
        ("Retain", "Retain", False, []),
        ("Retain", "Retain", True, []),
        ("Delete", "Retain", False, ["set"]),
        ("Delete", "Retain", True, ["set"]),
        ("Retain", "Delete", False, []),
        ("Retain", "Delete", True, ["pod"]),
        ("Delete", "Delete", False, ["set"]),
        ("Delete", "Delete", True, ["pod"]),
    ],
)
def test_the_retention_policy_determines_the_owners_of_a_claim(
    deleted: str, scaled: str, beyond: bool, expected: list[str]
) -> None:
    web = stateful_set(deleted, scaled)
    for before in ([], [OF_SET], [OF_POD], [OF_SET, OF_POD]):
        found = claim(*before)
        right = sorted(owners(found)) == sorted(expected)
        assert owners_up_to_date(found, web, POD, beyond=beyond) is right
        after: Any = with_owners(found, web, POD, beyond=beyond)
        assert owners(after) == expected
        assert owners_up_to_date(after, web, POD, beyond=beyond)


def test_claims_with_another_controller_are_ignored() -> None:
    web, other = stateful_set("Delete", "Delete"), reference("Operator", "o", "other")
    assert has_conflicting_controller(claim(other), web, POD)
    assert owners_up_to_date(claim(other), web, POD, beyond=False)
    assert not owners_up_to_date(claim(other, OF_SET), web, POD, beyond=False)
    assert owners(with_owners(claim(other, OF_SET), web, POD, beyond=False)) == ["other"]
    assert not has_conflicting_controller(claim(other), stateful_set(), POD)
    mere_owner = reference("Operator", "o", "other", controller=False)
    assert owners(with_owners(claim(mere_owner), web, POD, beyond=False)) == ["other", "set"]
    weak = reference("StatefulSet", "web", "set", controller=False)
    assert not owners_up_to_date(claim(weak), web, POD, beyond=False)


def test_the_claims_of_an_earlier_pod_are_stale() -> None:
    earlier = claim(reference("Pod", "web-0", "earlier"))
    assert belongs_to_predecessor(earlier, POD)
    assert belongs_to_predecessor(claim(OF_POD), {**POD, "metadata": {"name": "web-0"}})
    assert not belongs_to_predecessor(claim(OF_POD), POD)
    assert owners_up_to_date(earlier, stateful_set("Delete", "Delete"), POD, beyond=False)


def test_a_claim_has_the_labels_of_template_and_selector() -> None:
    (made,) = claims_for(stateful_set(), 4)
    assert made["metadata"] == {"name": "data-web-4", "namespace": "default", "labels": {"a": "b", "app": "web"}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-0", ("web", 0)),
        ("a-b-12", ("a-b", 12)),
        ("web", ("", -1)),
        ("web-x", ("", -1)),
        ("web-99999999999", ("web", -1)),
    ],
)
def test_ordinals_are_parsed_from_names(name: str, expected: tuple[str, int]) -> None:
    assert parent_and_ordinal({"metadata": {"name": name}}) == expected


def pod(ordinal: int, revision: str, *, ready: bool = True, leaving: bool = False) -> Any:
    meta: Obj = {"name": f"web-{ordinal}", "labels": {"controller-revision-hash": revision}}
    if leaving:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": meta, "spec": {}, "status": {"phase": "Running", "conditions": conditions}}


def updating(count: int, policy: str = "OrderedReady", unavailable: int | str | None = None, partition: int = 0) -> Obj:
    rolling: Obj = {"partition": partition}
    if unavailable is not None:
        rolling["maxUnavailable"] = unavailable
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return stateful_set(replicas=count, podManagementPolicy=policy, updateStrategy=strategy)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(None, 1), (3, 3), ("50%", 2), ("10%", 1), ("100%", 5)],
)
def test_at_least_one_may_be_unavailable(asked: int | str | None, expected: int) -> None:
    assert max_unavailable(updating(5, unavailable=asked)) == expected


def replaced(web: Obj, *pods: Any) -> list[str]:
    return [found["metadata"]["name"] for found in to_replace(web, pods, "new", NOW)]


def test_ordered_updates_replace_one_pod_at_a_time_from_the_highest_ordinal() -> None:
    web = updating(3)
    assert replaced(web, pod(0, "old"), pod(1, "old"), pod(2, "old")) == ["web-2"]
    assert replaced(web, pod(0, "old"), pod(1, "old"), pod(2, "old", leaving=True)) == []
    assert replaced(web, pod(0, "old"), pod(1, "old"), pod(2, "new", ready=False)) == []
    assert replaced(web, pod(0, "old"), pod(1, "old"), pod(2, "new")) == ["web-1"]
    assert replaced(updating(3, partition=2), pod(0, "old"), pod(1, "old"), pod(2, "new")) == []
    assert replaced(updating(3, unavailable=2), pod(0, "old"), pod(1, "old"), pod(2, "old")) == ["web-2", "web-1"]


def test_parallel_updates_replace_unavailable_pods_first() -> None:
    web = updating(4, "Parallel", 2)
    broken = [pod(0, "old", ready=False), pod(1, "old", ready=False), pod(2, "old"), pod(3, "old")]
    assert replaced(web, *broken) == ["web-1", "web-0"]
    half = [pod(0, "old", ready=False), pod(1, "old"), pod(2, "old"), pod(3, "old")]
    assert replaced(web, *half) == ["web-0", "web-3"]
