"""Observes the container runtime. Lists are the truth; events are hints that a container or sandbox may have changed,
whose status is then requested.

The last known state is kept while the runtime does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol

from setpoint.meta.clock import Clock
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.enums import ContainerState
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.observed_state import ObservedContainer, ObservedState, Sandbox
from setpoint.node.host.runtime_labels import NODE, POD_UID, TERMINATION_MESSAGE_PATH, TERMINATION_MESSAGE_POLICY
from setpoint.node.host.termination_message import read_termination_message
from setpoint.tasks import run_all, within
from setpoint.wire.grpc import Code

_RELIST_SECONDS: Final = 10.0
_RELIST_SECONDS_WITHOUT_EVENTS: Final = 1.0
_DOWN_AFTER: Final = 30.0
"""Seconds without an answer after which the runtime counts as down."""
_CONCURRENT_STATUSES: Final = 8
_MAX_INCOMPLETE_LISTS: Final = 3
"""The number of first lists that may lack a status. After that, what the runtime says nothing about is ignored."""
_HINT_PAUSES: Final = (0.0, 0.02, 0.1, 0.5)
"""Seconds before each request of a status after an event. More than one is needed if the status has not changed."""
_TIMEOUT: Final = 20.0
"""Seconds within which the runtime answers a list or a status."""

log = logging.getLogger("setpoint.node")


class EventStream(Protocol):
    """The event stream of the runtime."""

    async def follow(self, changed: Callable[[str], None], reconnected: Callable[[], None]) -> None:
        """Call `changed` with the id of each container or sandbox that may have changed, until cancelled. Call
        `reconnected` after each interruption, when changes may have been missed."""
        ...


class RuntimeObserver:
    """Keeps an ObservedState up to date."""

    def __init__(
        self, client: CriClient, events: EventStream, node_name: str, pool: BlockingPool, clock: Clock
    ) -> None:
        """Create an observer of the sandboxes that are labelled with the name of the node."""
        self.state = ObservedState(clock)
        self.runtime_version = ""
        """The version of the runtime; empty before its first answer."""
        self.listed = asyncio.Event()
        """Set when the runtime has been listed completely for the first time."""
        self.answered_at: float | None = None
        """The monotonic time at which the runtime was listed last; None before the first time."""
        self.last_error = ""
        """Why the runtime could not be listed; empty if the last attempt succeeded."""
        self._client = client
        self._events = events
        self._node_name = node_name
        self._pool = pool
        self._clock = clock
        self._hints: dict[str, int] = {}
        """The ids whose status is requested next, with the number of requests since the last event."""
        self._hinted = asyncio.Event()
        self._relist_requested = asyncio.Event()
        self._events_arrive = True
        """Whether events announce changes. False after a list has shown a change that no event announced."""
        self._incomplete_lists = 0

    def runtime_error(self) -> str:
        """Return why the node is not ready because of its runtime; empty if it works or was away for a moment only."""
        if self.answered_at is None:
            return "container runtime status check may not have completed yet"
        return "container runtime is down" if self._clock.monotonic() - self.answered_at >= _DOWN_AFTER else ""

    async def run(self) -> None:
        """Observe the runtime until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events.follow(self.hint, self.request_relist))
            group.create_task(self._process_hints())
            while True:
                self._relist_requested.clear()
                try:
                    await self.relist()
                except CriError as error:
                    if not self.last_error:
                        log.warning("the container runtime does not answer: %s", error)
                    self.last_error = str(error)
                    await self._clock.sleep(_RELIST_SECONDS_WITHOUT_EVENTS)
                    continue
                if self.last_error:
                    log.info("the container runtime answers again")
                self.last_error = ""
                fast = not self._events_arrive or not self.listed.is_set()
                with suppress(TimeoutError):
                    pause = _RELIST_SECONDS_WITHOUT_EVENTS if fast else _RELIST_SECONDS
                    await within(self._clock, pause, self._relist_requested.wait())

    def hint(self, identifier: str) -> None:
        """Request the status of a container or sandbox soon, if it is one of this node."""
        self._events_arrive = True
        if self.state.is_known(identifier):
            self._hints[identifier] = 0
            self._hinted.set()

    def request_relist(self) -> None:
        self._relist_requested.set()

    async def relist(self, uid: str = "") -> None:
        """List the sandboxes and containers, by default of all Pods. Raise CriError.

        If a single Pod is listed, its state is complete afterwards. Otherwise the status of one container may be
        missing without affecting the others; the next list requests it again."""
        state = self.state
        with state.observation() as number:
            if not state.runtime_name:
                version = await self._client.call("Version", {}, timeout=_TIMEOUT)
                state.runtime_name, self.runtime_version = version.runtime_name, version.runtime_version
            label = {POD_UID: uid} if uid else {}
            owned = {"filter": {"label_selector": {**label, NODE: self._node_name}}}
            sandboxes = await self._client.call("ListPodSandbox", owned, timeout=_TIMEOUT)
            of_pod = {"filter": {"label_selector": label}}
            containers = await self._client.call("ListContainers", of_pod, timeout=_TIMEOUT)
            incomplete = state.merge_lists(sandboxes.items, containers.containers, number)
            if not uid and any(self._ran(each) and each not in self._hints for each in incomplete):
                self._events_arrive = False
            failed = await self._observe_all(incomplete, strict=bool(uid))
            listed = {each.id for each in sandboxes.items} | {each.id for each in containers.containers}
            state.remove_unlisted(listed, number, uid)
        if not uid:
            self.answered_at = self._clock.monotonic()
            self._incomplete_lists += failed
            if not failed or self._incomplete_lists >= _MAX_INCOMPLETE_LISTS:
                self.listed.set()

    async def observe_container(self, identifier: str) -> ObservedContainer | None:
        """Request the status of a known container. Return None if it does not exist any more. Raise CriError."""
        container = self.state.container(identifier)
        if container is None:
            return None
        try:
            answer = await self._client.call("ContainerStatus", {"container_id": identifier}, timeout=_TIMEOUT)
        except CriError as error:
            if error.code != Code.NOT_FOUND:
                raise
            self.state.forget_container(identifier)
            return None
        status, message = answer.status, ""
        if status.state == ContainerState.EXITED and (container.record is None or container.record.running):
            message = await self._termination_message(status)
        self.state.apply_container_status(container, status, message)
        return self.state.container(identifier)

    async def observe_sandbox(self, identifier: str) -> Sandbox | None:
        """Request the status of a known sandbox. Return None if it does not exist any more. Raise CriError."""
        try:
            answer = await self._client.call("PodSandboxStatus", {"pod_sandbox_id": identifier}, timeout=_TIMEOUT)
        except CriError as error:
            if error.code != Code.NOT_FOUND:
                raise
            self.state.forget_sandbox(identifier)
            return None
        sandbox = self.state.sandbox(identifier)
        if sandbox is not None:
            self.state.apply_sandbox_status(sandbox, answer.status)
        return sandbox

    async def _process_hints(self) -> None:
        """Request the status after each hint. The runtime may announce a change shortly before it reports it, so the
        status of what has not ended is requested again."""
        while True:
            if self._hints:
                pause = min(_HINT_PAUSES[count] for count in self._hints.values())
                with suppress(TimeoutError):
                    await within(self._clock, pause, self._hinted.wait())
            else:
                await self._hinted.wait()
            self._hinted.clear()
            hints, self._hints = self._hints, {}
            await self._observe_all(hints, strict=False)
            for each, count in hints.items():
                if count + 1 < len(_HINT_PAUSES) and not self.state.is_final(each):
                    self._hints.setdefault(each, count + 1)

    async def _observe_all(self, identifiers: Collection[str], *, strict: bool) -> bool:
        """Request the status of sandboxes and containers, several at a time. Return whether one of them is not known.
        Raise CriError instead if `strict` is set."""
        queue = list(identifiers)
        failed = False

        async def observe() -> None:
            nonlocal failed
            while queue:
                identifier = queue.pop()
                try:
                    if self.state.sandbox(identifier) is not None:
                        await self.observe_sandbox(identifier)
                    else:
                        await self.observe_container(identifier)
                except CriError as error:
                    if strict:
                        raise
                    failed = True
                    log.info("the status of %s is not known: %s", identifier, error)

        await run_all(*(observe() for _ in range(min(len(queue), _CONCURRENT_STATUSES))))
        return failed

    async def _termination_message(self, status: Any) -> str:
        """Return the runtime's message, followed by that of the container itself."""
        wanted = status.annotations.get(TERMINATION_MESSAGE_PATH, "")
        path = next((each.host_path for each in status.mounts if wanted and each.container_path == wanted), "")
        policy = status.annotations.get(TERMINATION_MESSAGE_POLICY, "")
        from_logs = policy == "FallbackToLogsOnError" and status.exit_code != 0
        own = await self._pool.run(read_termination_message, path, status.log_path if from_logs else "")
        return ": ".join(filter(None, (status.message, own)))

    def _ran(self, identifier: str) -> bool:
        container = self.state.container(identifier)
        return container is not None and container.running
