"""Deletes the content of a namespace and counts what remains."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from setpoint.client import Client, Resource, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, MethodNotAllowed, NotFound
from setpoint.meta.times import parse_time

log = logging.getLogger("setpoint.controllers")

Obj = dict[str, Any]

PODS = builtin("pods")
_FINALIZERS_TAKE = 15
"""Seconds allowed for controllers to remove their finalizers."""
_BACKGROUND = "Background"


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
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def delete(self, namespace: str, deleted_at: str) -> Remainder:
        """Delete Pods first: while one runs it may need its Secrets, claims and service account."""
        found = Remainder()
        resources = await self._discover(found)
        if PODS.plural in {one.plural for one in resources if not one.group}:
            await self._delete_kind(PODS, namespace, deleted_at, found)
            if found.counts:
                found.only_pods = True
                return found
        for resource in resources:
            if (resource.group, resource.plural) != ("", PODS.plural):
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
            if resource is PODS:
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
        pods = (await self._client.list(PODS, namespace)).items
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


def grace(pods: Iterable[Obj], elapsed: float) -> int:
    """Return the longest remaining grace period of the Pods in seconds; 0 if it has passed."""
    longest = 0
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            longest = max(longest, pod["spec"].get("terminationGracePeriodSeconds") or 0)
    return longest if elapsed < longest else 0
