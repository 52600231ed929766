"""Decides which nodes a DaemonSet runs on and builds the Pod for a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.controllers.history import REVISION_LABEL
from setpoint.meta.node_fit import NAME_FIELD, NO_EXECUTE, NO_SCHEDULE, required_nodes, untolerated
from setpoint.meta.node_labels import (
    TAINT_DISK_PRESSURE,
    TAINT_MEMORY_PRESSURE,
    TAINT_NETWORK_UNAVAILABLE,
    TAINT_NOT_READY,
    TAINT_PID_PRESSURE,
    TAINT_UNREACHABLE,
    TAINT_UNSCHEDULABLE,
)
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_GENERATION = "deprecated.daemonset.template.generation"
_GENERATION_LABEL = "pod-template-generation"
_TOLERATED = (
    (TAINT_NOT_READY, NO_EXECUTE),
    (TAINT_UNREACHABLE, NO_EXECUTE),
    (TAINT_DISK_PRESSURE, NO_SCHEDULE),
    (TAINT_MEMORY_PRESSURE, NO_SCHEDULE),
    (TAINT_PID_PRESSURE, NO_SCHEDULE),
    (TAINT_UNSCHEDULABLE, NO_SCHEDULE),
)
"""Taints that every daemon tolerates: node problems must not keep it away, as it is often there to fix them."""
_ON_HOST_NETWORK = (TAINT_NETWORK_UNAVAILABLE, NO_SCHEDULE)


class Verdict(NamedTuple):
    should_run: bool
    """A Pod should run on the node."""
    may_stay: bool
    """A Pod that runs on the node already is not deleted."""


class Placement:
    """Decides about nodes for one DaemonSet; the selectors are compiled once."""

    def __init__(self, daemon_set: Obj) -> None:
        spec = daemon_set["spec"]["template"]["spec"]
        self._node_name = spec.get("nodeName") or ""
        self._tolerations = tolerations_of(spec)
        self._matches = required_nodes(spec)

    def on(self, node: Node) -> Verdict:
        if self._node_name and self._node_name != node["metadata"]["name"]:
            return Verdict(False, False)
        if not self._matches(node):
            return Verdict(False, False)
        taints = node["spec"].get("taints")
        if not taints or untolerated(taints, self._tolerations) is None:
            return Verdict(True, True)
        return Verdict(False, untolerated(taints, self._tolerations, (NO_EXECUTE,)) is None)


def tolerations_of(spec: Mapping[str, Any]) -> list[Obj]:
    """Return the tolerations of the template and those that every daemon has."""
    found = list(spec.get("tolerations") or ())
    wanted = [*_TOLERATED, *([_ON_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    for key, effect in wanted:
        ours = {"key": key, "operator": "Exists", "effect": effect}
        same = [index for index, each in enumerate(found) if _is_same(each, ours)]
        for index in same:
            found[index] = ours
        if not same:
            found.append(ours)
    return found


def _is_same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether two tolerations are equal except for their duration."""
    return all(left.get(name, "") == right.get(name, "") for name in ("key", "effect", "operator", "value"))


def _generation_of(daemon_set: Obj) -> str:
    text = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION, "")
    return str(int(text)) if text.lstrip("-").isdigit() else ""


def is_updated(daemon_set: Obj, pod: Pod, revision: str) -> bool:
    """Return whether the Pod was created from the current template, whose hash is `revision`."""
    labels = pod["metadata"].get("labels") or {}
    generation = _generation_of(daemon_set)
    return bool(
        (revision and labels.get(REVISION_LABEL) == revision)
        or (generation and labels.get(_GENERATION_LABEL) == generation)
    )


def template_for(daemon_set: Obj, revision: str) -> Obj:
    """Return the Pod template without the node-specific part."""
    template = daemon_set["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), REVISION_LABEL: revision}
    generation = _generation_of(daemon_set)
    if generation:
        labels[_GENERATION_LABEL] = generation
    spec = {**template["spec"], "tolerations": tolerations_of(template["spec"])}
    return {**template, "metadata": {**meta, "labels": labels}, "spec": spec}


def on_node(template: Obj, node: str) -> Obj:
    """Return the template with the node affinity that makes the scheduler bind the Pod to this node only."""
    named = {"nodeSelectorTerms": [{"matchFields": [{"key": NAME_FIELD, "operator": "In", "values": [node]}]}]}
    affinity = template["spec"].get("affinity") or {}
    nodes = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: named}
    return {**template, "spec": {**template["spec"], "affinity": {**affinity, "nodeAffinity": nodes}}}


def target_node(pod: Pod) -> str | None:
    """Return the node that the Pod is bound to or targets, or None."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity: ObjView = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == NAME_FIELD and field.get("operator") == "In":
                values: Sequence[str] = field.get("values") or ()
                return values[0] if len(values) == 1 else None
    return None
