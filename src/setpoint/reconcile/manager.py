"""Runs the controllers of one component: their informers first, then them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from setpoint.client import Client, Resource
from setpoint.client.interface import ResourceRef
from setpoint.meta.clock import Clock, Ids
from setpoint.reconcile.controller import Controller
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.reconcile.events import EventRecorder
from setpoint.reconcile.informer import Informer


class Runnable(Protocol):
    async def run(self) -> None:
        """Until cancelled; whatever it raises ends the component."""
        ...


class Manager:
    """Everything is added before `run`. Cancelling `run` ends all of it."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        *,
        client_for: Callable[[str], Client] | None = None,
        host: str = "",
    ) -> None:
        """`client` reads for all; `client_for(controller)` is what each controller writes with, under its own name."""
        self.client = client
        self.clock = clock
        self.ids = ids
        self.client_for: Callable[[str], Client] = client_for or (lambda _: client)
        self.ready = asyncio.Event()
        """The informers have synced and the controllers run."""
        self._host = host
        self._informers: dict[tuple[object, ...], Informer] = {}
        self._recorders: list[Runnable] = []
        self._runnables: list[Runnable] = []

    def informer(
        self, resource: ResourceRef, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Informer:
        """The one informer for this: all who ask share its watch and its cache."""
        asked = (resource, namespace, label_selector, field_selector)
        found = self._informers.get(asked)
        if found is None:
            found = self._informers[asked] = Informer(
                self.client,
                resource,
                self.clock,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
        return found

    def shared_informer(self, resource: Resource) -> Informer | None:
        """The informer for all objects of a resource, if somebody has asked for it."""
        wanted = (resource.group, resource.version, resource.plural)
        for (asked, *where), informer in self._informers.items():
            if isinstance(asked, Resource) and (asked.group, asked.version, asked.plural) == wanted and not any(where):
                return informer
        return None

    def recorder(self, component: str, account: str = "") -> EventRecorder:
        """Events from `component`, written under the name of `account` where that is another one."""
        recorder = EventRecorder(self.client_for(account or component), self.clock, component, self._host)
        self._recorders.append(recorder)
        return recorder

    def series_recorder(self, controller: str) -> SeriesRecorder:
        """For what is told as `events.k8s.io` events."""
        instance = f"{controller}-{self._host}" if self._host else controller
        recorder = SeriesRecorder(self.client_for(controller), self.clock, controller, instance)
        self._recorders.append(recorder)
        return recorder

    def add(self, runnable: Runnable) -> None:
        self._runnables.append(runnable)

    @property
    def controllers(self) -> list[Controller]:
        """Those that run here; for whoever wants to know how they fare."""
        return [each for each in self._runnables if isinstance(each, Controller)]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for recorder in self._recorders:
                tasks.create_task(recorder.run())
            for informer in self._informers.values():
                tasks.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            for runnable in self._runnables:
                tasks.create_task(runnable.run())
            self.ready.set()
