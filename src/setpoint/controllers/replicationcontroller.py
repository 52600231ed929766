"""ReplicationControllers: what ReplicaSets were before, with a plain map of labels as the selector."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.replicaset import Flavour, replicas_controller
from setpoint.meta.selectors import from_map
from setpoint.reconcile import Controller, Manager

REPLICATION_CONTROLLERS = builtin("replicationcontrollers")
_FLAVOUR = Flavour(REPLICATION_CONTROLLERS, lambda found: from_map(found["spec"].get("selector")), False)


def replicationcontroller_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return replicas_controller(manager, "replicationcontroller-controller", "replication-controller", _FLAVOUR)
