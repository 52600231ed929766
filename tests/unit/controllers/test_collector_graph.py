"""The ownership graph, and the actions it requests when objects change."""

from __future__ import annotations

from typing import Any

from setpoint.client import Resource
from setpoint.controllers.garbagecollector.absent_owners import AbsentOwners
from setpoint.controllers.garbagecollector.graph import Graph
from setpoint.controllers.garbagecollector.identity import Identity, Node, alternative, owner_in, partition
from setpoint.controllers.garbagecollector.monitors import collectable, essentials, is_relevant

Obj = dict[str, Any]


class World:
    """A graph, and a list of what it wished."""

    def __init__(self) -> None:
        self.wishes: list[tuple[str, str]] = []
        self.absent = AbsentOwners()
        self.graph = Graph(self, self.absent)

    def enqueue(self, uid: str) -> None:
        self.wishes.append(("look", uid))

    def enqueue_with_backoff(self, uid: str) -> None:
        self.wishes.append(("later", uid))

    def orphan(self, uid: str) -> None:
        self.wishes.append(("orphan", uid))

    def wrong_namespace(self, dependent: Identity, owner: Identity) -> None:
        self.wishes.append(("wrong namespace", dependent.uid))

    def wished(self) -> list[tuple[str, str]]:
        wishes, self.wishes = self.wishes, []
        return wishes

    def observe(self, identity: Identity, *owners: Obj, old: Obj | None = None, **meta: Any) -> Obj:
        now = {"ownerReferences": list(owners), **meta}
        self.graph.observe(identity, old, now)
        return now


def thing(uid: str, namespace: str = "here", kind: str = "ConfigMap") -> Identity:
    return Identity(kind, "v1", namespace, f"name-{uid}", uid)


def to(owner: Identity, **more: Any) -> Obj:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, **more}


OWNER, CHILD = thing("owner"), thing("child")
DELETED = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


def test_an_owner_that_goes_makes_its_dependents_worth_a_look() -> None:
    world = World()
    world.observe(OWNER)
    world.observe(CHILD, to(OWNER))
    assert world.wished() == []
    world.graph.forget(OWNER)
    assert world.wished() == [("look", "child")]
    assert OWNER in world.absent
    assert len(world.graph) == 1


def test_an_owner_that_nobody_has_seen_is_looked_for_until_it_shows_itself() -> None:
    world = World()
    world.observe(CHILD, to(OWNER))
    assert world.wished() == [("look", "owner")]
    node = world.graph.get("owner")
    assert node is not None and node.virtual
    world.observe(OWNER)
    assert not node.virtual
    assert world.wished() == []
    assert [found.identity for found in world.graph.dependents("owner")] == [CHILD]


def test_an_owner_that_is_absent_leaves_its_dependents_to_be_looked_at() -> None:
    world = World()
    world.observe(CHILD, to(OWNER))
    world.wished()
    world.graph.absent(OWNER)
    assert world.wished() == [("look", "child")]
    assert world.graph.get("owner") is None


def test_nobody_is_looked_for_of_whom_nobody_speaks() -> None:
    world = World()
    world.observe(CHILD, to(OWNER))
    world.observe(CHILD)
    assert world.graph.get("owner") is None
    assert world.graph.dependents("owner") == []


def test_an_owner_in_another_namespace_is_wrong_in_whichever_order_they_come() -> None:
    stranger = thing("child", "there")
    for first_owner in (True, False):
        world = World()
        if first_owner:
            world.observe(OWNER)
            world.observe(stranger, to(OWNER))
            assert world.wished() == [("wrong namespace", "child"), ("look", "child")]
        else:
            world.observe(stranger, to(OWNER))
            world.observe(OWNER)
            assert world.wished() == [("look", "owner"), ("wrong namespace", "child"), ("look", "child")]


def test_what_is_absent_under_one_name_may_be_there_under_another() -> None:
    world = World()
    wrong, right = owner_in("there", to(OWNER)), OWNER
    world.observe(thing("stranger", "there"), to(OWNER))
    world.observe(CHILD, to(OWNER))
    world.wished()
    world.graph.absent(wrong)
    assert world.wished() == [("look", "stranger"), ("later", "owner")]
    node = world.graph.get("owner")
    assert node is not None and node.identity == right
    assert wrong in world.absent and right not in world.absent


def test_one_that_was_seen_is_not_removed_because_another_is_absent() -> None:
    world = World()
    world.observe(OWNER)
    world.graph.absent(owner_in("there", to(OWNER)))
    assert world.graph.get("owner") is not None


def test_one_that_was_seen_and_is_absent_now_is_removed_at_once() -> None:
    world = World()
    world.observe(OWNER)
    world.observe(CHILD, to(OWNER))
    world.graph.absent(OWNER)
    assert world.wished() == [("look", "child")]


def test_foreground_looks_at_all_and_then_at_the_owner_whenever_one_is_gone() -> None:
    world = World()
    before = world.observe(OWNER)
    world.observe(CHILD, to(OWNER, blockOwnerDeletion=True))
    world.observe(thing("free"), to(OWNER))
    now = world.observe(OWNER, old=before, finalizers=["foregroundDeletion"], **DELETED)
    assert world.wished() == [("look", "child"), ("look", "free"), ("look", "owner")]
    assert [node.identity for node in world.graph.blocking("owner")] == [CHILD]
    world.observe(OWNER, old=now, finalizers=["foregroundDeletion"], **DELETED)
    assert world.wished() == [], "only the beginning is news"
    world.graph.forget(CHILD)
    assert world.wished() == [("look", "owner")]
    assert world.graph.blocking("owner") == []


def test_an_owner_is_looked_at_when_a_dependent_stops_blocking_it() -> None:
    world = World()
    world.observe(OWNER)
    world.observe(CHILD, to(OWNER, blockOwnerDeletion=True))
    world.observe(CHILD, to(OWNER, blockOwnerDeletion=False))
    assert world.wished() == [("look", "owner")]
    world.observe(CHILD, to(OWNER, blockOwnerDeletion=True))
    world.observe(CHILD)
    assert world.wished() == [("look", "owner")]
    assert world.graph.dependents("owner") == []


def test_orphaning_begins_once_also_for_one_that_was_deleted_before_anybody_looked() -> None:
    world = World()
    seen = world.observe(OWNER, finalizers=["orphan"], **DELETED)
    world.observe(OWNER, old=seen, finalizers=["orphan"], **DELETED)
    assert world.wished() == [("orphan", "owner")]


def test_a_kind_that_is_no_longer_watched_leaves_no_wrong_certainties() -> None:
    world = World()
    world.observe(OWNER)
    world.observe(CHILD, to(OWNER))
    world.graph.unwatch(CHILD)
    assert world.graph.get("child") is None
    world.observe(CHILD, to(OWNER))
    world.graph.unwatch(OWNER)
    node = world.graph.get("owner")
    assert node is not None and node.virtual
    assert world.wished() == [("later", "owner")]


def test_a_dependent_that_refers_twice_can_be_right_and_wrong() -> None:
    both = Node(CHILD, (to(OWNER), {**to(OWNER), "name": "other"}))
    assert partition([both], OWNER) == ([both], [both])


def test_alternatives_come_in_turn() -> None:
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


def test_absent_owners_are_bounded_and_forget_the_useless_first() -> None:
    owners = AbsentOwners(most=2)
    first, second, third = thing("1"), thing("2"), thing("3")
    owners.add(first)
    owners.add(second)
    assert first in owners
    owners.add(third)
    assert second not in owners and first in owners and third in owners


def test_what_is_followed() -> None:
    known = [
        Resource("", "v1", "Event", "events"),
        Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        Resource("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        Resource("", "v1", "Node", "nodes", namespaced=False),
        Resource("", "v1", "Binding", "bindings", verbs=("create",)),
    ]
    assert list(collectable(known).values()) == [known[1], known[3]]


def test_little_is_kept_and_little_is_news() -> None:
    meta = {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}, "managedFields": [{}]}
    assert essentials({"kind": "X", "metadata": meta}) == {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}
    }
    assert not is_relevant(meta, {**meta, "resourceVersion": "2", "labels": {}})
    assert is_relevant(meta, {**meta, **DELETED})
    assert is_relevant(meta, {**meta, "finalizers": ["a/b"]})
    assert is_relevant(meta, {**meta, "ownerReferences": [to(OWNER)]})
