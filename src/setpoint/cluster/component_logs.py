"""What the components of one process say, kept within bounds and apart, as if each had a log file of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from setpoint.cluster.component import speaking
from setpoint.cluster.klog import KlogLines
from setpoint.cluster.log_filter import LogFilter
from setpoint.meta.clock import Clock
from setpoint.node.runtime.interface import STDERR
from setpoint.node.runtime.log import BoundedLog

API_SERVER, CONTROLLER_MANAGER, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
COMPONENTS = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)

_OF_PART = {"controllers": CONTROLLER_MANAGER, "scheduler": SCHEDULER}
_OF_ROOM = {
    "apiserver": API_SERVER, "upkeep": API_SERVER, "store": API_SERVER, "controllers": CONTROLLER_MANAGER,
    "scheduler": SCHEDULER, "node": "",
}  # fmt: skip
"""The rooms that only one component has; all others speak for whoever uses them."""
_UNHEARD = "setpoint.events.kubelet"
"""Nodes say much, and none of it is the control plane's."""


class ComponentLogs(logging.Handler):
    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._klog = KlogLines()
        self.started_at = clock.now()
        self.logs = {name: BoundedLog() for name in COMPONENTS}

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
    parts = logger.split(".", 2)
    room = parts[1] if len(parts) > 1 else ""
    found = _OF_ROOM.get(room)
    if found is not None:
        return found
    part = speaking.get()
    return _OF_PART.get(part, "") if part else API_SERVER


@contextmanager
def component_logs(clock: Clock) -> Iterator[ComponentLogs]:
    """While the block runs, they are kept. Warnings still reach the terminal, as they do without."""
    ours, unheard = logging.getLogger("setpoint"), logging.getLogger(_UNHEARD)
    before, unheard_before = ours.level, unheard.level
    logs = ComponentLogs(clock)
    logs.addFilter(LogFilter(clock.monotonic))
    handlers: list[logging.Handler] = [logs]
    if not logging.getLogger().handlers and not ours.handlers and logging.lastResort is not None:
        handlers.append(logging.lastResort)
    for name, logger in logging.root.manager.loggerDict.items():
        # Others in this process may have configured logging for themselves and switched off all that they did not know.
        if name.startswith("setpoint.") and isinstance(logger, logging.Logger):
            logger.disabled = False
    ours.setLevel(logging.INFO)
    unheard.setLevel(logging.WARNING)
    for handler in handlers:
        ours.addHandler(handler)
    try:
        yield logs
    finally:
        for handler in handlers:
            ours.removeHandler(handler)
        ours.setLevel(before)
        unheard.setLevel(unheard_before)
        logs.close()
