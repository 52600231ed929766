"""Which seats count as looked at by the teacher, and when the workers are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from class_client import ClassClient
from page_harness import HOST, CountingEntropy, TabClient
from stopped_clock import StoppedClock, settle

from setpoint.cluster.classroom.front import TEACHER, ClassFront
from setpoint.cluster.classroom.looks import LOOKS_PATH
from setpoint.cluster.classroom.worker_link import WorkerLink
from setpoint.meta.errors import ServiceUnavailable
from setpoint.tasks import Flag, child_tasks
from setpoint.web.sessions import Sessions
from setpoint.web.tab_user import TabUser
from setpoint.wire.message import Answer, Request, Response, StreamResponse, StreamWriter


class RecordingWorker(WorkerLink):
    """A worker that notes what it is told about looks."""

    def __init__(self, clock: StoppedClock) -> None:
        super().__init__(Path("unused"), clock)
        self.reports: list[list[str]] = []
        self.is_down = False
        self.stream_ends = Flag()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        if path == LOOKS_PATH:
            if self.is_down:
                raise ServiceUnavailable("it starts again")
            self.reports.append(body["seats"])

    async def forward(self, request: Request) -> Answer:
        async def run(writer: StreamWriter) -> None:
            await self.stream_ends.wait()

        return StreamResponse(200, [], run) if "watch" in request.query else Response(200, b"{}")

    def taken(self) -> list[list[str]]:
        """The reports since the last call."""
        found, self.reports = self.reports, []
        return found


class Looked:
    """A class with two workers, whose seats have a learner each."""

    def __init__(self, clock: StoppedClock, client: ClassClient, workers: list[RecordingWorker]) -> None:
        self.clock = clock
        self.client = client
        self.worker, self.other = workers
        self.seat = next(each.id for each in client.front.seats.values() if each.worker is self.worker)
        self._key, _ = client.sessions.begin(TEACHER)

    async def tab(self) -> TabClient:
        """A tab of the teacher that looks at the seat of the first worker."""
        tab = await self.client.tab(self._key)
        await tab.receive()
        await tab.open(1, "class-look", args={"seat": self.seat})
        return tab


@asynccontextmanager
async def a_class() -> AsyncIterator[Looked]:
    clock = StoppedClock()
    workers = [RecordingWorker(clock), RecordingWorker(clock)]
    sessions = Sessions(clock, CountingEntropy())
    front = ClassFront(
        clock=clock, entropy=CountingEntropy(), hosts=(HOST,), tls=False, seats=2, workers=workers, sessions=sessions
    )
    client = ClassClient(front, sessions)
    for name in ("Ann", "Bob"):
        assert (await client.join(name))[0] == 201
    async with front.entrance, child_tasks(front.run()):
        try:
            yield Looked(clock, client, workers)
        finally:
            await client.stop()
            await front.page.stop()


async def test_the_last_of_two_tabs_counts() -> None:
    async with a_class() as found:
        await found.clock.advance(10)
        assert found.worker.taken() == [], "nobody looks: nothing is sent"
        first = await found.tab()
        assert found.worker.taken() == [[found.seat]]
        second = await found.tab()
        first.connection.close()
        await found.clock.advance(0.5)
        assert found.worker.taken() == []
        second.connection.close()
        await settle()
        assert found.worker.taken() == [[]]
        await found.clock.advance(10)
        assert found.worker.taken() == [] and found.other.taken() == []


async def test_what_is_read_counts_without_an_open_view() -> None:
    """A request counts for two seconds, and a stream until it ends."""
    async with a_class() as found:
        tab = await found.tab()
        await tab.send(1, "close")
        assert found.worker.taken() == [[found.seat], []]
        prefix = f"/seats/{found.seat}"
        for _ in range(3):
            await tab.send(2, "request", cluster=prefix, method="GET", path="/api/v1/pods")
        assert found.worker.taken() == [[found.seat]]
        await found.clock.advance(1.9)
        assert found.worker.taken() == [[found.seat]]
        await found.clock.advance(1)
        assert found.worker.taken() == [[]]
        client = found.client.front.page.client(TabUser(TEACHER), prefix, "")
        stream = await client.sender.stream("GET", "/api/v1/pods", "watch=true", b"")
        await tab.open(4, "class-look", args={"seat": found.seat})
        await tab.send(4, "close")
        await found.clock.advance(10)
        reports = found.worker.taken()
        assert len(reports) > 9 and all(each == [found.seat] for each in reports)
        found.worker.stream_ends.set()
        await found.clock.advance(1)
        assert found.worker.taken() == [[]]
        stream.close()
        await tab.send(3, "request", cluster=prefix, method="DELETE", path="/api/v1/pods")
        assert found.worker.taken() == [], "it was refused"


async def test_a_worker_that_was_started_again_is_told() -> None:
    async with a_class() as found:
        tab = await found.tab()
        assert found.worker.taken() == [[found.seat]]
        found.worker.is_down = True
        await found.clock.advance(5)
        found.worker.is_down = False
        await found.clock.advance(1)
        assert found.worker.taken() == [[found.seat]]
        # That the teacher looks no more is told as soon as the worker answers.
        found.worker.is_down = True
        tab.connection.close()
        await found.clock.advance(5)
        assert found.worker.taken() == []
        found.worker.is_down = False
        await found.clock.advance(1)
        assert found.worker.taken() == [[]]


async def test_a_seat_that_is_removed_is_forgotten() -> None:
    async with a_class() as found:
        tab = await found.tab()
        await tab.open(2, "class-control")
        await tab.send(2, "say", data={"do": "remove", "seat": found.seat})
        found.worker.taken()
        await found.clock.advance(1)
        assert found.worker.taken() == [[]]
        await tab.open(3, "class-look", args={"seat": "s99999999"})
        while (message := await tab.receive())["id"] != 3:
            pass
        assert (message["type"], message["error"]["code"]) == ("end", 400)
