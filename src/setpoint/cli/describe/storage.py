"""PersistentVolumes, StorageClasses, VolumeAttributesClasses and CSINodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import truth, write_annotations, write_head, write_labels
from setpoint.cli.describe.volumes import write_persistent_source
from setpoint.kinds.cell_texts import NONE, labels_text
from setpoint.kinds.storage.binding import STORAGE_CLASS_ANNOTATION, access_modes_text
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import canonical

_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


async def persistentvolume(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted, found = meta(obj), spec(obj), status(obj)
    annotations = about.get("annotations") or {}
    w = Writer()
    w.field("Name", about.get("name", ""))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", annotations)
    w.field("Finalizers", plain(about.get("finalizers") or []))
    w.field("StorageClass", annotations.get(STORAGE_CLASS_ANNOTATION, wanted.get("storageClassName", "")))
    if about.get("deletionTimestamp"):
        w.field("Status", f"Terminating (lasts {ctx.since(about['deletionTimestamp'])})")
    else:
        w.field("Status", found.get("phase", ""))
    claim = wanted.get("claimRef")
    w.field("Claim", "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}")
    w.field("Reclaim Policy", wanted.get("persistentVolumeReclaimPolicy", ""))
    w.field("Access Modes", access_modes_text(wanted.get("accessModes")))
    if wanted.get("volumeMode") is not None:
        w.field("VolumeMode", wanted["volumeMode"])
    w.field("Capacity", canonical((wanted.get("capacity") or {}).get("storage", "0")))
    _write_affinity(w, wanted.get("nodeAffinity"))
    w.field("Message", found.get("message", ""))
    w.write(0, "Source:\n")
    write_persistent_source(w, wanted)
    await write_events(w, ctx, obj, "PersistentVolume")
    return w.text()


def _write_affinity(w: Writer, affinity: Mapping[str, Any] | None) -> None:
    required = (affinity or {}).get("required")
    w.write(0, "Node Affinity:\t")
    if required is None:
        w.line(NONE)
        return
    w.line()
    w.write(1, "Required Terms:\t")
    terms = required.get("nodeSelectorTerms") or ()
    w.line("" if terms else NONE)
    for at, term in enumerate(terms):
        needs = term.get("matchExpressions") or ()
        _write_term(w, 2, at, [(each, each.get("operator", "").lower()) for each in needs])


def _write_term(w: Writer, level: int, at: int, needs: Sequence[tuple[Mapping[str, Any], str]]) -> None:
    w.write(level, f"Term {at}:\t")
    if not needs:
        w.line(NONE)
    for number, (need, operator) in enumerate(needs):
        if number:
            w.write(level, "\t")
        values = f" [{', '.join(need['values'])}]" if need.get("values") else ""
        w.write(0, f"{need.get('key', '')} {operator}{values}\n")


async def storageclass(obj: Obj, ctx: DescribeContext) -> str:
    annotations = meta(obj).get("annotations") or {}
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("IsDefaultClass", "Yes" if any(annotations.get(key) == "true" for key in _DEFAULT_CLASS) else "No")
    w.field("Annotations", labels_text(annotations))
    w.field("Provisioner", obj.get("provisioner", ""))
    w.field("Parameters", labels_text(obj.get("parameters")))
    w.field("AllowVolumeExpansion", truth(obj.get("allowVolumeExpansion")))
    if obj.get("mountOptions"):
        w.write(0, "MountOptions:\n")
        for option in obj["mountOptions"]:
            w.write(1, f"{option}\n")
    else:
        w.field("MountOptions", NONE)
    if obj.get("reclaimPolicy") is not None:
        w.field("ReclaimPolicy", obj["reclaimPolicy"])
    if obj.get("volumeBindingMode") is not None:
        w.field("VolumeBindingMode", obj["volumeBindingMode"])
    topologies = obj.get("allowedTopologies")
    if topologies is not None:
        w.write(0, "AllowedTopologies:\t")
        w.line("" if topologies else NONE)
        for at, term in enumerate(topologies):
            _write_term(w, 1, at, [(each, "in") for each in term.get("matchLabelExpressions") or ()])
    await write_events(w, ctx, obj, "StorageClass")
    return w.text()


async def volumeattributesclass(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Annotations", labels_text(meta(obj).get("annotations")))
    w.field("DriverName", obj.get("driverName", ""))
    w.field("Parameters", labels_text(obj.get("parameters")))
    await write_events(w, ctx, obj, "VolumeAttributesClass")
    return w.text()


async def csinode(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj, namespaced=False)
    w.field("CreationTimestamp", ctx.moment(meta(obj).get("creationTimestamp")))
    w.write(0, "Spec:\n")
    drivers = spec(obj).get("drivers")
    if drivers is not None:
        w.write(1, "Drivers:\n")
        for driver in drivers:
            w.write(2, f"{driver.get('name', '')}:\n")
            w.field("Node ID", driver.get("nodeID", ""), 3)
            count = (driver.get("allocatable") or {}).get("count")
            if count is not None:
                w.write(3, "Allocatables:\n")
                w.field("Count", count, 4)
            if driver.get("topologyKeys") is not None:
                w.field("Topology Keys", plain(driver["topologyKeys"]), 3)
    await write_events(w, ctx, obj, "CSINode")
    return w.text()
