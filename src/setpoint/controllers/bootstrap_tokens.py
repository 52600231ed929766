"""Bootstrap tokens, with which new nodes join: Secrets `bootstrap-token-<id>` in `kube-system`."""

from __future__ import annotations

import hmac
import re
from datetime import datetime

import orjson

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.core.secret import NAMESPACE, TYPE, seconds_until_expiry, text_value
from setpoint.meta.errors import Conflict, NotFound
from setpoint.meta.jose import base64url_encode
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import Controller, Manager, Result, key_of

_SECRETS = builtin("secrets")
_SECRET_NAME = re.compile(r"bootstrap-token-([a-z0-9]{6})")
_MAPS = builtin("configmaps")
_NAMESPACE, _CONFIG_MAP = "kube-public", "cluster-info"
_CONTENT, _SIGNATURE = "kubeconfig", "jws-kubeconfig-"


def signing_token(secret: ObjView, now: datetime) -> tuple[str, str] | None:
    """Return the token's id and secret if it may be used for signing, otherwise None."""
    named = _SECRET_NAME.fullmatch(secret["metadata"]["name"])
    token, key = text_value(secret, "token-id"), text_value(secret, "token-secret")
    if named is None or named[1] != token or not key:
        return None
    if seconds_until_expiry(secret, now) == 0.0 or text_value(secret, "usage-bootstrap-signing") != "true":
        return None
    return token, key


def detached_signature(content: str, token: str, key: str) -> str:
    """Return a JWS with detached content (RFC 7515, appendix F)."""
    head = base64url_encode(orjson.dumps({"alg": "HS256", "kid": token}))
    signature = hmac.digest(key.encode(), f"{head}.{base64url_encode(content.encode())}".encode(), "sha256")
    return f"{head}..{base64url_encode(signature)}"


# -- controllers ------------------------------------------------------------------------------------------------------


def bootstrap_signer(manager: Manager, _: ControllerOptions) -> Controller:
    """Return the controller that signs `cluster-info` in `kube-public` with every token that allows it, so that the
    holder of a token can verify it."""
    client = manager.client_for("bootstrap-signer")
    tokens = manager.informer(_SECRETS, namespace=NAMESPACE, field_selector=f"type={TYPE}")
    maps = manager.informer(_MAPS, namespace=_NAMESPACE, field_selector=f"metadata.name={_CONFIG_MAP}")

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
                await client.update({**found, "data": wanted}, resource=_MAPS)
            except NotFound:
                return

    controller = Controller("bootstrap-signer-controller", reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        controller.enqueue(f"{_NAMESPACE}/{_CONFIG_MAP}")

    tokens.add_handler(changed)
    maps.add_handler(changed)
    return controller


def token_cleaner(manager: Manager, _: ControllerOptions) -> Controller:
    """Return the controller that deletes expired bootstrap tokens."""
    client = manager.client_for("token-cleaner")
    tokens = manager.informer(_SECRETS, namespace=NAMESPACE, field_selector=f"type={TYPE}")

    async def reconcile(key: str) -> Result | None:
        secret = tokens.get(key)
        left = seconds_until_expiry(secret, manager.clock.now()) if secret is not None else None
        if secret is None or left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        meta = secret["metadata"]
        try:
            await client.delete(_SECRETS, meta["name"], meta["namespace"], uid=meta["uid"])
        except (Conflict, NotFound):
            return None
        return None

    controller = Controller("token-cleaner-controller", reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    tokens.add_handler(changed)
    return controller
