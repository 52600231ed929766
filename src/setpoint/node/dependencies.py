"""The dependencies that all Pod workers share, and the informers from which they read other objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.node_state import NodeState
from setpoint.node.runtime.interface import ContainerRuntime
from setpoint.reconcile import EventRecorder, Informer, Manager

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolumeClaim, Pod, Service


class ObjectLister(Protocol):
    """Read access to the objects that Pods refer to."""

    def config_map(self, namespace: str, name: str) -> ObjView | None: ...

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a PersistentVolumeClaim."""
        ...

    def secret(self, namespace: str, name: str) -> ObjView | None: ...

    def trust_bundles(self) -> list[ObjView]: ...

    def services(self, namespace: str) -> list[Service]: ...


@dataclass(slots=True)
class PodWorkerDependencies:
    """The dependencies that all Pod workers of an agent share."""

    runtime: ContainerRuntime
    events: EventRecorder
    lister: ObjectLister
    nodes: dict[str, NodeState] = field(default_factory=dict)
    admission_check: Callable[[Pod], tuple[str, str] | None] = lambda pod: None
    """Returns the reason and the message if the nodes cannot run a Pod, beyond what the scheduler checks."""


class InformerLister:
    """Implements ObjectLister with the manager's informers."""

    def __init__(self, manager: Manager) -> None:
        self._config_maps: Informer[Obj] = manager.informer(builtin("configmaps"))
        self._claims: Informer[PersistentVolumeClaim] = manager.informer(builtin("persistentvolumeclaims"))
        self._secrets: Informer[Obj] = manager.informer(builtin("secrets"))
        self._services: Informer[Service] = manager.informer(builtin("services"))
        self._trust_bundles: Informer[Obj] = manager.informer(builtin("clustertrustbundles", "certificates.k8s.io"))

    def config_map(self, namespace: str, name: str) -> ObjView | None:
        return self._config_maps.get(f"{namespace}/{name}")

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self._claims.get(f"{namespace}/{name}")

    def secret(self, namespace: str, name: str) -> ObjView | None:
        return self._secrets.get(f"{namespace}/{name}")

    def trust_bundles(self) -> list[ObjView]:
        return [*self._trust_bundles.items.values()]

    def services(self, namespace: str) -> list[Service]:
        return [*self._services.in_namespace(namespace)]
