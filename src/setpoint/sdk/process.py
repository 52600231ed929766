"""The process of an operator, against any Kubernetes cluster: composition root, and server of metrics and probes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import NoReturn, TypeVar

from setpoint import __version__
from setpoint.client import Client, Unreachable
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access, KubeconfigError
from setpoint.client.request_metrics import RequestMetrics
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import CONTENT_TYPE, Family, gauge, merged, text
from setpoint.reconcile import EventRecorder, LeaderElection, LeadershipLost, Manager
from setpoint.sdk.certificates import CertificateProblem
from setpoint.sdk.loop import InFlight
from setpoint.sdk.operator import Operator
from setpoint.sdk.options import Address, RunOptions, Service, parse
from setpoint.sdk.registration import ReachedAt
from setpoint.sdk.webhook_server import NotReachable, WebhookServer
from setpoint.system import RandomIds, SystemClock, hostname
from setpoint.wire.limits import Limits
from setpoint.wire.message import Handler, Request, Response
from setpoint.wire.server import Server

log = logging.getLogger("setpoint.operator")

_LIMITS = Limits(body=64 * 1024, head=64 * 1024, connections=256, body_timeout=30.0, write_timeout=30.0)
_TEXT = ("Content-Type", "text/plain; charset=utf-8")
T = TypeVar("T")
_FIRST_BACKOFF, _MAX_BACKOFF = 1.0, 30.0
_CLOSE_GRACE = 2.0
_RETRIABLE_CODES = (429, 500, 502, 503, 504)
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class MetricsServer:
    """Serves metrics and probes: on one listener if both have the same address, otherwise on two."""

    def __init__(
        self,
        families: Callable[[], Iterable[Family]],
        healthy: Callable[[], str],
        ready: Callable[[], str],
        clock: Clock,
    ) -> None:
        """Prepare the servers; `healthy` and `ready` return what is wrong, or an empty string."""
        self._families = families
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._clock = clock
        self._servers: list[Server] = []

    async def open(self, metrics: Address | None, probes: Address | None) -> None:
        """Start to listen; None disables an endpoint. Raise OSError if an address is not available."""
        for address in dict.fromkeys(each for each in (metrics, probes) if each is not None):
            paths = {*(("/metrics",) if address == metrics else ()), *(self._checks if address == probes else ())}
            server = Server(self._handler(paths), clock=self._clock, limits=_LIMITS)
            _, port = await server.start(address.host, address.port)
            self._servers.append(server)
            log.info("serving %s at %s:%d", " and ".join(sorted(paths)), address.host, port)

    async def close(self, grace: float) -> None:
        for server in self._servers:
            await server.stop(grace)

    def _handler(self, paths: set[str]) -> Handler:
        async def handle(request: Request) -> Response:
            path = request.path.rstrip("/")
            if path not in paths:
                return Response(404, b"404 page not found\n", [_TEXT])
            if request.method not in ("GET", "HEAD"):
                return Response(405, b"only GET and HEAD are allowed\n", [_TEXT])
            if path == "/metrics":
                return Response(200, text(merged(self._families())).encode(), [("Content-Type", CONTENT_TYPE)])
            wrong = self._checks[path]()
            return Response(500, f"{wrong}\n".encode(), [_TEXT]) if wrong else Response(200, b"ok", [_TEXT])

        return handle


def run(operator: Operator, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run an operator's process:

    if __name__ == "__main__":
        run(operator)

    Parse the flags (`--help` lists them), connect to the cluster, install the kinds, and run until a signal. Exit with
    0 after a signal, and with 1 and an error message when it cannot continue or has lost the leadership.
    """
    import uvloop

    options = parse(operator.name, arguments)
    if options.manifests:
        print_manifests(operator, options)
        sys.exit(0)
    set_up_logging(options.verbosity)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_main(operator, options))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)


def print_manifests(operator: Operator, options: RunOptions) -> None:
    """Print the manifests for a manual installation, without the webhooks' CA bundle, which only a running operator
    knows."""
    from setpoint.meta.yaml_write import write  # slow to load, and only needed here

    service = options.webhook_service or Service(options.namespace or "default", f"{operator.name}-webhook")
    reached = ReachedAt(options.webhook_url, service.namespace, service.name, service.port)
    documents = [*operator.manifests(reached), operator.role(reached)]
    sys.stdout.write("---\n".join(write(each).decode() for each in documents))


def set_up_logging(verbosity: int) -> None:
    """Log to standard error, unless the program has configured logging already."""
    logging.basicConfig(level=logging.DEBUG if verbosity > 1 else logging.INFO, format=_LOG_FORMAT)
    if verbosity:
        logging.getLogger("setpoint.operator").setLevel(logging.DEBUG)


async def _main(operator: Operator, options: RunOptions) -> int:
    try:
        access = find_access(options.kubeconfig, options.context)
    except KubeconfigError as error:
        log.error("%s", error)
        return 1
    log.info("connecting to the cluster at %s", access.server)
    stop = asyncio.Event()
    _add_signal_handlers(stop)
    clock, counts = SystemClock(), RequestMetrics(access.server)
    client = counts.instrument(connect(access, clock, user_agent=f"{operator.name}/setpoint-v{__version__}"))
    return await OperatorProcess(operator, options, access, client, clock, RandomIds(), counts).run(stop)


def _add_signal_handlers(stop: asyncio.Event) -> None:
    def handle(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log.info("%s: shutting down gracefully; send another signal to exit immediately", signal.Signals(number).name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)


class OperatorProcess:
    """An operator's process without signal handling, logging setup and the connection to the server."""

    def __init__(
        self,
        operator: Operator,
        options: RunOptions,
        access: Access,
        client: Client,
        clock: Clock,
        ids: Ids,
        counts: RequestMetrics | None = None,
    ) -> None:
        self._operator = operator
        self._options = options
        self._client = client
        self._clock = clock
        self._ids = ids
        self._counts = counts
        self._in_flight = InFlight()
        self._manager: Manager | None = None
        self._installed = False
        self._recorder = EventRecorder(self._client, clock, operator.name)
        self._election: LeaderElection | None = None
        if options.leader_elect and not options.dry_run:
            self._election = LeaderElection(
                self._client,
                clock,
                ids,
                name=operator.name,
                identity=f"{hostname()}_{ids.uid()}",
                namespace=options.lease_namespace or access.namespace,
                times=options.times,
                recorder=self._recorder,
            )
        self._reviewer = operator.reviewer(self._client, clock)
        self._webhooks: WebhookServer | None = None
        if operator.has_webhooks and not options.dry_run:
            self._webhooks = WebhookServer(operator.name, self._reviewer, options, access, self._client, clock)
        self._metrics_server = MetricsServer(self.families, self.healthy, self.ready, clock)

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> int:
        """Run until `stop` is set or an error occurs, and return the exit code."""
        problems: list[BaseException] = []
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._client.close)
                await self._metrics_server.open(self._options.metrics, self._options.probes)
                stack.push_async_callback(self._metrics_server.close, _CLOSE_GRACE)
                await self._run_until(stop)
        except* (ApiError, Unreachable, LeadershipLost, CertificateProblem, NotReachable, KubeconfigError) as found:
            problems += _flatten(found)
        except* (OSError, TimeoutError) as found:
            problems += _flatten(found)
        for problem in problems[:1]:
            log.error("%s; exiting", str(problem) or type(problem).__name__)
        return 1 if problems else 0

    async def _run_until(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(self._recorder.run())]
            work = tasks.create_task(self._work())
            stopped = tasks.create_task(_wait(stop))
            try:
                await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set() and not work.done():
                    await self._drain()
            finally:
                for task in (*helpers, work, stopped):
                    task.cancel()

    async def _drain(self) -> None:
        """Let running reconciles and responses finish, and start no new ones."""
        try:
            async with asyncio.timeout(self._options.grace):
                await self._in_flight.drain()
        except TimeoutError:
            log.warning("some reconciles did not finish within %g s", self._options.grace)

    async def _work(self) -> None:
        webhooks, reached = self._webhooks, None
        try:
            if webhooks is not None:
                reached = await self._retry(webhooks.open)
            missing = await self._retry(lambda: self._install(reached))
            if missing:
                log.info(
                    "%s: not installed, so there is nothing to reconcile. To see what the controllers would do, "
                    "install first: --print-manifests | kubectl apply -f -",
                    ", ".join(missing),
                )
                return
            self._installed = True
            async with asyncio.TaskGroup() as tasks:
                if webhooks is not None:
                    tasks.create_task(webhooks.renew_certificates(self._install))
                tasks.create_task(self._lead())
        finally:
            if webhooks is not None:
                await webhooks.close(_CLOSE_GRACE)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry `attempt` with backoff while the cluster is unreachable or unavailable."""
        backoff = _FIRST_BACKOFF
        while True:
            try:
                return await attempt()
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code not in _RETRIABLE_CODES:
                    raise
                log.warning("%s; retrying in %g s", error, backoff)
            await self._clock.sleep(backoff)
            backoff = min(backoff * 2, _MAX_BACKOFF)

    async def _install(self, reached: ReachedAt | None) -> list[str]:
        """Install the manifests, and return the names of the definitions that a dry run did not install."""
        if not self._options.install:
            return []
        return await self._operator.install(self._client, self._clock, reached, dry_run=self._options.dry_run)

    async def _lead(self) -> None:
        if self._election is None:
            await self._manage()
        else:
            log.info("waiting for the lease %s", self._election.name)
            await self._election.lead(self._manage)

    async def _manage(self) -> None:
        options = self._options
        self._manager = self._operator.manager(
            self._client.fenced(self._election),
            self._clock,
            self._ids,
            namespace=options.namespace,
            dry_run=options.dry_run,
            in_flight=self._in_flight,
        )
        log.info("%s is running%s", self._operator.name, " as a dry run" if options.dry_run else "")
        await self._manager.run()

    # -- metrics and probes --------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        election, found = self._election, self._counts.families() if self._counts is not None else []
        if election is not None:
            leads = [({"name": election.name}, int(election.leading.is_set()))]
            found.append(gauge("leader_election_master_status", "1 for the leader, 0 for other replicas.", leads))
        if self._webhooks is not None:
            found += self._reviewer.families()
        return found + (self._manager.families() if self._manager is not None else [])

    def healthy(self) -> str:
        """Return what is wrong, or an empty string."""
        if self._election is not None and self._election.overdue > 0:
            return f"the lease {self._election.name} has not been renewed for too long"
        return ""

    def ready(self) -> str:
        if not self._installed:
            return "the kinds are not served yet"
        if self._manager is not None:
            return "" if self._manager.ready.is_set() else "the caches are not synced yet"
        waits = self._election is not None and self._election.standing_by.is_set()
        return "" if waits else "not started yet"


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _flatten(found: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the exceptions of nested groups as a flat list: every task group wraps its exceptions once more."""
    flat: list[BaseException] = []
    for error in found.exceptions:
        flat += _flatten(error) if isinstance(error, BaseExceptionGroup) else [error]
    return flat
