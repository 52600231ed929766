"""What people do to the Nodes of a fleet, through the API: make them, stop them, cut them off, remove them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from setpoint.meta.clock import Clock
from setpoint.node.addresses import AddressPool
from setpoint.node.annotations import RUNNING, STATE, STATES, STOPPED, is_adopted
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.node_state import NodeState
from setpoint.node.registration import lacks_allocatable
from setpoint.reconcile import Controller, EventRecorder, Informer

log = logging.getLogger("setpoint.node")

Obj = dict[str, Any]


class FleetNodes:
    def __init__(
        self,
        nodes: dict[str, NodeState],
        informer: Informer,
        heartbeat: Heartbeat,
        clock: Clock,
        hosts: AddressPool,
        pods: AddressPool,
        events: EventRecorder,
        changed: Callable[[NodeState, str], None],
    ) -> None:
        """`changed(node, what)` is told when a node is `removed`, `stopped`, `partitioned` or `running` again."""
        self._nodes = nodes
        self._informer = informer
        self._heartbeat = heartbeat
        self._hosts = hosts
        self._pods = pods
        self._events = events
        self._changed = changed
        self.controller = Controller("node-state", self._sync, clock, workers=4)

    def watch(self) -> None:
        self._informer.add_handler(self._seen)

    def _seen(self, old: Obj | None, new: Obj | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        node = self._nodes.get(name)
        if new is None:
            if node is not None and node.object is not None:
                # A machine whose Node was removed has left: it comes back when somebody makes a Node for it.
                del self._nodes[name]
                self._heartbeat.forget(name)
                self._hosts.release(name)
                self._changed(node, "removed")
            return
        if node is None:
            if not is_adopted(new):
                return
            node = self._nodes[name] = NodeState(name, self._hosts.take(name, _address(new)), self._pods)
            node.adopted = True
            node.object = new
            self._changed(node, "adopted")
            self.controller.enqueue(name)
            return
        if _said(new) not in STATES and (old is None or _said(old) != _said(new)):
            told = f"annotation {STATE}: {_said(new)!r} is not one of {', '.join(STATES)}"
            self._events.warning(new, "InvalidSimulatedState", told, host=name)
        if node.object is None or _revision(node.object) < _revision(new):
            node.object = new
            node.status_changed |= lacks_allocatable(new.get("status") or {})
        if node.state != _wanted_state(new):
            self.controller.enqueue(name)

    async def _sync(self, name: str) -> None:
        node, seen = self._nodes.get(name), self._informer.get(name)
        if node is None or seen is None:
            return
        wanted, before = _wanted_state(seen), node.state
        if wanted != before:
            node.state = wanted
            log.info("node %s is %s", name, wanted)
            if wanted == RUNNING and before == STOPPED:
                node.boots += 1
                node.status_changed = True
            self._changed(node, wanted)
            if wanted == RUNNING:
                await self._heartbeat.take_over(node)
        elif node.adopted and node.state == RUNNING:
            await self._heartbeat.take_over(node)


def _said(node: Mapping[str, Any]) -> str:
    return str((node["metadata"].get("annotations") or {}).get(STATE, RUNNING))


def _wanted_state(node: Mapping[str, Any]) -> str:
    """What is said that nobody understands changes nothing for a node that runs."""
    said = _said(node)
    return said if said in STATES else RUNNING


def _revision(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _address(node: Mapping[str, Any]) -> str:
    """The one it has already."""
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") == "InternalIP":
            return str(each["address"])
    return ""
