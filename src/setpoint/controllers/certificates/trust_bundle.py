"""Publishes the CA certificate of the API server as a ClusterTrustBundle."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import NotFound
from setpoint.reconcile import Controller, Informer, Manager
from setpoint.reconcile.manager import Runnable

Obj = dict[str, Any]

BUNDLES = builtin("clustertrustbundles", "certificates.k8s.io")
SIGNER = "kubernetes.io/kube-apiserver-serving"
_ACCOUNT = "kube-apiserver-serving-clustertrustbundle-publisher"


def trust_bundle_publisher(manager: Manager, options: ControllerOptions) -> Runnable:
    if not options.root_ca:
        return ControllerGroup()  # no CA certificate is configured
    bundles = manager.informer(BUNDLES, field_selector=f"spec.signerName={SIGNER}")
    publisher = Publisher(manager.client_for(_ACCOUNT), bundles, options.root_ca)
    controller = Controller(_ACCOUNT, publisher.reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        controller.enqueue(SIGNER)

    bundles.add_handler(changed)
    controller.enqueue(SIGNER)
    return controller


def bundle_name(trusted: str) -> str:
    return f"{SIGNER.replace('/', ':')}:{sha256(trusted.encode()).hexdigest()[:24]}"


class Publisher:
    def __init__(self, client: Client, bundles: Informer, trusted: str) -> None:
        self._client = client
        self._bundles = bundles
        self._trusted = trusted

    async def reconcile(self, _: str) -> None:
        name = bundle_name(self._trusted)
        there = self._bundles.get(name)
        spec = {"signerName": SIGNER, "trustBundle": self._trusted}
        if there is None:
            made = {"apiVersion": BUNDLES.api_version, "kind": BUNDLES.kind, "metadata": {"name": name}, "spec": spec}
            await self._client.create(made)
        elif there["spec"].get("trustBundle") != self._trusted:
            await self._client.update({**there, "spec": spec})
        for other in tuple(self._bundles.items):
            if other != name:
                with suppress(NotFound):
                    await self._client.delete(BUNDLES, other)
