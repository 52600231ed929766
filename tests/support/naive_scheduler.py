"""What a scheduler should decide, node by node and Pod by Pod, written for being read: the measure of the quick one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import floor, log

from setpoint.meta.objects import Obj
from setpoint.meta.quantity import milli_value, value
from setpoint.meta.selectors import from_label_selector

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass
class Node:
    node: Obj
    pods: list[Obj] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"]["labels"]
        return found

    def offers(self, name: str) -> int:
        text = self.node["status"]["allocatable"].get(name, "0")
        return milli_value(text) if name == "cpu" else value(text)


def wants(pod: Obj, name: str, guess: bool = False) -> int:
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    default = {"cpu": "100m", "memory": "200Mi"}.get(name, "0") if guess else "0"
    text = requests.get(name, default)
    return milli_value(text) if name == "cpu" else value(text)


def tolerated(pod: Obj, taint: Obj) -> bool:
    for toleration in pod["spec"].get("tolerations", ()):
        if toleration.get("effect") not in (None, taint["effect"]):
            continue
        if toleration.get("key") not in (None, taint["key"]):
            continue
        if toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def expression_holds(expression: Obj, labels: dict[str, str]) -> bool:
    key, values = expression["key"], expression.get("values", [])
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt":
            return key in labels and labels[key].isdigit() and int(labels[key]) > int(values[0])
    return key in labels and labels[key].isdigit() and int(labels[key]) < int(values[0])


def wanted_node(pod: Obj, node: Node) -> bool:
    if any(node.labels.get(key) != text for key, text in pod["spec"].get("nodeSelector", {}).items()):
        return False
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    return required is None or any(
        all(expression_holds(expression, node.labels) for expression in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def repelled(pod: Obj, node: Node) -> bool:
    return any(
        taint["effect"] != "PreferNoSchedule" and not tolerated(pod, taint)
        for taint in node.node["spec"].get("taints", ())
    )


def means(term: Obj, owner: Obj, pod: Obj, namespaces: dict[str, dict[str, str]]) -> bool:
    names, selector = term.get("namespaces", []), term.get("namespaceSelector")
    if not names and selector is None:
        names = [owner["metadata"]["namespace"]]
    where = pod["metadata"]["namespace"]
    if where not in names and (selector is None or not from_label_selector(selector).matches(namespaces[where])):
        return False
    return from_label_selector(term.get("labelSelector")).matches(pod["metadata"].get("labels", {}))


def terms(pod: Obj, side: str, kind: str) -> list[Obj]:
    found: list[Obj] = pod["spec"].get("affinity", {}).get(side, {}).get(kind, [])
    return found


class Naive:
    def __init__(self, nodes: Iterable[Obj], namespaces: dict[str, dict[str, str]]) -> None:
        self.nodes = [Node(node) for node in nodes]
        self.namespaces = namespaces

    def place(self, pod: Obj, name: str) -> None:
        next(node for node in self.nodes if node.node["metadata"]["name"] == name).pods.append(pod)

    # -- filters ------------------------------------------------------------------------------------------------------

    def reasons(self, pod: Obj, node: Node) -> list[str]:
        """What the first plugin that refuses the node says; nothing: it fits."""
        if node.node["spec"].get("unschedulable"):
            cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
            if not tolerated(pod, cordon):
                return ["node(s) were unschedulable"]
        if repelled(pod, node):
            return ["node(s) had untolerated taint(s)"]
        if not wanted_node(pod, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        if self._ports_taken(pod, node):
            return ["node(s) didn't have free ports for the requested pod ports"]
        found = ["Too many pods"] if len(node.pods) >= node.offers("pods") else []
        for name in ("cpu", "memory", "example.com/gpu"):
            used = sum(wants(other, name) for other in node.pods)
            if wants(pod, name) and wants(pod, name) > node.offers(name) - used:
                found.append(f"Insufficient {name}")
        if found:
            return found
        return self._spread(pod, node) or self._affinity(pod, node)

    def _ports_taken(self, pod: Obj, node: Node) -> bool:
        def ports(of: Obj) -> list[tuple[str, str, int]]:
            return [
                (port.get("protocol", "TCP"), port.get("hostIP", "0.0.0.0"), port["hostPort"])
                for port in of["spec"]["containers"][0].get("ports", ())
                if port.get("hostPort")
            ]

        return any(
            mine[0] == other[0] and mine[2] == other[2] and (mine[1] == other[1] or "0.0.0.0" in (mine[1], other[1]))
            for mine in ports(pod)
            for neighbour in node.pods
            for other in ports(neighbour)
        )

    def _constraints(self, pod: Obj, action: str) -> list[Obj]:
        found = pod["spec"].get("topologySpreadConstraints", ())
        return [constraint for constraint in found if constraint["whenUnsatisfiable"] == action]

    def _counted(self, pod: Obj, node: Node, constraint: Obj) -> int:
        selector = from_label_selector(constraint.get("labelSelector"))
        if selector.empty:
            return 0
        return sum(
            "deletionTimestamp" not in other["metadata"]
            and other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and selector.matches(other["metadata"].get("labels", {}))
            for other in node.pods
        )

    def _included(self, pod: Obj, node: Node, constraint: Obj) -> bool:
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not wanted_node(pod, node):
            return False
        return not (constraint.get("nodeTaintsPolicy") == "Honor" and repelled(pod, node))

    def _spread(self, pod: Obj, node: Node) -> list[str]:
        constraints = self._constraints(pod, "DoNotSchedule")
        keys = [constraint["topologyKey"] for constraint in constraints]
        for constraint in constraints:
            key = constraint["topologyKey"]
            if key not in node.labels:
                return ["node(s) didn't match pod topology spread constraints (missing required label)"]
            domains: dict[str, int] = {}
            for other in self.nodes:
                if all(each in other.labels for each in keys) and self._included(pod, other, constraint):
                    there = self._counted(pod, other, constraint)
                    domains[other.labels[key]] = domains.get(other.labels[key], 0) + there
            least = min(domains.values()) if len(domains) >= constraint.get("minDomains", 1) else 0
            itself = from_label_selector(constraint.get("labelSelector")).matches(pod["metadata"].get("labels", {}))
            if domains.get(node.labels[key], 0) + itself - least > constraint["maxSkew"]:
                return ["node(s) didn't match pod topology spread constraints"]
        return []

    def _near(self, key: str, node: Node) -> list[Node]:
        if key not in node.labels:
            return []
        return [other for other in self.nodes if other.labels.get(key) == node.labels[key]]

    def _affinity(self, pod: Obj, node: Node) -> list[str]:
        towards = terms(pod, "podAffinity", REQUIRED)
        if towards:
            matching = [
                (other, placed)
                for other in self.nodes
                for placed in other.pods
                if all(means(term, pod, placed, self.namespaces) for term in towards)
            ]
            keys = [term["topologyKey"] for term in towards]
            near = all(any(other in self._near(key, node) for other, _ in matching) for key in keys)
            begins = not any(key in other.labels for other, _ in matching for key in keys) and all(
                means(term, pod, pod, self.namespaces) for term in towards
            )
            if not (near or (begins and all(key in node.labels for key in keys))):
                return ["node(s) didn't match pod affinity rules"]
        for term in terms(pod, "podAntiAffinity", REQUIRED):
            for other in self._near(term["topologyKey"], node):
                if any(means(term, pod, placed, self.namespaces) for placed in other.pods):
                    return ["node(s) didn't match pod anti-affinity rules"]
        for other in self.nodes:
            for placed in other.pods:
                for term in terms(placed, "podAntiAffinity", REQUIRED):
                    if node in self._near(term["topologyKey"], other) and means(term, placed, pod, self.namespaces):
                        return ["node(s) didn't satisfy existing pods anti-affinity rules"]
        return []

    # -- scores -------------------------------------------------------------------------------------------------------

    def scores(self, pod: Obj) -> dict[str, int]:
        """Of the nodes that fit, by name."""
        fit = [node for node in self.nodes if not self.reasons(pod, node)]
        parts = (
            (3, _scaled([self._avoided(pod, node) for node in fit], reverse=True)),
            (2, _scaled([self._preferred(pod, node) for node in fit])),
            (1, [self._least(pod, node) for node in fit]),
            (2, self._spread_scores(pod, fit)),
            (2, self._affinity_scores(pod, fit)),
            (1, [self._balanced(pod, node) for node in fit]),
        )
        return {
            node.node["metadata"]["name"]: sum(weight * scores[i] for weight, scores in parts)
            for i, node in enumerate(fit)
        }

    def _avoided(self, pod: Obj, node: Node) -> int:
        taints = node.node["spec"].get("taints", ())
        return sum(taint["effect"] == "PreferNoSchedule" and not tolerated(pod, taint) for taint in taints)

    def _preferred(self, pod: Obj, node: Node) -> int:
        preferred = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, ())
        return sum(
            term["weight"]
            for term in preferred
            if all(expression_holds(each, node.labels) for each in term["preference"]["matchExpressions"])
        )

    def _least(self, pod: Obj, node: Node) -> int:
        scores = []
        for name in ("cpu", "memory"):
            offered = node.offers(name)
            if offered:
                used = sum(wants(other, name, True) for other in (*node.pods, pod))
                scores.append(0 if used > offered else (offered - used) * 100 // offered)
        return sum(scores) // len(scores) if scores else 0

    def _balanced(self, pod: Obj, node: Node) -> int:
        if not (wants(pod, "cpu") or wants(pod, "memory")):
            return 0

        def evenness(pods: list[Obj]) -> int:
            parts = [
                min(sum(wants(other, name) for other in pods) / node.offers(name), 1.0)
                for name in ("cpu", "memory")
                if node.offers(name)
            ]
            return int((1 - (abs((parts[0] - parts[1]) / 2) if len(parts) == 2 else 0.0)) * 100)

        return 50 + (50 + evenness([*node.pods, pod]) - evenness(node.pods)) // 2

    def _spread_scores(self, pod: Obj, fit: list[Node]) -> list[int]:
        constraints = self._constraints(pod, "ScheduleAnyway")
        if not constraints:
            return [0] * len(fit)
        keys = [constraint["topologyKey"] for constraint in constraints]
        able = [all(key in node.labels for key in keys) for node in fit]
        candidates = [node for node, good in zip(fit, able) if good]
        raw = []
        for node in fit:
            total = 0.0
            for constraint in constraints:
                key = constraint["topologyKey"]
                if key not in node.labels:
                    continue
                if key == HOSTNAME:
                    size, count = len(candidates), self._counted(pod, node, constraint)
                else:
                    size = len({other.labels[key] for other in candidates})
                    count = sum(
                        self._counted(pod, other, constraint)
                        for other in self._near(key, node)
                        if all(each in other.labels for each in keys) and self._included(pod, other, constraint)
                    )
                total += count * log(size + 2) + (constraint["maxSkew"] - 1)
            raw.append(floor(total + 0.5))
        counted = [score for score, good in zip(raw, able) if good]
        if not counted:
            return [0] * len(fit)
        least, most = min(counted), max(counted)
        return [
            0 if not good else 100 if most == 0 else 100 * (most + least - score) // most
            for score, good in zip(raw, able)
        ]

    def _affinity_scores(self, pod: Obj, fit: list[Node]) -> list[int]:
        def total(node: Node) -> int:
            found = 0
            for side, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                for weighted in terms(pod, side, PREFERRED):
                    term = weighted["podAffinityTerm"]
                    for other in self._near(term["topologyKey"], node):
                        hits = sum(means(term, pod, placed, self.namespaces) for placed in other.pods)
                        found += sign * weighted["weight"] * hits
                for other in self.nodes:
                    for placed in other.pods:
                        for weighted in terms(placed, side, PREFERRED):
                            term = weighted["podAffinityTerm"]
                            if node in self._near(term["topologyKey"], other):
                                found += sign * weighted["weight"] * means(term, placed, pod, self.namespaces)
            for other in self.nodes:
                for placed in other.pods:
                    for term in terms(placed, "podAffinity", REQUIRED):
                        if node in self._near(term["topologyKey"], other):
                            found += means(term, placed, pod, self.namespaces)
            return found

        raw = [total(node) for node in fit]
        if not raw or min(raw) == max(raw):
            return [0] * len(fit)
        least, most = min(raw), max(raw)
        return [int(100 * ((score - least) / (most - least))) for score in raw]


def _scaled(scores: list[int], reverse: bool = False) -> list[int]:
    greatest = max(scores, default=0)
    if not greatest:
        return [100 if reverse else 0] * len(scores)
    scaled = [100 * score // greatest for score in scores]
    return [100 - score for score in scaled] if reverse else scaled
