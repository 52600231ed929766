"""The ReplicationController controller: a ReplicaSet controller whose selector is a plain label map."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.replicaset import WorkloadType, replicas_controller
from setpoint.meta.selectors import from_map
from setpoint.reconcile import Controller, Manager

REPLICATION_CONTROLLERS = builtin("replicationcontrollers")
_WORKLOAD_TYPE = WorkloadType(REPLICATION_CONTROLLERS, lambda found: from_map(found["spec"].get("selector")), False)


def replicationcontroller_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return replicas_controller(manager, "replicationcontroller-controller", "replication-controller", _WORKLOAD_TYPE)
