"""Builds the graph of a chain from records. It is pure: the same records give the same graph.

Boxes and edges are JSON objects by key:

    "apps/deployments/default/web": {"type": "object", "ref": {...}, "rank": 1, "phase": "acting", "note": "...",
                                     "state": "acting", "desired": "...", "observed": "...", "gauge": [2, 3],
                                     "created": "2026-01-01T00:00:00Z", "root": true}
    "group:apps/replicasets/default/web-6cf4:pods": {"type": "group", "kind": "Pod", "rank": 3, "count": 97,
                                     "states": {"ready": 96, "starting": 1}, "parent": "apps/replicasets/..."}
    "actor:replicaset-controller": {"type": "actor", "name": "replicaset-controller", "role": "controller"}
    "edge:a>b": {"type": "edge", "from": "a", "to": "b", "how": "owns"}

`rank` is the column: an edge leads from a lower rank to a higher one. `how` is owns, selects, scales, runs-on or uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from setpoint.view.why.controllers import CONTROLLERS
from setpoint.web.chain.records import Owner, Record

MAX_BOXES: Final = 400
MAX_SIBLINGS: Final = 12
"""Number of siblings up to which all are shown; of more, one less, and a group for the others."""
_SIBLINGS_OF_MANY: Final = ((8, 4), (3, 6))
"""The same number for the dependents of objects, if a chain begins with more objects than the first number."""
_RESERVED: Final = 40
"""Number of boxes that owners and dependents leave to others: Services, nodes, claims."""
_LEVELS: Final = 3
_OWNS, _SELECTS, _SCALES, _RUNS_ON, _USES = "owns", "selects", "scales", "runs-on", "uses"
_WORKLOADS: Final = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"}
)
"""Built-in kinds that a chain of a namespace begins with, if they have no owner."""


class _Graph:
    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.groups: dict[str, list[Record]] = {}
        self.parents: dict[str, str] = {}
        """The parent of each group."""
        self.missing: dict[str, Owner] = {}
        """Owners that are not among the records, by the key of their box."""
        self.edges: dict[tuple[str, str], str] = {}
        self.limit = MAX_BOXES
        self.left_out = 0
        """Number of boxes for which there was no space, without their dependents."""

    @property
    def size(self) -> int:
        return len(self.records) + len(self.groups) + len(self.missing)

    def add(self, record: Record) -> bool:
        """Add a box; return whether it is there."""
        if record.key in self.records:
            return True
        if self.size >= self.limit:
            self.left_out += 1
            return False
        self.records[record.key] = record
        return True

    def connect(self, source: str, target: str, how: str) -> None:
        if source != target:
            self.edges.setdefault((source, target), how)


class Builder:
    """Builds the graph around one object, or of everything if `root` is None."""

    def __init__(self, records: Mapping[str, Record], root: str | None) -> None:
        self._records = records
        self._root = root
        self._by_uid = {each.uid: each for each in records.values() if each.uid}
        self._children: dict[str, list[Record]] = {}
        for each in records.values():
            for owner in each.owners:
                self._children.setdefault(owner.uid, []).append(each)
        self._graph = _Graph()
        self._siblings = MAX_SIBLINGS

    def build(self) -> dict[str, dict[str, Any]]:
        """Return boxes and edges by key."""
        tops = self._tops()
        self._graph.limit = MAX_BOXES - _RESERVED
        shown = [each for siblings in _by_kind(tops).values() for each in self._add_siblings(siblings, "")]
        # A picture of everything is an overview: of each of many objects it shows less.
        self._siblings = next((most for many, most in _SIBLINGS_OF_MANY if len(shown) > many), MAX_SIBLINGS)
        self._down(shown, 2 * _LEVELS)
        self._graph.limit = MAX_BOXES
        self._up_from(tops)
        pods = self._pods()
        self._add_selecting(pods)
        self._add_scaling()
        self._add_claims(pods)
        self._add_nodes(pods)
        return self._json()

    # -- what belongs to the chain ---------------------------------------------------------------------------------

    def _tops(self) -> list[Record]:
        """Return the objects from which the chain leads down, sorted."""
        if self._root is None:
            found = [each for each in self._records.values() if _begins_chain(each) and not self._owners(each)]
            return sorted(found, key=_order)
        root = self._records.get(self._root)
        if root is None:
            return []
        related = [root]
        if root.kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            related += self._selected(root)
        elif root.kind == "HorizontalPodAutoscaler":
            related += [each for each in self._records.values() if _scales(root, each)]
        elif root.kind == "Node":
            related += [each for each in self._records.values() if each.node == root.ref["name"]]
        tops = {top.key: top for each in related for top in self._topmost(each, _LEVELS)}
        return sorted(tops.values(), key=_order)

    def _owners(self, record: Record) -> list[Record]:
        return [self._by_uid[each.uid] for each in record.owners if each.uid in self._by_uid]

    def _topmost(self, record: Record, levels: int) -> list[Record]:
        owners = self._owners(record) if levels else []
        return [top for each in owners for top in self._topmost(each, levels - 1)] or [record]

    def _selected(self, selecting: Record) -> list[Record]:
        return [
            each
            for each in self._records.values()
            if each.kind == "Pod" and each.namespace == selecting.namespace and selecting.selector.matches(each.labels)
        ]

    def _down(self, records: list[Record], levels: int) -> None:
        """Add dependents level by level: if there are too many, the lower ones are left out."""
        for _ in range(levels):
            records = [
                each
                for record in records
                for siblings in _by_kind(self._children.get(record.uid, ())).values()
                for each in self._add_siblings(siblings, record.key)
            ]

    def _add_siblings(self, siblings: list[Record], parent: str) -> list[Record]:
        """Add siblings of one kind, and return those that have boxes of their own."""
        ordered = sorted(siblings, key=_order)
        if len(ordered) > self._siblings:
            # The root and what differs from its desired state are worth a box more than what is settled.
            ordered.sort(key=lambda each: (each.key != self._root, each.phase == "settled"))
            shown, folded = ordered[: self._siblings - 1], ordered[self._siblings - 1 :]
            key = f"group:{parent}:{folded[0].ref['group']}/{folded[0].ref['resource']}"
            self._graph.groups[key] = folded
            self._graph.parents[key] = parent
            if parent:
                self._graph.connect(parent, key, _OWNS)
        else:
            shown = ordered
        found = [each for each in shown if self._graph.add(each)]
        for each in found:
            if parent:
                self._graph.connect(parent, each.key, _OWNS)
        return found

    def _up_from(self, tops: Iterable[Record]) -> None:
        """Add the owners that are not among the records: of kinds that are not read, or that do not exist any more."""
        for each in tops:
            if each.key not in self._graph.records:
                continue
            for owner in each.owners:
                key = f"owner:{owner.uid}"
                if owner.uid not in self._by_uid and (key in self._graph.missing or self._graph.size < MAX_BOXES):
                    self._graph.missing[key] = owner
                    self._graph.connect(key, each.key, _OWNS)

    def _pods(self) -> dict[str, list[Record]]:
        """Return the Pods of the chain by the key of the box in which they are: their own, or that of a group."""
        found = {key: [each] for key, each in self._graph.records.items() if each.kind == "Pod"}
        found |= {key: folded for key, folded in self._graph.groups.items() if folded[0].kind == "Pod"}
        return found

    def _add_selecting(self, pods: Mapping[str, list[Record]]) -> None:
        for each in sorted(self._records.values(), key=_order):
            if not each.selector.requirements:
                continue
            boxes = [
                key
                for key, inside in pods.items()
                if any(each.namespace == pod.namespace and each.selector.matches(pod.labels) for pod in inside)
            ]
            if not boxes and each.key != self._root:
                continue
            if self._graph.add(each):
                for key in boxes:
                    self._graph.connect(each.key, key, _SELECTS)
                self._down([each], 1)

    def _add_scaling(self) -> None:
        for each in self._records.values():
            if not each.target[1]:
                continue
            targets = [key for key, record in self._graph.records.items() if _scales(each, record)]
            if targets and self._graph.add(each):
                for key in targets:
                    self._graph.connect(each.key, key, _SCALES)

    def _add_claims(self, pods: Mapping[str, list[Record]]) -> None:
        for key, inside in pods.items():
            for pod in inside if len(inside) == 1 else ():
                for name in pod.claims:
                    claim = self._records.get(f"/persistentvolumeclaims/{pod.namespace}/{name}")
                    if claim is not None and self._graph.add(claim):
                        self._graph.connect(key, claim.key, _USES)

    def _add_nodes(self, pods: Mapping[str, list[Record]]) -> None:
        names = {pod.node for inside in pods.values() for pod in inside if pod.node}
        nodes = {name: self._records.get(f"/nodes//{name}") for name in sorted(names)}
        known = [each for each in nodes.values() if each is not None]
        self._siblings = MAX_SIBLINGS
        shown = {each.ref["name"]: each.key for each in self._add_siblings(known, "")}
        group = next((key for key in self._graph.groups if key.endswith(":/nodes")), "")
        for key, inside in pods.items():
            for name in sorted({pod.node for pod in inside if pod.node}):
                target = shown.get(name) or (group if nodes.get(name) is not None else "")
                if target:
                    self._graph.connect(key, target, _RUNS_ON)

    def _phase(self, record: Record, levels: int) -> str:
        """Return the phase of an object. One that acts, and owns what waits, waits itself."""
        if record.phase != "acting" or not levels:
            return record.phase
        owned = [self._phase(each, levels - 1) for each in self._children.get(record.uid, ())]
        return "waiting" if "waiting" in owned else record.phase

    # -- the result ------------------------------------------------------------------------------------------------

    def _json(self) -> dict[str, dict[str, Any]]:
        graph = self._graph
        boxes = {*graph.records, *graph.groups, *graph.missing}
        edges = {(a, b): how for (a, b), how in graph.edges.items() if a in boxes and b in boxes}
        ranks = ranks_of(boxes, edges)
        found: dict[str, dict[str, Any]] = {}
        for key, record in graph.records.items():
            found[key] = {**_box(record), "phase": self._phase(record, _LEVELS), "rank": ranks[key]}
            if key == self._root:
                found[key]["root"] = True
        for key, folded in graph.groups.items():
            found[key] = {**_group(folded), "rank": ranks[key], "parent": graph.parents[key]}
        for key, owner in graph.missing.items():
            found[key] = {"type": "owner", **owner._asdict(), "rank": ranks[key]}
        for (source, target), how in edges.items():
            found[f"edge:{source}>{target}"] = {"type": "edge", "from": source, "to": target, "how": how}
        for name, role in _actors({each.kind for each in graph.records.values()}):
            found[f"actor:{name}"] = {"type": "actor", "name": name, "role": role}
        found["chain"] = {"type": "chain", "leftOut": graph.left_out, "exists": self._root in (None, *graph.records)}
        return found


def _begins_chain(record: Record) -> bool:
    """Return whether the object, if it has no owner, is shown in the chain of a namespace."""
    return record.kind in _WORKLOADS or ("." in record.ref["group"] and not record.ref["group"].endswith(".k8s.io"))


def _scales(autoscaler: Record, target: Record) -> bool:
    same = autoscaler.target == (target.kind, target.ref["name"]) and autoscaler.namespace == target.namespace
    return bool(autoscaler.target[1]) and same


def _order(record: Record) -> tuple[str, str, str]:
    return record.kind, record.namespace, record.ref["name"]


def _by_kind(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for each in records:
        found.setdefault(each.kind, []).append(each)
    return found


def _box(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "object",
        "ref": record.ref,
        "phase": record.phase,
        "state": record.state,
        "note": record.note,
        "desired": record.desired,
        "observed": record.observed,
        "created": record.created,
    }
    return found if record.gauge is None else {**found, "gauge": list(record.gauge)}


def _group(folded: list[Record]) -> dict[str, Any]:
    states: dict[str, int] = {}
    for each in folded:
        states[each.state] = states.get(each.state, 0) + 1
    first = folded[0]
    ref = {name: first.ref[name] for name in ("group", "version", "resource", "kind", "namespace")}
    unsettled = sum(each.phase != "settled" for each in folded)
    return {
        "type": "group",
        "ref": ref,
        "kind": first.kind,
        "count": len(folded),
        "states": dict(sorted(states.items(), key=lambda each: -each[1])),
        "phase": "acting" if unsettled else "settled",
        "prefix": _common_prefix([each.ref["name"] for each in folded]),
    }


def _common_prefix(names: Collection[str]) -> str:
    least, most = min(names), max(names)
    end = next((at for at, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))
    return least[:end]


def ranks_of(boxes: Collection[str], edges: Mapping[tuple[str, str], str]) -> dict[str, int]:
    """Return the column of each box: after all boxes with an edge to it, and directly before the first that it leads
    to. Edges of a cycle, which wrong owner references can make, do not count."""
    following: dict[str, list[str]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
    ranks: dict[str, int] = {}
    order = _topological(boxes, following)
    for key in order:
        ranks.setdefault(key, 0)
        for target in following.get(key, ()):
            if order[key] < order[target]:
                ranks[target] = max(ranks.get(target, 0), ranks[key] + 1)
    sources = set(boxes) - {target for _, target in edges}
    for key in sources:
        if targets := following.get(key):
            ranks[key] = max(0, min(ranks[each] for each in targets) - 1)
    return ranks


def _topological(boxes: Collection[str], following: Mapping[str, list[str]]) -> dict[str, int]:
    """Return the place of each box in an order in which edges lead forward, except those of cycles."""
    places: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, Iterator[str]]] = []
    for start in sorted(boxes):
        if start not in seen:
            seen.add(start)
            stack.append((start, iter(following.get(start, ()))))
        while stack:
            key, rest = stack[-1]
            unseen = next((each for each in rest if each not in seen), None)
            if unseen is None:
                stack.pop()
                places.append(key)
            else:
                seen.add(unseen)
                stack.append((unseen, iter(following.get(unseen, ()))))
    return {key: place for place, key in enumerate(reversed(places))}


def _actors(kinds: Collection[str]) -> list[tuple[str, str]]:
    """Return who acts on objects of these kinds, from the person to the node."""
    found = [("you", "you")]
    found += [(name, "controller") for kind, name in CONTROLLERS.items() if kind in kinds]
    if "Service" in kinds or "EndpointSlice" in kinds:
        found.append(("endpointslice-controller", "controller"))
    if "Pod" in kinds:
        found += [("kube-scheduler", "scheduler"), ("kubelets", "kubelet")]
    return found
