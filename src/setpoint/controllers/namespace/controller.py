"""Reconciles terminating namespaces: deletes their content and removes the finalizer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.namespace.conditions import conditions_of
from setpoint.controllers.namespace.content import Content, Remainder
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.reconcile import Controller, Informer, Manager, RateLimitingQueue, Result
from setpoint.reconcile.rate_limiting import Bucket, ExponentialBackoff

log = logging.getLogger("setpoint.controllers")

Obj = dict[str, Any]

NAMESPACES = builtin("namespaces")
_WORKERS = 10
_SETTLE_SECONDS = 5.0
"""Seconds between the deletion of a namespace and the deletion of its content, by which time requests that were
admitted while it was active have completed."""
_LONGEST_RETRY = 60.0
_FINALIZER = "kubernetes"


def namespace_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "namespace-controller"
    clock, namespaces = manager.clock, manager.informer(NAMESPACES)
    emptying = Emptying(manager.client_for(name), clock, namespaces)
    queue = RateLimitingQueue(clock, (ExponentialBackoff(longest=_LONGEST_RETRY), Bucket(clock)))
    controller = Controller(name, emptying.reconcile, clock, workers=_WORKERS, queue=queue)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None and "deletionTimestamp" in new["metadata"]:
            queue.add_after(new["metadata"]["name"], _SETTLE_SECONDS)

    namespaces.add_handler(changed)
    return controller


class Emptying:
    def __init__(self, client: Client, clock: Clock, namespaces: Informer) -> None:
        self._client = client
        self._clock = clock
        self._namespaces = namespaces
        self._content = Content(client, clock)

    async def reconcile(self, name: str) -> Result | None:
        if self._namespaces.get(name) is None:
            return None
        try:
            # Read from the server: the cache may be stale.
            namespace = await self._client.get(NAMESPACES, name)
            if "deletionTimestamp" not in namespace["metadata"]:
                return None
            namespace = await self._write(namespace, self._mark)
            if not namespace["spec"].get("finalizers"):
                return None
            found = await self._content.delete(name, namespace["metadata"]["deletionTimestamp"])
            namespace = await self._report(namespace, found)
            if found.done:
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
                fresh = await self._client.get(NAMESPACES, namespace["metadata"]["name"])
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
        wanted = conditions_of(current, found, self._clock.now())
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
