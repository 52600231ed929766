"""Publishes the cluster's root certificate: as a ConfigMap in every namespace, and as a ClusterTrustBundle."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, Informer, Manager
from setpoint.reconcile.manager import ControllerGroup, Runnable

_NAMESPACES, _CONFIG_MAPS = builtin("namespaces"), builtin("configmaps")
_NAME = "kube-root-ca.crt"
_DESCRIPTION = "kubernetes.io/description"
_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
_BUNDLES = builtin("clustertrustbundles", "certificates.k8s.io")
_SIGNER = "kubernetes.io/kube-apiserver-serving"
_ACCOUNT = "kube-apiserver-serving-clustertrustbundle-publisher"


def root_ca_controller(manager: Manager, options: ControllerOptions) -> Controller:
    account = "root-ca-cert-publisher"
    namespaces = manager.informer(_NAMESPACES)
    # Watch these only: there may be many large ConfigMaps.
    maps = manager.informer(_CONFIG_MAPS, field_selector=f"metadata.name={_NAME}")
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
    """Publishes the CA certificate of the API server in a ConfigMap in every namespace."""

    def __init__(self, client: Client, maps: Informer[Obj], namespaces: Informer[Obj], certificate: str) -> None:
        self._client = client
        self._maps = maps
        self._namespaces = namespaces
        self._data = {"ca.crt": certificate}

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or (namespace.get("status") or {}).get("phase") == "Terminating":
            return
        found = self._maps.get(f"{name}/{_NAME}")
        if found is None:
            await self._create(name)
            return
        annotations = found["metadata"].get("annotations") or {}
        if found.get("data") == self._data and annotations.get(_DESCRIPTION):
            return
        meta = {**found["metadata"], "annotations": {**annotations, _DESCRIPTION: _TEXT}}
        await self._client.update({**found, "metadata": meta, "data": self._data})

    async def _create(self, namespace: str) -> None:
        meta = {"name": _NAME, "namespace": namespace, "annotations": {_DESCRIPTION: _TEXT}}
        with suppress(AlreadyExists, NotFound):
            try:
                await self._client.create(
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": self._data}
                )
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise


# -- ClusterTrustBundle -----------------------------------------------------------------------------------------------


def trust_bundle_publisher(manager: Manager, options: ControllerOptions) -> Runnable:
    if not options.root_ca:
        return ControllerGroup()  # no CA certificate is configured
    bundles = manager.informer(_BUNDLES, field_selector=f"spec.signerName={_SIGNER}")
    publisher = TrustBundlePublisher(manager.client_for(_ACCOUNT), bundles, options.root_ca)
    controller = Controller(_ACCOUNT, publisher.reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        controller.enqueue(_SIGNER)

    bundles.add_handler(changed)
    controller.enqueue(_SIGNER)
    return controller


def _bundle_name(trusted: str) -> str:
    return f"{_SIGNER.replace('/', ':')}:{sha256(trusted.encode()).hexdigest()[:24]}"


class TrustBundlePublisher:
    """Publishes the CA certificate of the API server as a ClusterTrustBundle."""

    def __init__(self, client: Client, bundles: Informer[Obj], trusted: str) -> None:
        self._client = client
        self._bundles = bundles
        self._trusted = trusted

    async def reconcile(self, _: str) -> None:
        name = _bundle_name(self._trusted)
        there = self._bundles.get(name)
        spec = {"signerName": _SIGNER, "trustBundle": self._trusted}
        if there is None:
            made = {"apiVersion": _BUNDLES.api_version, "kind": _BUNDLES.kind, "metadata": {"name": name}, "spec": spec}
            await self._client.create(made)
        elif there["spec"].get("trustBundle") != self._trusted:
            await self._client.update({**there, "spec": spec})
        for other in tuple(self._bundles.items):
            if other != name:
                with suppress(NotFound):
                    await self._client.delete(_BUNDLES, other)
