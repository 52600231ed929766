"""What a Pod takes of a node, as the scheduler counts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.pod_totals import pod_requests

Obj = dict[str, Any]

_GUESSED = {"cpu": "100m", "memory": "200Mi"}
"""For containers that do not say, when nodes are compared: nothing is for nothing."""


def nonzero_requests(pod: Mapping[str, Any], requests: Mapping[str, str]) -> Mapping[str, str]:
    """`requests` of the Pod with a guess for every container that names none."""
    level = (pod["spec"].get("resources") or {}).get("requests") or {}
    guessed = {name: text for name, text in _GUESSED.items() if not level or name not in requests}
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
