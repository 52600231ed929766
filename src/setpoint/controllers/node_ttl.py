"""Sets the annotation that says how long nodes may cache ConfigMaps and Secrets; it grows with the number of nodes."""

from __future__ import annotations

from typing import NamedTuple

from setpoint.controllers.node_lifecycle.taints import NODES
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, Manager, key_of

_ANNOTATION = "node.alpha.kubernetes.io/ttl"
_WORKERS = 5


class Step(NamedTuple):
    least: int
    most: int
    """The number of nodes up to which the step applies. Steps overlap, so that a cluster at a boundary does not switch
    with every node."""
    seconds: int


STEPS = (Step(0, 100, 0), Step(90, 500, 15), Step(450, 1000, 30), Step(900, 2000, 60), Step(1800, 1 << 31, 300))


def step_for(nodes: int, current: int) -> int:
    """Return the index of the step for this number of nodes, given the current step."""
    while nodes > STEPS[current].most:
        current += 1
    while nodes < STEPS[current].least:
        current -= 1
    return current


def node_ttl_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "ttl-controller"
    client, nodes = manager.client_for(name), manager.informer(NODES)
    step = 0

    async def reconcile(key: str) -> None:
        node = nodes.get(key)
        wanted = str(STEPS[step].seconds)
        if node is None or (node["metadata"].get("annotations") or {}).get(_ANNOTATION) == wanted:
            return
        meta = {"annotations": {_ANNOTATION: wanted}, "uid": node["metadata"]["uid"]}
        try:
            await client.patch(NODES, key, {"metadata": meta})
        except NotFound:
            return

    controller = Controller(name, reconcile, manager.clock, workers=_WORKERS)

    def changed(old: Obj | None, new: Obj | None) -> None:
        nonlocal step
        before, step = step, step_for(len(nodes.items), step)
        if step != before and nodes.synced.is_set():
            for key in nodes.items:
                controller.enqueue(key)
        elif new is not None:
            controller.enqueue(key_of(new))

    nodes.add_handler(changed)
    return controller
