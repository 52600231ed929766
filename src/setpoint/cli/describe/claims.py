"""PersistentVolumeClaims, and the templates of claims that Pods and StatefulSets hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_annotations, write_indented_labels, write_labels, write_list
from setpoint.kinds.storage.binding import STORAGE_CLASS_ANNOTATION, access_modes_text
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import canonical


async def persistentvolumeclaim(obj: Obj, ctx: DescribeContext) -> str:
    about = meta(obj)
    users = _users(obj, await ctx.pods(about.get("namespace", "")))
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    write_claim(w, obj, ctx)
    write_list(w, "Used By", sorted(meta(pod)["name"] for pod in users))
    conditions = status(obj).get("conditions")
    if conditions:
        w.write(0, "Conditions:\n")
        w.row(1, "Type", "Status", "LastProbeTime", "LastTransitionTime", "Reason", "Message")
        w.row(1, "----", "------", "-----------------", "------------------", "------", "-------")
        for each in conditions:
            moments = ctx.moment(each.get("lastProbeTime")), ctx.moment(each.get("lastTransitionTime"))
            cells = (each.get("type", ""), each.get("status", ""), *moments, each.get("reason", ""))
            w.row(1, *(f"{cell} " for cell in cells), each.get("message", ""))
    await write_events(w, ctx, obj, "PersistentVolumeClaim")
    return w.text()


def _users(claim: Obj, pods: list[Obj]) -> list[Obj]:
    """Return the Pods that mount the claim, once for each volume, and those that own it."""
    name = meta(claim).get("name", "")
    users = [
        pod
        for pod in pods
        for volume in spec(pod).get("volumes") or ()
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == name
    ]
    for owner in meta(claim).get("ownerReferences") or ():
        uid = owner.get("uid")
        if owner.get("kind") == "Pod" and all(meta(pod)["uid"] != uid for pod in users):
            users += [pod for pod in pods if meta(pod)["uid"] == uid]
    return users


def storage_class(claim: Obj) -> str:
    old = (meta(claim).get("annotations") or {}).get(STORAGE_CLASS_ANNOTATION)
    return str(spec(claim).get("storageClassName") or "") if old is None else str(old)


def write_claim(w: Writer, claim: Obj, ctx: DescribeContext | None = None) -> None:
    """Write the fields of a claim from its class on; without `ctx` it is a template, which has fewer."""
    about, wanted, found = meta(claim), spec(claim), status(claim)
    w.field("StorageClass", storage_class(claim))
    if ctx is not None:
        if about.get("deletionTimestamp"):
            w.field("Status", f"Terminating (lasts {ctx.since(about['deletionTimestamp'])})")
        else:
            w.field("Status", found.get("phase", ""))
    w.field("Volume", wanted.get("volumeName", ""))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    if ctx is not None:
        w.field("Finalizers", plain(about.get("finalizers") or []))
    bound = bool(wanted.get("volumeName"))
    w.field("Capacity", canonical((found.get("capacity") or {}).get("storage", "0")) if bound else "")
    w.field("Access Modes", access_modes_text(found.get("accessModes")) if bound else "")
    if wanted.get("volumeMode") is not None:
        w.field("VolumeMode", wanted["volumeMode"])
    origin = wanted.get("dataSource")
    if origin is not None:
        w.write(0, "DataSource:\n")
        if origin.get("apiGroup") is not None:
            w.field("APIGroup", origin["apiGroup"], 1)
        w.field("Kind", origin.get("kind", ""), 1)
        w.field("Name", origin.get("name", ""), 1)


def write_claim_templates(w: Writer, templates: Sequence[Mapping[str, Any]]) -> None:
    if not templates:
        w.field("Volume Claims", "<none>")
        return
    w.write(0, "Volume Claims:\n")
    for template in templates:
        claim = dict(template)
        about, wanted = meta(claim), spec(claim)
        w.field("Name", about.get("name", ""), 1)
        w.field("StorageClass", storage_class(claim), 1)
        write_indented_labels(w, "  ", "Labels", about.get("labels"))
        write_indented_labels(w, "  ", "Annotations", about.get("annotations"))
        amount = ((wanted.get("resources") or {}).get("requests") or {}).get("storage")
        w.field("Capacity", "<default>" if amount is None else canonical(amount), 1)
        w.field("Access Modes", plain(wanted.get("accessModes") or []), 1)
