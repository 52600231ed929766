"""Reconciles StatefulSets: creates missing Pods, deletes surplus ones, continues the rollout, writes the status."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.expectations import WrittenRevisions
from setpoint.controllers.history import REVISIONS, History, template_in
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim, PodOwners
from setpoint.controllers.pod_control import PODS, slow_start
from setpoint.controllers.pods import is_available, is_ready, phase, requeue_when_available
from setpoint.controllers.statefulset.identity import (
    Revisions,
    beyond_limit,
    follows_current,
    identity_matches,
    in_range,
    is_member,
    new_pod,
    ordinal_of,
    partition,
    revision_of_pod,
    revisions_of,
    size,
    start,
    storage_matches,
)
from setpoint.controllers.statefulset.replicas import CLAIMS, ClaimsMissing, Replicas
from setpoint.controllers.subresources import write_status
from setpoint.kinds.numbers import scaled_value
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import NOTHING, from_label_selector
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.controllers")
_NUMBERS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_ALWAYS_SHOWN = ("replicas", "availableReplicas")
_STATEFUL_SETS = builtin("statefulsets", "apps")
_WORKERS = 5


def _is_created(pod: Pod) -> bool:
    return phase(pod) != ""


def _is_leaving(obj: ObjView) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _is_running_and_ready(pod: Pod) -> bool:
    return phase(pod) == "Running" and is_ready(pod)


def _is_unavailable(pod: Pod, min_ready: int, now: datetime) -> bool:
    """Return whether the Pod is unavailable or being deleted."""
    return _is_leaving(pod) or not is_available(pod, min_ready, now)


def _in_parallel(stateful_set: Obj) -> bool:
    return bool(stateful_set["spec"].get("podManagementPolicy") == "Parallel")


def max_unavailable(stateful_set: Obj) -> int:
    """Return maxUnavailable, at least one so that the rollout can proceed."""
    rolling = stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    requested = rolling.get("maxUnavailable")
    return 1 if requested is None else max(1, scaled_value(requested, size(stateful_set), up=False))


def to_replace(stateful_set: Obj, replicas: Sequence[Pod], update: str, now: datetime) -> list[Pod]:
    """Return the Pods to delete, the highest ordinal first. `replicas` are sorted by ordinal; `update` is the name of
    the update revision."""
    min_ready = stateful_set["spec"].get("minReadySeconds", 0)
    parallel = _in_parallel(stateful_set)
    unavailable = [pod for pod in replicas if _is_unavailable(pod, min_ready, now)]

    def is_outdated(pod: Pod) -> bool:
        return revision_of_pod(pod) != update and not _is_leaving(pod) and _is_created(pod)

    candidates = [pod for pod in reversed(replicas[partition(stateful_set) :]) if is_outdated(pod)]
    allowed = max(0, max_unavailable(stateful_set) - len(unavailable))
    if not parallel:
        return candidates[:allowed]
    # Unavailable Pods are replaced first and cost nothing; only available ones count towards the limit.
    broken = [pod for pod in candidates if not is_available(pod, min_ready, now)]
    working = [pod for pod in candidates if is_available(pod, min_ready, now)]
    return [*broken, *working[:allowed]]


# -- status -----------------------------------------------------------------------------------------------------------


def _counts_of(stateful_set: Obj, pods: Iterable[Pod], current: str, update: str, now: datetime) -> dict[str, int]:
    """Count the Pods. `current` and `update` are the names of the revisions."""
    min_ready = stateful_set["spec"].get("minReadySeconds", 0)
    counts = dict.fromkeys(_NUMBERS, 0)
    for pod in pods:
        created = _is_created(pod)
        counts["replicas"] += created
        if _is_running_and_ready(pod):
            counts["readyReplicas"] += 1
            counts["availableReplicas"] += is_available(pod, min_ready, now)
        if created and not _is_leaving(pod):
            revision = revision_of_pod(pod)
            counts["currentReplicas"] += revision == current
            counts["updatedReplicas"] += revision == update
    return counts


def _status_of(stateful_set: Obj, counts: dict[str, int], current: str, update: str, collisions: int) -> Obj:
    desired = size(stateful_set)
    counts = dict(counts)
    if counts["updatedReplicas"] == counts["readyReplicas"] == counts["replicas"] == desired:
        # The update is complete: the update revision becomes the current one.
        counts["currentReplicas"] = counts["updatedReplicas"]
        current = update
    status: Obj = {"observedGeneration": stateful_set["metadata"]["generation"]}
    status.update({name: counts[name] for name in _NUMBERS if counts[name] or name in _ALWAYS_SHOWN})
    status.update(currentRevision=current, updateRevision=update, collisionCount=collisions)
    conditions = (stateful_set.get("status") or {}).get("conditions")
    if conditions:
        status["conditions"] = conditions
    return status


def _differs(stateful_set: Obj, status: Obj) -> bool:
    """Return whether the status must be written. observedGeneration never decreases."""
    before = stateful_set.get("status") or {}
    names = (*_NUMBERS, "currentRevision", "updateRevision", "conditions")
    return status["observedGeneration"] > before.get("observedGeneration", 0) or any(
        (status.get(name) or 0) != (before.get(name) or 0) for name in names
    )


# -- controller -------------------------------------------------------------------------------------------------------


def statefulset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "statefulset-controller"
    client, writes = manager.client_for(name), WrittenRevisions()
    sets, pods, claims = (manager.informer(resource) for resource in (_STATEFUL_SETS, PODS, CLAIMS))
    replicas = Replicas(client, manager.recorder(name), pods, claims, writes)
    history = History(client, _STATEFUL_SETS, manager.informer(REVISIONS))
    reconciler = StatefulSets(client, manager.clock, sets, pods, replicas, history, writes)
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class _Layout(NamedTuple):
    """The Pods of a set, grouped by what will be done with them."""

    replicas: list[Pod]
    """The Pods of all ordinals, in order; missing ones are in the form in which they will be created."""
    condemned: list[Pod]
    """Pods beyond the size of the set, the highest ordinal first."""
    first_unavailable: Pod | None


class StatefulSets:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        sets: Informer[Obj],
        pods: Informer[Pod],
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

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
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
        await self._write_status(stateful_set, _status_of(stateful_set, counts, *revisions.names, revisions.collisions))
        for revision in beyond_limit(stateful_set, known, revisions, map(revision_of_pod, pods)):
            await self._history.drop(revision)
        if isinstance(failure, ClaimsMissing):
            log.info("stateful set %s: %s", key, failure)
            return Result(retry=True)
        if failure is not None:
            raise failure
        return requeue_when_available(pods, stateful_set["spec"].get("minReadySeconds", 0), now)

    async def _members(self, stateful_set: Obj) -> list[Pod]:
        meta = stateful_set["metadata"]
        owned = self._pods.controlled_by(meta["uid"])
        candidates = [pod for pod in (*owned, *self._pods.orphans(meta["namespace"])) if is_member(stateful_set, pod)]
        selector = from_label_selector(stateful_set["spec"]["selector"])
        members = await Claim(self._client, _STATEFUL_SETS, stateful_set, PODS, selector).claimed(candidates)
        misnamed = [pod for pod in owned if not is_member(stateful_set, pod)]
        if misnamed:
            # A Pod whose name does not fit is not a member, whatever its labels.
            await Claim(self._client, _STATEFUL_SETS, stateful_set, PODS, NOTHING).claimed(misnamed)
        return members

    async def _converge(
        self, stateful_set: Obj, pods: list[Pod], revisions: Revisions, now: datetime
    ) -> tuple[Exception | None, dict[str, int]]:
        """Converge as far as possible. Return what prevented further progress, and the counters for the status."""
        names = revisions.names
        if _is_leaving(stateful_set):
            return None, _counts_of(stateful_set, pods, *names, now)
        layout = _layout(stateful_set, pods, revisions, now)
        counts = _counts_of(stateful_set, [*layout.replicas, *layout.condemned], *names, now)
        try:
            if await self._fill_and_empty(stateful_set, layout, now):
                if stateful_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
                    for pod in to_replace(stateful_set, layout.replicas, names[1], now):
                        because(f"{pod['metadata']['name']} is not of the update revision {names[1]}")
                        await self._replicas.delete(stateful_set, pod)
                        counts["currentReplicas"] -= 1
        except Exception as error:  # returned, because the caller writes the status before it raises
            return error, counts
        return None, counts

    async def _fill_and_empty(self, stateful_set: Obj, layout: _Layout, now: datetime) -> bool:
        """Create, fix and delete Pods. Return whether all are in place, as far as the pod management policy
        requires."""

        async def ensure(pod: Pod) -> bool:
            return await self._ensure(stateful_set, pod, now)

        async def adjust(pod: Pod) -> bool:
            if not self._replicas.owners_match(stateful_set, pod):
                await self._replicas.adjust_owners(stateful_set, pod)
            return True

        async def scale_down(pod: Pod) -> bool:
            return await self._scale_down(stateful_set, pod, layout.first_unavailable, now)

        ordered = not _in_parallel(stateful_set)
        for step, pods in ((ensure, layout.replicas), (adjust, layout.condemned), (scale_down, layout.condemned)):
            if not await _for_all(pods, step, ordered=ordered):
                return False
        return True

    async def _ensure(self, stateful_set: Obj, pod: Pod, now: datetime) -> bool:
        """Ensure one Pod. Return whether the next one may follow."""
        ordered = not _in_parallel(stateful_set)
        if phase(pod) in ("Failed", "Succeeded"):
            # Recreate it after its deletion, whether it succeeded or failed.
            if not _is_leaving(pod):
                because(f"{pod['metadata']['name']} has ended and is replaced")
                await self._replicas.delete(stateful_set, pod)
            return False
        if not _is_created(pod):
            if not self._replicas.claims_are_stale(stateful_set, pod):
                because(f"of {size(stateful_set)} wanted replicas, {pod['metadata']['name']} does not exist")
                await self._replicas.create(stateful_set, pod)
            return not ordered
        if phase(pod) == "Pending":
            await self._replicas.complete_claims(stateful_set, pod)
        min_ready = stateful_set["spec"].get("minReadySeconds", 0)
        if ordered and (_is_leaving(pod) or not _is_running_and_ready(pod) or not is_available(pod, min_ready, now)):
            return False
        if not (
            identity_matches(stateful_set, pod)
            and storage_matches(stateful_set, pod)
            and self._replicas.owners_match(stateful_set, pod)
        ):
            await self._replicas.update(stateful_set, pod)
        return True

    async def _scale_down(self, stateful_set: Obj, pod: Pod, first_unavailable: Pod | None, now: datetime) -> bool:
        """Delete surplus Pods one at a time, the highest ordinal first, while all others are healthy."""
        ordered = not _in_parallel(stateful_set)
        if _is_leaving(pod):
            return not ordered
        min_ready = stateful_set["spec"].get("minReadySeconds", 0)
        is_well = _is_running_and_ready(pod) and is_available(pod, min_ready, now)
        if ordered and not is_well and pod is not first_unavailable:
            return False
        because(f"{pod['metadata']['name']} is beyond the {size(stateful_set)} wanted replicas")
        await self._replicas.delete(stateful_set, pod)
        return False

    async def _write_status(self, stateful_set: Obj, status: Obj) -> None:
        if not _differs(stateful_set, status):
            return
        because("")
        written = await write_status(self._client, _STATEFUL_SETS, stateful_set, status)
        if written is not None:
            self._writes.wrote(key_of(stateful_set), self._sets, written)


def _layout(stateful_set: Obj, pods: Sequence[Pod], revisions: Revisions, now: datetime) -> _Layout:
    present = {ordinal_of(pod): pod for pod in pods if in_range(stateful_set, pod)}
    first, min_ready = start(stateful_set), stateful_set["spec"].get("minReadySeconds", 0)
    replicas = [
        present.get(ordinal) or _missing(stateful_set, revisions, ordinal)
        for ordinal in range(first, first + size(stateful_set))
    ]
    condemned = [pod for pod in pods if ordinal_of(pod) >= 0 and not in_range(stateful_set, pod)]
    condemned.sort(key=ordinal_of, reverse=True)
    unavailable = (pod for pod in [*replicas, *reversed(condemned)] if _is_unavailable(pod, min_ready, now))
    return _Layout(replicas, condemned, next(unavailable, None))


def _missing(stateful_set: Obj, revisions: Revisions, ordinal: int) -> Pod:
    revision = revisions.current if follows_current(stateful_set, ordinal) else revisions.update
    return new_pod(stateful_set, template_in(revision), revision["metadata"]["name"], ordinal)


async def _for_all(pods: Sequence[Pod], step: Callable[[Pod], Awaitable[bool]], *, ordered: bool) -> bool:
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
