"""The pure steps of the DaemonSet controller: placement, upkeep and rollout."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.controllers.daemonset.placement import Placement, Verdict, on_node, target_node, tolerations_of
from setpoint.controllers.daemonset.rollout import needs_of, next_step
from setpoint.meta.objects import Obj, ObjView

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUN, STAY, GO = Verdict(True, True), Verdict(False, True), Verdict(False, False)


def daemon_set(surge: int | str = 0, unavailable: int | str = 1, **template: Any) -> Any:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {
        "metadata": {"name": "agent", "uid": "u"},
        "spec": {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {"spec": template},
        },
    }


def pod(name: str, revision: str = "new", *, ready: bool = True, phase: str = "Running", leaving: bool = False) -> Any:
    meta: Obj = {"name": name, "labels": {"controller-revision-hash": revision}}
    if leaving:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": meta, "spec": {"nodeName": "n"}, "status": status}


def names(pods: Iterable[ObjView]) -> list[str]:
    return [found["metadata"]["name"] for found in pods]


@pytest.mark.parametrize(
    ("taints", "labels", "expected"),
    [
        ([], {"disk": "ssd"}, RUN),
        ([], {}, GO),
        ([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], {"disk": "ssd"}, RUN),
        ([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}], {"disk": "ssd"}, RUN),
        ([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}], {"disk": "ssd"}, STAY),
        ([{"key": "mine", "effect": "NoSchedule"}], {"disk": "ssd"}, STAY),
        ([{"key": "mine", "effect": "NoExecute"}], {"disk": "ssd"}, GO),
        ([{"key": "mine", "effect": "PreferNoSchedule"}], {"disk": "ssd"}, RUN),
    ],
)
def test_which_nodes_are_eligible(taints: list[Obj], labels: dict[str, str], expected: Verdict) -> None:
    node: Any = {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}}
    assert Placement(daemon_set(nodeSelector={"disk": "ssd"})).on(node) == expected


def test_tolerations_are_added_once_without_a_limit() -> None:
    short = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    found = tolerations_of({"tolerations": [{"operator": "Exists"}, short]})
    assert found[0] == {"operator": "Exists"}
    assert "tolerationSeconds" not in found[1]
    assert len(found) == 7
    assert len(tolerations_of({"hostNetwork": True})) == 7


def test_a_pod_targets_one_node_despite_affinity_in_the_template() -> None:
    old = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    preferred = [{"weight": 1, "preference": {}}]
    nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": old,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    made: Any = on_node({"spec": {"affinity": {"nodeAffinity": nodes, "podAffinity": {}}}}, "n7")
    assert target_node(made) == "n7"
    assert made["spec"]["affinity"]["podAffinity"] == {}
    kept = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert kept == preferred
    assert nodes["requiredDuringSchedulingIgnoredDuringExecution"] is old
    assert target_node({"spec": {"nodeName": "here"}}) == "here"
    assert target_node({"spec": {}}) is None


def test_needs_of_a_node() -> None:
    web = daemon_set()
    assert needs_of(web, RUN, [], "new", NOW).is_empty
    assert not needs_of(web, RUN, [pod("a", leaving=True)], "new", NOW).is_empty, "the old one is not gone yet"
    assert names(needs_of(web, RUN, [pod("b"), pod("a")], "new", NOW).surplus) == ["b"]
    assert names(needs_of(web, GO, [pod("a")], "new", NOW).surplus) == ["a"]
    assert needs_of(web, STAY, [pod("a")], "new", NOW).surplus == []
    assert names(needs_of(web, RUN, [pod("a", phase="Failed")], "new", NOW).failed) == ["a"]
    assert names(needs_of(web, RUN, [pod("a", phase="Succeeded")], "new", NOW).succeeded) == ["a"]


def test_needs_of_a_node_with_surge() -> None:
    web = daemon_set(surge=1, unavailable=0)
    assert needs_of(web, RUN, [pod("a", leaving=True)], "new", NOW).is_empty, "two may be there"
    old, new = pod("old", "old"), pod("new")
    unready = pod("new", ready=False)
    assert needs_of(web, RUN, [old, unready], "new", NOW).surplus == []
    assert names(needs_of(web, RUN, [old, new], "new", NOW).surplus) == ["old"]
    broken = pod("old", "old", ready=False)
    assert names(needs_of(web, RUN, [broken, unready], "new", NOW).surplus) == ["old"]


States = st.sampled_from(["new", "new unready", "old", "old unready", "leaving", "none"])


def on(state: str, number: int) -> list[Any]:
    if state == "none":
        return []
    if state == "leaving":
        return [pod(f"p{number}", "old", leaving=True)]
    return [pod(f"p{number}", state.split()[0], ready="unready" not in state)]


@given(states=st.lists(States, max_size=12), unavailable=st.integers(1, 5))
def test_a_rollout_respects_max_unavailable(states: list[str], unavailable: int) -> None:
    web = daemon_set(unavailable=unavailable)
    by_node = {f"n{number}": on(state, number) for number, state in enumerate(states)}
    delete, create = next_step(web, by_node, list(by_node), "new", NOW)
    assert create == []
    working = [found for found in delete if found["status"]["conditions"][0]["status"] == "True"]
    broken = sum(state not in ("new", "old") for state in states)
    assert len(working) <= max(0, unavailable - broken)
    assert all(found["metadata"]["labels"]["controller-revision-hash"] == "old" for found in delete)
    if "old" in states and broken < unavailable:
        assert working
    assert sum(state == "old unready" for state in states) == len(delete) - len(working), "what is broken goes anyhow"


@given(states=st.lists(States, max_size=12), surge=st.integers(1, 5))
def test_with_surge_an_available_pod_stays_until_its_successor_is_available(states: list[str], surge: int) -> None:
    web = daemon_set(surge=surge, unavailable=0)
    by_node = {f"n{number}": on(state, number) for number, state in enumerate(states)}
    delete, create = next_step(web, by_node, list(by_node), "new", NOW)
    assert delete == []
    for_working = [name for name in create if states[int(name[1:])] == "old"]
    assert len(for_working) == min(surge, states.count("old"))
    assert len(create) - len(for_working) == states.count("old unready")


def test_with_surge_old_and_misplaced_pods_are_deleted_once_replacements_are_available() -> None:
    web = daemon_set(surge=1, unavailable=0)
    by_node = {"a": [pod("a-old", "old"), pod("a-new")], "b": [pod("b-old", "old")], "gone": [pod("c-old", "old")]}
    delete, create = next_step(web, by_node, ["a", "b"], "new", NOW)
    assert names(delete) == ["a-old", "c-old"]
    assert create == ["b"]
