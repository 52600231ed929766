"""The annotations that control simulated nodes and Pods.

On a Pod, each also for one container only with `.NAME` appended:
- `simulate.setpoint.dev/readiness`, `/liveness`, `/startup`: `"false"` makes that probe fail, `"true"` succeed;
- `simulate.setpoint.dev/cpu`, `/memory`: the usage; a container that uses more memory than its limit is OOMKilled;
- `simulate.setpoint.dev/exit-code`: the container exits now, with this code; once for every new value;
- `simulate.setpoint.dev/sigterm` (Pod only): the reaction to SIGTERM: `ignore`, seconds, or `seconds:code`;
- `simulate.setpoint.dev/pull-seconds` (Pod only): how long each image takes to pull.

On a Node:
- `simulate.setpoint.dev/state`: `running`, `stopped` (its containers are dead) or `partitioned` (they run, but the node
  and the API server do not reach each other);
- `simulate.setpoint.dev/node: "true"`, as annotation or label: a Node that was created by a client and is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.meta.objects import ObjView

PREFIX = "simulate.setpoint.dev/"
STATE, ADOPTED = PREFIX + "state", PREFIX + "node"
STATES = RUNNING, STOPPED, PARTITIONED = "running", "stopped", "partitioned"


def is_adopted(node: ObjView) -> bool:
    """Return whether a client created this Node to be simulated."""
    meta = node["metadata"]
    return "true" in ((meta.get("annotations") or {}).get(ADOPTED), (meta.get("labels") or {}).get(ADOPTED))


def simulation_annotation(pod: Pod, name: str, container: str = "") -> str:
    """Return the value of an annotation, which may be for one container only; empty if it is not set."""
    annotations = pod["metadata"].get("annotations")
    if not annotations:
        return ""
    if container and (own := annotations.get(f"{PREFIX}{name}.{container}")):
        return str(own)
    return str(annotations.get(PREFIX + name, ""))


def parse_seconds(text: str, default: float) -> float:
    try:
        return max(0.0, float(text)) if text else default
    except ValueError:
        return default
