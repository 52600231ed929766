"""Pods, and the Pod templates of workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.containers import resolve_in, write_containers, write_resources
from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import reference_to, visible_events, write_found_events
from setpoint.cli.describe.metadata import (
    write_annotations,
    write_controller,
    write_labels,
    write_tolerations,
)
from setpoint.cli.describe.volumes import write_volumes
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import format_labels


def write_pod_template(w: Writer, ctx: DescribeContext, template: Obj | None) -> None:
    w.write(0, "Pod Template:\n")
    if template is None:
        w.write(1, "<unset>")
        return
    about, wanted = meta(template), spec(template)
    write_labels(w, "  Labels", about.get("labels"))
    if about.get("annotations"):
        write_annotations(w, "  Annotations", about["annotations"])
    if wanted.get("serviceAccountName"):
        w.field("Service Account", wanted["serviceAccountName"], 1)
    if wanted.get("initContainers"):
        write_containers(w, ctx, "Init Containers", wanted["initContainers"], indent="  ")
    write_containers(w, ctx, "Containers", wanted.get("containers") or (), indent="  ")
    write_volumes(w, wanted.get("volumes") or (), "  ")
    write_spreading(w, wanted.get("topologySpreadConstraints") or (), "  ")
    if wanted.get("priorityClassName"):
        w.field("Priority Class Name", wanted["priorityClassName"], 1)
    write_labels(w, "  Node-Selectors", wanted.get("nodeSelector"))
    write_tolerations(w, "  Tolerations", wanted.get("tolerations"))
    write_scheduling_group(w, ctx, wanted, "  ")


def write_spreading(w: Writer, constraints: Sequence[Mapping[str, Any]], indent: str = "") -> None:
    if not constraints:
        return
    w.write(0, f"{indent}Topology Spread Constraints:\t")
    for at, each in enumerate(sorted(constraints, key=lambda one: str(one.get("topologyKey", "")))):
        if at:
            w.write(0, f"{indent}\t")
        text = f"{each.get('topologyKey', '')}:{each.get('whenUnsatisfiable', '')}"
        text += f" when max skew {each.get('maxSkew', 0)} is exceeded"
        if each.get("labelSelector") is not None:
            text += f" for selector {format_labels(each['labelSelector'])}"
        w.write(0, f"{text}\n")


def write_scheduling_group(w: Writer, ctx: DescribeContext, wanted: Mapping[str, Any], indent: str = "") -> None:
    group = wanted.get("schedulingGroup")
    if group is not None and ctx.minor >= 36:
        w.write(0, f"{indent}SchedulingGroup:\n")
        w.field("PodGroupName", group.get("podGroupName", ""), 1)


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
        about = about._replace(uid=(meta(obj).get("annotations") or {}).get(MIRROR, about.uid))
        write_found_events(w, ctx, await visible_events(ctx, about))
    return w.text()


def _qos_class(obj: Obj) -> str:
    # Servers have set the field for years, and the Pod rules are slow to import.
    from setpoint.kinds.core.podspec.resources import qos_class

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
