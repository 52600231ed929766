"""Deletes the content of terminating namespaces, then finalizes the namespace."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from setpoint.client import Client, Resource, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import new_condition, with_condition
from setpoint.meta.errors import ApiError, Conflict, MethodNotAllowed, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, Informer, Manager, RateLimitingQueue, Result
from setpoint.reconcile.run import because
from setpoint.reconcile.workqueue import Bucket, ExponentialBackoff

log = logging.getLogger("setpoint.controllers")


_PODS = builtin("pods")
_FINALIZERS_TAKE = 15
"""Seconds allowed for controllers to remove their finalizers."""
_BACKGROUND = "Background"
_HEALTHY = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The conditions in the order of the status, with reason and message for the healthy case."""
_NAMESPACES = builtin("namespaces")
_WORKERS = 10
_SETTLE_SECONDS = 5.0
"""Seconds between the deletion of a namespace and the deletion of its content, by which time requests that were
admitted while it was active have completed."""
_MAX_BACKOFF = 60.0
_FINALIZER = "kubernetes"


@dataclass(slots=True)
class Remainder:
    """The objects that remained in a namespace after everything in it was deleted."""

    estimate: int = 0
    """Seconds until the next attempt is worthwhile; 0 means nothing is waited for."""
    counts: dict[Resource, int] = field(default_factory=dict)
    """Remaining objects by resource; resources without any have no entry."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """The number of remaining objects by finalizer."""
    undiscovered: str = ""
    """Why discovery was incomplete; empty if it was complete."""
    failures: list[str] = field(default_factory=list)
    """An error for each resource whose objects could not be deleted."""
    only_pods: bool = False
    """Pods remain, and therefore nothing else was deleted."""

    @property
    def done(self) -> bool:
        return not (self.estimate or self.counts or self.undiscovered or self.failures)


class ContentRemaining(Exception):
    """Objects remain that should be gone."""


class Content:
    """Deletes the content of a namespace and counts what remains."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def delete(self, namespace: str, deleted_at: str) -> Remainder:
        """Delete Pods first: while one runs it may need its Secrets, claims and service account."""
        found = Remainder()
        resources = await self._discover(found)
        if _PODS.plural in {one.plural for one in resources if not one.group}:
            await self._delete_kind(_PODS, namespace, deleted_at, found)
            if found.counts:
                found.only_pods = True
                return found
        for resource in resources:
            if (resource.group, resource.plural) != ("", _PODS.plural):
                await self._delete_kind(resource, namespace, deleted_at, found)
        return found

    async def _discover(self, found: Remainder) -> list[Resource]:
        discovery = self._client.discovery
        try:
            known = await discovery.resources(fresh=True)
        except (ApiError, Unreachable) as error:
            found.undiscovered = str(error)
            return []
        if discovery.missing:
            found.undiscovered = gap(discovery.missing)
        return deletable(known)

    async def _delete_kind(self, resource: Resource, namespace: str, deleted_at: str, found: Remainder) -> None:
        """Delete the objects of one resource. A failure does not affect other resources."""
        estimate = 0
        try:
            if resource is _PODS:
                estimate = await self._grace(namespace, deleted_at)
            await self._delete_all(resource, namespace)
            estimate = await self._count(resource, namespace, estimate, found)
        except (ApiError, Unreachable, ContentRemaining) as error:
            log.info("namespace %s: %s: %s", namespace, resource.plural, error)
            found.failures.append(str(error))
        found.estimate = max(found.estimate, estimate)

    async def _delete_all(self, resource: Resource, namespace: str) -> None:
        if "deletecollection" in resource.verbs:
            try:
                await self._client.delete_collection(resource, namespace, propagation=_BACKGROUND)
                return
            except (MethodNotAllowed, NotFound):
                pass  # deletecollection is not supported after all: delete one by one
        for item in await self._listed(resource, namespace):
            with suppress(NotFound, MethodNotAllowed):
                await self._client.delete(resource, item["metadata"]["name"], namespace, propagation=_BACKGROUND)

    async def _count(self, resource: Resource, namespace: str, estimate: int, found: Remainder) -> int:
        left = await self._listed(resource, namespace)
        if not left:
            return 0
        found.counts[resource] = len(left)
        finalizers = Counter(name for item in left for name in item["metadata"].get("finalizers") or ())
        found.finalizers += finalizers
        if estimate:
            return estimate
        if finalizers:
            return _FINALIZERS_TAKE
        where = f"{resource.group}/{resource.version}, Resource={resource.plural}"
        raise ContentRemaining(f"unexpected items still remain in namespace: {namespace} for gvr: {where}")

    async def _listed(self, resource: Resource, namespace: str) -> list[Obj]:
        if "list" not in resource.verbs:
            return []
        try:
            return (await self._client.list(resource, namespace, metadata_only=True)).items
        except (MethodNotAllowed, NotFound):
            return []

    async def _grace(self, namespace: str, deleted_at: str) -> int:
        pods = (await self._client.list(_PODS, namespace)).items
        return grace(pods, (self._clock.now() - parse_time(deleted_at)).total_seconds())


def deletable(known: Iterable[Resource]) -> list[Resource]:
    """Return the namespaced resources that can be deleted, each in the preferred version."""
    chosen: dict[tuple[str, str], Resource] = {}
    for resource in known:
        if resource.namespaced:
            chosen.setdefault((resource.group, resource.plural), resource)
    return [resource for resource in chosen.values() if "delete" in resource.verbs]


def gap(missing: Mapping[str, str]) -> str:
    """Return the message about groups that could not be discovered."""
    groups = ", ".join(sorted(f"{version}: {why}" for version, why in missing.items()))
    every = f"unable to retrieve the complete list of server APIs: {groups}"
    return f"Discovery failed for some groups, {len(missing)} failing: {every}"


def grace(pods: Iterable[ObjView], elapsed: float) -> int:
    """Return the longest remaining grace period of the Pods in seconds; 0 if it has passed."""
    longest = 0
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            longest = max(longest, pod["spec"].get("terminationGracePeriodSeconds") or 0)
    return longest if elapsed < longest else 0


# -- conditions -------------------------------------------------------------------------------------------------------


def deletion_conditions(current: Iterable[ObjView], found: Remainder, now: datetime) -> list[ObjView]:
    """Return `current` updated with what was found; other conditions stay. Equal to `current` if nothing changed."""
    failures_by_type = _failures_by_type(found)
    conditions = list(current)
    for kind, healthy in _HEALTHY.items():
        status, (reason, message) = ("True", failures_by_type[kind]) if kind in failures_by_type else ("False", healthy)
        conditions = with_condition(conditions, new_condition(kind, status, reason, message, now))
    return conditions


def _failures_by_type(found: Remainder) -> dict[str, tuple[str, str]]:
    failures_by_type: dict[str, tuple[str, str]] = {}
    if found.undiscovered:
        failures_by_type["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", found.undiscovered)
    if found.failures:
        message = f"Failed to delete all resource types, {len(found.failures)} remaining: "
        message += ", ".join(sorted(found.failures))
        failures_by_type["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if found.only_pods:
        # While Pods terminate, upstream does not report the remaining content.
        return failures_by_type
    if found.counts:
        each = sorted(f"{one.plural}.{one.group} has {count} resource instances" for one, count in found.counts.items())
        message = f"Some resources are remaining: {', '.join(each)}"
        failures_by_type["NamespaceContentRemaining"] = ("SomeResourcesRemain", message)
    if found.finalizers:
        each = sorted(f"{name} in {count} resource instances" for name, count in found.finalizers.items())
        message = f"Some content in the namespace has finalizers remaining: {', '.join(each)}"
        failures_by_type["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return failures_by_type


# -- controller -------------------------------------------------------------------------------------------------------


def namespace_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "namespace-controller"
    clock, namespaces = manager.clock, manager.informer(_NAMESPACES)
    deletion = NamespaceDeletion(manager.client_for(name), clock, namespaces)
    queue = RateLimitingQueue(clock, (ExponentialBackoff(maximum=_MAX_BACKOFF), Bucket(clock)))
    controller = Controller(name, deletion.reconcile, clock, workers=_WORKERS, queue=queue)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None and "deletionTimestamp" in new["metadata"]:
            queue.add_after(new["metadata"]["name"], _SETTLE_SECONDS)

    namespaces.add_handler(changed)
    return controller


class NamespaceDeletion:
    """Reconciles terminating namespaces: deletes their content and removes the finalizer."""

    def __init__(self, client: Client, clock: Clock, namespaces: Informer[Obj]) -> None:
        self._client = client
        self._clock = clock
        self._namespaces = namespaces
        self._content = Content(client, clock)

    async def reconcile(self, name: str) -> Result | None:
        if self._namespaces.get(name) is None:
            return None
        try:
            # Read from the server: the cache may be stale.
            namespace = await self._client.get(_NAMESPACES, name)
            if "deletionTimestamp" not in namespace["metadata"]:
                return None
            because(f"namespace {name} is being deleted")
            namespace = await self._write(namespace, self._mark)
            if not namespace["spec"].get("finalizers"):
                return None
            found = await self._content.delete(name, namespace["metadata"]["deletionTimestamp"])
            namespace = await self._report(namespace, found)
            if found.done:
                because(f"nothing is left in namespace {name}")
                await self._write(namespace, self._finalize)
                return None
        except NotFound:
            return None
        if found.failures or found.undiscovered:
            return Result(retry=True)
        return Result(requeue_after=found.estimate // 2 + 1)

    async def _write(self, namespace: Obj, write: Callable[[Obj], Awaitable[Obj]]) -> Obj:
        """Retry a write on conflicts, but never on another namespace with the same name."""
        while True:
            try:
                return await write(namespace)
            except Conflict:
                fresh = await self._client.get(_NAMESPACES, namespace["metadata"]["name"])
                if fresh["metadata"]["uid"] != namespace["metadata"]["uid"]:
                    raise
                namespace = fresh

    async def _mark(self, namespace: Obj) -> Obj:
        status = namespace.get("status") or {}
        if status.get("phase") == "Terminating":
            return namespace
        changed = {**namespace, "status": {**status, "phase": "Terminating"}}
        return await self._client.update(changed, subresource="status")

    async def _report(self, namespace: Obj, found: Remainder) -> Obj:
        status = namespace["status"]
        current = status.get("conditions") or []
        wanted = deletion_conditions(current, found, self._clock.now())
        if wanted == current:
            return namespace
        changed = {**namespace, "status": {**status, "conditions": wanted}}
        try:
            return await self._client.update(changed, subresource="status")
        except ApiError as error:
            # Ignore a failure: the deletion does not depend on the status.
            log.info("namespace %s: cannot write its conditions: %s", namespace["metadata"]["name"], error)
            return namespace

    async def _finalize(self, namespace: Obj) -> Obj:
        others = sorted({name for name in namespace["spec"].get("finalizers") or () if name != _FINALIZER})
        return await self._client.update(
            {**namespace, "spec": {**namespace["spec"], "finalizers": others}}, subresource="finalize"
        )
