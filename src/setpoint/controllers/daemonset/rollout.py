"""The rollout of a DaemonSet: the revisions of its template, missing and surplus Pods, which Pods are replaced, and
where it may surge.

Nodes with surplus Pods count as unavailable until these are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.daemonset.placement import Verdict, is_updated
from setpoint.controllers.history import (
    REVISION_LABEL,
    REVISIONS,
    History,
    has_template_of,
    in_order,
    number,
    revision_of,
    template_hash,
)
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import is_available, is_ready, phase
from setpoint.kinds.numbers import scaled_value
from setpoint.meta.errors import AlreadyExists, Conflict
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


DAEMON_SETS = builtin("daemonsets", "apps")


def hash_in(obj: ObjView) -> str:
    """Return the revision hash of a ControllerRevision or Pod."""
    return str((obj["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


class DaemonHistory:
    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._history = history

    async def of(self, daemon_set: Obj, pods: Iterable[Pod]) -> tuple[Obj, list[Obj]]:
        """Return the current revision and the old ones. If the template changed, create a revision, or renumber an
        equal old one."""
        found = [await self._labelled(revision) for revision in await self._history.of(daemon_set)]
        current = [revision for revision in found if has_template_of(daemon_set, revision)]
        old = [revision for revision in found if not has_template_of(daemon_set, revision)]
        following = max((number(revision) for revision in old), default=0) + 1
        if not current:
            return await self._create(daemon_set, following), old
        *duplicates, retained = in_order(current)
        if duplicates:
            await self._merge(retained, duplicates, pods)
        if number(retained) < following:
            retained = await self._history.renumber(retained, following)
        return retained, old

    async def tidy(self, daemon_set: Obj, old: Iterable[Obj], pods: Iterable[Pod]) -> None:
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

    async def _merge(self, retained: Obj, duplicates: Iterable[Obj], pods: Iterable[Pod]) -> None:
        digest = hash_in(retained)
        for pod in pods:
            if hash_in(pod) != digest:
                meta = pod["metadata"]
                change = {"metadata": {"labels": {REVISION_LABEL: digest}}}
                await self._client.patch(PODS, meta["name"], change, meta["namespace"])
        for duplicate in duplicates:
            await self._history.drop(duplicate)


ByNode = Mapping[str, Sequence["Pod"]]


@dataclass(slots=True)
class Needs:
    """The changes that one node needs."""

    is_empty: bool = False
    """A Pod is to be created."""
    surplus: list[Pod] = field(default_factory=list)
    """Surplus or misplaced Pods, to be deleted."""
    failed: list[Pod] = field(default_factory=list)
    succeeded: list[Pod] = field(default_factory=list)


def is_leaving(obj: ObjView) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    """Sort scheduled Pods before unscheduled ones, oldest first."""
    return sorted(
        pods,
        key=lambda pod: (
            not pod["spec"].get("nodeName"),
            pod["metadata"].get("creationTimestamp", ""),
            pod["metadata"]["name"],
        ),
    )


def _surge_of(daemon_set: Obj, desired: int) -> int:
    strategy = daemon_set["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return 0
    return scaled_value((strategy.get("rollingUpdate") or {}).get("maxSurge") or 0, desired, up=True)


def needs_of(daemon_set: Obj, verdict: Verdict, pods: Sequence[Pod], revision: str, now: datetime) -> Needs:
    """Return the needs of a node. `pods` are the set's Pods on it, `revision` is the hash of the current template."""
    needs = Needs()
    if verdict.should_run and not pods:
        needs.is_empty = True
    elif not verdict.may_stay:
        needs.surplus = [pod for pod in pods if not is_leaving(pod)]
    else:
        running: list[Pod] = []
        for pod in pods:
            if not is_leaving(pod):
                ended = {"Failed": needs.failed, "Succeeded": needs.succeeded}.get(phase(pod))
                (running if ended is None else ended).append(pod)
        if _surge_of(daemon_set, 1) <= 0:
            needs.surplus = by_age(running)[1:]
        elif running:
            needs.surplus = _beyond_surge(daemon_set, by_age(running), revision, now)
        else:
            # With surge, the new Pod need not wait for the end of the old one.
            needs.is_empty = verdict.should_run
    return needs


def _beyond_surge(daemon_set: Obj, running: Sequence[Pod], revision: str, now: datetime) -> list[Pod]:
    """Return surplus Pods of a surging node. An old and a new Pod may coexist while the old one is available and the
    new one is not yet."""
    if len(running) <= 1:
        return []
    new = [pod for pod in running if (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == revision]
    old = [pod for pod in running if pod not in new]
    surplus = [pod for pod in running if pod not in (*new[:1], *old[:1])]
    if new and old:
        min_ready = daemon_set["spec"].get("minReadySeconds", 0)
        if not is_ready(old[0]) or is_available(new[0], min_ready, now):
            surplus.append(old[0])
    return surplus


def for_missing_nodes(by_node: Mapping[str, Sequence[Pod]], nodes: Mapping[str, Any]) -> list[Pod]:
    """Return Pods for nodes that no longer exist, which no other controller deletes."""
    return [
        pod for name, pods in by_node.items() if name not in nodes for pod in pods if not pod["spec"].get("nodeName")
    ]


# -- rollout ----------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    delete: list[Pod]
    create: list[str]
    """Names of the nodes on which Pods are to be created."""


class _NewAndOld(NamedTuple):
    new: Pod | None
    old: Pod | None


def next_step(daemon_set: Obj, by_node: ByNode, wanted: Sequence[str], revision: str, now: datetime) -> Step:
    """Return the next step of the rollout. `wanted` are the nodes that should run a Pod."""
    rolling = daemon_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    surge = _surge_of(daemon_set, len(wanted))
    unavailable = scaled_value(rolling.get("maxUnavailable") or 0, len(wanted), up=True)
    if wanted and not surge and not unavailable:
        unavailable = 1  # both are zero: allow one, or the rollout could not proceed
    pairs = {
        name: _new_and_old(daemon_set, by_node.get(name, ()), revision) for name in dict.fromkeys((*by_node, *wanted))
    }
    min_ready = daemon_set["spec"].get("minReadySeconds", 0)
    if surge:
        return _surging(pairs, set(wanted), surge, min_ready, now)
    return Step(_replacing(pairs, unavailable, min_ready, now), [])


def _new_and_old(daemon_set: Obj, pods: Sequence[Pod], revision: str) -> _NewAndOld | None:
    """Return the old and new Pod of a node, or None if it has surplus Pods."""
    staying = [pod for pod in pods if not is_leaving(pod)]
    new = [pod for pod in staying if is_updated(daemon_set, pod, revision)]
    old = [pod for pod in staying if pod not in new]
    if len(new) > 1 or len(old) > 1:
        return None
    return _NewAndOld(new[0] if new else None, old[0] if old else None)


def _replacing(pairs: Mapping[str, _NewAndOld | None], limit: int, min_ready: int, now: datetime) -> list[Pod]:
    unavailable = 0
    broken, candidates = [], []
    for pair in pairs.values():
        if pair is None or (pair.new is None) == (pair.old is None):
            unavailable += 1
        elif pair.new is not None:
            unavailable += not is_available(pair.new, min_ready, now)
        elif pair.old is not None and not is_available(pair.old, min_ready, now):
            broken.append(pair.old)
            unavailable += 1
        elif pair.old is not None:
            candidates.append(pair.old)
    return [*broken, *candidates[: max(0, limit - unavailable)]]


def _surging(
    pairs: Mapping[str, _NewAndOld | None], wanted: set[str], limit: int, min_ready: int, now: datetime
) -> Step:
    surging = available = 0
    delete: list[Pod] = []
    misplaced: list[Pod] = []
    urgent: list[str] = []
    candidates: list[str] = []
    for name, pair in pairs.items():
        if pair is None:
            surging += 1
            continue
        first = pair.old or pair.new
        works = first is not None and is_available(first, min_ready, now)
        available += works
        if pair.old is None:
            continue
        if pair.new is not None:
            if is_available(pair.new, min_ready, now):
                delete.append(pair.old)
            else:
                surging += 1
        elif name not in wanted:
            (misplaced if works else delete).append(pair.old)
        else:
            (candidates if works else urgent).append(name)
    # Misplaced Pods are deleted only as others become available elsewhere.
    spare = max(0, available - len(wanted))
    return Step([*delete, *misplaced[:spare]], [*urgent, *candidates[: max(0, limit - surging)]])
