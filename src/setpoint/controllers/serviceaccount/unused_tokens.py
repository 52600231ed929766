"""Cleans up auto-generated token Secrets of older clusters: those unused for a year are marked as invalid, and deleted
after another year."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from setpoint.client import Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.serviceaccount.tokens import ACCOUNTS, SECRETS, TOKEN_TYPE
from setpoint.kinds.core.pod_references import secret_names
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.times import parse_time
from setpoint.reconcile import Manager

log = logging.getLogger("setpoint.controllers")

Obj = dict[str, Any]

MAPS = builtin("configmaps")
_TRACKING, _NAMESPACE = "kube-apiserver-legacy-service-account-token-tracking", "kube-system"
_LAST_USED = "kubernetes.io/legacy-token-last-used"
_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_DAY = "%Y-%m-%d"
_EVERY = 24 * 3600.0


def unused_tokens_controller(manager: Manager, options: ControllerOptions) -> UnusedTokens:
    return UnusedTokens(manager, timedelta(seconds=options.legacy_service_account_token_clean_up_period))


def _day(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", _DAY)
    except ValueError:
        return None


class UnusedTokens:
    def __init__(self, manager: Manager, period: timedelta) -> None:
        self._client = manager.client_for("legacy-service-account-token-cleaner")
        self._accounts = manager.informer(ACCOUNTS)
        self._secrets = manager.informer(SECRETS, field_selector=f"type={TOKEN_TYPE}")
        self._pods = manager.informer(PODS)
        self._clock = manager.clock
        self._period = period

    async def run(self) -> None:
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
        tracking = await self._client.get(MAPS, _TRACKING, _NAMESPACE)
        since = _day((tracking.get("data") or {}).get("since"))
        # Start with the day after: on the first day tracking may have started late.
        return since is not None and since + timedelta(days=1) + self._period <= self._clock.now().replace(tzinfo=None)

    async def _check(self, secret: Obj) -> None:
        meta, now = secret["metadata"], self._clock.now()
        kept_from = (now - self._period).strftime(_DAY)
        labels = meta.get("labels") or {}
        last_used = labels.get(_LAST_USED)
        if "deletionTimestamp" in meta or parse_time(meta["creationTimestamp"]) >= now - self._period:
            return
        if last_used is not None and (_day(last_used) is None or last_used >= kept_from):
            return
        if not self._is_auto_generated(secret) or self._is_mounted(meta["namespace"], meta["name"]):
            return
        invalid_since = labels.get(_INVALID_SINCE)
        if _day(invalid_since) is None:
            change = {"metadata": {"uid": meta["uid"], "labels": {_INVALID_SINCE: now.strftime(_DAY)}}}
            await self._client.patch(SECRETS, meta["name"], change, meta["namespace"])
        elif str(invalid_since) < kept_from:
            try:
                await self._client.delete(
                    SECRETS, meta["name"], meta["namespace"], resource_version=meta["resourceVersion"]
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
