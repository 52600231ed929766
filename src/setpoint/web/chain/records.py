"""The facts about an object that the chain needs, so that whole objects need not be kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import NOTHING, Selector, SelectorError, from_label_selector, from_map
from setpoint.view.loop import Related, look
from setpoint.view.states import pod_category
from setpoint.web.feeds.objects import ref_of

_LABEL_SELECTORS = {
    ("policy", "PodDisruptionBudget"): "selector",
    ("networking.k8s.io", "NetworkPolicy"): "podSelector",
}
"""Kinds that select Pods by a LabelSelector without owning them, and the field of the selector."""


class Owner(NamedTuple):
    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(slots=True)
class Record:
    key: str
    ref: dict[str, str]
    uid: str
    owners: tuple[Owner, ...]
    labels: dict[str, str]
    created: str
    phase: str
    """The phase of the object's loop."""
    state: str
    """The state in which siblings are counted: the category of a Pod, else the phase."""
    note: str
    desired: str
    observed: str
    gauge: tuple[int, int] | None
    """Observed and desired count, if the object has both."""
    node: str = ""
    """The node of a Pod; empty if it has none, or this is no Pod."""
    selector: Selector = NOTHING
    """The selector of Pods of a kind that selects them without owning them."""
    target: tuple[str, str] = ("", "")
    """Kind and name of the object that an autoscaler scales."""
    claims: tuple[str, ...] = ()
    """The claims that a Pod uses."""

    @property
    def kind(self) -> str:
        return self.ref["kind"]

    @property
    def namespace(self) -> str:
        return self.ref["namespace"]


def key_of(ref: dict[str, str]) -> str:
    """Return the key of an object: `apps/deployments/default/web`."""
    return f"{ref['group']}/{ref['resource']}/{ref['namespace']}/{ref['name']}"


def record_of(resource: Resource, obj: ObjView, now: datetime) -> Record:
    """Return the record of an object."""
    meta, spec = obj["metadata"], obj.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    group, kind = resource.group, resource.kind
    loop = look(group, kind, obj, Related(now))
    ref = ref_of(resource, meta)
    record = Record(
        key_of(ref),
        ref,
        str(meta.get("uid", "")),
        tuple(
            Owner(*(str(each.get(name, "")) for name in ("apiVersion", "kind", "name", "uid")))
            for each in meta.get("ownerReferences") or ()
        ),
        dict(meta.get("labels") or {}),
        str(meta.get("creationTimestamp") or ""),
        str(loop.phase),
        str(loop.phase),
        loop.note,
        ", ".join(loop.desired),
        ", ".join(loop.observed),
        (loop.gauge.observed, loop.gauge.desired) if loop.gauge is not None else None,
    )
    if (group, kind) == ("", "Pod"):
        record.state = pod_category(obj)
        record.node = str(spec.get("nodeName") or "")
        record.claims = tuple(
            str(claim["claimName"])
            for volume in spec.get("volumes") or ()
            if (claim := volume.get("persistentVolumeClaim")) and claim.get("claimName")
        )
    elif (group, kind) == ("", "Service"):
        record.selector = from_map(spec.get("selector"))
    elif (group, kind) in _LABEL_SELECTORS:
        record.selector = _selector(spec.get(_LABEL_SELECTORS[(group, kind)]))
    elif (group, kind) == ("autoscaling", "HorizontalPodAutoscaler"):
        target = spec.get("scaleTargetRef") or {}
        record.target = (str(target.get("kind", "")), str(target.get("name", "")))
    return record


def _selector(found: Any) -> Selector:
    try:
        return from_label_selector(found)
    except SelectorError:
        return NOTHING


def reduced(resource: Resource, obj: Obj, now: datetime) -> Obj:
    """Return what an informer keeps of an object: its identity and its record."""
    meta = obj["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in meta}
    return {"metadata": kept, "record": record_of(resource, obj, now)}
