"""Every controller there is."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.controllers.deployment.controller import deployment_controller
from setpoint.controllers.namespace.controller import namespace_controller
from setpoint.controllers.node_taints import node_taint_controller
from setpoint.controllers.replicaset import replicaset_controller
from setpoint.controllers.service_accounts import service_account_controller
from setpoint.reconcile import Controller, Manager

CONTROLLERS: tuple[Callable[[Manager], Controller], ...] = (
    deployment_controller,
    namespace_controller,
    node_taint_controller,
    replicaset_controller,
    service_account_controller,
)


def add_all(manager: Manager) -> None:
    for build in CONTROLLERS:
        manager.add(build(manager))
