"""The steps of a namespace deletion, without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from setpoint.client import Resource
from setpoint.client.resources import builtin
from setpoint.controllers.namespace import Remainder, deletable, deletion_conditions, gap, grace
from setpoint.meta.objects import ObjView

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def by_type(conditions: Sequence[ObjView]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["message"]) for one in conditions}


def test_all_conditions_are_present_in_order_without_failures() -> None:
    made = deletion_conditions([], Remainder(), NOW)
    assert [one["type"] for one in made] == [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ]
    assert {one["status"] for one in made} == {"False"}
    assert deletion_conditions(made, Remainder(), NOW + timedelta(hours=1)) == made, "no news, no change"


def test_the_transition_time_changes_with_the_status() -> None:
    two = Remainder(counts={builtin("configmaps"): 2})
    one = Remainder(counts={builtin("configmaps"): 1, builtin("deployments", "apps"): 1})
    first = deletion_conditions([], two, NOW)
    second = deletion_conditions(first, one, NOW + timedelta(minutes=1))
    third = deletion_conditions(second, Remainder(), NOW + timedelta(minutes=2))
    assert by_type(second)["NamespaceContentRemaining"][1] == (
        "Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 1 resource instances"
    )
    times = [made[3]["lastTransitionTime"] for made in (first, second, third)]
    assert times == ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2030-01-01T00:02:00Z"]


def test_foreign_conditions_stay() -> None:
    theirs = {"type": "example.com/Mine", "status": "True", "reason": "R", "message": ""}
    assert deletion_conditions([theirs], Remainder(), NOW)[0] == theirs


def test_failures_are_counted_and_sorted() -> None:
    found = Remainder(failures=["b failed", "a failed"], finalizers=Counter({"z/f": 1, "a/f": 2}))
    seen = by_type(deletion_conditions([], found, NOW))
    assert seen["NamespaceDeletionContentFailure"] == (
        "True",
        "Failed to delete all resource types, 2 remaining: a failed, b failed",
    )
    assert seen["NamespaceFinalizersRemaining"][1].endswith(
        "remaining: a/f in 2 resource instances, z/f in 1 resource instances"
    )


def test_remaining_content_is_not_reported_while_pods_terminate() -> None:
    found = Remainder(estimate=30, counts={builtin("pods"): 1}, only_pods=True)
    assert by_type(deletion_conditions([], found, NOW))["NamespaceContentRemaining"][0] == "False"
    assert not found.done


def test_an_unavailable_group_is_reported() -> None:
    missing = {"metrics.k8s.io/v1": "stale GroupVersion discovery: metrics.k8s.io/v1"}
    assert gap(missing) == (
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
        "metrics.k8s.io/v1: stale GroupVersion discovery: metrics.k8s.io/v1"
    )
    assert not Remainder(undiscovered=gap(missing)).done


def test_each_resource_is_deleted_once_in_the_preferred_version() -> None:
    known = [
        Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        Resource("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        Resource("", "v1", "Node", "nodes", namespaced=False),
        Resource("", "v1", "Binding", "bindings", verbs=("create",)),
    ]
    assert deletable(known) == known[:1]


def test_the_longest_grace_period_of_pods_applies_once() -> None:
    def pod(seconds: int, phase: str = "Running") -> Any:
        return {"spec": {"terminationGracePeriodSeconds": seconds}, "status": {"phase": phase}}

    pods = [pod(30), pod(5), pod(600, "Succeeded")]
    assert [grace(pods, elapsed) for elapsed in (0, 29, 30, 31)] == [30, 30, 0, 0]
    assert grace([], 0) == 0
