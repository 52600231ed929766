"""Other objects that Pods refer to, from the fleet's own copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.client.resources import builtin
from setpoint.reconcile import Manager

Obj = Mapping[str, Any]

_NAMESPACE = "namespace"


class InformerLookup:
    def __init__(self, manager: Manager) -> None:
        self._config_maps = manager.informer(builtin("configmaps"))
        self._claims = manager.informer(builtin("persistentvolumeclaims"))
        self._secrets = manager.informer(builtin("secrets"))
        self._services = manager.informer(builtin("services"))
        self._trust_bundles = manager.informer(builtin("clustertrustbundles", "certificates.k8s.io"))
        self._services.add_index(_NAMESPACE, lambda obj: (obj["metadata"]["namespace"],))

    def config_map(self, namespace: str, name: str) -> Obj | None:
        return self._config_maps.get(f"{namespace}/{name}")

    def claim(self, namespace: str, name: str) -> Obj | None:
        return self._claims.get(f"{namespace}/{name}")

    def secret(self, namespace: str, name: str) -> Obj | None:
        return self._secrets.get(f"{namespace}/{name}")

    def trust_bundles(self) -> list[Obj]:
        return [*self._trust_bundles.items.values()]

    def services(self, namespace: str) -> list[Obj]:
        return [*self._services.by_index(_NAMESPACE, namespace)]
