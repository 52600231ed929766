"""The current and former revisions of a DaemonSet's template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.hashing import template_hash
from setpoint.controllers.history import (
    REVISION_LABEL,
    REVISIONS,
    History,
    has_template_of,
    in_order,
    number,
    revision_of,
)
from setpoint.controllers.pod_control import PODS
from setpoint.meta.errors import AlreadyExists, Conflict

Obj = dict[str, Any]

DAEMON_SETS = builtin("daemonsets", "apps")


def hash_in(obj: Obj) -> str:
    """Return the revision hash of a ControllerRevision or Pod."""
    return str((obj["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


class DaemonHistory:
    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._history = history

    async def of(self, daemon_set: Obj, pods: Iterable[Obj]) -> tuple[Obj, list[Obj]]:
        """Return the current revision and the old ones. If the template changed, create a revision, or renumber an
        equal old one."""
        found = [await self._labelled(revision) for revision in await self._history.of(daemon_set)]
        current = [revision for revision in found if has_template_of(daemon_set, revision)]
        old = [revision for revision in found if not has_template_of(daemon_set, revision)]
        following = max((number(revision) for revision in old), default=0) + 1
        if not current:
            return await self._create(daemon_set, following), old
        *twins, retained = in_order(current)
        if twins:
            await self._merge(retained, twins, pods)
        if number(retained) < following:
            retained = await self._history.renumber(retained, following)
        return retained, old

    async def tidy(self, daemon_set: Obj, old: Iterable[Obj], pods: Iterable[Obj]) -> None:
        """Delete revisions beyond the history limit, except those that a Pod uses."""
        known = in_order(old)
        excess = len(known) - int(daemon_set["spec"].get("revisionHistoryLimit", 10))
        live = {hash_in(pod) for pod in pods} if excess > 0 else set()
        for revision in known:
            if excess <= 0:
                return
            if hash_in(revision) not in live:
                await self._history.drop(revision)
                excess -= 1

    async def _labelled(self, revision: Obj) -> Obj:
        if hash_in(revision):
            return revision
        meta = revision["metadata"]
        labels = {**(meta.get("labels") or {}), REVISION_LABEL: meta["name"]}
        return await self._client.update({**revision, "metadata": {**meta, "labels": labels}})

    async def _create(self, daemon_set: Obj, count: int) -> Obj:
        meta, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        collisions = (daemon_set.get("status") or {}).get("collisionCount")
        digest = template_hash(template, collisions)
        name = f"{meta['name']}-{digest}"
        labels = {**((template.get("metadata") or {}).get("labels") or {}), REVISION_LABEL: digest}
        try:
            return await self._client.create(revision_of(daemon_set, name, labels, count))
        except AlreadyExists:
            # From an earlier reconcile that the cache does not show yet, or a hash collision.
            there = await self._client.get(REVISIONS, name, meta["namespace"])
            if has_template_of(daemon_set, there):
                return there
            fresh = await self._client.get(DAEMON_SETS, meta["name"], meta["namespace"])
            status = fresh.get("status") or {}
            if status.get("collisionCount") != collisions:
                raise Conflict(f'the collision count of DaemonSet "{meta["name"]}" is out of date') from None
            status = {**status, "collisionCount": (collisions or 0) + 1}
            await self._client.update({**fresh, "status": status}, subresource="status")
            raise

    async def _merge(self, retained: Obj, twins: Iterable[Obj], pods: Iterable[Obj]) -> None:
        digest = hash_in(retained)
        for pod in pods:
            if hash_in(pod) != digest:
                meta = pod["metadata"]
                change = {"metadata": {"labels": {REVISION_LABEL: digest}}}
                await self._client.patch(PODS, meta["name"], change, meta["namespace"])
        for twin in twins:
            await self._history.drop(twin)
