"""The identity of an object, as it is or as references describe it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

Obj = dict[str, Any]


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
        said = (reference["kind"], reference["apiVersion"], reference["name"], reference["uid"])
        return said == (self.kind, self.api_version, self.name, self.uid)


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
