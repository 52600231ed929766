"""Pods."""

from __future__ import annotations

from dataclasses import replace

from setpoint.cli.describe.containers import write_containers, write_resources
from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.environment import resolve_in
from setpoint.cli.describe.events import reference_to, visible_events, write_found_events
from setpoint.cli.describe.metadata import (
    write_annotations,
    write_controller,
    write_labels,
    write_tolerations,
)
from setpoint.cli.describe.pod_template import write_scheduling_group, write_spreading
from setpoint.cli.describe.volumes import write_volumes
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj

MIRROR = "kubernetes.io/config.mirror"


async def pod(obj: Obj, ctx: DescribeContext) -> str:
    wanted, found = spec(obj), status(obj)
    w = Writer()
    _write_identity(w, ctx, obj)
    _write_phase(w, ctx, obj)
    _write_addresses(w, obj)
    write_controller(w, obj)
    if found.get("nominatedNodeName"):
        w.field("NominatedNodeName", found["nominatedNodeName"])
    if wanted.get("resources") is not None:
        w.write(0, "Resources:\n")
        write_resources(w, wanted["resources"], 1)
    resolve = resolve_in(obj)
    for title, key, states in (
        ("Init Containers", "initContainers", "initContainerStatuses"),
        ("Containers", "containers", "containerStatuses"),
        ("Ephemeral Containers", "ephemeralContainers", "ephemeralContainerStatuses"),
    ):
        if wanted.get(key) or key == "containers":
            write_containers(w, ctx, title, wanted.get(key) or (), found.get(states), resolve)
    _write_conditions(w, obj)
    write_volumes(w, wanted.get("volumes") or ())
    w.field("QoS Class", found.get("qosClass") or _qos_class(obj))
    write_labels(w, "Node-Selectors", wanted.get("nodeSelector"))
    write_tolerations(w, "Tolerations", wanted.get("tolerations"))
    write_spreading(w, wanted.get("topologySpreadConstraints") or ())
    write_scheduling_group(w, ctx, wanted)
    if ctx.show_events:
        # Kubelets record events about a static Pod with another uid, and about any Pod with different kinds.
        about = reference_to(obj, "")
        about = replace(about, uid=(meta(obj).get("annotations") or {}).get(MIRROR, about.uid))
        write_found_events(w, ctx, await visible_events(ctx, about))
    return w.text()


def _qos_class(obj: Obj) -> str:
    # Servers have set the field for years, and the Pod rules are slow to import.
    from setpoint.kinds.core.podspec.qos import qos_class

    return qos_class(obj)


def _write_identity(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    about, wanted, found = meta(obj), spec(obj), status(obj)
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    if wanted.get("priority") is not None:
        w.field("Priority", wanted["priority"])
    for title, key in (
        ("Priority Class Name", "priorityClassName"),
        ("Runtime Class Name", "runtimeClassName"),
        ("Service Account", "serviceAccountName"),
    ):
        if wanted.get(key):
            w.field(title, wanted[key])
    node = wanted.get("nodeName")
    w.field("Node", f"{node}/{found.get('hostIP', '')}" if node else "<none>")
    if found.get("startTime"):
        w.field("Start Time", ctx.moment(found["startTime"]))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))


def _write_phase(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    about, found = meta(obj), status(obj)
    if about.get("deletionTimestamp") and found.get("phase") not in ("Failed", "Succeeded"):
        w.field("Status", f"Terminating (lasts {ctx.since(about['deletionTimestamp'])})")
        w.field("Termination Grace Period", f"{about.get('deletionGracePeriodSeconds', 0)}s")
    else:
        w.field("Status", found.get("phase", ""))
    if found.get("reason"):
        w.field("Reason", found["reason"])
    if found.get("message"):
        w.field("Message", found["message"])
    seccomp = (spec(obj).get("securityContext") or {}).get("seccompProfile")
    if seccomp is not None:
        w.field("SeccompProfile", seccomp.get("type", ""))
        if seccomp.get("type") == "Localhost":
            w.field("LocalhostProfile", seccomp.get("localhostProfile", ""))


def _write_addresses(w: Writer, obj: Obj) -> None:
    found = status(obj)
    w.field("IP", found.get("podIP", ""))
    addresses = found.get("podIPs") or ()
    if not addresses:
        w.field("IPs", "<none>")
        return
    w.write(0, "IPs:\n")
    for address in addresses:
        w.field("IP", address.get("ip", ""), 1)


def _write_conditions(w: Writer, obj: Obj) -> None:
    conditions = status(obj).get("conditions") or ()
    gates = spec(obj).get("readinessGates") or ()
    if gates:
        states: dict[str, str] = {}
        for each in conditions:
            states.setdefault(each.get("type", ""), each.get("status", ""))
        w.write(0, "Readiness Gates:\n  Type\tStatus\n")
        for gate in gates:
            kind = gate.get("conditionType", "")
            w.write(1, f"{kind} \t{states.get(kind, '<none>')} \n")
    if conditions:
        w.write(0, "Conditions:\n  Type\tStatus\n")
        for each in conditions:
            w.write(1, f"{each.get('type', '')} \t{each.get('status', '')} \n")
