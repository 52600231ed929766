"""Fault injection: execute a plan on the links of the selected components, or inject random faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Protocol

from setpoint.client import Unreachable
from setpoint.client.interface import WatchEvent
from setpoint.cluster.embedded import EmbeddedCluster
from setpoint.cluster.virtual.error_unwrapping import unwrapping_task_group
from setpoint.cluster.virtual.link import Link, Proceed, Write, is_counted
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, Expired, InternalError, TooManyRequests
from setpoint.node.simulation_annotations import PARTITIONED, STATE
from setpoint.view.fault_plan import Fault, Plan

TOUCHED = "testing.setpoint.dev/touched"
"""Annotation that an injected conflict sets on the object, as another client's change."""
_REWIND_SECONDS = 5.0
"""Seconds for which a `rewind` fault serves stale data after the restart."""
_RESTART_TIMEOUT = 600.0
_MAX_STEPS = 100_000


class FaultyCluster(Protocol):
    """A cluster in virtual time whose components have links."""

    @property
    def embedded(self) -> EmbeddedCluster: ...

    @property
    def links(self) -> Mapping[str, Link]:
        """The link between each component and the server, by component name."""

    @property
    def clock(self) -> Clock: ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""

    async def kill(self, name: str) -> None:
        """Sever the link of a component, and end it as a process crash does."""

    async def start(self, name: str) -> None:
        """Start a component that was killed, and return when it is ready."""


class Noise:
    """Fails writes, loses answers, and delays, duplicates, drops or expires watches, at random."""

    def __init__(self, chance: random.Random, clock: Clock, conflict: Callable[[Write], Awaitable[Any]]) -> None:
        """`conflict` lets a write fail because of a conflict."""
        self._chance = chance
        self._clock = clock
        self._conflict = conflict

    async def write(self, write: Write, proceed: Proceed) -> Any:
        drawn = self._chance.random()
        if drawn < 0.08:
            await self._conflict(write)
        if drawn < 0.14:
            raise InternalError.of("injected fault: internal error")
        if drawn < 0.2:
            raise Unreachable("injected fault: connection lost")
        answer = await proceed()
        if self._chance.random() < 0.1:
            raise Unreachable("injected fault: connection lost before the answer")
        return answer

    async def events(self, given: list[WatchEvent]) -> list[WatchEvent]:
        drawn = self._chance.random()
        if drawn < 0.04:
            # the event is lost with the watch, and is sent again from its revision
            raise Unreachable("injected fault: watch closed")
        if drawn < 0.06:
            raise Expired("too old resource version")
        if drawn < 0.3:
            await self._clock.sleep(self._chance.uniform(0, 3))
        return [*given, *given] if drawn > 0.85 else given


@dataclass(slots=True)
class Step:
    """One write by a component, or one watch event delivered to it."""

    at: str
    """Either `write` or `event`."""
    nth: int
    when: float
    """Seconds since fault injection began."""
    what: str
    armed: bool
    """Whether fault injection was active at this step."""
    matters: bool
    """Whether a fault here makes a difference: true for events and for writes that changed something."""
    fault: str = ""
    """The kinds of the faults injected here, joined by `+`; empty if there were none."""
    answer: str = ""
    """The error that a failed write was answered with; empty if it succeeded."""


@dataclass(slots=True)
class _StaleView:
    revision: int
    over: asyncio.Event = field(default_factory=asyncio.Event)


class FaultInjection:
    """An async context manager that executes a plan until its block ends or `over` returns.

    On exit no new fault is injected and the active ones are ended: killed components run again, and delayed events are
    delivered.
    """

    def __init__(self, cluster: FaultyCluster, components: Sequence[str], plan: Plan, *, strict: bool = True) -> None:
        """Prepare fault injection; `strict` makes it an error if a fault of the plan was never injected by the end.

        A test without faults would prove nothing.
        """
        self._strict = strict
        self.steps: list[Step] = []
        """The writes and events of the components, in order."""
        self.writes = self.events = 0
        self._cluster = cluster
        unknown = [name for name in components if name not in cluster.links]
        if unknown or not components:
            known = ", ".join(cluster.links)
            missing = f"component {', '.join(unknown)}" if unknown else "operator"
            raise ValueError(f"no {missing} is running; available are: {known}")
        self._links = [cluster.links[name] for name in components]
        self._open = list(plan)
        """The faults that have not been injected yet."""
        self._armed = False
        self._began = 0.0
        self._first_revision = 0
        self._group = unwrapping_task_group()
        self._tasks: asyncio.TaskGroup
        self._under_way: set[asyncio.Task[None]] = set()
        self._stale: dict[str, _StaleView] = {}
        """The revision beyond which a component sees nothing, by component."""
        self._noise: Noise | None = None
        self._at_write: dict[str, Callable[[Fault, Write, Proceed], Awaitable[Any]]] = {
            "error": self._error,
            "too-many": self._too_many,
            "conflict": self._conflict,
            "timeout": self._timeout,
            "lost-answer": self._lost_answer,
            "crash-before": self._crash_before,
            "crash-after": self._crash_after,
            "rewind": self._rewind,
            "stale": self._stale_reads,
            "lag": self._lag,
            "partition": self._partition,
        }

    @property
    def open(self) -> Plan:
        """The faults that have not been injected."""
        return Plan(tuple(self._open))

    async def __aenter__(self) -> FaultInjection:
        for link in self._links:
            if link.write_interceptor or link.event_interceptor or link.list_interceptor:
                raise RuntimeError(f"a fault plan is already active for {link.name}: only one at a time is possible")
        self._tasks = await self._group.__aenter__()
        self._began = self._cluster.clock.monotonic()
        self._first_revision = self._cluster.embedded.store.revision
        for link in self._links:
            link.write_interceptor, link.event_interceptor = self._write, self._event
            link.list_interceptor = self._intercept_list
        self._armed = True
        for fault in [each for each in self._open if each.kind == "noise"]:
            self._open.remove(fault)
            self._begin(self._run_noise(fault))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._armed = False
        try:
            if kind is None:
                await self.over()
                if self._strict and self._open:
                    counts = f"there were {self.writes} writes and {self.events} events"
                    raise AssertionError(f"{self.open} was never injected: {counts}")
        finally:
            for link in self._links:
                link.clear()
            await self._group.__aexit__(kind, error, trace)

    async def over(self) -> None:
        """Stop injecting faults, and return when the active ones have ended."""
        self._armed = False
        while self._under_way:
            await asyncio.wait(self._under_way)

    @property
    def is_active(self) -> bool:
        """Whether a fault that was injected lasts on."""
        return bool(self._under_way)

    async def abandon(self) -> None:
        """Stop injecting faults, and stop waiting for the end of active ones: a killed component does not start again,
        and delayed events are not delivered. Call it only before the cluster ends."""
        self._armed = False
        for task in tuple(self._under_way):
            task.cancel()
        await self.over()

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(what)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _step(self, at: str, nth: int, what: str) -> Step:
        step = Step(at, nth, self._cluster.clock.monotonic() - self._began, what, self._armed, at == "event")
        if len(self.steps) < _MAX_STEPS:
            self.steps.append(step)
        return step

    def _due(self, step: Step) -> list[Fault]:
        if not self._armed:
            return []
        due = [each for each in self._open if each.at == step.at and each.nth == step.nth]
        for each in due:
            self._open.remove(each)
        step.fault = "+".join(each.kind for each in due)
        return due

    # -- writes -------------------------------------------------------------------------------------------------------

    async def _write(self, write: Write, proceed: Proceed) -> Any:
        if not write.is_counted:
            return await proceed()
        self.writes += 1
        step = self._step("write", self.writes, str(write))
        for fault in reversed(self._due(step)):
            proceed = partial(self._at_write[fault.kind], fault, write, proceed)
        if self._noise is not None and self._armed:
            proceed = partial(self._noise.write, write, proceed)
        revision = self._cluster.embedded.store.revision
        try:
            answer = await proceed()
        except (ApiError, Unreachable) as error:
            step.answer = f"{type(error).__name__}: {error}"
            raise
        step.matters = _newer(answer, revision)
        return answer

    async def _error(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        raise InternalError.of("injected fault: internal error")

    async def _too_many(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        raise TooManyRequests.of("too many requests, please try again later", 1)

    async def _conflict(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        await self._fail_with_conflict(str(fault.nth), write)

    async def _fail_with_conflict(self, mark: str, write: Write) -> None:
        # A conflict always comes with a change, because a controller may rely on the watch event of that change to
        # reconcile again.
        if write.ref is not None and write.name:
            change = {"metadata": {"annotations": {TOUCHED: mark}}}
            with suppress(ApiError, ValueError):  # the object may not exist yet: a quota can conflict all the same
                await self._cluster.embedded.client.patch(write.ref, write.name, change, write.namespace)
        raise Conflict.modified("", write.resource, write.name)

    async def _timeout(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        await self._cluster.sleep(fault.lasting)
        raise Unreachable(f"the server did not answer within {fault.lasting:g} seconds")

    async def _lost_answer(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        await proceed()
        raise Unreachable("injected fault: connection lost before the answer")

    async def _crash_before(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        await self._crash(write.component, fault)

    async def _crash_after(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        with suppress(ApiError):  # a crashed component does not see an error either
            await proceed()
        await self._crash(write.component, fault)

    async def _rewind(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        self._pin_revision(write.component, self._first_revision, fault.lasting + _REWIND_SECONDS)
        await self._crash_after(fault, write, proceed)

    async def _stale_reads(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        self._pin_revision(write.component, self._cluster.embedded.store.revision, fault.lasting)
        return await proceed()

    def _pin_revision(self, component: str, revision: int, seconds: float) -> None:
        """Serve a component the state of `revision` for `seconds`, whether or not it restarts meanwhile."""
        stale = self._stale[component] = _StaleView(revision)

        async def for_a_while() -> None:
            await self._cluster.sleep(seconds)
            if self._stale.get(component) is stale:
                del self._stale[component]
            stale.over.set()

        self._begin(for_a_while())

    async def _lag(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        second = self._cluster.embedded.second
        if second is None:
            raise ValueError("the cluster has one API server; the option replica_delay runs a second one")
        second.store.hold(fault.lasting)
        self._begin(self._cluster.sleep(fault.lasting))
        return await proceed()

    async def _partition(self, fault: Fault, write: Write, proceed: Proceed) -> Any:
        async def set_state(state: str | None) -> None:
            change = {"metadata": {"annotations": {STATE: state}}}
            await self._cluster.embedded.client.patch(("v1", "Node"), fault.node, change)

        async def for_a_while() -> None:
            await self._cluster.sleep(fault.lasting)
            await set_state(None)

        await set_state(PARTITIONED)
        self._begin(for_a_while())
        return await proceed()

    # -- crashes -------------------------------------------------------------------------------------------------------

    async def _crash(self, component: str, fault: Fault) -> None:
        link = self._cluster.links[component]
        if not link.severed:
            link.severed = True
            self._begin(self._restart(component, fault.lasting))
        await asyncio.Event().wait()  # ended by cancellation

    async def _restart(self, component: str, after: float) -> None:
        await self._cluster.kill(component)
        await self._cluster.sleep(after)
        try:
            async with asyncio.timeout(_RESTART_TIMEOUT):
                await self._cluster.start(component)
        except TimeoutError:
            raise AssertionError(f"{component} is not ready {_RESTART_TIMEOUT:g} s after its restart") from None

    # -- reads --------------------------------------------------------------------------------------------------------

    def _intercept_list(self, component: str, options: dict[str, Any]) -> dict[str, Any]:
        """Serve a list from the past if the component is stale and the request accepts any revision."""
        stale = self._stale.get(component)
        if stale is None or options.get("resource_version") != "0":
            return options
        revision = max(stale.revision, self._cluster.embedded.store.compacted)
        return {**options, "resource_version": str(revision), "resource_version_match": "Exact"}

    async def _event(self, component: str, kind: str, event: WatchEvent) -> Sequence[WatchEvent]:
        given = [event]
        if event.type != "BOOKMARK" and is_counted(kind):
            given = await self._event_with_faults(component, kind, event)
        while (stale := self._stale.get(component)) is not None:
            if int(event.object["metadata"]["resourceVersion"]) <= stale.revision:
                break
            await stale.over.wait()
        return given

    async def _event_with_faults(self, component: str, kind: str, event: WatchEvent) -> list[WatchEvent]:
        self.events += 1
        meta = event.object["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        given = [event]
        for fault in self._due(self._step("event", self.events, f"{component}: {event.type} {kind} {where}")):
            match fault.kind:
                case "duplicate":
                    given.append(event)
                case "drop-watch":
                    raise Unreachable("injected fault: watch closed")
                case "expire-watch":
                    raise Expired("too old resource version")
                case "delay-watch":
                    self._begin(self._cluster.sleep(fault.lasting))
                    await self._cluster.sleep(fault.lasting)
                case "down":
                    await self._crash(component, fault)
        return await self._noise.events(given) if self._noise is not None and self._armed else given

    # -- noise --------------------------------------------------------------------------------------------------------

    async def _run_noise(self, fault: Fault) -> None:
        conflicts = count(1)

        async def conflict(write: Write) -> None:
            await self._fail_with_conflict(f"noise {next(conflicts)}", write)

        self._noise = Noise(random.Random(fault.nth), self._cluster.clock, conflict)
        await self._cluster.sleep(fault.lasting)
        self._noise = None


def _newer(answer: Any, revision: int) -> bool:
    """Return whether the object in a write's answer is newer than `revision`; an answer without one is a deletion."""
    shown = (answer.get("metadata") or {}).get("resourceVersion") if isinstance(answer, dict) else None
    return shown is None or int(shown) > revision
