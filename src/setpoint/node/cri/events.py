"""Hints of a container runtime that a container or a sandbox has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.node.cri.client import check_dependencies, check_endpoint, open_channel
from setpoint.tasks import child_tasks
from setpoint.wire.grpc import Channel, Code, GrpcError

if TYPE_CHECKING:
    from setpoint.node.cri.messages import Method

log = logging.getLogger("setpoint.node.cri")

_FIRST_PAUSE, _MAX_PAUSE = 0.05, 1.0
"""Seconds before a lost stream is opened again. The pause doubles until a stream delivers an event."""
_NO_EVENTS_PAUSE = 60.0
"""Seconds before a runtime that has no events is asked again."""
_NO_STREAM = (Code.UNIMPLEMENTED, Code.UNKNOWN)
"""Codes with which runtimes answer GetContainerEvents if they do not implement it or it is turned off."""
_NAMESPACE = "k8s.io"
"""The namespace of containerd in which its CRI plugin keeps containers."""
_FILTER = f'namespace=={_NAMESPACE},topic~="^/tasks/(create|start|exit|oom|delete|paused|resumed)$"'
_EXIT, _DELETE = "/tasks/exit", "/tasks/delete"
_TICK = 0.02
_REPETITIONS = (1, 3, 10)
"""The ticks after which the end of a container is announced again. containerd sends its event 10 to 40 ms before CRI
shows the container as exited."""


class RuntimeEvents:
    """The event stream of a container runtime: CRI's GetContainerEvents, or containerd's own events if it has none.

    Events are hints, never the truth: they may be early, late, repeated or missing. A caller therefore lists the
    containers regularly too."""

    def __init__(self, endpoint: str, clock: Clock) -> None:
        """`endpoint` is `unix:///path/of/the/socket`. Raise ValueError if it is not, and MissingDependency."""
        self.endpoint = check_endpoint(endpoint)
        check_dependencies()
        self._clock = clock
        self._received = False
        """Whether the current stream has delivered an event."""
        self._ended: dict[str, int] = {}
        """Containers that containerd announced as ended a moment ago, and the number of ticks since."""
        self._wake_repeater = asyncio.Event()

    async def follow(self, changed: Callable[[str], None], reconnected: Callable[[], None] = lambda: None) -> None:
        """Call `changed` with the id of each container or sandbox that has changed, until cancelled. Never raises.

        A lost stream is opened again. `reconnected` is called each time that a stream has been requested: events before
        that may have been missed."""
        async with child_tasks(self._repeat(changed)):
            await self._reconnect(changed, reconnected)

    async def _reconnect(self, changed: Callable[[str], None], reconnected: Callable[[], None]) -> None:
        pause, reported = 0.0, ""
        while True:
            self._received = False
            try:
                channel = await open_channel(self.endpoint)
                try:
                    await self._follow(channel, changed, reconnected)
                finally:
                    channel.close()
                problem, lowest = "the runtime ended the stream", 0.0
            except GrpcError as error:
                problem = error.message
                lowest = _NO_EVENTS_PAUSE if error.code is Code.UNIMPLEMENTED else 0.0
            except Exception as error:
                log.exception("the events of the container runtime cannot be followed")
                problem, lowest = str(error), _MAX_PAUSE
            if self._received:
                pause, reported = 0.0, ""
            if problem != reported:
                log.info("no events from the container runtime at %s: %s", self.endpoint, problem)
                reported = problem
            pause = min(max(2 * pause, _FIRST_PAUSE), _MAX_PAUSE)
            await self._clock.sleep(max(pause, lowest))

    async def _follow(self, channel: Channel, changed: Callable[[str], None], reconnected: Callable[[], None]) -> None:
        """Follow one stream to its end. Raise GrpcError."""
        # The messages need an optional dependency.
        from setpoint.node.cri.messages import GET_CONTAINER_EVENTS, SUBSCRIBE, decode_task_event

        def on_cri_event(data: bytes) -> None:
            self._announce(changed, GET_CONTAINER_EVENTS.decode(data).container_id)

        def on_containerd_event(data: bytes) -> None:
            envelope = SUBSCRIBE.decode(data)
            event = decode_task_event(envelope)
            if envelope.topic != _EXIT or event.process_id == event.container_id:  # else a command in the container
                self._announce(changed, event.container_id)
                if envelope.topic in (_EXIT, _DELETE):
                    self._ended[event.container_id] = 0
                    self._wake_repeater.set()

        try:
            await self._stream(channel, GET_CONTAINER_EVENTS, b"", on_cri_event, reconnected)
        except GrpcError as error:
            if self._received or error.code not in _NO_STREAM:
                raise
            log.debug("the container runtime has no GetContainerEvents: %s", error.message)
        else:
            return
        request = SUBSCRIBE.request(filters=[_FILTER]).SerializeToString()
        await self._stream(channel, SUBSCRIBE, request, on_containerd_event, reconnected)

    async def _stream(
        self,
        channel: Channel,
        method: Method,
        request: bytes,
        on_event: Callable[[bytes], None],
        reconnected: Callable[[], None],
    ) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_message(data: bytes) -> None:
            try:
                on_event(data)
            except ValueError as error:
                log.warning("an event of the container runtime is malformed: %s", error)

        def on_end(error: GrpcError | None) -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        call = channel.stream(method.path, on_message, on_end)
        call.send(request)
        call.close_sending()
        try:
            reconnected()
            await ended
        finally:
            call.cancel()

    async def _repeat(self, changed: Callable[[str], None]) -> None:
        """Announce the ends of containers again, when CRI shows them."""
        while True:
            await self._wake_repeater.wait()
            self._wake_repeater.clear()
            while self._ended:
                await self._clock.sleep(_TICK)
                for container_id, ticks in list(self._ended.items()):
                    if ticks + 1 in _REPETITIONS:
                        self._guarded(changed, container_id)
                    self._ended[container_id] = ticks + 1
                    if ticks + 1 >= _REPETITIONS[-1]:
                        del self._ended[container_id]

    def _announce(self, changed: Callable[[str], None], container_id: str) -> None:
        self._received = True
        self._guarded(changed, container_id)

    @staticmethod
    def _guarded(changed: Callable[[str], None], container_id: str) -> None:
        try:
            changed(container_id)
        except Exception:
            log.exception("a change of the container %s was not processed", container_id)
