"""The addresses of all Nodes, for the parts of a node's network that depend on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from setpoint.client.resources import builtin
from setpoint.node.host.network.route_plan import NodeAddresses, node_addresses
from setpoint.reconcile import Informer, Manager

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node

_NODES = builtin("nodes")


class ClusterNodes:
    """Follows the Nodes of the cluster."""

    def __init__(self, manager: Manager, name: str) -> None:
        """Request the informer. `name` is the name of the own node."""
        self.name = name
        self.informer: Informer[Node] = manager.informer(_NODES)
        self.on_change: list[Callable[[], None]] = []
        """Callbacks for changes of addresses."""
        self._addresses: dict[str, NodeAddresses] = {}
        self.informer.add_handler(self._changed)

    @property
    def own(self) -> NodeAddresses | None:
        """The own addresses; None before they are known. They stay when the Node is deleted, because the Pods of this
        node run until its agent leaves."""
        return self._addresses.get(self.name)

    @property
    def others(self) -> list[NodeAddresses]:
        """The addresses of all other nodes, in the order of their names."""
        return [each for name, each in sorted(self._addresses.items()) if name != self.name]

    def _changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        name = node["metadata"]["name"]
        found = node_addresses(new) if new is not None else None
        if found == self._addresses.get(name) or (found is None and name == self.name):
            return
        if found is None:
            del self._addresses[name]
        else:
            self._addresses[name] = found
        for call in self.on_change:
            call()
