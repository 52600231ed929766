"""Evicts Pods from nodes with NoExecute taints: at once, when their toleration ends, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from setpoint.client import Client
from setpoint.controllers.node_lifecycle.taints import NODES
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import PodsByNode, disruption_target
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of
from setpoint.meta.errors import NotFound
from setpoint.meta.node_fit import NO_EXECUTE, tolerates
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of, split_key
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod
    from setpoint.kinds.typed.node import Taint

AT_ONCE = datetime.min.replace(tzinfo=UTC)
_WORKERS = 8
_REASON = "TaintManagerEviction"


def evicting(node: Node | None) -> list[Taint]:
    """Return the NoExecute taints of a node."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == NO_EXECUTE]


def stays_until(
    taints: Iterable[Taint], tolerations: Iterable[ObjView], since: Callable[[Taint], datetime]
) -> datetime | None:
    """Return until when the Pod may stay, or None if forever. `since(taint)` is when the Pod became subject to it."""
    until: datetime | None = None
    tolerations = list(tolerations)
    for taint in taints:
        # The first matching toleration counts, even if a later one lasts longer.
        match = next((each for each in tolerations if tolerates(each, taint)), None)
        if match is None:
            return AT_ONCE
        seconds = match.get("tolerationSeconds")
        if seconds is None:
            continue
        if seconds <= 0:
            return AT_ONCE
        end = since(taint) + timedelta(seconds=seconds)
        until = end if until is None else min(until, end)
    return until


def bound_at(pod: Pod) -> datetime:
    """Return when the Pod was bound to its node."""
    scheduled = condition_of(pod, "PodScheduled") or {}
    return parse_time(scheduled.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])


# -- controller -------------------------------------------------------------------------------------------------------


def taint_eviction_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "taint-eviction-controller"
    account = "node-controller"
    eviction = TaintEviction(
        manager.client_for(account),
        manager.clock,
        manager.recorder(name, account),
        manager.informer(NODES),
        manager.informer(PODS),
    )
    controller = Controller(name, eviction.reconcile, manager.clock, workers=_WORKERS)
    eviction.watch(controller)
    return controller


class TaintEviction:
    """Evicts by the time at which the taint was added, so that a restart does not extend it. For taints without a time,
    such as those that users add, it counts from when they are first observed."""

    def __init__(
        self, client: Client, clock: Clock, recorder: EventRecorder, nodes: Informer[Node], pods: Informer[Pod]
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._nodes = nodes
        self._pods = pods
        self._by_node = PodsByNode(pods)
        self._since: dict[str, datetime] = {}
        """The time since which a Pod has been due for eviction, by Pod key. It does not restart when one taint follows
        another."""
        self._first_seen: dict[tuple[str, str, str], datetime] = {}
        """Taints without a time, by node, key and value, with the time at which they were first observed."""

    def watch(self, controller: Controller) -> None:
        def node_changed(old: Node | None, new: Node | None) -> None:
            before, after = evicting(old), evicting(new)
            if before == after:
                return
            name = (new or old or {})["metadata"]["name"]
            self._update_first_seen(name, after)
            for pod in self._by_node.on(name):
                controller.enqueue(key_of(pod))

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
            if old is not None and new is not None and _as_tolerating(old) == _as_tolerating(new):
                return
            key = key_of(new or old or {})
            node = self._nodes.get((new or old or {})["spec"].get("nodeName") or "")
            if key in self._since or evicting(node):
                controller.enqueue(key)

        self._nodes.add_handler(node_changed)
        self._pods.add_handler(pod_changed)

    def _update_first_seen(self, node: str, taints: list[Taint]) -> None:
        now = self._clock.now()
        current = {(node, taint["key"], taint.get("value") or "") for taint in taints if not taint.get("timeAdded")}
        for gone in [seen for seen in self._first_seen if seen[0] == node and seen not in current]:
            del self._first_seen[gone]
        for seen in current:
            self._first_seen.setdefault(seen, now)

    async def reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            self._cancel(key)
            return None
        node = pod["spec"].get("nodeName") or ""
        taints = evicting(self._nodes.get(node))
        now = self._clock.now()

        def since(taint: Taint) -> datetime:
            added = taint.get("timeAdded")
            seen = self._first_seen.get((node, taint["key"], taint.get("value") or ""), now)
            return min(max(parse_time(added) if added else seen, bound_at(pod)), self._since.get(key, now))

        until = stays_until(taints, pod["spec"].get("tolerations") or (), since)
        if until is None:
            self._cancel(key)
            return None
        if until is not AT_ONCE and until > now:
            self._since.setdefault(key, min(since(taint) for taint in taints))
            return Result(requeue_after=(until - now).total_seconds())
        if until is AT_ONCE:
            self._cancel(key)
        tolerated = "which the Pod does not tolerate" if until is AT_ONCE else "which the Pod tolerates only for a time"
        because(f"{node} has the NoExecute taint {taints[0]['key']}, {tolerated}")
        await self._evict(key, pod)
        return None

    async def _evict(self, key: str, pod: Pod) -> None:
        self._recorder.normal(_reference(key), _REASON, f"Marking for deletion Pod {key}")
        meta = pod["metadata"]
        message = "Taint manager: deleting due to NoExecute taint"
        try:
            fresh = cast("Pod", await self._client.get(PODS, meta["name"], meta["namespace"]))
            if fresh["metadata"]["uid"] == meta["uid"]:
                target = disruption_target(fresh, "DeletionByTaintManager", message, self._clock.now())
                if target is not None:
                    change = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [target]}}
                    await self._client.patch(
                        PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status"
                    )
                await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            pass
        self._since.pop(key, None)

    def _cancel(self, key: str) -> None:
        if self._since.pop(key, None) is not None:
            self._recorder.normal(_reference(key), _REASON, f"Cancelling deletion of Pod {key}")


def _reference(key: str) -> Obj:
    namespace, name = split_key(key)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}


def _as_tolerating(pod: Pod) -> tuple[object, object, bool]:
    spec = pod["spec"]
    return spec.get("nodeName"), spec.get("tolerations"), "deletionTimestamp" in pod["metadata"]
