"""What the scheduler reads besides Pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Obj = dict[str, Any]


class Lister(Protocol):
    @property
    def items(self) -> Mapping[str, Obj]:
        """By key."""
        ...

    def get(self, key: str) -> Obj | None: ...

    def add_index(self, name: str, values_of: Any) -> None: ...

    def by_index(self, name: str, value: str) -> Iterable[Obj]: ...


class Nothing:
    """A lister of a kind of which there is nothing."""

    items: Mapping[str, Obj] = {}

    def get(self, key: str) -> Obj | None:
        return None

    def add_index(self, name: str, values_of: Any) -> None:
        pass

    def by_index(self, name: str, value: str) -> Iterable[Obj]:
        return ()


def _nothing() -> Lister:
    return Nothing()


@dataclass(slots=True)
class Listers:
    namespaces: Lister = field(default_factory=_nothing)
    services: Lister = field(default_factory=_nothing)
    replication_controllers: Lister = field(default_factory=_nothing)
    replica_sets: Lister = field(default_factory=_nothing)
    stateful_sets: Lister = field(default_factory=_nothing)
    claims: Lister = field(default_factory=_nothing)
    volumes: Lister = field(default_factory=_nothing)
    storage_classes: Lister = field(default_factory=_nothing)
    csi_nodes: Lister = field(default_factory=_nothing)
    csi_drivers: Lister = field(default_factory=_nothing)
    csi_capacities: Lister = field(default_factory=_nothing)
    attachments: Lister = field(default_factory=_nothing)
    disruption_budgets: Lister = field(default_factory=_nothing)


def namespace_index(obj: Obj) -> tuple[str]:
    return (obj["metadata"]["namespace"],)
