"""Issues tokens for Secrets of type `kubernetes.io/service-account-token` and deletes them with their account.

Pods use expiring tokens instead; these Secrets are supported for users who create them explicitly.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from typing import Any

import orjson

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import NotFound
from setpoint.meta.token_key import TokenKey
from setpoint.reconcile import Controller, Informer, Manager, key_of, split_key

Obj = dict[str, Any]

ACCOUNTS, SECRETS = builtin("serviceaccounts"), builtin("secrets")
TOKEN_TYPE = "kubernetes.io/service-account-token"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_ISSUER, _CLAIM = "kubernetes/serviceaccount", "kubernetes.io/serviceaccount/"
_WORKERS = 5
_BY_ACCOUNT = "account"


def service_account_token_controller(manager: Manager, options: ControllerOptions) -> Controller:
    accounts = manager.informer(ACCOUNTS)
    secrets = manager.informer(SECRETS, field_selector=f"type={TOKEN_TYPE}")
    given = options.service_account_private_key
    key = TokenKey(given if callable(given) else lambda: str(given).encode()) if given else None
    # Without an account of its own: it is the controller that makes accounts usable.
    tokens = ServiceAccountTokens(manager.client, accounts, secrets, key, options.root_ca)
    controller = Controller("serviceaccount-token-controller", tokens.reconcile, manager.clock, workers=_WORKERS)
    if key is not None:
        tokens.watch(controller)
    return controller


def _account_of(secret: Obj) -> str:
    return str((secret["metadata"].get("annotations") or {}).get(_NAME) or "")


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


class ServiceAccountTokens:
    def __init__(
        self, client: Client, accounts: Informer, secrets: Informer, key: TokenKey | None, root_ca: str
    ) -> None:
        self._client = client
        self._accounts = accounts
        self._secrets = secrets
        self._key = key
        self._root_ca = root_ca
        secrets.add_index(_BY_ACCOUNT, lambda secret: (f"{secret['metadata']['namespace']}/{_account_of(secret)}",))

    def watch(self, controller: Controller) -> None:
        def account_changed(old: Obj | None, new: Obj | None) -> None:
            if old is None or new is None:
                for secret in self._secrets.by_index(_BY_ACCOUNT, key_of(new or old or {})):
                    controller.enqueue(key_of(secret))

        def secret_changed(old: Obj | None, new: Obj | None) -> None:
            if new is not None:
                controller.enqueue(key_of(new))
            elif old is not None and _account_of(old):
                controller.enqueue(key_of(old) + "\n" + _account_of(old))

        self._accounts.add_handler(account_changed)
        self._secrets.add_handler(secret_changed)

    async def reconcile(self, key: str) -> None:
        key, _, account_name = key.partition("\n")
        if account_name:
            await self._drop_reference(key, account_name)
            return
        secret = self._secrets.get(key)
        if secret is None or "deletionTimestamp" in secret["metadata"]:
            return
        meta = secret["metadata"]
        account = await self._account(meta["namespace"], _account_of(secret), (meta.get("annotations") or {}).get(_UID))
        if account is None:
            with suppress(NotFound):
                await self._client.delete(SECRETS, meta["name"], meta["namespace"], uid=meta["uid"])
            return
        data = self._missing(secret, account)
        if data:
            names = {_NAME: account["metadata"]["name"], _UID: account["metadata"]["uid"]}
            annotations = {**(meta.get("annotations") or {}), **names}
            changed = {
                **secret,
                "metadata": {**meta, "annotations": annotations},
                "data": {**(secret.get("data") or {}), **data},
            }
            with suppress(NotFound):
                await self._client.update(changed)

    async def _account(self, namespace: str, name: str, uid: str | None) -> Obj | None:
        found = self._accounts.get(f"{namespace}/{name}")
        if found is None or (uid and found["metadata"]["uid"] != uid):
            # Read from the server before a Secret is deleted because of a stale cache.
            try:
                found = await self._client.get(ACCOUNTS, name, namespace) if name else None
            except NotFound:
                return None
        return found if found is not None and (not uid or found["metadata"]["uid"] == uid) else None

    def _missing(self, secret: Obj, account: Obj) -> dict[str, str]:
        data, namespace = secret.get("data") or {}, secret["metadata"]["namespace"]
        missing = {}
        if self._root_ca and data.get("ca.crt") != _encoded(self._root_ca):
            missing["ca.crt"] = _encoded(self._root_ca)
        if not data.get("namespace"):
            missing["namespace"] = _encoded(namespace)
        if not data.get("token") and self._key is not None:
            missing["token"] = _encoded(self._key.sign(_claims(account, secret)))
        return missing

    async def _drop_reference(self, key: str, account_name: str) -> None:
        """Remove the deleted Secret from the account's list."""
        namespace, name = split_key(key)
        account = self._accounts.get(f"{namespace}/{account_name}")
        if account is None or self._secrets.get(key) is not None:
            return
        kept = [each for each in account.get("secrets") or () if each.get("name") != name]
        if len(kept) < len(account.get("secrets") or ()):
            with suppress(NotFound):
                await self._client.update({**account, "secrets": kept})


def _claims(account: Obj, secret: Obj) -> bytes:
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    return orjson.dumps(
        {
            "iss": _ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{name}",
            _CLAIM + "namespace": namespace,
            _CLAIM + "secret.name": secret["metadata"]["name"],
            _CLAIM + "service-account.name": name,
            _CLAIM + "service-account.uid": account["metadata"]["uid"],
        },
        option=orjson.OPT_SORT_KEYS,
    )
