"""An operator as a process of its own, against any Kubernetes cluster: the composition root of such a process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NoReturn, TypeVar

from setpoint import __version__
from setpoint.client import Client, Unreachable
from setpoint.client.access import Access
from setpoint.client.cluster_choice import find_access
from setpoint.client.connect import connect
from setpoint.client.counted_requests import RequestCounts
from setpoint.client.kubeconfig import KubeconfigError
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Family, gauge
from setpoint.reconcile import EventRecorder, LeaderElection, LeadershipLost, Manager
from setpoint.sdk.certificates import CertificateProblem
from setpoint.sdk.door import Doors
from setpoint.sdk.loop import InFlight
from setpoint.sdk.operator import Operator
from setpoint.sdk.options import RunOptions, Service, parse
from setpoint.sdk.registration import ReachedAt
from setpoint.sdk.webhook_server import NotReachable, WebhookServer
from setpoint.system import RandomIds, SystemClock, hostname

log = logging.getLogger("setpoint.operator")

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_LAST_ANSWERS = 2.0
_TRY_AGAIN = (429, 500, 502, 503, 504)
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run(operator: Operator, arguments: Sequence[str] | None = None) -> NoReturn:
    """The main of an operator's process:

    if __name__ == "__main__":
        run(operator)

    Reads the flags (`--help` lists them), finds the cluster, defines the kinds, and works until a signal ends it. Exits
    with 0 after a signal, with 1 and a sentence when it cannot go on, also when it no longer leads.
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
    """For those who install an operator themselves: without the authority of its webhooks, which only a running one
    knows."""
    from setpoint.meta.yaml_write import write  # slow to load, and only needed here

    service = options.webhook_service or Service(options.namespace or "default", f"{operator.name}-webhook")
    reached = ReachedAt(options.webhook_url, service.namespace, service.name, service.port)
    documents = [*operator.manifests(reached), operator.role(reached)]
    sys.stdout.write("---\n".join(write(each).decode() for each in documents))


def set_up_logging(verbosity: int) -> None:
    """To standard error. Whoever has set up logging already keeps it as it is."""
    logging.basicConfig(level=logging.DEBUG if verbosity > 1 else logging.INFO, format=_LINE)
    if verbosity:
        logging.getLogger("setpoint.operator").setLevel(logging.DEBUG)


async def _main(operator: Operator, options: RunOptions) -> int:
    try:
        access = find_access(options.kubeconfig, options.context)
    except KubeconfigError as error:
        log.error("%s", error)
        return 1
    log.info("the cluster is at %s", access.server)
    stop = asyncio.Event()
    _listen_to_signals(stop)
    clock, counts = SystemClock(), RequestCounts(access.server)
    client = counts.watch_over(connect(access, clock, user_agent=f"{operator.name}/setpoint-v{__version__}"))
    return await OperatorProcess(operator, options, access, client, clock, RandomIds(), counts).run(stop)


def _listen_to_signals(stop: asyncio.Event) -> None:
    def told(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log.info("%s: ending what is under way; another one ends it at once", signal.Signals(number).name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)


class OperatorProcess:
    """All that is in such a process but the process itself: signals, logs, the way to the server."""

    def __init__(
        self,
        operator: Operator,
        options: RunOptions,
        access: Access,
        client: Client,
        clock: Clock,
        ids: Ids,
        counts: RequestCounts | None = None,
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
                self._client, clock, ids, name=operator.name, identity=f"{hostname()}_{ids.uid()}",
                namespace=options.lease_namespace or access.namespace, times=options.times, recorder=self._recorder,
            )  # fmt: skip
        self._reviewer = operator.reviewer(self._client, clock)
        self._webhooks: WebhookServer | None = None
        if operator.has_webhooks and not options.dry_run:
            self._webhooks = WebhookServer(operator.name, self._reviewer, options, access, self._client, clock)
        self._doors = Doors(self.families, self.healthy, self.ready)

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> int:
        """Until it is told to stop, or cannot go on; the exit code."""
        problems: list[BaseException] = []
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._client.close)
                await self._doors.open(self._options.metrics, self._options.probes)
                stack.push_async_callback(self._doors.close, _LAST_ANSWERS)
                await self._until(stop)
        except* (ApiError, Unreachable, LeadershipLost, CertificateProblem, NotReachable, KubeconfigError) as found:
            problems += _flat(found)
        except* (OSError, TimeoutError) as found:
            problems += _flat(found)
        for problem in problems[:1]:
            log.error("%s; this process ends", str(problem) or type(problem).__name__)
        return 1 if problems else 0

    async def _until(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(self._recorder.run())]
            work = tasks.create_task(self._work())
            told = tasks.create_task(_wait(stop))
            try:
                await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set() and not work.done():
                    await self._drain()
            finally:
                for task in (*helpers, work, told):
                    task.cancel()

    async def _drain(self) -> None:
        """Reconciles and answers that are under way may end; no new ones begin."""
        try:
            async with asyncio.timeout(self._options.grace):
                await self._in_flight.drain()
        except TimeoutError:
            log.warning("some reconciles did not end within %g s", self._options.grace)

    async def _work(self) -> None:
        webhooks, reached = self._webhooks, None
        try:
            if webhooks is not None:
                reached = await self._reached(webhooks.open)
            missing = await self._reached(lambda: self._install(reached))
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
                    tasks.create_task(webhooks.keep(self._install))
                tasks.create_task(self._lead())
        finally:
            if webhooks is not None:
                await webhooks.close(_LAST_ANSWERS)

    async def _reached(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """A cluster that cannot be reached, or is not well, is tried again."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code not in _TRY_AGAIN:
                    raise
                log.warning("%s; next attempt in %g s", error, pause)
            await self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _install(self, reached: ReachedAt | None) -> list[str]:
        """Return the names of the definitions that a dry run did not install."""
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
            self._client.fenced(self._election), self._clock, self._ids,
            namespace=options.namespace, dry_run=options.dry_run,
            in_flight=self._in_flight,
        )  # fmt: skip
        log.info("%s is at work%s", self._operator.name, " and writes nothing" if options.dry_run else "")
        await self._manager.run()

    # -- how it fares -------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        election, found = self._election, self._counts.families() if self._counts is not None else []
        if election is not None:
            leads = [({"name": election.name}, int(election.leading.is_set()))]
            found.append(gauge("leader_election_master_status", "1 for the one that leads, 0 for others.", leads))
        if self._webhooks is not None:
            found += self._reviewer.families()
        return found + (self._manager.families() if self._manager is not None else [])

    def healthy(self) -> str:
        """What is wrong; empty: nothing."""
        if self._election is not None and self._election.overdue > 0:
            return f"the lease {self._election.name} has not been renewed for too long"
        return ""

    def ready(self) -> str:
        if not self._installed:
            return "the kinds are not served yet"
        if self._manager is not None:
            return "" if self._manager.ready.is_set() else "the caches are not filled yet"
        waits = self._election is not None and self._election.standing_by.is_set()
        return "" if waits else "not at work yet"


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _flat(found: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Task groups wrap what is raised inside of them, each once more."""
    flat: list[BaseException] = []
    for error in found.exceptions:
        flat += _flat(error) if isinstance(error, BaseExceptionGroup) else [error]
    return flat
