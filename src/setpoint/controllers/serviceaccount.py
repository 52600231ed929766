"""Service accounts: the default account of every namespace, and tokens stored in Secrets."""

from __future__ import annotations

import logging
from base64 import b64encode
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import orjson

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS, is_namespace_terminating
from setpoint.kinds.core.references import secret_names
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, NotFound
from setpoint.meta.jose import TokenKey
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_day, parse_time
from setpoint.reconcile import Controller, Informer, Manager, key_of, split_key
from setpoint.reconcile.run import current_run, periodic_run

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.controllers")


_ACCOUNTS, _SECRETS = builtin("serviceaccounts"), builtin("secrets")
_TOKEN_TYPE = "kubernetes.io/service-account-token"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_ISSUER, _CLAIM = "kubernetes/serviceaccount", "kubernetes.io/serviceaccount/"
_WORKERS = 5
_BY_ACCOUNT = "account"
_NAMESPACES = builtin("namespaces")
_DEFAULT = "default"
_MAPS = builtin("configmaps")
_TRACKING, _NAMESPACE = "kube-apiserver-legacy-service-account-token-tracking", "kube-system"
_LAST_USED = "kubernetes.io/legacy-token-last-used"
_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
_DAY = "%Y-%m-%d"
_EVERY = 24 * 3600.0


def service_account_token_controller(manager: Manager, options: ControllerOptions) -> Controller:
    accounts = manager.informer(_ACCOUNTS)
    secrets = manager.informer(_SECRETS, field_selector=f"type={_TOKEN_TYPE}")
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
    """Issues tokens for Secrets of type `kubernetes.io/service-account-token` and deletes them with their account.

    Pods use expiring tokens instead; these Secrets are supported for users who create them explicitly.
    """

    def __init__(
        self, client: Client, accounts: Informer[Obj], secrets: Informer[Obj], key: TokenKey | None, root_ca: str
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
                await self._client.delete(_SECRETS, meta["name"], meta["namespace"], uid=meta["uid"])
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
                found = await self._client.get(_ACCOUNTS, name, namespace) if name else None
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
        secrets = [each for each in account.get("secrets") or () if each.get("name") != name]
        if len(secrets) < len(account.get("secrets") or ()):
            with suppress(NotFound):
                await self._client.update({**account, "secrets": secrets})


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


def service_account_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "service-account-controller"
    namespaces, accounts = manager.informer(_NAMESPACES), manager.informer(_ACCOUNTS)
    ensure = EnsureDefault(manager.client_for(name), namespaces, accounts)
    controller = Controller(name, ensure.reconcile, manager.clock)

    def namespace_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(new["metadata"]["name"])

    def account_changed(old: Obj | None, new: Obj | None) -> None:
        if new is None and old is not None and old["metadata"]["name"] == _DEFAULT:
            controller.enqueue(old["metadata"]["namespace"])

    namespaces.add_handler(namespace_changed)
    accounts.add_handler(account_changed)
    return controller


class EnsureDefault:
    """Creates the service account `default` in every namespace, which Pods use unless they name another."""

    def __init__(self, client: Client, namespaces: Informer[Obj], accounts: Informer[Obj]) -> None:
        self._client = client
        self._namespaces = namespaces
        self._accounts = accounts

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return
        if self._accounts.get(f"{name}/{_DEFAULT}") is not None:
            return
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": _DEFAULT, "namespace": name},
        }
        with suppress(AlreadyExists, NotFound):
            try:
                await self._client.create(account)
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise


def unused_tokens_controller(manager: Manager, options: ControllerOptions) -> UnusedTokens:
    return UnusedTokens(manager, timedelta(seconds=options.legacy_service_account_token_clean_up_period))


class UnusedTokens:
    """Cleans up auto-generated token Secrets of older clusters: those unused for a year are marked as invalid, and
    deleted after another year."""

    def __init__(self, manager: Manager, period: timedelta) -> None:
        self._client = manager.client_for("legacy-service-account-token-cleaner")
        self._accounts = manager.informer(_ACCOUNTS)
        self._secrets = manager.informer(_SECRETS, field_selector=f"type={_TOKEN_TYPE}")
        self._pods: Informer[Pod] = manager.informer(PODS)
        self._clock = manager.clock
        self._period = period

    async def run(self) -> None:
        name = "legacy-serviceaccount-token-cleaner-controller"
        current_run.set(periodic_run(name, self._clock.now(), f"timer:{_EVERY:g}"))
        while True:
            await self.check_all()
            await self._clock.sleep(_EVERY)

    async def check_all(self) -> None:
        try:
            if self._secrets.items and await self._is_tracked_long_enough():
                for secret in tuple(self._secrets.items.values()):
                    await self._check(secret)
        except (ApiError, Unreachable) as error:
            log.info("cannot check for unused tokens, retrying in a day: %s", error)

    async def _is_tracked_long_enough(self) -> bool:
        tracking = await self._client.get(_MAPS, _TRACKING, _NAMESPACE)
        since = parse_day((tracking.get("data") or {}).get("since") or "")
        # Start with the day after: on the first day tracking may have started late.
        return since is not None and since + timedelta(days=1) + self._period <= self._clock.now().replace(tzinfo=None)

    async def _check(self, secret: Obj) -> None:
        meta, now = secret["metadata"], self._clock.now()
        kept_from = (now - self._period).strftime(_DAY)
        labels = meta.get("labels") or {}
        last_used = labels.get(_LAST_USED)
        if "deletionTimestamp" in meta or parse_time(meta["creationTimestamp"]) >= now - self._period:
            return
        if last_used is not None and (parse_day(last_used) is None or last_used >= kept_from):
            return
        if not self._is_auto_generated(secret) or self._is_mounted(meta["namespace"], meta["name"]):
            return
        invalid_since = labels.get(_INVALID_SINCE)
        if parse_day(invalid_since or "") is None:
            change = {"metadata": {"uid": meta["uid"], "labels": {_INVALID_SINCE: now.strftime(_DAY)}}}
            await self._client.patch(_SECRETS, meta["name"], change, meta["namespace"])
        elif str(invalid_since) < kept_from:
            try:
                await self._client.delete(
                    _SECRETS, meta["name"], meta["namespace"], resource_version=meta["resourceVersion"]
                )
            except (Conflict, NotFound):
                return  # checked again tomorrow

    def _is_auto_generated(self, secret: Obj) -> bool:
        """Return whether the Secret was auto-generated, in which case the account lists it."""
        meta = secret["metadata"]
        annotations = meta.get("annotations") or {}
        account = self._accounts.get(f"{meta['namespace']}/{annotations.get(_NAME, '')}")
        if account is None or annotations.get(_UID) not in (None, "", account["metadata"]["uid"]):
            return False
        return any(reference.get("name") == meta["name"] for reference in account.get("secrets") or ())

    def _is_mounted(self, namespace: str, name: str) -> bool:
        return any(
            pod["metadata"]["namespace"] == namespace and name in secret_names(pod["spec"])
            for pod in self._pods.items.values()
        )
