"""Creates and deletes the Pods of an owner, in growing batches, and records the Events that users expect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.ownership import controller_reference
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import EventRecorder

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

PODS = builtin("pods")


def is_namespace_terminating(error: ApiError) -> bool:
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def pod_from(template: ObjView, owner: ObjView, generate_name: str = "") -> Obj:
    meta = template.get("metadata") or {}
    name = owner["metadata"]["name"]
    kept = {key: meta[key] for key in ("labels", "annotations", "finalizers") if meta.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            "generateName": generate_name or (name if dns1123_subdomain(f"{name}-x") else f"{name}-"),
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [controller_reference(owner)],
        },
        "spec": template.get("spec") or {},
    }


class PodControl:
    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(self, owner: ObjView, template: ObjView, generate_name: str = "") -> Obj:
        """Create a Pod. `generate_name` is the prefix of its name, by default the owner's name."""
        try:
            made = await self._client.create(pod_from(template, owner, generate_name))
        except ApiError as error:
            # In a terminating namespace every creation fails: do not record an Event for each.
            if not is_namespace_terminating(error):
                self._recorder.warning(owner, "FailedCreate", f"Error creating: {error}")
            raise
        self._recorder.normal(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return made

    async def delete(self, owner: ObjView, pod: Pod) -> Obj:
        meta = pod["metadata"]
        try:
            answer = await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            raise
        except ApiError as error:
            self._recorder.warning(owner, "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.normal(owner, "SuccessfulDelete", f"Deleted pod: {meta['name']}")
        return answer


# -- batches ----------------------------------------------------------------------------------------------------------


async def slow_start(count: int, do: Callable[[], Awaitable[None]]) -> tuple[int, Exception | None]:
    """Run `do` in concurrent batches of 1, 2, 4, ... and stop after the first batch with a failure, because what fails
    once would likely fail every time. Return the number of successes and the first failure."""
    succeeded, batch = 0, 1
    while succeeded < count:
        outcomes = await asyncio.gather(*(do() for _ in range(min(batch, count - succeeded))), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        succeeded += len(outcomes) - len(failures)
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            return succeeded, failures[0]  # type: ignore[return-value]
        batch *= 2
    return succeeded, None
