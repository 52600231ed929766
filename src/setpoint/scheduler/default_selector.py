"""The default selector for Pods without spread constraints of their own: Pods of the same Services and owner."""

from __future__ import annotations

from typing import Any

from setpoint.meta.selectors import Selector, from_label_selector, from_map
from setpoint.reconcile.keys import controller_of
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.listers import Listers, namespace_index

Obj = dict[str, Any]

_BY_NAMESPACE = "namespace"
_CACHED = "default selector"


class DefaultSelectors:
    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        listers.services.add_index(_BY_NAMESPACE, namespace_index)

    def of(self, demand: Demand) -> Selector:
        """Return the selector; empty if no Service or owner selects the Pod. The same object is returned until
        something changes."""
        wanted = self._wanted(demand.pod)
        known = demand.cache.get(_CACHED)
        if known is None or known[0] != wanted:
            known = demand.cache[_CACHED] = (wanted, from_label_selector(wanted))
        found: Selector = known[1]
        return found

    def for_pod(self, pod: Obj) -> Selector:
        return from_label_selector(self._wanted(pod))

    def _wanted(self, pod: Obj) -> Obj:
        meta = pod["metadata"]
        labels: dict[str, str] = {}
        for service in self._listers.services.by_index(_BY_NAMESPACE, meta["namespace"]):
            selector = (service.get("spec") or {}).get("selector")
            if selector and from_map(selector).matches(meta.get("labels") or {}):
                labels.update(selector)
        owner = controller_of(pod)
        expressions: list[Obj] = []
        if owner is not None:
            key, kind = f"{meta['namespace']}/{owner['name']}", (owner["apiVersion"], owner["kind"])
            if kind == ("v1", "ReplicationController"):
                found = self._listers.replication_controllers.get(key)
                labels.update(((found or {}).get("spec") or {}).get("selector") or {})
            elif kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
                sets = self._listers.replica_sets if kind[1] == "ReplicaSet" else self._listers.stateful_sets
                selector = ((sets.get(key) or {}).get("spec") or {}).get("selector") or {}
                labels.update(selector.get("matchLabels") or {})
                expressions = selector.get("matchExpressions") or []
        return {"matchLabels": labels, "matchExpressions": expressions}
