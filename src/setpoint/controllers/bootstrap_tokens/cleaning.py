"""Deletes expired bootstrap tokens."""

from __future__ import annotations

from typing import Any

from setpoint.controllers.bootstrap_tokens.secrets import SECRETS
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.core.bootstrap_token import NAMESPACE, TYPE, seconds_until_expiry
from setpoint.meta.errors import Conflict, NotFound
from setpoint.reconcile import Controller, Manager, Result, key_of

Obj = dict[str, Any]


def token_cleaner(manager: Manager, _: ControllerOptions) -> Controller:
    client = manager.client_for("token-cleaner")
    tokens = manager.informer(SECRETS, namespace=NAMESPACE, field_selector=f"type={TYPE}")

    async def reconcile(key: str) -> Result | None:
        secret = tokens.get(key)
        left = seconds_until_expiry(secret, manager.clock.now()) if secret is not None else None
        if secret is None or left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        meta = secret["metadata"]
        try:
            await client.delete(SECRETS, meta["name"], meta["namespace"], uid=meta["uid"])
        except (Conflict, NotFound):
            return None
        return None

    controller = Controller("token-cleaner-controller", reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    tokens.add_handler(changed)
    return controller
