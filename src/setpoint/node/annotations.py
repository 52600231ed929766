"""What people say to simulated nodes, in annotations.

On a Pod, each also for one container only with `.NAME` appended:
- `simulate.setpoint.dev/readiness`, `/liveness`, `/startup`: `"false"` makes that probe fail, `"true"` succeed;
- `simulate.setpoint.dev/cpu`, `/memory`: what it uses; more memory than its limit gets it killed (OOMKilled);
- `simulate.setpoint.dev/exit-code`: the container ends now, with this code; as often as the value changes;
- `simulate.setpoint.dev/sigterm` (Pod only): how SIGTERM is taken: `ignore`, seconds, or `seconds:code`;
- `simulate.setpoint.dev/pull-seconds` (Pod only): how long each image takes to pull.

On a Node:
- `simulate.setpoint.dev/state`: `running`, `stopped` (its containers are dead) or `partitioned` (they run, unheard);
- `simulate.setpoint.dev/node: "true"`, as annotation or label: a Node made by hand that is to be simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "simulate.setpoint.dev/"
STATE, ADOPTED = PREFIX + "state", PREFIX + "node"
STATES = RUNNING, STOPPED, PARTITIONED = "running", "stopped", "partitioned"


def is_adopted(node: Mapping[str, Any]) -> bool:
    """Whether somebody made this Node to be simulated."""
    meta = node["metadata"]
    return "true" in ((meta.get("annotations") or {}).get(ADOPTED), (meta.get("labels") or {}).get(ADOPTED))


def said(pod: Mapping[str, Any], what: str, container: str = "") -> str:
    """Empty: nothing."""
    annotations = pod["metadata"].get("annotations")
    if not annotations:
        return ""
    if container and (own := annotations.get(f"{PREFIX}{what}.{container}")):
        return str(own)
    return str(annotations.get(PREFIX + what, ""))


def seconds(text: str, otherwise: float) -> float:
    try:
        return max(0.0, float(text)) if text else otherwise
    except ValueError:
        return otherwise
