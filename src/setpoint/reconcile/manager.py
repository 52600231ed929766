"""Runs the controllers of one component: their informers first, then them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from setpoint.client import Client, Resource
from setpoint.client.interface import ResourceRef
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.exposition import Family
from setpoint.reconcile.controller import Controller
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.reconcile.event_writing import EventWriting
from setpoint.reconcile.events import EventRecorder
from setpoint.reconcile.informer import Handler, Informer
from setpoint.reconcile.metrics import families


class Runnable(Protocol):
    async def run(self) -> None:
        """Until cancelled; whatever it raises ends the component."""
        ...


First = tuple[ResourceRef, Callable[[dict[str, Any]], bool] | None]
"""An object of this resource; or only one of which the function says so."""


class Manager:
    """What is asked for while it runs begins at once. Cancelling `run` ends all of it."""

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
        self._not_begun: list[Runnable] = []
        """Informers and recorders that were asked for and do not run yet."""
        self._runnables: list[Runnable] = []
        self._measured: list[Callable[[], Iterable[Family]]] = []
        self._event_writing: list[EventWriting] = []
        self._woken: list[Callable[[], Runnable]] = []
        """What was waiting for a first object that is there now."""
        self._tasks: asyncio.TaskGroup | None = None
        """While it runs."""

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
            self._not_begun.append(found)
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
        self._not_begun.append(recorder)
        self._event_writing.append(recorder.writing)
        return recorder

    def series_recorder(self, controller: str) -> SeriesRecorder:
        """For what is told as `events.k8s.io` events."""
        instance = f"{controller}-{self._host}" if self._host else controller
        recorder = SeriesRecorder(self.client_for(controller), self.clock, controller, instance)
        self._not_begun.append(recorder)
        self._event_writing.append(recorder.writing)
        return recorder

    def add(self, runnable: Runnable) -> None:
        """Before `run`."""
        self._runnables.append(runnable)

    def measure(self, families: Callable[[], Iterable[Family]]) -> None:
        """These too are told, besides what is known of every controller."""
        self._measured.append(families)

    def add_when(self, first: Iterable[First], build: Callable[[], Runnable]) -> None:
        """What `build` returns is added as soon as one such object is there. Until then it costs neither memory nor
        time; it starts as every controller does, on a world that is there already."""
        waiting: list[tuple[Informer, Handler]] = []

        def wake() -> None:
            for informer, handler in waiting:
                informer.remove_handler(handler)
            if waiting:
                waiting.clear()
                self._woken.append(build)
                if self._tasks is not None and self.ready.is_set():
                    self._tasks.create_task(self._begin_woken())

        for resource, is_one in first:
            informer, handler = self.informer(resource), _on_first(is_one, wake)
            waiting.append((informer, handler))
        for informer, handler in tuple(waiting):
            informer.add_handler(handler)

    @property
    def controllers(self) -> list[Controller]:
        """Those that run here; for whoever wants to know how they fare."""
        return [each for each in self._runnables if isinstance(each, Controller)]

    @property
    def due_within(self) -> float:
        """In so many seconds everything will have been looked at again that is to be, by what is known now."""
        return max((each.queue.due_within for each in self.controllers), default=0.0)

    def look_again(self) -> None:
        """At everything, although nothing has changed."""
        for informer in tuple(self._informers.values()):
            informer.tell_again()

    def families(self) -> list[Family]:
        """What there is to be measured of those that run here."""
        found = families(self.controllers, self._event_writing)
        for measured in self._measured:
            found += measured()
        return found

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            await self._sync()
            for runnable in self._runnables:
                self._tasks.create_task(runnable.run())
            while self._woken:
                await self._begin_woken()
            self.ready.set()

    async def _begin_woken(self) -> None:
        assert self._tasks is not None
        woken = [build() for build in self._woken]
        self._woken.clear()
        await self._sync()
        self._runnables += woken
        for runnable in woken:
            self._tasks.create_task(runnable.run())

    async def _sync(self) -> None:
        """Informers and recorders that have not begun do; returns when every cache is filled."""
        assert self._tasks is not None
        for each in self._not_begun:
            self._tasks.create_task(each.run())
        self._not_begun.clear()
        for informer in tuple(self._informers.values()):
            await informer.synced.wait()


def _on_first(is_one: Callable[[dict[str, Any]], bool] | None, wake: Callable[[], None]) -> Handler:
    def changed(_: object, new: dict[str, Any] | None) -> None:
        if new is not None and (is_one is None or is_one(new)):
            wake()

    return changed
