"""A worker of a class: the process that runs the clusters and the page server of its seats.

It listens on a Unix socket in a private directory, so that only the front of the same user reaches it. The front has
authenticated the learner: it passes WebSockets on with the id of the seat in place of the session's key.

    GET    /page/v1/socket                   a tab of a learner
    *      /seats/<seat>/...                 the API of a seat
    GET    /class/v1/seats                   all seats and what they do
    PUT    /class/v1/seats/<seat>            add a seat, {"nickname": "..."}
    DELETE /class/v1/seats/<seat>
    POST   /class/v1/notices                 a message to the pages of all seats
    PUT    /class/v1/looks                   the seats that the teacher looks at, {"seats": [...]}
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.past import logical_transport
from setpoint.cluster.classroom.looks import LOOKS_PATH
from setpoint.cluster.classroom.messages import json_body, json_response
from setpoint.cluster.classroom.seats import SeatLimits, Seats
from setpoint.cluster.fork_endpoints import PREFIX as FORKS
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.page import class_limits
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, BadRequest, MethodNotAllowed
from setpoint.meta.times import parse_time
from setpoint.tasks import child_tasks
from setpoint.view.course.progress import Progress
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.lessons.library import PART as LESSONS
from setpoint.web.lessons.library import LessonLibrary
from setpoint.web.server import PageExtensions, PageOptions, PageServer
from setpoint.web.sessions import PageUser, Session, Sessions
from setpoint.web.tab_user import TabUser
from setpoint.web.workspace import PART as WORKSPACES
from setpoint.web.workspace import Workspaces
from setpoint.wire.listener import listen_on_path
from setpoint.wire.message import Answer, Request, Response
from setpoint.wire.server import Server

SEATS_PATH, NOTICES_PATH = "/class/v1/seats", "/class/v1/notices"
SEAT_PREFIX: Final = "/seats/"
LEARNER_FEATURE: Final = "class-seat"
NOTICES_FEED, LOOK = "class-notices", "look"
_STOP_TIMEOUT: Final = 0.5
_MAX_NOTICES: Final = 100
_MAX_NICKNAME: Final = 40
_SEAT_PATH: Final = re.compile(rf"{SEATS_PATH}/([^/]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The settings of a worker."""

    socket: Path
    seats: int
    """The number of seats that it may have."""
    hosts: tuple[str, ...]
    """The values that the Host header of the front may have."""
    tls: bool
    limits: SeatLimits = field(default_factory=SeatLimits)


class _SeatSessions(Sessions):
    """The sessions of seats: the front has authenticated them, and names the seat in place of a key."""

    def __init__(self, clock: Clock, seats: Seats) -> None:
        super().__init__(clock, os.urandom)
        self._seats = seats
        self._of_seats: dict[str, Session] = {}

    def find(self, key: str) -> Session | None:
        if key not in self._seats.ids:
            return None
        now = self._clock.now()
        return self._of_seats.setdefault(key, Session(key, PageUser(key), b"", now, now))

    def is_over(self, session: Session) -> bool:
        return session.id not in self._seats.ids

    def drop(self, seat: str) -> None:
        """Close the tabs of a seat that was removed."""
        session = self._of_seats.pop(seat, None)
        if session is not None:
            for close in tuple(session.tabs):
                close()

    def tabs(self, seat: str) -> int:
        session = self._of_seats.get(seat)
        return len(session.tabs) if session is not None else 0


class _SeatPages(PageServer):
    """The page server of the seats, which knows the names of the learners."""

    nicknames: Mapping[str, str] = {}

    async def hello(self, session: Session, user: TabUser) -> Mapping[str, Any]:
        return {**await super().hello(session, user), "user": self.nicknames.get(session.id, session.id)}


class Worker:
    """Answers the front's requests."""

    def __init__(
        self, config: WorkerConfig, clock: Clock, seats: Seats, server: InProcess, more: PageExtensions
    ) -> None:
        self._seats = seats
        self._clock = clock
        self._nicknames: dict[str, str] = {}
        self._sessions = _SeatSessions(clock, seats)
        self._notices: deque[Mapping[str, Any]] = deque(maxlen=_MAX_NOTICES)
        self._notice_count = 0
        """The number of notices so far."""
        self._looked_at: frozenset[str] = frozenset()
        """The seats that the teacher looks at."""
        self._noticed = asyncio.Event()
        """Set, and replaced, with each notice and when the teacher begins or ends to look at a seat."""
        self._workspaces = more.parts.get(WORKSPACES)
        self._library = more.parts.get(LESSONS)

        def client(user: PageUser, cluster: str) -> Client:
            transport = InProcessTransport(server.for_peer(seats.peer(user.name)))
            return Client(logical_transport(transport, cluster), clock)

        extensions = PageExtensions(
            feeds={**more.feeds, NOTICES_FEED: self._follow_notices},
            conversations=more.conversations,
            features=[*more.features, LEARNER_FEATURE],
            parts=more.parts,
        )
        options = PageOptions(
            clock=clock, entropy=os.urandom, client=client, hosts=config.hosts, tls=config.tls, extensions=extensions
        )
        self.page = _SeatPages(options, self._sessions)
        self.page.nicknames = self._nicknames

    async def handle(self, request: Request) -> Answer:
        path = request.path
        try:
            if path.startswith(SEAT_PREFIX):
                return await self._pass_on(request)
            if path == SEATS_PATH:
                return json_response({"seats": [self._described(each) for each in self._seats.ids]})
            if (match := _SEAT_PATH.fullmatch(path)) is not None:
                return await self._change_seat(request, match.group(1))
            if path == NOTICES_PATH:
                self._notices.append(json_body(request))
                self._notice_count += 1
                self._wake_pages()
                return Response(204)
            if path == LOOKS_PATH:
                self._note_looks(json_body(request).get("seats"))
                return Response(204)
        except ApiError as error:
            return json_response(error.status(), error.code)
        return await self.page.handle(request)

    async def _pass_on(self, request: Request) -> Answer:
        """Let a seat answer a request to its API."""
        seat, slash, rest = request.path.removeprefix(SEAT_PREFIX).partition("/")
        headers = {name: value for name, value in request.headers.items() if not _is_identity(name)}
        peer = self._seats.peer(seat)
        inner = Request(request.method, slash + rest, request.query, headers, request.body, peer, request.repeated)
        return await self._seats.handle(inner)

    async def _change_seat(self, request: Request, seat: str) -> Response:
        if request.method == "PUT":
            nickname = json_body(request).get("nickname")
            if not isinstance(nickname, str) or not 0 < len(nickname) <= _MAX_NICKNAME:
                raise BadRequest(f"nickname must be a text of at most {_MAX_NICKNAME} characters")
            self._seats.add(seat)
            self._nicknames[seat] = nickname
            return json_response(self._described(seat))
        if request.method == "DELETE":
            await self._seats.remove(seat)
            self._nicknames.pop(seat, None)
            self._sessions.drop(seat)
            return Response(204)
        raise MethodNotAllowed("PUT and DELETE are allowed", details={})

    def _described(self, seat: str) -> dict[str, Any]:
        """Return what the teacher's board shows of a seat."""
        line = self._last_line(seat)
        return {
            "seat": seat,
            "nickname": self._nicknames.get(seat, ""),
            "state": self._seats.state(seat),
            "tabs": self._sessions.tabs(seat),
            "command": line[1],
            "commandAt": line[0],
            **self._lesson(seat),
        }

    def _lesson(self, seat: str) -> dict[str, Any]:
        """Return the lesson that a learner takes: the one in which something was done last."""
        if not isinstance(self._library, LessonLibrary):
            return {}
        taken = [Progress.from_json(each) for each in self._library.progress(seat).export()["lessons"]]
        last = max(taken, key=lambda each: max((each.began, *each.checks.values())), default=None)
        found = self._library.courses.find(last.lesson) if last is not None else None
        if last is None or found is None:
            return {}
        done, steps = last.counts(found.lesson)
        at = max((last.began, *last.checks.values()))
        return {
            "lesson": found.lesson.title,
            "done": done,
            "steps": steps,
            "stepAt": parse_time(at).timestamp() if at else 0.0,
            "cluster": f"{SEAT_PREFIX}{seat}{FORKS}{found.fork}",
        }

    def _last_line(self, seat: str) -> tuple[float, str]:
        """Return the time and the text of the last line that was typed in a terminal of a seat."""
        if not isinstance(self._workspaces, Workspaces):
            return 0.0, ""
        lines = [typed[-1] for typed in self._workspaces.typed_by(seat) if typed]
        last = max(lines, key=lambda each: each.at, default=None)
        return (last.at, last.text[:200]) if last is not None else (0.0, "")

    def _note_looks(self, seats: Any) -> None:
        """Note at which seats the teacher looks. Raises BadRequest."""
        if not isinstance(seats, list):
            raise BadRequest("seats must be a list of the ids of seats")
        looked_at = frozenset(each for each in self._seats.ids if each in seats)
        if looked_at != self._looked_at:
            self._looked_at = looked_at
            self._wake_pages()

    def _wake_pages(self) -> None:
        event, self._noticed = self._noticed, asyncio.Event()
        event.set()

    async def _follow_notices(self, context: PageContext, args: Args, output: FeedOutput) -> None:
        """Produce the feed of the teacher's messages, from now on. It has the item `look` while the teacher looks at
        the seat."""
        seen = self._notice_count
        while True:
            event = self._noticed
            if context.user in self._looked_at:
                output.set(LOOK, {"by": "teacher"})
            else:
                output.remove(LOOK)
            output.synced()
            await event.wait()
            fresh, seen = min(self._notice_count - seen, len(self._notices)), self._notice_count
            for notice in [*self._notices][len(self._notices) - fresh :]:
                if notice.get("seat") in (None, context.user):
                    output.log(notice)


def _is_identity(name: str) -> bool:
    return name == "authorization" or name.startswith("impersonate-")


@asynccontextmanager
async def worker(
    config: WorkerConfig, clock: Clock, ids: Ids, extensions: Callable[[], PageExtensions]
) -> AsyncIterator[Worker]:
    """Serve the seats of a worker while the block runs."""
    async with asyncio.TaskGroup() as tasks:
        seats = Seats(clock, ids, tasks, config.seats, config.limits)
        await seats.prepare()
        async with InProcess(seats.handle) as entrance, child_tasks(seats.run()):
            made = Worker(config, clock, seats, entrance, extensions())
            limits = class_limits(config.seats)
            server = Server(made.handle, clock=clock, limits=limits, on_error=made.page.unexpected)
            server.serve([listen_on_path(config.socket)])
            try:
                yield made
            finally:
                await server.stop(_STOP_TIMEOUT)
                await made.page.stop()
                for seat in seats.ids:
                    await seats.remove(seat)
