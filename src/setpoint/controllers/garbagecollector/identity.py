"""Which object is meant: by itself, or by those that refer to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

Obj = dict[str, Any]


class Identity(NamedTuple):
    """In the order in which identities are compared: kinds first, whether or not they are in namespaces."""

    kind: str
    api_version: str
    namespace: str
    """Empty: in none."""
    name: str
    uid: str

    def __str__(self) -> str:
        return f"[{self.api_version}/{self.kind}, namespace: {self.namespace}, name: {self.name}, uid: {self.uid}]"

    def is_meant_by(self, reference: Obj) -> bool:
        """Namespaces aside."""
        said = (reference["kind"], reference["apiVersion"], reference["name"], reference["uid"])
        return said == (self.kind, self.api_version, self.name, self.uid)


def owner_in(namespace: str, reference: Obj) -> Identity:
    """What a reference means if the owner is in this namespace."""
    return Identity(
        intern(reference["kind"]), intern(reference["apiVersion"]), namespace, reference["name"], reference["uid"]
    )


@dataclass(slots=True, eq=False)
class Node:
    """An object in the graph. Its dependents are the graph's to know."""

    identity: Identity
    owners: tuple[Obj, ...] = ()
    """References, as they stand in the object."""
    virtual: bool = False
    """Known from references only: nobody has seen the object itself, and what they say of it may be wrong."""
    being_deleted: bool = False
    deleting_dependents: bool = False
    """It is being deleted and waits for its dependents to go first."""

    def blocks(self, owner_uid: str) -> bool:
        return any(owner["uid"] == owner_uid and owner.get("blockOwnerDeletion") for owner in self.owners)


def partition(dependents: Iterable[Node], owner: Identity) -> tuple[list[Node], list[Node]]:
    """Those that mean exactly this owner, and those that have its uid but something else differs. One that refers to
    it twice can be in both."""
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
    """What else dependents call the owner with the uid of one that was found not to exist: the next in order after it,
    so that all get their turn."""
    others = set()
    for dependent in dependents:
        for reference in dependent.owners:
            if reference["uid"] != absent.uid:
                continue
            found = owner_in(dependent.identity.namespace, reference)
            if not absent.namespace and found[:2] == absent[:2]:
                # This kind is known to be in no namespace.
                found = found._replace(namespace="")
            others.add(found)
    others.discard(absent)
    return min((found for found in others if found > absent), default=None) or min(others, default=None)
