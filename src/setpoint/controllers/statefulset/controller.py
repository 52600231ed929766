"""Reconciles StatefulSets: creates missing Pods, deletes surplus ones, then continues the rollout."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.availability import is_available, requeue_when_available
from setpoint.controllers.history import REVISIONS, History, template_in
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pod_owners import PodOwners
from setpoint.controllers.pods import phase
from setpoint.controllers.slow_start import slow_start
from setpoint.controllers.statefulset.identity import (
    follows_current,
    identity_matches,
    in_range,
    is_member,
    new_pod,
    ordinal_of,
    revision_of_pod,
    size,
    start,
    storage_matches,
)
from setpoint.controllers.statefulset.replicas import CLAIMS, ClaimsMissing, Replicas
from setpoint.controllers.statefulset.revisions import Revisions, beyond_limit, revisions_of
from setpoint.controllers.statefulset.rollout import (
    in_parallel,
    is_created,
    is_leaving,
    is_running_and_ready,
    is_unavailable,
    to_replace,
)
from setpoint.controllers.statefulset.status import counts_of, differs, status_of
from setpoint.controllers.written_revisions import WrittenRevisions
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict
from setpoint.meta.selectors import NOTHING, from_label_selector
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of

Obj = dict[str, Any]

log = logging.getLogger("setpoint.controllers")

STATEFUL_SETS = builtin("statefulsets", "apps")
_WORKERS = 5


def statefulset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "statefulset-controller"
    client, writes = manager.client_for(name), WrittenRevisions()
    sets, pods, claims = (manager.informer(resource) for resource in (STATEFUL_SETS, PODS, CLAIMS))
    replicas = Replicas(client, manager.recorder(name), pods, claims, writes)
    history = History(client, STATEFUL_SETS, manager.informer(REVISIONS))
    reconciler = StatefulSets(client, manager.clock, sets, pods, replicas, history, writes)
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class _Layout(NamedTuple):
    """The Pods of a set, grouped by what will be done with them."""

    replicas: list[Obj]
    """The Pods of all ordinals, in order; missing ones are in the form in which they will be created."""
    condemned: list[Obj]
    """Pods beyond the size of the set, the highest ordinal first."""
    first_unavailable: Obj | None


class StatefulSets:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        sets: Informer,
        pods: Informer,
        replicas: Replicas,
        history: History,
        writes: WrittenRevisions,
    ) -> None:
        self._client = client
        self._clock = clock
        self._sets = sets
        self._pods = pods
        self._replicas = replicas
        self._history = history
        self._writes = writes

    def watch(self, controller: Controller) -> None:
        owners = PodOwners("StatefulSet", self._sets)

        def set_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            for key in owners.affected(old, new):
                controller.enqueue(key)

        self._sets.add_handler(set_changed)
        self._pods.add_handler(pod_changed)

    # -- reconcile ----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        if not self._writes.seen(key):
            return Result(retry=True)
        stateful_set = self._sets.get(key)
        if stateful_set is None:
            self._writes.forget(key)
            return None
        known = await self._history.of(stateful_set)
        pods = await self._members(stateful_set)
        revisions = await revisions_of(self._client, self._history, stateful_set, known)
        now = self._clock.now()
        failure, counts = await self._converge(stateful_set, pods, revisions, now)
        await self._write_status(stateful_set, status_of(stateful_set, counts, *revisions.names, revisions.collisions))
        for revision in beyond_limit(stateful_set, known, revisions, map(revision_of_pod, pods)):
            await self._history.drop(revision)
        if isinstance(failure, ClaimsMissing):
            log.info("stateful set %s: %s", key, failure)
            return Result(retry=True)
        if failure is not None:
            raise failure
        return requeue_when_available(pods, stateful_set["spec"].get("minReadySeconds", 0), now)

    async def _members(self, stateful_set: Obj) -> list[Obj]:
        meta = stateful_set["metadata"]
        owned = self._pods.controlled_by(meta["uid"])
        candidates = [pod for pod in (*owned, *self._pods.orphans(meta["namespace"])) if is_member(stateful_set, pod)]
        selector = from_label_selector(stateful_set["spec"]["selector"])
        members = await Claim(self._client, STATEFUL_SETS, stateful_set, PODS, selector).claimed(candidates)
        strangers = [pod for pod in owned if not is_member(stateful_set, pod)]
        if strangers:
            # A Pod whose name does not fit is not a member, whatever its labels.
            await Claim(self._client, STATEFUL_SETS, stateful_set, PODS, NOTHING).claimed(strangers)
        return members

    async def _converge(
        self, stateful_set: Obj, pods: list[Obj], revisions: Revisions, now: datetime
    ) -> tuple[Exception | None, dict[str, int]]:
        """Converge as far as possible. Return what prevented further progress, and the counters for the status."""
        names = revisions.names
        if is_leaving(stateful_set):
            return None, counts_of(stateful_set, pods, *names, now)
        layout = _layout(stateful_set, pods, revisions, now)
        counts = counts_of(stateful_set, [*layout.replicas, *layout.condemned], *names, now)
        try:
            if await self._fill_and_empty(stateful_set, layout, now):
                if stateful_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
                    for pod in to_replace(stateful_set, layout.replicas, names[1], now):
                        await self._replicas.delete(stateful_set, pod)
                        counts["currentReplicas"] -= 1
        except Exception as error:  # returned, because the caller writes the status before it raises
            return error, counts
        return None, counts

    async def _fill_and_empty(self, stateful_set: Obj, layout: _Layout, now: datetime) -> bool:
        """Create, fix and delete Pods. Return whether all are in place, as far as the pod management policy
        requires."""

        async def keep(pod: Obj) -> bool:
            return await self._keep(stateful_set, pod, now)

        async def adjust(pod: Obj) -> bool:
            if not self._replicas.owners_match(stateful_set, pod):
                await self._replicas.adjust_owners(stateful_set, pod)
            return True

        async def dismiss(pod: Obj) -> bool:
            return await self._scale_down(stateful_set, pod, layout.first_unavailable, now)

        ordered = not in_parallel(stateful_set)
        for step, pods in ((keep, layout.replicas), (adjust, layout.condemned), (dismiss, layout.condemned)):
            if not await _for_all(pods, step, ordered=ordered):
                return False
        return True

    async def _keep(self, stateful_set: Obj, pod: Obj, now: datetime) -> bool:
        """Ensure one Pod. Return whether the next one may follow."""
        ordered = not in_parallel(stateful_set)
        if phase(pod) in ("Failed", "Succeeded"):
            # Recreate it after its deletion, whether it succeeded or failed.
            if not is_leaving(pod):
                await self._replicas.delete(stateful_set, pod)
            return False
        if not is_created(pod):
            if not self._replicas.claims_are_stale(stateful_set, pod):
                await self._replicas.create(stateful_set, pod)
            return not ordered
        if phase(pod) == "Pending":
            await self._replicas.complete_claims(stateful_set, pod)
        min_ready = stateful_set["spec"].get("minReadySeconds", 0)
        if ordered and (is_leaving(pod) or not is_running_and_ready(pod) or not is_available(pod, min_ready, now)):
            return False
        if not (
            identity_matches(stateful_set, pod)
            and storage_matches(stateful_set, pod)
            and self._replicas.owners_match(stateful_set, pod)
        ):
            await self._replicas.update(stateful_set, pod)
        return True

    async def _scale_down(self, stateful_set: Obj, pod: Obj, first_unavailable: Obj | None, now: datetime) -> bool:
        """Delete surplus Pods one at a time, the highest ordinal first, while all others are healthy."""
        ordered = not in_parallel(stateful_set)
        if is_leaving(pod):
            return not ordered
        min_ready = stateful_set["spec"].get("minReadySeconds", 0)
        is_well = is_running_and_ready(pod) and is_available(pod, min_ready, now)
        if ordered and not is_well and pod is not first_unavailable:
            return False
        await self._replicas.delete(stateful_set, pod)
        return False

    async def _write_status(self, stateful_set: Obj, status: Obj) -> None:
        if not differs(stateful_set, status):
            return
        key = key_of(stateful_set)
        try:
            made = await self._client.update({**stateful_set, "status": status}, subresource="status")
        except Conflict:
            # Often only the spec changed meanwhile; observedGeneration says which spec this status refers to.
            meta = stateful_set["metadata"]
            fresh = await self._client.get(STATEFUL_SETS, meta["name"], meta["namespace"])
            if fresh["metadata"]["uid"] != meta["uid"]:
                return
            made = await self._client.update({**fresh, "status": status}, subresource="status")
        self._writes.wrote(key, self._sets, made)


def _layout(stateful_set: Obj, pods: Sequence[Obj], revisions: Revisions, now: datetime) -> _Layout:
    present = {ordinal_of(pod): pod for pod in pods if in_range(stateful_set, pod)}
    first, min_ready = start(stateful_set), stateful_set["spec"].get("minReadySeconds", 0)
    replicas = [
        present.get(ordinal) or _missing(stateful_set, revisions, ordinal)
        for ordinal in range(first, first + size(stateful_set))
    ]
    condemned = [pod for pod in pods if ordinal_of(pod) >= 0 and not in_range(stateful_set, pod)]
    condemned.sort(key=ordinal_of, reverse=True)
    unavailable = (pod for pod in [*replicas, *reversed(condemned)] if is_unavailable(pod, min_ready, now))
    return _Layout(replicas, condemned, next(unavailable, None))


def _missing(stateful_set: Obj, revisions: Revisions, ordinal: int) -> Obj:
    revision = revisions.current if follows_current(stateful_set, ordinal) else revisions.update
    return new_pod(stateful_set, template_in(revision), revision["metadata"]["name"], ordinal)


async def _for_all(pods: Sequence[Obj], step: Callable[[Obj], Awaitable[bool]], *, ordered: bool) -> bool:
    """Run a step for all Pods: in order until one returns False, or concurrently with a slow start."""
    if ordered:
        for pod in pods:
            if not await step(pod):
                return False
        return True
    remaining = iter(pods)

    async def one() -> None:
        await step(next(remaining))

    _, failure = await slow_start(len(pods), one)
    if failure is not None:
        raise failure
    return True
