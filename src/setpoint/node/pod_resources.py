"""The resources of a whole Pod, as its status reports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.kinds.core.pod_demand import pod_limits, pod_requests
from setpoint.meta.objects import Obj
from setpoint.node.container_state import EPHEMERAL, ContainerState

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


def reported_resources(pod: Pod, containers: Sequence[ContainerState]) -> Obj:
    """Return the fields `resources` and, if the Pod requests anything, `allocatedResources` of its status."""
    spec: Mapping[str, Any] = pod["spec"]
    own = spec.get("resources") or {}
    if not own and not spec.get("overhead") and not any(container.allocated for container in containers):
        return {"resources": {}}
    allocated = {
        container.name: {"name": container.name, "resources": container.allocated}
        for container in containers
        if container.kind != EPHEMERAL
    }
    whole = {**spec}
    for field in ("initContainers", "containers"):
        if field in spec:
            whole[field] = [{**each, **allocated[each["name"]]} for each in spec[field] or ()]
    requests, limits = pod_requests({"spec": whole}), pod_limits({"spec": whole})
    amounts = {"limits": limits, "requests": requests}
    found: Obj = {"resources": {**own, **{which: value for which, value in amounts.items() if value}}}
    return found | {"allocatedResources": dict(requests)} if requests else found
