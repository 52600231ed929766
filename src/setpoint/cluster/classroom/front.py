"""The front of a class: lets learners in, serves the page's files, and passes on what belongs to a seat.

    POST /class/v1/join          {"code": "...", "nickname": "..."}: a seat, and the key of a session for it
    GET  /page/v1/socket         a tab: of the teacher here, of a learner in the worker of the seat
    *    /seats/<seat>/...       the API of a seat, for `kubectl` with the session's key as a bearer token

The code of the class lets any number of learners in, as long as there are seats. The teacher gets in by a one-time
link, as on every page.
"""

from __future__ import annotations

import asyncio
from base64 import b32encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.past import logical_transport
from setpoint.cluster.classroom.looks import Looks
from setpoint.cluster.classroom.worker import NOTICES_PATH, SEAT_PREFIX, SEATS_PATH
from setpoint.cluster.classroom.worker_link import WorkerLink
from setpoint.cluster.classroom.wrong_codes import WrongCodes
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.clock import Clock
from setpoint.meta.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    MethodNotAllowed,
    Unauthorized,
)
from setpoint.web.feed import Args, Conversation, FeedOutput, PageContext, text_argument
from setpoint.web.lessons.folder import Courses
from setpoint.web.request_checks import RequestChecks
from setpoint.web.secret_digests import digest_of, same_digest
from setpoint.web.server import PROTOCOL, PageExtensions, PageOptions, PageServer
from setpoint.web.sessions import PageUser, Sessions
from setpoint.web.static_files import STATIC
from setpoint.wire.message import Answer, Peer, Request, Response, StreamResponse, StreamWriter

TEACHER: Final = PageUser("teacher")
TEACHER_FEATURE: Final = "class-teacher"
BOARD_FEED, LOOK_FEED, CONTROL = "class", "class-look", "class-control"
_JOIN_PATH, _SOCKET_PATH = "/class/v1/join", "/page/v1/socket"
_CODE_BYTES, _CODE_CHARACTERS = 7, 10
"""Unguessable bytes from which the code of the class is made, and its length. A character has five bits."""
_SEAT_BYTES: Final = 4
_MAX_NICKNAME: Final = 40
_REFRESH: Final = 1.0
"""Seconds between two updates of the teacher's board."""
_JSON: Final = ("Content-Type", "application/json")


@dataclass(slots=True)
class TakenSeat:
    """A learner's seat."""

    id: str
    nickname: str
    worker: WorkerLink


class ClassFront:
    """Answers the requests of browsers and of `kubectl`."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Callable[[int], bytes],
        hosts: Sequence[str],
        tls: bool,
        seats: int,
        workers: Sequence[WorkerLink],
        sessions: Sessions,
        courses: Courses | None = None,
        files: Path = STATIC,
    ) -> None:
        """`seats` is the number of seats of the class, and `workers` run them in equal parts. `courses` has the lessons
        to which the teacher can send everyone, `files` is the directory with the built page."""
        self._courses = courses or Courses()
        self.code = b32encode(entropy(_CODE_BYTES)).decode().lower()[:_CODE_CHARACTERS]
        """The code that lets learners in."""
        self._clock = clock
        self._entropy = entropy
        self._most = seats
        self._workers = workers
        self._sessions = sessions
        self._checks = RequestChecks(hosts, tls=tls)
        self._seats: dict[str, TakenSeat] = {}
        self._wrong_codes = WrongCodes(clock)
        self._looks = Looks(clock, workers, self._seats_of)
        self._entrance = InProcess(self._read_seat)
        extensions = PageExtensions(
            feeds={BOARD_FEED: self._board, LOOK_FEED: self._look},
            conversations={CONTROL: self._control},
            features=(TEACHER_FEATURE,),
        )
        self.page = PageServer(
            PageOptions(
                clock=clock,
                entropy=entropy,
                client=self._client,
                hosts=hosts,
                tls=tls,
                files=files,
                extensions=extensions,
                can_see_as=False,
                of_class=True,
            ),
            sessions,
        )

    @property
    def seats(self) -> Mapping[str, TakenSeat]:
        """The seats that were taken, by id."""
        return self._seats

    @property
    def entrance(self) -> InProcess:
        """Runs the streams of the teacher's page; enter it while the front serves."""
        return self._entrance

    async def run(self) -> None:
        """Let the workers know at which seats the teacher looks, until cancelled."""
        await self._looks.run()

    async def handle(self, request: Request) -> Answer:
        checks = self._checks
        if not checks.is_for_us(request):
            return checks.secured(Response(421))
        try:
            if request.path == _JOIN_PATH:
                return checks.secured(await self._join(request))
            if request.path == _SOCKET_PATH and (seat := self._seat_of_socket(request)) is not None:
                return await seat.worker.forward(request)
            if request.path.startswith(SEAT_PREFIX):
                return await self._pass_on(request)
        except ApiError as error:
            retry = [("Retry-After", str(error.retry_after))] if error.retry_after else []
            return checks.secured(Response(error.code, orjson.dumps(error.status()), [_JSON, *retry]))
        return await self.page.handle(request)

    # -- learners ------------------------------------------------------------------------------------------------------

    async def _join(self, request: Request) -> Response:
        if request.method != "POST":
            raise MethodNotAllowed("POST is allowed", details={})
        if not self._checks.is_from_the_page(request):
            raise Forbidden("this request is not from the page")
        code, nickname = _join_request(request)
        if not same_digest(digest_of(code), digest_of(self.code)):
            await self._wrong_codes.delay(request.peer.address)
            raise Unauthorized("This is not the code of this class. Ask your teacher for it.")
        if len(self._seats) >= self._most:
            raise Forbidden(f"All {self._most} seats of this class are taken.")
        if any(each.nickname.casefold() == nickname.casefold() for each in self._seats.values()):
            raise Conflict(f"Another learner is called {nickname} already. Choose another name.")
        worker = min(self._workers, key=lambda each: sum(seat.worker is each for seat in self._seats.values()))
        seat = TakenSeat(f"s{self._entropy(_SEAT_BYTES).hex()}", nickname, worker)
        self._seats[seat.id] = seat  # before the await below, so that no more learners come in than there are seats
        try:
            await worker.call("PUT", f"{SEATS_PATH}/{seat.id}", {"nickname": nickname})
        except BaseException:
            self._seats.pop(seat.id, None)
            raise
        key, session = self._sessions.begin(PageUser(seat.id))
        found = {"key": key, "user": nickname, "session": session.id, "seat": seat.id}
        return Response(201, orjson.dumps(found), [_JSON])

    def _seat_of_socket(self, request: Request) -> TakenSeat | None:
        """Return the seat that a WebSocket is for, and name the seat in place of the key; None if it is not for a
        learner."""
        offered = [each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",", 8)]
        keys = [each.removeprefix("key.") for each in offered if each.startswith("key.")]
        session = self._sessions.find(keys[0]) if len(keys) == 1 else None
        seat = self._seats.get(session.user.name) if session is not None else None
        if seat is not None:
            request.headers["sec-websocket-protocol"] = f"{PROTOCOL}, key.{seat.id}"
        return seat

    async def _pass_on(self, request: Request) -> Answer:
        """Pass a request to the API of a seat on, if it has the key of a session for this seat."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        session = self._sessions.find(key) if scheme == "Bearer" and key else None
        name = request.path.removeprefix(SEAT_PREFIX).partition("/")[0]
        seat = self._seats.get(name)
        if session is None or seat is None or session.user.name != seat.id:
            raise Unauthorized("Unauthorized")
        return await seat.worker.forward(request)

    # -- the teacher ---------------------------------------------------------------------------------------------------

    async def _read_seat(self, request: Request) -> Answer:
        """Answer a request of the teacher's page to a seat: the teacher looks, and changes nothing."""
        seat = self._seats.get(request.path.removeprefix(SEAT_PREFIX).partition("/")[0])
        try:
            if seat is None:
                raise BadRequest("choose a seat of the class first")
            if request.method != "GET" or "upgrade" in request.headers:
                raise Forbidden("the teacher's page shows the clusters of learners and does not change them")
            self._looks.note_request(seat.id)
            return self._looked_through(seat.id, await seat.worker.forward(request))
        except ApiError as error:
            return Response(error.code, orjson.dumps(error.status()), [_JSON])

    def _looked_through(self, seat: str, answer: Answer) -> Answer:
        """Count a stream as a look at its seat for as long as it is open."""
        if not isinstance(answer, StreamResponse):
            return answer
        stream = answer.run

        async def run(writer: StreamWriter) -> None:
            with self._looks.looking(seat):
                await stream(writer)

        return StreamResponse(answer.status, answer.headers, run)

    def _seats_of(self, worker: WorkerLink) -> set[str]:
        return {seat.id for seat in self._seats.values() if seat.worker is worker}

    async def _look(self, context: PageContext, args: Args, output: FeedOutput) -> None:
        """Count the teacher's page as looking at a seat while it shows the seat. The feed has no items."""
        seat = text_argument(args, "seat")
        if seat not in self._seats:
            raise BadRequest("choose a seat of the class first")
        with self._looks.looking(seat):
            output.synced()
            await asyncio.Event().wait()  # until the last tab that shows the seat is gone

    def _client(self, user: PageUser, cluster: str) -> Client:
        """Return a client of the teacher's page, for the cluster of a seat."""
        transport = InProcessTransport(self._entrance.for_peer(Peer()))
        return Client(logical_transport(transport, cluster), self._clock)

    async def _board(self, context: PageContext, args: Args, output: FeedOutput) -> None:
        """Produce the feed of the teacher's board: one item for each seat."""
        shown: set[str] = set()
        lessons = [
            {"id": entry.id, "title": lesson.title}
            for name, course in self._courses.all().items()
            for lesson in course.lessons
            if (entry := self._courses.find(f"{name}/{lesson.name}")) is not None
        ]
        output.set("lessons", {"lessons": lessons})
        while True:
            found: dict[str, Mapping[str, Any]] = {}
            for worker in self._workers:
                try:
                    for each in (await worker.call("GET", SEATS_PATH))["seats"]:
                        found[each["seat"]] = each
                except ApiError:
                    continue  # a worker that starts again
            for seat, item in found.items():
                output.set(seat, item)
            for seat in shown - found.keys():
                output.remove(seat)
            shown = set(found)
            output.set("class", {"code": self.code, "seats": self._most, "taken": len(self._seats)})
            output.synced()
            await self._clock.sleep(_REFRESH)

    async def _control(self, context: PageContext, args: Args, conversation: Conversation) -> None:
        """Execute the teacher's commands, and report each outcome."""
        while True:
            command = await conversation.receive()
            try:
                done = await self._execute(command)
            except ApiError as error:
                done = error.message
            await conversation.send({"done": done})

    async def _execute(self, command: Any) -> str:
        match command:
            case {"do": "notice", "notice": dict(notice)}:
                for worker in self._workers:
                    await worker.call("POST", NOTICES_PATH, notice)
                return "All seats were notified."
            case {"do": "fault", "fault": dict(fault)}:
                return await self._fault(fault)
            case {"do": "remove", "seat": str(seat)} if seat in self._seats:
                taken = self._seats.pop(seat)
                self._sessions.end_of(PageUser(seat))
                await taken.worker.call("DELETE", f"{SEATS_PATH}/{seat}")
                return f"{taken.nickname} has left the class."
        raise BadRequest("this is not a command of a class")

    async def _fault(self, fault: Mapping[str, Any]) -> str:
        """Inject a fault into the clusters of all seats."""
        injected = 0
        for seat in [*self._seats.values()]:
            try:
                await seat.worker.call("POST", f"{SEAT_PREFIX}{seat.id}/setpoint/v1/faults", fault)
                injected += 1
            except ApiError:
                continue
        return f"The fault was injected into {injected} of {len(self._seats)} clusters."


def _join_request(request: Request) -> tuple[str, str]:
    """Return the code and the nickname of a request to join. Raises BadRequest."""
    try:
        found = orjson.loads(request.body)
        code, nickname = found["code"], found["nickname"]
    except (ValueError, LookupError, TypeError):
        code = nickname = None
    if not isinstance(code, str) or not isinstance(nickname, str):
        raise BadRequest('the body must be {"code": "...", "nickname": "..."}')
    nickname = " ".join("".join(each for each in nickname if each.isprintable()).split())
    if not 0 < len(nickname) <= _MAX_NICKNAME:
        raise BadRequest(f"A name has 1 to {_MAX_NICKNAME} characters.")
    return code.strip().lower().removeprefix("class-"), nickname
