"""The steps of a namespace deletion, without a server."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from setpoint.client import Resource
from setpoint.client.resources import builtin
from setpoint.controllers.namespace.conditions import conditions_of
from setpoint.controllers.namespace.content import Remainder, deletable, gap, grace

Obj = dict[str, Any]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def by_type(conditions: list[Obj]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["message"]) for one in conditions}


def test_the_conditions_are_there_even_when_all_is_well_and_in_order() -> None:
    made = conditions_of([], Remainder(), NOW)
    assert [one["type"] for one in made] == [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ]
    assert {one["status"] for one in made} == {"False"}
    assert conditions_of(made, Remainder(), NOW + timedelta(hours=1)) == made, "no news, no change"


def test_a_condition_keeps_its_time_until_its_status_turns() -> None:
    two = Remainder(counts={builtin("configmaps"): 2})
    one = Remainder(counts={builtin("configmaps"): 1, builtin("deployments", "apps"): 1})
    first = conditions_of([], two, NOW)
    second = conditions_of(first, one, NOW + timedelta(minutes=1))
    third = conditions_of(second, Remainder(), NOW + timedelta(minutes=2))
    assert by_type(second)["NamespaceContentRemaining"][1] == (
        "Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 1 resource instances"
    )
    times = [made[3]["lastTransitionTime"] for made in (first, second, third)]
    assert times == ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2030-01-01T00:02:00Z"]


def test_conditions_of_others_stay() -> None:
    theirs = {"type": "example.com/Mine", "status": "True", "reason": "R", "message": ""}
    assert conditions_of([theirs], Remainder(), NOW)[0] == theirs


def test_failures_are_counted_and_sorted() -> None:
    found = Remainder(failures=["b failed", "a failed"], finalizers=Counter({"z/f": 1, "a/f": 2}))
    seen = by_type(conditions_of([], found, NOW))
    assert seen["NamespaceDeletionContentFailure"] == (
        "True", "Failed to delete all resource types, 2 remaining: a failed, b failed",
    )  # fmt: skip
    assert seen["NamespaceFinalizersRemaining"][1].endswith(
        "remaining: a/f in 2 resource instances, z/f in 1 resource instances"
    )


def test_while_pods_end_nothing_is_said_about_the_rest() -> None:
    found = Remainder(estimate=30, counts={builtin("pods"): 1}, only_pods=True)
    assert by_type(conditions_of([], found, NOW))["NamespaceContentRemaining"][0] == "False"
    assert not found.done


def test_a_group_that_does_not_answer_is_named() -> None:
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


def test_pods_are_given_the_longest_grace_among_them_once() -> None:
    def pod(seconds: int, phase: str = "Running") -> Obj:
        return {"spec": {"terminationGracePeriodSeconds": seconds}, "status": {"phase": phase}}

    pods = [pod(30), pod(5), pod(600, "Succeeded")]
    assert [grace(pods, elapsed) for elapsed in (0, 29, 30, 31)] == [30, 30, 0, 0]
    assert grace([], 0) == 0
