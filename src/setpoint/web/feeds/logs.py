"""The conversation `logs`: the logs of containers, of one Pod or of all that a selector selects.

Arguments: `namespace`; `pod`, or `selector` (labels); `container`, empty for all; `previous`; `follow`; `tail`, the
number of earlier lines of each container. The server sends:

    {"sources": [{"pod": "web-1", "container": "nginx"}]}     further sources, numbered in the order of their coming
    {"lines": [[0, "GET / 200"], ...]}                        the source of each line, and the line
    {"ended": 0, "message": ""}                               the log of a source has ended; a message says why not well
    {"more": 3}                                               containers beyond `MAX_SOURCES`, whose logs are not shown

With `follow`, the log of a container that is restarted goes on with that of the new one, and further Pods join. The
control sequences in lines are removed, except colours.
"""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from setpoint.client.failures import failure
from setpoint.client.resources import builtin, path_of, path_segment, query_of
from setpoint.client.transport import Reply
from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import SelectorError, escape_field, parse_labels
from setpoint.reconcile.informer import Informer
from setpoint.tasks import TaskRegistry, child_tasks
from setpoint.view.terminal_text import TerminalFilter
from setpoint.web.feed import Args, Conversation, PageContext, text_argument

MAX_SOURCES: Final = 24
_PODS: Final = builtin("pods")
_BATCH: Final = 400
"""Lines in a message."""
_WAITING: Final = 2_000
"""Lines that wait to be sent; the reading of logs waits, too, when there are more."""
_PAUSE: Final = 0.05
"""Seconds between two messages, so that lines are sent together."""
_POLL: Final = 1.0
_MAX_TAIL: Final = 5_000
_MAX_LINE: Final = 16 * 1024


class _Source(NamedTuple):
    pod: str
    container: str


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    logs = _Logs(ctx, args, conversation)
    async with child_tasks(logs.send(), logs.read()) as (sending, reading):
        await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
        reading.result()
        await logs.sent()


class _Logs:
    def __init__(self, ctx: PageContext, args: Args, conversation: Conversation) -> None:
        self._ctx = ctx
        self._conversation = conversation
        self._namespace = text_argument(args, "namespace", "")
        self._pod, self._selector = text_argument(args, "pod", ""), text_argument(args, "selector", "")
        self._container = text_argument(args, "container", "")
        self._previous, self._follow = args.get("previous") is True, args.get("follow") is True
        tail = args.get("tail", 500)
        if not isinstance(tail, int) or not 0 <= tail <= _MAX_TAIL:
            raise BadRequest(f"argument tail must be a number of at most {_MAX_TAIL} lines")
        self._tail = tail
        if bool(self._pod) == bool(self._selector):
            raise BadRequest("either pod or selector must be given")
        try:
            path_segment(self._namespace, "namespace")
            path_segment(self._pod, "pod")
            parse_labels(self._selector)
        except (ValueError, SelectorError) as error:
            raise BadRequest(str(error)) from None
        self._queue: asyncio.Queue[Mapping[str, Any] | tuple[int, str]] = asyncio.Queue(_WAITING)
        self._numbers: dict[_Source, int] = {}
        self._left_out: set[_Source] = set()
        self._tasks = TaskRegistry()

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        """Send what is in the queue, lines together, until it is cancelled."""
        while True:
            first = await self._queue.get()
            found = [first]
            while not self._queue.empty() and len(found) < _BATCH:
                found.append(self._queue.get_nowait())
            lines: list[tuple[int, str]] = []
            for each in found:
                if isinstance(each, tuple):
                    lines.append(each)
                    continue
                if lines:
                    await self._conversation.send({"lines": lines})
                    lines = []
                await self._conversation.send(each)
            if lines:
                await self._conversation.send({"lines": lines})
            for _ in found:
                self._queue.task_done()
            await self._ctx.clock.sleep(_PAUSE)

    async def sent(self) -> None:
        """Wait until everything in the queue is sent."""
        await self._queue.join()

    # -- Pods --------------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read the logs until they end, or, with `follow`, until it is cancelled."""
        client = self._ctx.client
        fields = f"metadata.name={escape_field(self._pod)}" if self._pod else ""
        selection: dict[str, Any] = {"label_selector": self._selector, "field_selector": fields}
        try:
            found = await client.list(_PODS, self._namespace, **selection)
            if self._pod and not found.items:
                raise NotFound.of("", "pods", self._pod)
            if self._follow and not self._previous:
                informer = Informer[Obj](client, _PODS, self._ctx.clock, namespace=self._namespace, **selection)
                informer.add_handler(lambda old, new: self._add(new) if new is not None else None)
                await informer.run()
            for pod in found.items:
                self._add(pod)
            while tasks := [*self._tasks]:
                await asyncio.wait(tasks)
        finally:
            await self._tasks.stop()

    def _add(self, pod: ObjView) -> None:
        """Start reading the logs of the containers that have started."""
        added = []
        for name in _started(pod):
            source = _Source(pod["metadata"]["name"], name)
            if source in self._numbers or source in self._left_out or self._container not in ("", name):
                continue
            if len(self._numbers) >= MAX_SOURCES:
                self._left_out.add(source)
                self._tasks.start(self._queue.put({"more": len(self._left_out)}))
                continue
            self._numbers[source] = len(self._numbers)
            added.append(source)
        if added:
            self._tasks.start(self._begin(added))

    async def _begin(self, sources: list[_Source]) -> None:
        await self._queue.put({"sources": [each._asdict() for each in sources]})
        for source in sources:
            self._tasks.start(self._read_source(source))

    # -- one log -----------------------------------------------------------------------------------------------------

    async def _read_source(self, source: _Source) -> None:
        message, tail, restarts = "", self._tail, await self._restarts(source)
        while True:
            try:
                await self._copy(source, tail)
            except (ApiError, ConnectionError) as error:
                message = error.message if isinstance(error, ApiError) else str(error)
                break
            if not self._follow or self._previous or restarts is None:
                break
            # The log of a container ends with it. It goes on if the container is restarted.
            before = restarts
            while restarts == before:
                await self._ctx.clock.sleep(_POLL)
                restarts = await self._restarts(source)
            if restarts is None:
                break
            tail = _MAX_TAIL
        await self._queue.put({"ended": self._numbers[source], "message": message})

    async def _restarts(self, source: _Source) -> int | None:
        """Return how often a container was restarted; None if it will not run again."""
        try:
            pod = await self._ctx.client.get(_PODS, source.pod, self._namespace)
        except (NotFound, ConnectionError):
            return None
        status = pod.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return None
        for each in _statuses(pod):
            if each.get("name") == source.container:
                return int(each.get("restartCount") or 0)
        return 0

    async def _copy(self, source: _Source, tail: int) -> None:
        query: dict[str, str | int | bool | None] = {
            "container": source.container,
            "follow": self._follow and not self._previous,
            "previous": self._previous,
            "tailLines": tail,
        }
        path = path_of(_PODS, self._namespace, source.pod, "log")
        stream = await self._ctx.client.sender.stream("GET", path, query_of(query), accept="*/*")
        number, rest = self._numbers[source], ""
        decoder, shown = getincrementaldecoder("utf-8")("replace"), TerminalFilter()
        try:
            if stream.status >= 400:
                raise failure(Reply(stream.status, stream.headers, b"".join([piece async for piece in stream])))
            async for piece in stream:
                rest += shown.filtered(decoder.decode(piece))
                *lines, rest = rest.split("\n")
                if len(rest) > _MAX_LINE:
                    lines.append(rest)
                    rest = ""
                for line in lines:
                    await self._queue.put((number, line.rstrip("\r")[:_MAX_LINE]))
            if rest:
                await self._queue.put((number, rest))
        finally:
            stream.close()


def _statuses(pod: ObjView) -> list[ObjView]:
    status = pod.get("status") or {}
    names = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return [each for name in names for each in status.get(name) or ()]


def _started(pod: ObjView) -> list[str]:
    """Return the containers that have a log: those that run or ran."""
    return [
        str(each.get("name"))
        for each in _statuses(pod)
        if {"running", "terminated"} & (each.get("state") or {}).keys() or each.get("restartCount")
    ]
