"""The ownership graph: identities of objects, missing owners, and which objects to reconcile when it changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import NamedTuple, Protocol

from setpoint.meta.objects import Obj

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Identity(NamedTuple):
    """The fields are in the order in which identities are compared."""

    kind: str
    api_version: str
    namespace: str
    """Empty for cluster-scoped objects."""
    name: str
    uid: str

    def __str__(self) -> str:
        return f"[{self.api_version}/{self.kind}, namespace: {self.namespace}, name: {self.name}, uid: {self.uid}]"

    def is_meant_by(self, reference: Obj) -> bool:
        """Return whether the reference matches, regardless of the namespace."""
        referenced = (reference["kind"], reference["apiVersion"], reference["name"], reference["uid"])
        return referenced == (self.kind, self.api_version, self.name, self.uid)


def owner_in(namespace: str, reference: Obj) -> Identity:
    """Return the identity that a reference describes if the owner is in this namespace."""
    return Identity(
        intern(reference["kind"]), intern(reference["apiVersion"]), namespace, reference["name"], reference["uid"]
    )


@dataclass(slots=True, eq=False)
class Node:
    """An object in the graph. Its dependents are stored in the graph."""

    identity: Identity
    owners: tuple[Obj, ...] = ()
    """Owner references as they are in the object."""
    virtual: bool = False
    """Known from references only: the object itself was never observed, and the references may be wrong."""
    being_deleted: bool = False
    deleting_dependents: bool = False
    """It is being deleted in the foreground and waits for its dependents."""

    def blocks(self, owner_uid: str) -> bool:
        return any(owner["uid"] == owner_uid and owner.get("blockOwnerDeletion") for owner in self.owners)


def partition(dependents: Iterable[Node], owner: Identity) -> tuple[list[Node], list[Node]]:
    """Return the dependents that refer to exactly this owner, and those that have its uid but differ in another field.
    One that refers to it twice can be in both."""
    matching, other = [], []
    for dependent in dependents:
        if owner.namespace and owner.namespace != dependent.identity.namespace:
            other.append(dependent)
            continue
        meant = {owner.is_meant_by(reference) for reference in dependent.owners if reference["uid"] == owner.uid}
        if True in meant:
            matching.append(dependent)
        if False in meant:
            other.append(dependent)
    return matching, other


def alternative(dependents: Iterable[Node], absent: Identity) -> Identity | None:
    """Return the next identity by which dependents refer to the uid of an absent owner, in order, so that each is
    tried."""
    others = set()
    for dependent in dependents:
        for reference in dependent.owners:
            if reference["uid"] != absent.uid:
                continue
            found = owner_in(dependent.identity.namespace, reference)
            if not absent.namespace and found[:2] == absent[:2]:
                # This kind is known to be cluster-scoped.
                found = found._replace(namespace="")
            others.add(found)
    others.discard(absent)
    return min((found for found in others if found > absent), default=None) or min(others, default=None)


class AbsentOwners:
    """A bounded LRU set. Uids are never reused, so entries do not become stale."""

    def __init__(self, most: int = 500) -> None:
        self._most = most
        self._found: OrderedDict[Identity, None] = OrderedDict()

    def add(self, owner: Identity) -> None:
        self._found[owner] = None
        self._found.move_to_end(owner)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def __contains__(self, owner: Identity) -> bool:
        if owner not in self._found:
            return False
        self._found.move_to_end(owner)
        return True


# -- graph ------------------------------------------------------------------------------------------------------------


class GraphActions(Protocol):
    """Actions that the graph requests; objects are identified by uid."""

    def enqueue(self, uid: str) -> None:
        """Reconcile the object: it may have to be deleted, or its finalizer removed."""
        ...

    def enqueue_with_backoff(self, uid: str) -> None: ...

    def orphan(self, uid: str) -> None:
        """Orphan the dependents of an object that is being deleted."""
        ...

    def wrong_namespace(self, dependent: Identity, owner: Identity) -> None:
        """Report a reference to an owner in another namespace; `owner` is what the reference says."""
        ...


class Graph:
    def __init__(self, actions: GraphActions, absent_owners: AbsentOwners) -> None:
        self._actions = actions
        self._absent_owners = absent_owners
        self._nodes: dict[str, Node] = {}
        """Nodes by uid. Every owner that a node refers to has a node, if need be a virtual one, unless it is known to
        be absent."""
        self._dependents: dict[str, dict[str, Node]] = {}
        """Dependents by the owner's uid, then by their own uid; owners without dependents have no entry."""

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def dependents(self, uid: str) -> list[Node]:
        return list(self._dependents.get(uid, {}).values())

    def blocking(self, uid: str) -> list[Node]:
        """Return the dependents that block the deletion of the owner."""
        return [node for node in self.dependents(uid) if node.blocks(uid)]

    # -- changes of objects
    # ----------------------------------------------------------------------------------------------

    def observe(self, identity: Identity, old: Obj | None, meta: Obj) -> None:
        """Record that the object exists or has changed; `old` and `meta` are its former and current metadata."""
        node = self._nodes.get(identity.uid)
        owners = tuple(meta.get("ownerReferences") or ())
        if node is None:
            node = self._nodes[identity.uid] = Node(identity, owners)
            node.deleting_dependents = _waits(meta, FOREGROUND)
            self._refer(node, owners)
        else:
            if node.virtual:
                self._seen(node, identity)
            if owners != node.owners:
                self._change_owners(node, owners)
        node.being_deleted = node.being_deleted or "deletionTimestamp" in meta
        self._follow_deletion(node, old, meta)

    def forget(self, identity: Identity) -> None:
        """Record an observed deletion."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if node.virtual:
            self._seen(node, identity)
        self._remove(node, identity)

    def unwatch(self, identity: Identity) -> None:
        """Record that the resource is no longer watched: whether the object exists must be read from the server."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if self._dependents.get(identity.uid):
            node.virtual = True
            self._actions.enqueue_with_backoff(identity.uid)
        else:
            self._remove(node, identity)

    def absent(self, identity: Identity) -> None:
        """Record that the server does not have exactly this object. If dependents refer to the uid with another name,
        namespace or kind, that one may still exist."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if not node.virtual and node.identity == identity:
            self._remove(node, identity)
            return
        matching, other = partition(self.dependents(identity.uid), identity)
        if node.virtual and not other:
            self._remove(node, identity)
            return
        if matching:
            self._absent_owners.add(identity)
            for dependent in matching:
                self._actions.enqueue(dependent.identity.uid)
        if node.virtual and node.identity == identity:
            called = alternative(other, identity)
            if called is not None:
                node.identity = called
                self._actions.enqueue_with_backoff(called.uid)

    # -- references ----------------------------------------------------------------------------------------------------

    def _refer(self, node: Node, references: Iterable[Obj]) -> None:
        doubtful = False
        own = node.identity
        for reference in references:
            uid = reference["uid"]
            owner = self._nodes.get(uid)
            self._dependents.setdefault(uid, {})[own.uid] = node
            if owner is None:
                self._nodes[uid] = Node(owner_in(own.namespace, reference), virtual=True)
                self._actions.enqueue(uid)
            elif not doubtful:
                doubtful = self._is_doubtful(node, owner, reference)
        if doubtful:
            self._actions.enqueue(own.uid)

    def _is_doubtful(self, node: Node, owner: Node, reference: Obj) -> bool:
        namespace = node.identity.namespace
        if owner.identity.namespace and owner.identity.namespace != namespace:
            if not owner.virtual:
                self._actions.wrong_namespace(node.identity, owner_in(namespace, reference))
            return True
        if not owner.identity.is_meant_by(reference):
            return True
        # The owner seems to be cluster-scoped, but only because a cluster-scoped dependent refers to it.
        return owner.virtual and owner.identity.namespace != namespace

    def _forget_owners(self, node: Node, references: Iterable[Obj]) -> None:
        for reference in references:
            uid = reference["uid"]
            held = self._dependents.get(uid)
            if held is None:
                continue
            held.pop(node.identity.uid, None)
            if not held:
                del self._dependents[uid]
                owner = self._nodes.get(uid)
                if owner is not None and owner.virtual:
                    # No reference is left, and the object was never observed.
                    del self._nodes[uid]

    def _change_owners(self, node: Node, owners: tuple[Obj, ...]) -> None:
        before = {reference["uid"]: reference for reference in node.owners}
        after = {reference["uid"]: reference for reference in owners}
        for uid, reference in before.items():
            blocked = reference.get("blockOwnerDeletion")
            if blocked and not after.get(uid, {}).get("blockOwnerDeletion") and uid in self._nodes:
                # It may have been the last dependent that blocked this owner.
                self._actions.enqueue(uid)
        node.owners = owners
        self._refer(node, [reference for reference in owners if reference["uid"] not in before])
        self._forget_owners(node, [reference for uid, reference in before.items() if uid not in after])

    # -- nodes
    # ----------------------------------------------------------------------------------------------------------

    def _seen(self, node: Node, identity: Identity) -> None:
        """Replace a virtual node by the observed object; its dependents' references may differ from it."""
        node.virtual = False
        if node.identity == identity:
            return
        _, wrong = partition(self.dependents(identity.uid), identity)
        for dependent in wrong:
            namespace = dependent.identity.namespace
            if identity.namespace and namespace != identity.namespace:
                for reference in dependent.owners:
                    if reference["uid"] == identity.uid:
                        self._actions.wrong_namespace(dependent.identity, owner_in(namespace, reference))
                        break
            self._actions.enqueue(dependent.identity.uid)
        node.identity = identity

    def _remove(self, node: Node, identity: Identity) -> None:
        uid = identity.uid
        del self._nodes[uid]
        self._forget_owners(node, node.owners)
        dependents = self._dependents.pop(uid, None)
        if dependents:
            self._absent_owners.add(identity)
            for dependent in dependents:
                self._actions.enqueue(dependent)
        for reference in node.owners:
            owner = self._nodes.get(reference["uid"])
            if owner is not None and owner.deleting_dependents:
                self._actions.enqueue(reference["uid"])

    def _follow_deletion(self, node: Node, old: Obj | None, meta: Obj) -> None:
        uid = node.identity.uid
        if _waits(meta, ORPHAN) and not (old is not None and _waits(old, ORPHAN)):
            self._actions.orphan(uid)
        elif _waits(meta, FOREGROUND) and not (old is not None and _waits(old, FOREGROUND)):
            node.deleting_dependents = True
            for dependent in self._dependents.get(uid, ()):
                self._actions.enqueue(dependent)
            self._actions.enqueue(uid)


def _waits(meta: Obj, finalizer: str) -> bool:
    return "deletionTimestamp" in meta and finalizer in (meta.get("finalizers") or ())
