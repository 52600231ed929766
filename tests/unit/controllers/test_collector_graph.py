"""The ownership graph, and the actions it requests when objects change."""

from __future__ import annotations

from typing import Any

from setpoint.client import Resource
from setpoint.controllers.garbagecollector.collector import collectable, essentials, is_relevant
from setpoint.controllers.garbagecollector.graph import (
    AbsentOwners,
    Graph,
    Identity,
    Node,
    alternative,
    owner_in,
    partition,
)
from setpoint.meta.objects import Obj


class RecordingGraph:
    """A graph that records the actions it requests."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, str]] = []
        self.absent = AbsentOwners()
        self.graph = Graph(self, self.absent)

    def enqueue(self, uid: str) -> None:
        self._requests.append(("enqueue", uid))

    def enqueue_with_backoff(self, uid: str) -> None:
        self._requests.append(("backoff", uid))

    def orphan(self, uid: str) -> None:
        self._requests.append(("orphan", uid))

    def wrong_namespace(self, dependent: Identity, owner: Identity) -> None:
        self._requests.append(("wrong namespace", dependent.uid))

    def requests(self) -> list[tuple[str, str]]:
        requests, self._requests = self._requests, []
        return requests

    def observe(self, identity: Identity, *owners: Obj, old: Obj | None = None, **meta: Any) -> Obj:
        now = {"ownerReferences": list(owners), **meta}
        self.graph.observe(identity, old, now)
        return now


def thing(uid: str, namespace: str = "here", kind: str = "ConfigMap") -> Identity:
    return Identity(kind, "v1", namespace, f"name-{uid}", uid)


def to(owner: Identity, **more: Any) -> Obj:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, **more}


OWNER, CHILD = thing("owner"), thing("child")
DELETED: dict[str, Any] = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


def test_deleting_an_owner_enqueues_its_dependents() -> None:
    recording = RecordingGraph()
    recording.observe(OWNER)
    recording.observe(CHILD, to(OWNER))
    assert recording.requests() == []
    recording.graph.forget(OWNER)
    assert recording.requests() == [("enqueue", "child")]
    assert OWNER in recording.absent
    assert len(recording.graph) == 1


def test_an_unseen_owner_is_looked_up_until_it_is_observed() -> None:
    recording = RecordingGraph()
    recording.observe(CHILD, to(OWNER))
    assert recording.requests() == [("enqueue", "owner")]
    node = recording.graph.get("owner")
    assert node is not None and node.virtual
    recording.observe(OWNER)
    assert not node.virtual
    assert recording.requests() == []
    assert [found.identity for found in recording.graph.dependents("owner")] == [CHILD]


def test_dependents_of_an_absent_owner_are_enqueued() -> None:
    recording = RecordingGraph()
    recording.observe(CHILD, to(OWNER))
    recording.requests()
    recording.graph.absent(OWNER)
    assert recording.requests() == [("enqueue", "child")]
    assert recording.graph.get("owner") is None


def test_an_owner_without_dependents_is_not_looked_up() -> None:
    recording = RecordingGraph()
    recording.observe(CHILD, to(OWNER))
    recording.observe(CHILD)
    assert recording.graph.get("owner") is None
    assert recording.graph.dependents("owner") == []


def test_an_owner_in_another_namespace_is_invalid_in_any_order_of_events() -> None:
    unrelated = thing("child", "there")
    for first_owner in (True, False):
        recording = RecordingGraph()
        if first_owner:
            recording.observe(OWNER)
            recording.observe(unrelated, to(OWNER))
            assert recording.requests() == [("wrong namespace", "child"), ("enqueue", "child")]
        else:
            recording.observe(unrelated, to(OWNER))
            recording.observe(OWNER)
            assert recording.requests() == [("enqueue", "owner"), ("wrong namespace", "child"), ("enqueue", "child")]


def test_an_owner_absent_under_one_identity_is_looked_up_under_another() -> None:
    recording = RecordingGraph()
    wrong, right = owner_in("there", to(OWNER)), OWNER
    recording.observe(thing("unrelated", "there"), to(OWNER))
    recording.observe(CHILD, to(OWNER))
    recording.requests()
    recording.graph.absent(wrong)
    assert recording.requests() == [("enqueue", "unrelated"), ("backoff", "owner")]
    node = recording.graph.get("owner")
    assert node is not None and node.identity == right
    assert wrong in recording.absent and right not in recording.absent


def test_an_observed_owner_stays_when_another_identity_is_absent() -> None:
    recording = RecordingGraph()
    recording.observe(OWNER)
    recording.graph.absent(owner_in("there", to(OWNER)))
    assert recording.graph.get("owner") is not None


def test_an_observed_owner_that_is_absent_now_is_removed() -> None:
    recording = RecordingGraph()
    recording.observe(OWNER)
    recording.observe(CHILD, to(OWNER))
    recording.graph.absent(OWNER)
    assert recording.requests() == [("enqueue", "child")]


def test_foreground_deletion_enqueues_dependents_then_the_owner() -> None:
    recording = RecordingGraph()
    before = recording.observe(OWNER)
    recording.observe(CHILD, to(OWNER, blockOwnerDeletion=True))
    recording.observe(thing("free"), to(OWNER))
    now = recording.observe(OWNER, old=before, finalizers=["foregroundDeletion"], **DELETED)
    assert recording.requests() == [("enqueue", "child"), ("enqueue", "free"), ("enqueue", "owner")]
    assert [node.identity for node in recording.graph.blocking("owner")] == [CHILD]
    recording.observe(OWNER, old=now, finalizers=["foregroundDeletion"], **DELETED)
    assert recording.requests() == [], "only the beginning is news"
    recording.graph.forget(CHILD)
    assert recording.requests() == [("enqueue", "owner")]
    assert recording.graph.blocking("owner") == []


def test_an_owner_is_enqueued_when_a_dependent_stops_blocking_it() -> None:
    recording = RecordingGraph()
    recording.observe(OWNER)
    recording.observe(CHILD, to(OWNER, blockOwnerDeletion=True))
    recording.observe(CHILD, to(OWNER, blockOwnerDeletion=False))
    assert recording.requests() == [("enqueue", "owner")]
    recording.observe(CHILD, to(OWNER, blockOwnerDeletion=True))
    recording.observe(CHILD)
    assert recording.requests() == [("enqueue", "owner")]
    assert recording.graph.dependents("owner") == []


def test_orphaning_starts_once_even_if_the_owner_was_deleted_before_the_start() -> None:
    recording = RecordingGraph()
    seen = recording.observe(OWNER, finalizers=["orphan"], **DELETED)
    recording.observe(OWNER, old=seen, finalizers=["orphan"], **DELETED)
    assert recording.requests() == [("orphan", "owner")]


def test_objects_of_an_unwatched_kind_become_unobserved() -> None:
    recording = RecordingGraph()
    recording.observe(OWNER)
    recording.observe(CHILD, to(OWNER))
    recording.graph.unwatch(CHILD)
    assert recording.graph.get("child") is None
    recording.observe(CHILD, to(OWNER))
    recording.graph.unwatch(OWNER)
    node = recording.graph.get("owner")
    assert node is not None and node.virtual
    assert recording.requests() == [("backoff", "owner")]


def test_a_dependent_may_have_a_valid_and_an_invalid_reference() -> None:
    both = Node(CHILD, (to(OWNER), {**to(OWNER), "name": "other"}))
    assert partition([both], OWNER) == ([both], [both])


def test_alternative_identities_are_tried_in_turn() -> None:
    names = ("a", "b", "c")
    nodes = [Node(thing(name), ({**to(OWNER), "name": name},)) for name in names]
    called, order = owner_in("here", {**to(OWNER), "name": "b"}), []
    for _ in range(3):
        found = alternative(nodes, called)
        assert found is not None
        order.append(found.name)
        called = found
    assert order == ["c", "a", "b"]
    assert alternative(nodes[:1], owner_in("here", {**to(OWNER), "name": "a"})) is None


def test_the_cache_of_absent_owners_evicts_the_least_recently_used() -> None:
    owners = AbsentOwners(most=2)
    first, second, third = thing("1"), thing("2"), thing("3")
    owners.add(first)
    owners.add(second)
    assert first in owners
    owners.add(third)
    assert second not in owners and first in owners and third in owners


def test_which_resources_are_collectable() -> None:
    known = [
        Resource("", "v1", "Event", "events"),
        Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        Resource("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        Resource("", "v1", "Node", "nodes", namespaced=False),
        Resource("", "v1", "Binding", "bindings", verbs=("create",)),
    ]
    assert list(collectable(known).values()) == [known[1], known[3]]


def test_only_essential_metadata_is_cached_and_compared() -> None:
    meta = {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}, "managedFields": [{}]}
    assert essentials({"kind": "X", "metadata": meta}) == {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}
    }
    assert not is_relevant(meta, {**meta, "resourceVersion": "2", "labels": {}})
    assert is_relevant(meta, {**meta, **DELETED})
    assert is_relevant(meta, {**meta, "finalizers": ["a/b"]})
    assert is_relevant(meta, {**meta, "ownerReferences": [to(OWNER)]})
