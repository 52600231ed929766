"""A class: learners join with a code, each works in a seat, the teacher watches and commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from class_client import ClassClient
from page_harness import HOST, CountingEntropy, TabClient
from stopped_clock import StoppedClock

from setpoint.cli.page_extensions import page_extensions
from setpoint.cluster.classroom.front import TEACHER, ClassFront
from setpoint.cluster.classroom.worker import NOTICES_PATH, SEATS_PATH, WorkerConfig, worker
from setpoint.cluster.classroom.worker_link import WorkerLink
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks
from setpoint.web.sessions import Sessions
from setpoint.wire.message import Peer, Request, Response

CLOCK = SystemClock()


@asynccontextmanager
async def a_front(config: WorkerConfig) -> AsyncIterator[ClassClient]:
    """The front of a class whose worker has this configuration."""
    sessions = Sessions(CLOCK, CountingEntropy(), most=config.seats + 2)
    front = ClassFront(
        clock=CLOCK,
        entropy=CountingEntropy(),
        hosts=(HOST,),
        tls=False,
        seats=config.seats,
        workers=[WorkerLink(config.socket, CLOCK)],
        sessions=sessions,
    )
    async with front.entrance, child_tasks(front.run()):
        found = ClassClient(front, sessions)
        try:
            yield found
        finally:
            await found.stop()
            await front.page.stop()


@asynccontextmanager
async def a_class(directory: Path, seats: int = 3) -> AsyncIterator[ClassClient]:
    config = WorkerConfig(socket=directory / "worker", seats=seats, hosts=(HOST,), tls=False)
    async with worker(config, CLOCK, RandomIds(), page_extensions), a_front(config) as found:
        yield found


async def update_with(tab: TabClient, channel: int, key: str) -> Any:
    """Return an item of a feed when it arrives."""
    while True:
        message = await tab.receive()
        assert message.get("type") != "end" or message["id"] != channel, message
        if message["id"] == channel and key in message.get("set", {}):
            return message["set"][key]


@pytest.mark.slow
async def test_a_class(tmp_path: Path) -> None:
    async with a_class(tmp_path) as class_:
        assert (await class_.join("Ann", "wrong"))[0] == 401
        assert (await class_.join("  "))[0] == 400
        status, _ = await class_.request("POST", "/class/v1/join", {}, {"origin": "http://evil.example"})
        assert status == 403
        status, ann = await class_.join("Ann")
        assert (status, ann["user"]) == (201, "Ann")
        assert (await class_.join("ann"))[1]["message"] == (
            "Another learner is called ann already. Choose another name."
        )
        _, bob = await class_.join("Bob")
        await class_.join("Eve")
        assert (await class_.join("Zoe"))[1]["message"] == "All 3 seats of this class are taken."

        # A tab is served by the seat's worker, and its terminal works in the seat's cluster.
        tab = await class_.tab(ann["key"])
        hello = await tab.receive()
        assert (hello["type"], hello["user"], "class-seat" in hello["features"]) == ("hello", "Ann", True)
        tab.send_at_once(
            1,
            "request",
            cluster="",
            method="POST",
            path="/api/v1/namespaces/default/configmaps",
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}},
        )
        while (answer := await tab.receive())["id"] != 1:
            pass
        assert answer["status"] == 201
        tab.send_at_once(9, "open", feed="class-notices", cluster="", args={})
        tab.send_at_once(9, "credit", n=10)

        # The API of a seat is for its learner alone.
        path = f"/seats/{ann['seat']}/api/v1/namespaces/default/configmaps/mine"
        assert (await class_.request("GET", path, headers={"authorization": f"Bearer {ann['key']}"}))[0] == 200
        assert (await class_.request("GET", path, headers={"authorization": f"Bearer {bob['key']}"}))[0] == 401
        assert (await class_.request("GET", path))[0] == 401
        other, inner = path.replace(ann["seat"], bob["seat"]), path.removeprefix(f"/seats/{ann['seat']}")
        assert (await class_.request("GET", other, headers={"authorization": f"Bearer {bob['key']}"}))[0] == 404

        for wrong in (
            f"/seats/{ann['seat']}/../{bob['seat']}{inner}",
            f"/seats/{ann['seat']}/%2e%2e/{bob['seat']}{inner}",
            f"/seats/{ann['seat']}%2f..%2f{bob['seat']}{inner}",
            f"/seats/{ann['seat']}//seats/{bob['seat']}{inner}",
            f"/seats/{ann['seat']}/seats/{bob['seat']}{inner}",
            f"/seats/{ann['seat']}/forks/{bob['seat']}{inner}",
            f"/seats/../seats/{bob['seat']}{inner}",
            f"/seats//{bob['seat']}{inner}",
            f"/seats/{bob['seat']}/api/v1/namespaces/default/pods/p/exec",
            f"/seats/{bob['seat']}/api/v1/nodes/node-1/proxy/",
        ):
            for more in ({}, {"connection": "Upgrade", "upgrade": "websocket"}):
                headers = {"authorization": f"Bearer {ann['key']}", **more}
                status, _ = await class_.request("GET", wrong, headers=headers)
                assert status in (301, 400, 401, 404), (wrong, status)

        # The teacher sees the seats, looks into one without changing it, and sends a message.
        key, _ = class_.sessions.begin(TEACHER)
        board = await class_.tab(key)
        hello = await board.receive()
        assert "class-teacher" in hello["features"]
        board.send_at_once(1, "open", feed="class", cluster="", args={})
        board.send_at_once(1, "credit", n=100)
        seat = await update_with(board, 1, ann["seat"])
        assert (seat["nickname"], seat["state"], seat["tabs"]) == ("Ann", "live", 1)
        for method, status in (("GET", 200), ("DELETE", 403)):
            board.send_at_once(2, "request", cluster=f"/seats/{ann['seat']}", method=method, path=inner)
            while (answer := await board.receive())["id"] != 2:
                pass
            assert answer["status"] == status, answer
        board.send_at_once(3, "open", feed="class-control", cluster="", args={})
        board.send_at_once(3, "credit", n=10)
        board.send_at_once(3, "say", data={"do": "notice", "notice": {"lesson": "loop"}})
        while (answer := await board.receive())["id"] != 3:
            pass
        assert answer["data"] == {"done": "All seats were notified."}
        while not (notice := await tab.receive()).get("log"):
            pass
        assert notice["log"] == [{"lesson": "loop"}]

        board.send_at_once(3, "say", data={"do": "remove", "seat": ann["seat"]})
        while (answer := await board.receive())["id"] != 3:
            pass
        assert answer["data"] == {"done": "Ann has left the class."}
        assert await tab.close_code() == 4401
        assert (await class_.request("GET", path, headers={"authorization": f"Bearer {ann['key']}"}))[0] == 401


async def told(tab: TabClient, *, looking: bool) -> None:
    """Wait until the page of a learner knows whether the teacher looks."""
    while True:
        message = await tab.receive()
        assert not message.get("log"), "nothing was said"
        if message["id"] == 1 and (
            "look" in message.get("set", {}) if looking else "look" in message.get("removed", ())
        ):
            return


async def follow(class_: ClassClient, key: str, feed: str, **args: str) -> TabClient:
    """Open a tab with one feed."""
    tab = await class_.tab(key)
    await tab.receive()
    tab.send_at_once(1, "open", feed=feed, cluster="", args=args)
    tab.send_at_once(1, "credit", n=100)
    return tab


@pytest.mark.slow
async def test_learners_are_told_that_the_teacher_looks(tmp_path: Path) -> None:
    """Also if their cluster sleeps, and if the worker ends meanwhile."""
    config = WorkerConfig(socket=tmp_path / "worker", seats=2, hosts=(HOST,), tls=False)
    async with a_front(config) as class_:
        teacher, _ = class_.sessions.begin(TEACHER)
        async with worker(config, CLOCK, RandomIds(), page_extensions) as running:
            _, ann = await class_.join("Ann")
            _, bob = await class_.join("Bob")
            link = class_.front.seats[ann["seat"]].worker
            await link.call("POST", NOTICES_PATH, {"text": "before Ann has come"})
            page = await follow(class_, ann["key"], "class-notices")
            others = await follow(class_, bob["key"], "class-notices")
            assert (await others.receive())["synced"]
            first = await follow(class_, teacher, "class-look", seat=ann["seat"])
            await told(page, looking=True)
            first.connection.close()
            await told(page, looking=False)

            # The cluster sleeps and the learner is away: who comes back is told at once.
            await page.send(2, "request", method="GET", path="/api/v1/nodes")
            page.connection.close()
            seats = running._seats
            while seats._find(ann["seat"]).streams or seats.state(ann["seat"]) == "new":
                await CLOCK.sleep(0.01)
            await seats.sleep_idle(CLOCK.now() + timedelta(hours=1))
            assert seats.state(ann["seat"]) == "asleep"
            board = await follow(class_, teacher, "class-look", seat=ann["seat"])
            await board.send(2, "request", cluster=f"/seats/{ann['seat']}", method="GET", path="/api/v1/nodes")
            while (await board.receive())["id"] != 2:
                pass
            assert seats.state(ann["seat"]) == "live"
            page = await follow(class_, ann["key"], "class-notices")
            await told(page, looking=True)
            assert await others.is_silent(), "the teacher looks at Ann only"
        await page.close_code()
        async with worker(config, CLOCK, RandomIds(), page_extensions):
            for seat in class_.front.seats.values():  # as the class does when it has started a worker again
                await link.call("PUT", f"{SEATS_PATH}/{seat.id}", {"nickname": seat.nickname})
            page = await follow(class_, ann["key"], "class-notices")
            await told(page, looking=True)
            board.connection.close()
            await told(page, looking=False)


@pytest.mark.slow
async def test_a_learner_sees_their_cluster_as_another_user(tmp_path: Path) -> None:
    async with a_class(tmp_path, seats=1) as class_:
        _, ann = await class_.join("Ann")
        tab = await class_.tab(ann["key"], "as=jane")
        hello = await tab.receive()
        assert hello["user"] == "Ann" and "see-as" in hello["features"]
        await tab.send(1, "request", method="GET", path="/api/v1/namespaces/default/pods")
        answer = await tab.receive()
        assert answer["status"] == 403 and 'User "jane" cannot list resource "pods"' in answer["body"]["message"]

        key, _ = class_.sessions.begin(TEACHER)
        with pytest.raises(PermissionError, match="this page does not act as other users"):
            await class_.tab(key, "as=jane")
        assert "see-as" not in (await (await class_.tab(key)).receive())["features"]


async def test_guesses_of_the_code_are_limited(tmp_path: Path) -> None:
    """Also with TLS. The right code is accepted whatever was guessed before; see tests/unit/cluster/test_class_codes."""
    clock, host = StoppedClock(), "class.example:8443"
    link = WorkerLink(tmp_path / "none", clock)
    sessions = Sessions(clock, CountingEntropy())
    front = ClassFront(
        clock=clock, entropy=CountingEntropy(), hosts=(host,), tls=True, seats=3, workers=[link], sessions=sessions
    )

    async def tried(code: str) -> tuple[int, dict[str, str]]:
        body = json.dumps({"code": code, "nickname": "Eve"}).encode()
        headers = {"host": host, "origin": f"https://{host}"}
        answer = await front.handle(Request("POST", "/class/v1/join", "", headers, body, Peer()))
        assert isinstance(answer, Response)
        return answer.status, dict(answer.headers)

    for number in range(20):
        status, headers = await tried(f"guess{number}")
        assert (status, headers["Strict-Transport-Security"]) == (401, "max-age=31536000")
    guess = asyncio.create_task(tried("guess"))
    await clock.advance(0.9)
    assert not guess.done(), "it is answered later"
    assert (await tried(front.code))[0] == 503, "the code is right; this class has no worker"
    await clock.advance(0.1)
    assert (await guess)[0] == 401
