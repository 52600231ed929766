"""Runs the controllers of one component after their informers have synced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from setpoint.client import Client, Resource
from setpoint.client.interface import ResourceRef
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.exposition import Family
from setpoint.meta.objects import Obj
from setpoint.reconcile.controller import Controller
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.reconcile.events import EventRecorder, EventWriteQueue
from setpoint.reconcile.gate import Gates
from setpoint.reconcile.informer import Handler, Informer
from setpoint.reconcile.metrics import families


class Runnable(Protocol):
    async def run(self) -> None:
        """Run until cancelled; an exception ends the component."""
        ...


FirstObject = tuple[ResourceRef, Callable[[Obj], bool] | None]
"""A resource and an optional predicate: the first object of it that satisfies the predicate triggers a deferred build.
"""


class Manager:
    """Owns the informers, recorders and controllers of one component.

    Informers and recorders are requested, and runnables added, before `run` or by a deferred build (`add_when`).
    Cancelling `run` stops everything.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        *,
        client_for: Callable[[str], Client] | None = None,
        host: str = "",
        gates: Gates | None = None,
    ) -> None:
        """Create a manager. `client` reads for all controllers; `client_for(controller)` returns the client with which
        a controller writes, under its own account. `gates` hold back the controllers; by default nothing does."""
        self.client = client
        self.clock = clock
        self.ids = ids
        self.client_for: Callable[[str], Client] = client_for or (lambda _: client)
        self.gates = gates or Gates(clock)
        self.ready = asyncio.Event()
        """Set once the informers have synced and the controllers run."""
        self._host = host
        self._informers: dict[tuple[object, ...], Informer[Any]] = {}
        self._unstarted: list[Runnable] = []
        """Informers and recorders that were requested and are not running yet."""
        self._runnables: list[Runnable] = []
        self._adopted: list[Controller] = []
        """Controllers that others run."""
        self._metric_sources: list[Callable[[], Iterable[Family]]] = []
        self._event_queues: list[EventWriteQueue] = []
        self._triggered: list[Callable[[], Runnable]] = []
        """Deferred builds whose first object has appeared and that have not been started."""
        self._tasks: asyncio.TaskGroup | None = None
        """The task group of `run`; None before it is called."""

    def informer(
        self, resource: ResourceRef, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Informer[Any]:
        """Return the shared informer for these arguments; all callers share its watch and its cache."""
        options = (resource, namespace, label_selector, field_selector)
        found = self._informers.get(options)
        if found is None:
            found = self._informers[options] = Informer[Any](
                self.client,
                resource,
                self.clock,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            if self.ready.is_set():
                found.first_list = ""
            self._unstarted.append(found)
        return found

    def shared_informer(self, resource: Resource) -> Informer[Any] | None:
        """Return the informer for all objects of a resource, or None if no controller has requested it."""
        wanted = (resource.group, resource.version, resource.plural)
        for (known, *filters), informer in self._informers.items():
            if (
                isinstance(known, Resource)
                and (known.group, known.version, known.plural) == wanted
                and not any(filters)
            ):
                return informer
        return None

    def informers(self) -> list[Informer[Any]]:
        return [*self._informers.values()]

    def recorder(self, component: str, account: str = "") -> EventRecorder:
        """Return a recorder for Events of `component` that writes with the account `account`, by default the
        component's own."""
        recorder = EventRecorder(self.client_for(account or component), self.clock, component, self._host)
        self._unstarted.append(recorder)
        self._event_queues.append(recorder.write_queue)
        return recorder

    def series_recorder(self, controller: str) -> SeriesRecorder:
        """Return a recorder for Events of `events.k8s.io`."""
        instance = f"{controller}-{self._host}" if self._host else controller
        recorder = SeriesRecorder(self.client_for(controller), self.clock, controller, instance)
        self._unstarted.append(recorder)
        self._event_queues.append(recorder.write_queue)
        return recorder

    def add(self, runnable: Runnable) -> None:
        """Add a runnable; call this before `run`."""
        self._runnables.append(runnable)

    def adopt(self, *controllers: Controller) -> None:
        """Guard and list controllers that do not run in this manager, but as long as it does."""
        for each in controllers:
            each.gates = self.gates
            self._adopted.append(each)

    def add_metrics(self, families: Callable[[], Iterable[Family]]) -> None:
        """Add metric families to those that every controller has."""
        self._metric_sources.append(families)

    def add_when(self, first: Iterable[FirstObject], build: Callable[[], Runnable]) -> None:
        """Defer `build` until the first matching object appears, then run what it returns.

        Until then it costs neither memory nor time. It starts as every controller does, with synced informers.
        """
        waiting: list[tuple[Informer[Any], Handler[Any]]] = []

        def trigger() -> None:
            for informer, handler in waiting:
                informer.remove_handler(handler)
            if waiting:
                waiting.clear()
                self._triggered.append(build)
                if self._tasks is not None and self.ready.is_set():
                    self._tasks.create_task(self._start_triggered())

        for resource, matches in first:
            informer, handler = self.informer(resource), _on_first(matches, trigger)
            waiting.append((informer, handler))
        for informer, handler in tuple(waiting):
            informer.add_handler(handler)

    @property
    def controllers(self) -> list[Controller]:
        """The controllers that run in this manager."""
        return [each for each in self._runnables if isinstance(each, Controller)]

    @property
    def runnables(self) -> list[Runnable]:
        """Everything that runs in this manager besides informers and recorders."""
        return [*self._runnables]

    @property
    def all_controllers(self) -> list[Controller]:
        """The controllers that run in this manager, including those in groups, and those that it has adopted."""
        return [*(each for runnable in self._runnables for each in _controllers_of(runnable)), *self._adopted]

    @property
    def due_within(self) -> float:
        """Seconds until every delayed key known now has been added to its queue; 0 if there is none."""
        return max((each.queue.due_within for each in self.controllers), default=0.0)

    def resync(self) -> None:
        """Reconcile every object again, although nothing has changed."""
        for informer in tuple(self._informers.values()):
            informer.resync()

    def families(self) -> list[Family]:
        """Return the metric families of the controllers and recorders."""
        found = families(self.controllers, self._event_queues)
        for source in self._metric_sources:
            found += source()
        return found

    async def run(self) -> None:
        """Start the informers, then the controllers, and run until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._sync()
            for runnable in self._runnables:
                self._start(runnable)
            while self._triggered:
                await self._start_triggered()
            self.ready.set()

    async def _start_triggered(self) -> None:
        assert self._tasks is not None
        started = [build() for build in self._triggered]
        self._triggered.clear()
        await self._sync()
        self._runnables += started
        for runnable in started:
            self._start(runnable)

    def _start(self, runnable: Runnable) -> None:
        assert self._tasks is not None
        for each in _controllers_of(runnable):
            each.gates = self.gates
        self._tasks.create_task(runnable.run())

    async def _sync(self) -> None:
        """Start pending informers and recorders, and wait until every cache has synced."""
        assert self._tasks is not None
        for each in self._unstarted:
            self._tasks.create_task(each.run())
        self._unstarted.clear()
        for informer in tuple(self._informers.values()):
            await informer.synced.wait()


def _on_first(matches: Callable[[Obj], bool] | None, trigger: Callable[[], None]) -> Handler[Obj]:
    def changed(_: object, new: Obj | None) -> None:
        if new is not None and (matches is None or matches(new)):
            trigger()

    return changed


def _controllers_of(runnable: Runnable) -> Iterator[Controller]:
    if isinstance(runnable, Controller):
        yield runnable
    elif isinstance(runnable, ControllerGroup):
        for part in runnable.parts:
            yield from _controllers_of(part)


class ControllerGroup:
    """Runs several runnables concurrently as one."""

    def __init__(self, *parts: Runnable) -> None:
        self.parts = parts

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in self.parts:
                tasks.create_task(part.run())
