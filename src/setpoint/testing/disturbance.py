"""A plan at work: the links of the components it is about, watched and disturbed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from setpoint.client import Unreachable
from setpoint.client.interface import WatchEvent
from setpoint.meta.errors import ApiError, Conflict, Expired, InternalError, TooManyRequests
from setpoint.testing.link import Go, Write
from setpoint.testing.noise import Noise
from setpoint.testing.own_error import own_tasks
from setpoint.testing.plan import Fault, Plan

if TYPE_CHECKING:
    from setpoint.testing.cluster import VirtualCluster

TOUCHED = "testing.setpoint.dev/touched"
"""The annotation that somebody else's change is made with."""
_NODE_STATE = "simulate.setpoint.dev/state"
_PAST = 5.0
"""For so many seconds one that comes back is shown the past."""
_STARTS_WITHIN = 600.0
_MOST_STEPS = 100_000


@dataclass(slots=True)
class Step:
    """One write of a component, or one event that came to it."""

    at: str
    """`write` or `event`."""
    nth: int
    when: float
    """In seconds since the plan began."""
    what: str
    armed: bool
    """Something could have gone wrong here: the plan was at work."""
    matters: bool
    """It is an event, or a write that changed something."""
    fault: str = ""
    """What went wrong here."""
    answer: str = ""
    """Of a write that failed: how."""


@dataclass(slots=True)
class _Stale:
    revision: int
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Disturbance:
    """Within the block the plan is at work, until it is `over`. At its end nothing new goes wrong, and what went wrong
    is over: whatever died runs again, and all is delivered that was held back."""

    def __init__(self, cluster: VirtualCluster, components: Sequence[str], plan: Plan, *, strict: bool = True) -> None:
        """`strict`: it is an error at the end if something of the plan has not come to pass. A test in which nothing
        goes wrong would show nothing."""
        self._strict = strict
        self.steps: list[Step] = []
        """What the components did and heard, in order."""
        self.writes = self.events = 0
        self._cluster = cluster
        unknown = [name for name in components if name not in cluster.links]
        if unknown or not components:
            known = ", ".join(cluster.links)
            raise ValueError(
                f"nothing runs here that is called {', '.join(unknown) or 'an operator'}; there are {known}"
            )
        self._links = [cluster.links[name] for name in components]
        self._open = list(plan)
        """What has not come to pass."""
        self._armed = False
        self._began = 0.0
        self._first_revision = 0
        self._group = own_tasks()
        self._tasks: asyncio.TaskGroup
        self._under_way: set[asyncio.Task[None]] = set()
        self._stale: dict[str, _Stale] = {}
        """By component: it sees nothing beyond."""
        self._noise: Noise | None = None
        self._at_write: dict[str, Callable[[Fault, Write, Go], Awaitable[Any]]] = {
            "error": self._error, "too-many": self._too_many, "conflict": self._conflict, "timeout": self._timeout,
            "lost-answer": self._lost_answer, "crash-before": self._crash_before, "crash-after": self._crash_after,
            "rewind": self._rewind, "stale": self._hear_nothing, "partition": self._partition,
        }  # fmt: skip

    @property
    def open(self) -> Plan:
        """What has not come to pass."""
        return Plan(tuple(self._open))

    async def __aenter__(self) -> Disturbance:
        for link in self._links:
            if link.through or link.delivery or link.asking:
                raise RuntimeError(f"something is going wrong with {link.name} already: one plan at a time")
        self._tasks = await self._group.__aenter__()
        self._began = self._cluster.clock.monotonic()
        self._first_revision = self._cluster.embedded.store.revision
        for link in self._links:
            link.through, link.delivery, link.asking = self._write, self._event, self._asked
        self._armed = True
        for fault in [each for each in self._open if each.kind == "noise"]:
            self._open.remove(fault)
            self._begin(self._be_noisy(fault))
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
                    raise AssertionError(f"{self.open} never came to pass: {counts}")
        finally:
            for link in self._links:
                link.quiet()
            await self._group.__aexit__(kind, error, trace)

    async def over(self) -> None:
        """Nothing new goes wrong; returns when what went wrong is over."""
        self._armed = False
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(what)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _step(self, at: str, nth: int, what: str) -> Step:
        step = Step(at, nth, self._cluster.clock.monotonic() - self._began, what, self._armed, at == "event")
        if len(self.steps) < _MOST_STEPS:
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

    async def _write(self, write: Write, go: Go) -> Any:
        if not write.counts:
            return await go()
        self.writes += 1
        step = self._step("write", self.writes, str(write))
        for fault in reversed(self._due(step)):
            go = partial(self._at_write[fault.kind], fault, write, go)
        if self._noise is not None and self._armed:
            go = partial(self._noise.write, write, go)
        revision = self._cluster.embedded.store.revision
        try:
            answer = await go()
        except (ApiError, Unreachable) as error:
            step.answer = f"{type(error).__name__}: {error}"
            raise
        step.matters = _newer(answer, revision)
        return answer

    async def _error(self, fault: Fault, write: Write, go: Go) -> Any:
        raise InternalError.of("the server is not well")

    async def _too_many(self, fault: Fault, write: Write, go: Go) -> Any:
        raise TooManyRequests.of("too many requests, please try again later", 1)

    async def _conflict(self, fault: Fault, write: Write, go: Go) -> Any:
        # A conflict always comes with a change: whoever leaves it at that, because news of the change will come, is
        # right to do so.
        if write.ref is not None and write.name:
            change = {"metadata": {"annotations": {TOUCHED: str(fault.nth)}}}
            with suppress(ApiError, ValueError):  # nothing there yet: a quota can be in conflict all the same
                await self._cluster.client.patch(write.ref, write.name, change, write.namespace)
        raise Conflict.modified("", write.resource, write.name)

    async def _timeout(self, fault: Fault, write: Write, go: Go) -> Any:
        await self._cluster.sleep(fault.lasting)
        raise Unreachable(f"the server did not answer within {fault.lasting:g} seconds")

    async def _lost_answer(self, fault: Fault, write: Write, go: Go) -> Any:
        await go()
        raise Unreachable("the connection broke before the answer came")

    async def _crash_before(self, fault: Fault, write: Write, go: Go) -> Any:
        await self._die(write.component, fault)

    async def _crash_after(self, fault: Fault, write: Write, go: Go) -> Any:
        with suppress(ApiError):  # nor does it learn of a refusal
            await go()
        await self._die(write.component, fault)

    async def _rewind(self, fault: Fault, write: Write, go: Go) -> Any:
        self._stand_still(write.component, self._first_revision, fault.lasting + _PAST)
        await self._crash_after(fault, write, go)

    async def _hear_nothing(self, fault: Fault, write: Write, go: Go) -> Any:
        self._stand_still(write.component, self._cluster.embedded.store.revision, fault.lasting)
        return await go()

    def _stand_still(self, component: str, revision: int, seconds: float) -> None:
        """For so long what it sees is of this revision, whether it is started anew or not."""
        stale = self._stale[component] = _Stale(revision)

        async def for_a_while() -> None:
            await self._cluster.sleep(seconds)
            if self._stale.get(component) is stale:
                del self._stale[component]
            stale.over.set()

        self._begin(for_a_while())

    async def _partition(self, fault: Fault, write: Write, go: Go) -> Any:
        async def set_state(state: str | None) -> None:
            change = {"metadata": {"annotations": {_NODE_STATE: state}}}
            await self._cluster.client.patch(("v1", "Node"), fault.node, change)

        async def for_a_while() -> None:
            await self._cluster.sleep(fault.lasting)
            await set_state(None)

        await set_state("partitioned")
        self._begin(for_a_while())
        return await go()

    # -- dying --------------------------------------------------------------------------------------------------------

    async def _die(self, component: str, fault: Fault) -> None:
        link = self._cluster.links[component]
        if not link.severed:
            link.severed = True
            self._begin(self._restart(component, fault.lasting))
        await asyncio.Event().wait()  # the end of this comes from outside

    async def _restart(self, component: str, after: float) -> None:
        await self._cluster.kill(component)
        await self._cluster.sleep(after)
        try:
            async with asyncio.timeout(_STARTS_WITHIN):
                await self._cluster.start(component)
        except TimeoutError:
            raise AssertionError(f"{component} is not ready {_STARTS_WITHIN:g} s after it was started again") from None

    # -- reads --------------------------------------------------------------------------------------------------------

    def _asked(self, component: str, options: dict[str, Any]) -> dict[str, Any]:
        """Who does not ask for the newest may be shown the past."""
        stale = self._stale.get(component)
        if stale is None or options.get("resource_version") != "0":
            return options
        revision = max(stale.revision, self._cluster.embedded.store.compacted)
        return {**options, "resource_version": str(revision), "resource_version_match": "Exact"}

    async def _event(self, component: str, kind: str, event: WatchEvent) -> Sequence[WatchEvent]:
        given = [event]
        if event.type != "BOOKMARK":
            given = await self._disturbed(component, kind, event)
        while (stale := self._stale.get(component)) is not None:
            if int(event.object["metadata"]["resourceVersion"]) <= stale.revision:
                break
            await stale.over.wait()
        return given

    async def _disturbed(self, component: str, kind: str, event: WatchEvent) -> list[WatchEvent]:
        self.events += 1
        meta = event.object["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        given = [event]
        for fault in self._due(self._step("event", self.events, f"{component}: {event.type} {kind} {where}")):
            match fault.kind:
                case "duplicate":
                    given.append(event)
                case "drop-watch":
                    raise Unreachable("the watch broke off")
                case "expire-watch":
                    raise Expired("too old resource version")
                case "delay-watch":
                    self._begin(self._cluster.sleep(fault.lasting))
                    await self._cluster.sleep(fault.lasting)
                case "down":
                    await self._die(component, fault)
        return await self._noise.events(given) if self._noise is not None and self._armed else given

    # -- noise --------------------------------------------------------------------------------------------------------

    async def _be_noisy(self, fault: Fault) -> None:
        self._noise = Noise(random.Random(fault.nth), self._cluster.clock)
        await self._cluster.sleep(fault.lasting)
        self._noise = None


def _newer(answer: Any, revision: int) -> bool:
    """Whether what a write was answered with came to be after this revision. Where nothing is shown, something went."""
    shown = (answer.get("metadata") or {}).get("resourceVersion") if isinstance(answer, dict) else None
    return shown is None or int(shown) > revision
