"""Describe the Pod template of a workload, and the parts that Pods and templates share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.containers import write_containers
from setpoint.cli.describe.context import DescribeContext, meta, spec
from setpoint.cli.describe.metadata import write_annotations, write_labels, write_tolerations
from setpoint.cli.describe.volumes import write_volumes
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
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
