"""The nodes for which Pods are nominated, and the Pods that are evicted for them.

A nominated node has capacity, freed by preemption, that Pods of no higher priority must not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from setpoint.reconcile.keys import key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


class Nominations:
    """Tracks nominations and victims; decisions count before the API shows them."""

    def __init__(self, current: Callable[[str], Pod | None]) -> None:
        """Create the table. `current(key)` returns the cached Pod."""
        self._current = current
        self._node_of: dict[str, str] = {}
        """Node by Pod uid."""
        self._on: dict[str, dict[str, Pod]] = {}
        """Pods by node, then by uid."""
        self._victims: set[str] = set()
        """Uids of the Pods whose eviction was decided, until the cache shows that they are being deleted."""

    def nodes(self) -> list[str]:
        return list(self._on) if self._on else []

    def node_of(self, pod: Pod) -> str:
        return self._node_of.get(pod["metadata"]["uid"], "")

    def on(self, node: str) -> list[Pod]:
        return list(self._on.get(node, {}).values())

    def before(self, pod: Pod, node: str) -> list[Pod]:
        """Return the Pods whose nomination for the node this Pod must respect."""
        nominated = self._on.get(node)
        if not nominated:
            return []
        mine, uid = _priority(pod), pod["metadata"]["uid"]
        return [other for found, other in nominated.items() if found != uid and _priority(other) >= mine]

    def choose_victims(self, pods: Iterable[Pod]) -> None:
        self._victims.update(pod["metadata"]["uid"] for pod in pods)

    def drop_victims(self, pods: Iterable[Pod]) -> None:
        """Forget victims that are not evicted, or of which the cache shows it."""
        if self._victims:
            self._victims.difference_update(pod["metadata"]["uid"] for pod in pods)

    def is_victim(self, pod: Pod) -> bool:
        return pod["metadata"]["uid"] in self._victims

    def put(self, pod: Pod, node: str | None = None) -> None:
        """Set the nomination of a Pod. An empty `node` clears it; None takes the one from the Pod's status."""
        self.remove(pod)
        node = nominated_node(pod) if node is None else node
        current = self._current(key_of(pod))
        if not node or current is None or current["spec"].get("nodeName"):
            return
        uid = pod["metadata"]["uid"]
        self._node_of[uid] = node
        self._on.setdefault(node, {})[uid] = pod

    def update(self, old: Pod, new: Pod) -> None:
        # An update from before the API shows the nomination does not clear it.
        unobserved = not nominated_node(old) and not nominated_node(new)
        self.put(new, self.node_of(old) if unobserved else None)

    def remove(self, pod: Pod) -> None:
        uid = pod["metadata"]["uid"]
        node = self._node_of.pop(uid, None)
        if node is not None:
            pods_on_node = self._on[node]
            pods_on_node.pop(uid, None)
            if not pods_on_node:
                del self._on[node]


def nominated_node(pod: Pod) -> str:
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def _priority(pod: Pod) -> int:
    return int(pod["spec"].get("priority") or 0)
