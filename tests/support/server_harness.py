"""The real API server on the memory store, spoken to through the API, without sockets and without real time."""

from __future__ import annotations

import asyncio
import heapq
import random
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import store_choice
from chosen_stores import new_store
from lagging_store import LaggingStore

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.filters.authenticate import AUTHENTICATED, AuthenticatorChain, TokenFileAuthenticator
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.worker import Worker
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.wiring import build_server
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Ids
from setpoint.store.interface import KeyValue, NotedCause, Op, Store
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds
from setpoint.wire.encoding import decode_chunks
from setpoint.wire.message import Peer, Request, Response, StreamResponse

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN_TOKEN, LIMITED_TOKEN = "admin-token-of-the-tests", "limited-token-of-the-tests"
JSON, YAML = "application/json", "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_ROUNDS_WITH_LAG = 200


async def settle(rounds: int = 10) -> None:
    """Let everything that is ready to run, run."""
    await store_choice.settle(rounds)


def peak_memory() -> int:
    """The most bytes that this process ever held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class VirtualClock:
    """Time that passes when the test says so."""

    def __init__(self, rounds: int = 10) -> None:
        """`rounds`: turns of the event loop after which all that can happen at one moment has happened."""
        self._now = 1000.0
        self.skew = timedelta()
        """By how much the clock on the wall is wrong."""
        self._rounds = rounds
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._now - 1000.0) + self.skew

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, waiter))
        await waiter

    def jump(self, seconds: float) -> None:
        """Time has passed without anybody noticing, as when the process was suspended."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Everyone wakes at their own moment, in order."""
        end = self._now + seconds
        await settle(self._rounds)
        while self._sleepers and self._sleepers[0][0] <= end:
            moment, _, waiter = heapq.heappop(self._sleepers)
            if waiter.done():
                continue
            self._now = max(self._now, moment)
            waiter.set_result(None)
            await settle(self._rounds)
        self._now = end


class YieldingStore(MemoryStore):
    """Others have their turn before a write happens, as with any store that is durable: lost races become common."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self._random = random.Random(seed)

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        await settle(self._random.randrange(4))
        answer = await super().txn(ops, cause)
        await settle(self._random.randrange(3))
        return answer


@dataclass
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def warnings(self) -> list[str]:
        return [value for key, value in self.headers if key == "Warning"]

    @property
    def message(self) -> str:
        text = self.json["message"]
        assert isinstance(text, str)
        return text


@dataclass
class Watcher:
    """The reading end of a watch. While `stuck`, nothing is taken from its buffer."""

    raw: bytearray = field(default_factory=bytearray)
    pieces: list[bytes] = field(default_factory=list)
    """Each write, framed ones as they came."""
    stuck: bool = False
    held: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    slow: asyncio.Event | None = None
    """Until this is set, it has not taken what it was given."""
    task: asyncio.Task[None] | None = None

    def write(self, data: bytes) -> None:
        self._take(data, data)

    def write_chunks(self, chunks: bytes) -> None:
        self._take(chunks, decode_chunks(chunks))

    def _take(self, piece: bytes, data: bytes) -> None:
        assert self.task is None or not self.task.done(), "written after the end"
        self.pieces.append(piece)
        self.raw += data
        if self.stuck:
            self.held += len(piece)

    @property
    def buffered(self) -> int:
        return self.held

    async def drained(self) -> None:
        if self.slow is not None:
            await self.slow.wait()

    async def closed(self) -> None:
        await self.gone.wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in bytes(self.raw).splitlines()]

    @property
    def summary(self) -> list[tuple[str, str]]:
        """(type, name) of each event."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events]

    @property
    def ended(self) -> bool:
        return self.task is not None and self.task.done()

    async def close(self) -> None:
        """The client goes away."""
        self.gone.set()
        if self.task is not None:
            await self.task


def private_ids() -> RandomIds:
    return RandomIds(seed=7)


class ServerHarness:
    """A server and its only client."""

    def __init__(self, store: Store, clock: VirtualClock, api: ApiServer) -> None:
        self.store = store
        self.clock = clock
        self.api = api
        self.watchers: list[Watcher] = []
        self.peer = Peer("127.0.0.1", 1)
        """The client's end of the connection."""

    @classmethod
    async def open(
        cls,
        store: Store | None = None,
        *,
        modes: Sequence[str] = ("RBAC",),
        full: bool = False,
        ids: Ids | None = None,
        worker: Worker | None = None,
        needs_rewrite: Callable[[str], Awaitable[bool]] | None = None,
        **settings: Any,
    ) -> ServerHarness:
        """Start a server with these settings of its configuration.

        `full`: with all initial objects of a cluster, else with the namespaces `default` and `other` only."""
        store = store or new_store()
        clock = VirtualClock(
            _ROUNDS_WITH_LAG if isinstance(store, LaggingStore) and not store_choice.is_lagging() else 10
        )
        users = {
            ADMIN_TOKEN: UserInfo("admin", "admin-uid", ("system:masters", AUTHENTICATED)),
            LIMITED_TOKEN: UserInfo("limited", "limited-uid", ("some-group", AUTHENTICATED)),
        }
        resources = ApiResources(store, clock, ids or private_ids(), worker)
        # No controller makes service accounts here, and Pods would wait for them.
        settings.setdefault("disable_admission_plugins", ["ServiceAccount"])
        servers = settings.pop("servers", None)
        api = build_server(
            resources,
            ApiServerConfig(NO_DATA_DIR, authorization_mode=list(modes), **settings),
            AuthenticatorChain([TokenFileAuthenticator(users)], True),
            servers=servers,
            needs_rewrite=needs_rewrite,
        )
        await api.start()
        resources.post_start.finish_all()  # the loops of the server do not run here
        harness = cls(store, clock, api)
        if full:
            await bootstrap(resources)
        for name in ("other",) if full else ("default", "other"):
            reply = await harness.post("/api/v1/namespaces", {"metadata": {"name": name}})
            assert reply.status in (201, 409), reply.body  # a store may have been used before
        await harness._make_service_range()
        return harness

    def replace_parts(self, **parts: Any) -> None:
        """Continue with a server on the same resources that has other parts."""
        self.api = ApiServer(self.api.resources, replace(self.api.parts, **parts))

    async def _make_service_range(self) -> None:
        path = "/apis/networking.k8s.io/v1/servicecidrs"
        if (await self.get(f"{path}/kubernetes")).status == 404:
            await self.make(path, {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}})
        ready = {
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ]
            }
        }
        reply = await self.patch(f"{path}/kubernetes/status", ready)
        assert reply.status == 200, reply.body

    @classmethod
    @asynccontextmanager
    async def running(cls, **settings: Any) -> AsyncIterator[ServerHarness]:
        """One whose upkeep runs: files are followed, and so on."""
        harness = await cls.open(**settings)
        running = [asyncio.ensure_future(run()) for run in harness.api.parts.background]
        await settle()
        try:
            yield harness
        finally:
            for task in running:
                task.cancel()
            await harness.close()

    async def close(self) -> None:
        await self.api.stop()
        for watcher in self.watchers:
            watcher.gone.set()
        await settle()
        for watcher in self.watchers:
            if watcher.task is not None and not watcher.task.done():
                watcher.task.cancel()
                with suppress(asyncio.CancelledError):
                    await watcher.task
        await self.store.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _request(
        self, method: str, path: str, body: Any, content_type: str, headers: dict[str, str] | None, token: str
    ) -> Request:
        path, _, query = path.partition("?")
        sent = {"user-agent": "tests/1.0"}
        if token:
            sent["authorization"] = f"Bearer {token}"
        if body is not None:
            sent["content-type"] = content_type
        sent |= headers or {}
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        return Request(method, path, query, sent, data, self.peer)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = JSON,
        *,
        headers: dict[str, str] | None = None,
        token: str = ADMIN_TOKEN,
    ) -> Reply:
        """What the server answers. A failure inside of it is a failure of the test."""
        async with asyncio.timeout(20):
            answer = await self.api.handle(self._request(method, path, body, content_type, headers, token))
        if isinstance(answer, StreamResponse):
            # A watch, where an answer was expected: so much as comes at once.
            watcher = Watcher()
            self.watchers.append(watcher)
            task = asyncio.ensure_future(answer.run(watcher))
            await settle()
            watcher.gone.set()
            await task
            return Reply(answer.status, answer.headers, bytes(watcher.raw))
        assert isinstance(answer, Response), answer
        data = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return Reply(answer.status, answer.headers, data)

    async def get(self, path: str, **how: Any) -> Reply:
        return await self.request("GET", path, **how)

    async def post(self, path: str, body: Any, content_type: str = JSON, **how: Any) -> Reply:
        return await self.request("POST", path, body, content_type, **how)

    async def put(self, path: str, body: Any, content_type: str = JSON, **how: Any) -> Reply:
        return await self.request("PUT", path, body, content_type, **how)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH, **how: Any) -> Reply:
        return await self.request("PATCH", path, body, content_type, **how)

    async def delete(self, path: str, body: Any = None, **how: Any) -> Reply:
        return await self.request("DELETE", path, body, **how)

    async def make(self, path: str, body: Any) -> dict[str, Any]:
        """Create, and insist."""
        reply = await self.post(path, body)
        assert reply.status == 201, (path, reply.body)
        made: dict[str, Any] = reply.json
        return made

    async def watch(
        self,
        path: str,
        *,
        stuck: bool = False,
        slow: asyncio.Event | None = None,
        headers: dict[str, str] | None = None,
        token: str = ADMIN_TOKEN,
    ) -> Watcher:
        if "watch=" not in path:
            path += ("&" if "?" in path else "?") + "watch=1"
        answer = await self.api.handle(self._request("GET", path, None, "", headers, token))
        assert isinstance(answer, StreamResponse), getattr(answer, "body", answer)
        watcher = Watcher(stuck=stuck, slow=slow)

        async def run() -> None:
            await answer.run(watcher)

        watcher.task = asyncio.ensure_future(run())
        self.watchers.append(watcher)
        await settle()
        return watcher
