"""Finds the owners that a Pod change concerns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.selectors import Selector, from_label_selector
from setpoint.reconcile import Informer, key_of
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]


def _namespace(obj: Obj) -> tuple[str]:
    return (obj["metadata"]["namespace"],)


def selector_of(owner: Obj) -> Selector:
    return from_label_selector(owner["spec"]["selector"])


class PodOwners:
    """Finds the owners of one kind that a Pod has, had, or could have."""

    def __init__(self, kind: str, owners: Informer, selector: Callable[[Obj], Selector] = selector_of) -> None:
        self._kind = kind
        self._owners = owners
        self._selector = selector
        owners.add_index("namespace", _namespace)

    def key(self, pod: Obj | None) -> str | None:
        """Return the key of the Pod's owner, or None if it has none of this kind."""
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or owner["kind"] != self._kind:
            return None
        key = f"{pod['metadata']['namespace']}/{owner['name']}"
        found = self._owners.get(key)
        return key if found is not None and found["metadata"]["uid"] == owner["uid"] else None

    def affected(self, old: Obj | None, new: Obj | None) -> list[str]:
        """Return the keys of the owners to reconcile: the current and former owner, or for an orphan those that could
        adopt it."""
        before, after = self.key(old), self.key(new)
        keys = [key for key in dict.fromkeys((before, after)) if key is not None]
        if keys or new is None or "deletionTimestamp" in new["metadata"] or controller_of(new) is not None:
            return keys
        labels = new["metadata"].get("labels") or {}
        if old is None or controller_of(old) is not None or labels != (old["metadata"].get("labels") or {}):
            return self._could_adopt(new["metadata"]["namespace"], labels)
        return []

    def _could_adopt(self, namespace: str, labels: dict[str, str]) -> list[str]:
        if not labels:
            return []
        found = self._owners.by_index("namespace", namespace)
        return [key_of(owner) for owner in found if self._selector(owner).matches(labels)]
