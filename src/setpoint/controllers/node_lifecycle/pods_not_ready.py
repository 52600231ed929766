"""Marks the Pods of an unreachable node as not ready, so that they are removed from endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import is_ready
from setpoint.meta.clock import Clock
from setpoint.meta.errors import NotFound
from setpoint.meta.times import format_time
from setpoint.reconcile import EventRecorder

Obj = dict[str, Any]


async def mark_not_ready(client: Client, clock: Clock, recorder: EventRecorder, pods: Iterable[Obj]) -> None:
    for pod in pods:
        if not is_ready(pod):
            continue
        meta = pod["metadata"]
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": format_time(clock.now())}
        change = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [ready]}}
        with suppress(NotFound):
            await client.patch(PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status")
            recorder.warning(pod, "NodeNotReady", "Node is not ready")
