"""What a Pod may know about itself: the downward API, for variables and for volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.meta.goformat import quote
from setpoint.meta.quantity import NANO, parse

if TYPE_CHECKING:
    from setpoint.node.pod_status import Situation

Obj = Mapping[str, Any]

_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


def field_value(pod: Obj, path: str, situation: Situation | None) -> str:
    meta, spec = pod["metadata"], pod["spec"]
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(meta.get(path.partition(".")[2], ""))
        case "metadata.labels" | "metadata.annotations":
            held = meta.get(path.partition(".")[2]) or {}
            return "\n".join(f"{key}={quote(held[key])}" for key in sorted(held))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.partition(".")[2], ""))
        case "status.hostIP" | "status.hostIPs":
            return situation.host_ip if situation is not None else ""
        case "status.podIP":
            return situation.pod_ips[0] if situation is not None and situation.pod_ips else ""
        case "status.podIPs":
            return ",".join(situation.pod_ips) if situation is not None else ""
    return ""


def resource_value(pod: Obj, container: Obj, reference: Obj, situation: Situation | None) -> str:
    """In whole multiples of the divisor, rounded up. A limit that is not set is that of the node."""
    name = reference.get("containerName")
    if name:
        everyone = [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]
        container = next((each for each in everyone if each["name"] == name), container)
    which, _, resource = str(reference.get("resource", "")).partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(which) or {}).get(resource)
    if amount is None and which == "limits" and situation is not None:
        amount = situation.allocatable.get(resource)
    divisor = parse(str(reference.get("divisor") or "1")).nano or NANO
    nano = parse(amount).nano if amount is not None else 0
    return str(-(-nano // divisor))
