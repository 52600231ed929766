"""Publishes the CA certificate of the API server in a ConfigMap in every namespace."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.reconcile import Controller, Informer, Manager

Obj = dict[str, Any]

NAMESPACES, CONFIG_MAPS = builtin("namespaces"), builtin("configmaps")
NAME = "kube-root-ca.crt"
_DESCRIPTION = "kubernetes.io/description"
_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


def root_ca_controller(manager: Manager, options: ControllerOptions) -> Controller:
    account = "root-ca-cert-publisher"
    namespaces = manager.informer(NAMESPACES)
    # Watch these only: there may be many large ConfigMaps.
    maps = manager.informer(CONFIG_MAPS, field_selector=f"metadata.name={NAME}")
    publisher = RootCaPublisher(manager.client_for(account), maps, namespaces, options.root_ca)
    controller = Controller("root-ca-certificate-publisher-controller", publisher.reconcile, manager.clock)
    if not options.root_ca:
        return controller

    def namespace_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(new["metadata"]["name"])

    def map_changed(old: Obj | None, new: Obj | None) -> None:
        controller.enqueue((new or old or {})["metadata"]["namespace"])

    namespaces.add_handler(namespace_changed)
    maps.add_handler(map_changed)
    return controller


class RootCaPublisher:
    def __init__(self, client: Client, maps: Informer, namespaces: Informer, certificate: str) -> None:
        self._client = client
        self._maps = maps
        self._namespaces = namespaces
        self._data = {"ca.crt": certificate}

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or (namespace.get("status") or {}).get("phase") == "Terminating":
            return
        found = self._maps.get(f"{name}/{NAME}")
        if found is None:
            await self._create(name)
            return
        annotations = found["metadata"].get("annotations") or {}
        if found.get("data") == self._data and annotations.get(_DESCRIPTION):
            return
        meta = {**found["metadata"], "annotations": {**annotations, _DESCRIPTION: _TEXT}}
        await self._client.update({**found, "metadata": meta, "data": self._data})

    async def _create(self, namespace: str) -> None:
        meta = {"name": NAME, "namespace": namespace, "annotations": {_DESCRIPTION: _TEXT}}
        with suppress(AlreadyExists, NotFound):
            try:
                await self._client.create(
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": self._data}
                )
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise
