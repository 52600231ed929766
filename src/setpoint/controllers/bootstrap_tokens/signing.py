"""Signs `cluster-info` in `kube-public` with every token that allows it, so that the holder of a token can verify
it."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.bootstrap_tokens.secrets import SECRETS, detached_signature, signing_token
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.core.bootstrap_token import NAMESPACE, TYPE
from setpoint.meta.errors import NotFound
from setpoint.reconcile import Controller, Manager

Obj = dict[str, Any]

MAPS = builtin("configmaps")
_PLACE, _NAME = "kube-public", "cluster-info"
_CONTENT, _SIGNATURE = "kubeconfig", "jws-kubeconfig-"


def bootstrap_signer(manager: Manager, _: ControllerOptions) -> Controller:
    client = manager.client_for("bootstrap-signer")
    tokens = manager.informer(SECRETS, namespace=NAMESPACE, field_selector=f"type={TYPE}")
    maps = manager.informer(MAPS, namespace=_PLACE, field_selector=f"metadata.name={_NAME}")

    async def reconcile(key: str) -> None:
        found = maps.get(key)
        data: dict[str, str] = dict((found or {}).get("data") or {})
        if found is None or _CONTENT not in data:
            return
        wanted = {name: text for name, text in data.items() if not name.startswith(_SIGNATURE)}
        for secret in tokens.items.values():
            token = signing_token(secret, manager.clock.now())
            if token is not None:
                wanted[_SIGNATURE + token[0]] = detached_signature(data[_CONTENT], *token)
        if wanted != data:
            try:
                await client.update({**found, "data": wanted}, resource=MAPS)
            except NotFound:
                return

    controller = Controller("bootstrap-signer-controller", reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        controller.enqueue(f"{_PLACE}/{_NAME}")

    tokens.add_handler(changed)
    maps.add_handler(changed)
    return controller
