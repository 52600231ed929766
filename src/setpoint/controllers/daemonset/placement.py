"""Decides which nodes a DaemonSet runs on and builds the Pod for a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.controllers.history import REVISION_LABEL
from setpoint.meta.node_selectors import NAME_FIELD, required_nodes
from setpoint.meta.tolerations import NO_EXECUTE, NO_SCHEDULE, untolerated

Obj = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_GENERATION = "deprecated.daemonset.template.generation"
_GENERATION_LABEL = "pod-template-generation"
_TOLERATED = (
    ("not-ready", NO_EXECUTE),
    ("unreachable", NO_EXECUTE),
    ("disk-pressure", NO_SCHEDULE),
    ("memory-pressure", NO_SCHEDULE),
    ("pid-pressure", NO_SCHEDULE),
    ("unschedulable", NO_SCHEDULE),
)
"""Taints that every daemon tolerates: node problems must not keep it away, as it is often there to fix them."""
_ON_HOST_NETWORK = ("network-unavailable", NO_SCHEDULE)


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

    def on(self, node: Mapping[str, Any]) -> Verdict:
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
    for name, effect in wanted:
        ours = {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        same = [index for index, each in enumerate(found) if _is_same(each, ours)]
        for index in same:
            found[index] = ours
        if not same:
            found.append(ours)
    return found


def _is_same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether two tolerations are equal except for their duration."""
    return all(left.get(name, "") == right.get(name, "") for name in ("key", "effect", "operator", "value"))


def generation_of(daemon_set: Obj) -> str:
    text = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION, "")
    return str(int(text)) if text.lstrip("-").isdigit() else ""


def is_updated(daemon_set: Obj, pod: Obj, revision: str) -> bool:
    """Return whether the Pod was created from the current template, whose hash is `revision`."""
    labels = pod["metadata"].get("labels") or {}
    generation = generation_of(daemon_set)
    return bool(
        (revision and labels.get(REVISION_LABEL) == revision)
        or (generation and labels.get(_GENERATION_LABEL) == generation)
    )


def template_for(daemon_set: Obj, revision: str) -> Obj:
    """Return the Pod template without the node-specific part."""
    template = daemon_set["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), REVISION_LABEL: revision}
    generation = generation_of(daemon_set)
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


def target_node(pod: Obj) -> str | None:
    """Return the node that the Pod is bound to or targets, or None."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == NAME_FIELD and field.get("operator") == "In":
                values: Sequence[str] = field.get("values") or ()
                return values[0] if len(values) == 1 else None
    return None
