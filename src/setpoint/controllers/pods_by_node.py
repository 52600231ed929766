"""An index of Pods by the node that they are bound to."""

from __future__ import annotations

from typing import Any

from setpoint.reconcile import Informer

Obj = dict[str, Any]

_INDEX = "node"


def _node(pod: Obj) -> tuple[str, ...]:
    name = pod["spec"].get("nodeName")
    return (name,) if name else ()


class PodsByNode:
    def __init__(self, pods: Informer) -> None:
        self._pods = pods
        pods.add_index(_INDEX, _node)

    def on(self, node: str) -> list[Obj]:
        return self._pods.by_index(_INDEX, node)
