"""Every controller there is."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.controllers.deployment.controller import deployment_controller
from setpoint.controllers.replicaset import replicaset_controller
from setpoint.reconcile import Controller, Manager

CONTROLLERS: tuple[Callable[[Manager], Controller], ...] = (deployment_controller, replicaset_controller)


def add_all(manager: Manager) -> None:
    for build in CONTROLLERS:
        manager.add(build(manager))
