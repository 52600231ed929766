"""Read access to objects other than Pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolume, PersistentVolumeClaim, ReplicaSet, Service


T = TypeVar("T", covariant=True)


class Lister(Protocol[T]):
    """The reading part of an informer."""

    @property
    def items(self) -> Mapping[str, T]:
        """The objects by key."""
        ...

    def get(self, key: str) -> T | None: ...

    def add_index(self, name: str, values_of: Any) -> None: ...

    def by_index(self, name: str, value: str) -> Iterable[T]: ...


class EmptyLister:
    """An empty lister."""

    items: Mapping[str, Any] = {}

    def get(self, key: str) -> Any:
        return None

    def add_index(self, name: str, values_of: Any) -> None:
        pass

    def by_index(self, name: str, value: str) -> Iterable[Any]:
        return ()


def _empty() -> Any:
    return EmptyLister()


@dataclass(slots=True)
class Listers:
    """The listers that plugins use; each is empty until it is set."""

    namespaces: Lister[Obj] = field(default_factory=_empty)
    services: Lister[Service] = field(default_factory=_empty)
    replication_controllers: Lister[Obj] = field(default_factory=_empty)
    replica_sets: Lister[ReplicaSet] = field(default_factory=_empty)
    stateful_sets: Lister[Obj] = field(default_factory=_empty)
    claims: Lister[PersistentVolumeClaim] = field(default_factory=_empty)
    volumes: Lister[PersistentVolume] = field(default_factory=_empty)
    storage_classes: Lister[Obj] = field(default_factory=_empty)
    csi_nodes: Lister[Obj] = field(default_factory=_empty)
    csi_drivers: Lister[Obj] = field(default_factory=_empty)
    csi_capacities: Lister[Obj] = field(default_factory=_empty)
    attachments: Lister[Obj] = field(default_factory=_empty)
    disruption_budgets: Lister[Obj] = field(default_factory=_empty)


def namespace_index(obj: ObjView) -> tuple[str]:
    return (obj["metadata"]["namespace"],)
