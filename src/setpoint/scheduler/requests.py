"""The resource requests of a Pod as the scheduler counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.pod_totals import pod_requests

Obj = dict[str, Any]

_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "200Mi"}
"""Default requests of containers without any, used for scoring."""


def nonzero_requests(pod: Mapping[str, Any], requests: Mapping[str, str]) -> Mapping[str, str]:
    """Return `requests` with defaults for every container that has none."""
    level = (pod["spec"].get("resources") or {}).get("requests") or {}
    guessed = {name: text for name, text in _DEFAULT_REQUESTS.items() if not level or name not in requests}
    if not guessed:
        return requests

    def filled(container: Obj) -> Obj:
        resources = container.get("resources") or {}
        return {**container, "resources": {**resources, "requests": {**guessed, **(resources.get("requests") or {})}}}

    spec = pod["spec"]
    complete = {
        **spec,
        "containers": [filled(container) for container in spec.get("containers") or ()],
        "initContainers": [filled(container) for container in spec.get("initContainers") or ()],
    }
    return pod_requests({**pod, "spec": complete})


def is_fully_allocated(pod: Mapping[str, Any]) -> bool:
    """Return whether the node has allocated what the spec requests, or has not reported: the Pod is not being resized,
    and its status adds nothing to its requests."""
    spec, status = pod["spec"], pod.get("status") or {}
    if status.get("resources") or status.get("allocatedResources"):
        return False
    for containers, statuses in _STATUSES:
        given = status.get(statuses)
        if not given:
            continue
        requested = {each["name"]: (each.get("resources") or {}).get("requests") for each in spec.get(containers) or ()}
        for entry in given:
            requests, resources = requested.get(entry["name"]), entry.get("resources")
            allocated, actual = entry.get("allocatedResources"), resources and resources.get("requests")
            if (allocated and allocated != requests) or (actual and actual != requests):
                return False
    return all(condition["type"] != "PodResizePending" for condition in status.get("conditions") or ())


_STATUSES = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))
