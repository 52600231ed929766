"""Read access to objects other than Pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Obj = dict[str, Any]


class Lister(Protocol):
    @property
    def items(self) -> Mapping[str, Obj]:
        """The objects by key."""
        ...

    def get(self, key: str) -> Obj | None: ...

    def add_index(self, name: str, values_of: Any) -> None: ...

    def by_index(self, name: str, value: str) -> Iterable[Obj]: ...


class EmptyLister:
    """An empty lister."""

    items: Mapping[str, Obj] = {}

    def get(self, key: str) -> Obj | None:
        return None

    def add_index(self, name: str, values_of: Any) -> None:
        pass

    def by_index(self, name: str, value: str) -> Iterable[Obj]:
        return ()


def _empty() -> Lister:
    return EmptyLister()


@dataclass(slots=True)
class Listers:
    namespaces: Lister = field(default_factory=_empty)
    services: Lister = field(default_factory=_empty)
    replication_controllers: Lister = field(default_factory=_empty)
    replica_sets: Lister = field(default_factory=_empty)
    stateful_sets: Lister = field(default_factory=_empty)
    claims: Lister = field(default_factory=_empty)
    volumes: Lister = field(default_factory=_empty)
    storage_classes: Lister = field(default_factory=_empty)
    csi_nodes: Lister = field(default_factory=_empty)
    csi_drivers: Lister = field(default_factory=_empty)
    csi_capacities: Lister = field(default_factory=_empty)
    attachments: Lister = field(default_factory=_empty)
    disruption_budgets: Lister = field(default_factory=_empty)


def namespace_index(obj: Obj) -> tuple[str]:
    return (obj["metadata"]["namespace"],)
