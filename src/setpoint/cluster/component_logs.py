"""The logs of the components of one process: one bounded log each, shown as the logs of static Pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from setpoint import __version__
from setpoint.cluster.klog import KlogFormatter, LogFilter
from setpoint.meta.clock import Clock
from setpoint.node.runtime.containers import BoundedLog
from setpoint.node.runtime.interface import STDERR

if TYPE_CHECKING:
    from setpoint.node.static_pods import StaticPod

API_SERVER, CONTROLLER_MANAGER, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
_COMMANDS = {API_SERVER: "apiserver", CONTROLLER_MANAGER: "controller-manager", SCHEDULER: "scheduler"}

current_component: ContextVar[str] = ContextVar("current_component", default="")
"""The name of the component that the current task belongs to; empty outside of components."""

_BY_COMPONENT = {"controllers": CONTROLLER_MANAGER, "scheduler": SCHEDULER}
_BY_PACKAGE = {
    "apiserver": API_SERVER,
    "upkeep": API_SERVER,
    "store": API_SERVER,
    "controllers": CONTROLLER_MANAGER,
    "scheduler": SCHEDULER,
    "node": "",
}
"""Packages that belong to one component. The records of other packages belong to the component of the current task."""
_IGNORED = "setpoint.events.kubelet"
"""The logger of the nodes' Events, which are frequent and not the control plane's."""


class ComponentLogs(logging.Handler):
    """A log handler that stores each record in the log of its component."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._klog = KlogFormatter()
        self.started_at = clock.now()
        self.logs = {name: BoundedLog() for name in _COMMANDS}

    def emit(self, record: logging.LogRecord) -> None:
        component = _component(record.name)
        log = self.logs.get(component)
        if log is None:
            return
        now = self._clock.now()
        text = self._klog.line(record, now)
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # from a thread
            self._loop.call_soon_threadsafe(log.write, now.timestamp(), STDERR, text)
        else:
            log.write(now.timestamp(), STDERR, text)

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        super().close()


def _component(logger: str) -> str:
    """Return the name of the component whose log gets records of this logger; empty for none."""
    parts = logger.split(".", 2)
    found = _BY_PACKAGE.get(parts[1] if len(parts) > 1 else "")
    if found is not None:
        return found
    component = current_component.get()
    return _BY_COMPONENT.get(component, "") if component else API_SERVER


def control_plane_pods(logs: ComponentLogs) -> list[StaticPod]:
    """Return the components of this process as static Pods whose logs are `logs`."""
    from setpoint.node.static_pods import StaticPod  # a cluster without nodes need not load it

    return [
        StaticPod(name, f"setpoint.dev/{name}:v{__version__}", ("setpoint", command), logs.started_at, logs.logs[name])
        for name, command in _COMMANDS.items()
    ]


@contextmanager
def component_logs(clock: Clock) -> Iterator[ComponentLogs]:
    """Store the logs of components while the block runs. Warnings are still printed to the terminal."""
    ours, ignored = logging.getLogger("setpoint"), logging.getLogger(_IGNORED)
    level, ignored_level = ours.level, ignored.level
    logs = ComponentLogs(clock)
    logs.addFilter(LogFilter(clock.monotonic))
    handlers: list[logging.Handler] = [logs]
    if not logging.getLogger().handlers and not ours.handlers and logging.lastResort is not None:
        handlers.append(logging.lastResort)
    for name, logger in logging.root.manager.loggerDict.items():
        # Other code in this process may have configured logging and so disabled the loggers that existed before.
        if name.startswith("setpoint.") and isinstance(logger, logging.Logger):
            logger.disabled = False
    ours.setLevel(logging.INFO)
    ignored.setLevel(logging.WARNING)
    for handler in handlers:
        ours.addHandler(handler)
    try:
        yield logs
    finally:
        for handler in handlers:
            ours.removeHandler(handler)
        ours.setLevel(level)
        ignored.setLevel(ignored_level)
        logs.close()
