"""The components of this process as the Pods that people know them by."""

from __future__ import annotations

from setpoint import __version__
from setpoint.cluster.component_logs import API_SERVER, CONTROLLER_MANAGER, SCHEDULER, ComponentLogs
from setpoint.node.static_pods import StaticPod

_COMMANDS = {API_SERVER: "apiserver", CONTROLLER_MANAGER: "controller-manager", SCHEDULER: "scheduler"}


def control_plane_pods(logs: ComponentLogs) -> list[StaticPod]:
    return [
        StaticPod(name, f"setpoint.dev/{name}:v{__version__}", ("setpoint", command), logs.started_at, logs.logs[name])
        for name, command in _COMMANDS.items()
    ]
