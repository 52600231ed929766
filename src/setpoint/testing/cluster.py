"""A cluster in virtual time, for tests.

    @virtual(nodes=3)
    async def test_a_deployment_comes_up(cluster: VirtualCluster) -> None:
        await cluster.client.create(deployment)
        await cluster.until(lambda: ..., within=30)

All components run, through the real API pipeline; only time and chance are the test's. The same seed gives the same
revisions, byte for byte.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Unpack

from setpoint.client import Client
from setpoint.client.interface import ResourceRef
from setpoint.cluster.component import Component
from setpoint.cluster.component_logs import component_logs
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedCluster, EmbeddedOptions, embedded_cluster
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.times import parse_duration
from setpoint.node.options import FleetOptions
from setpoint.reconcile import Manager
from setpoint.sdk import Operator, ReachedAt
from setpoint.system import RandomIds
from setpoint.testing.disturbance import Disturbance
from setpoint.testing.link import Link, LinkedClient
from setpoint.testing.own_error import OwnError, own_tasks
from setpoint.testing.plan import Plan
from setpoint.testing.rest import Rest
from setpoint.testing.snapshot import ClusterOptions, Prepared, Snapshot, first_state
from setpoint.testing.virtual_time import VirtualClock, run_virtual

Obj = dict[str, Any]

_LOOK_EVERY = 0.05
_INSTANT = 1e-6


class VirtualCluster:
    def __init__(
        self, embedded: EmbeddedCluster, clock: VirtualClock, links: dict[str, Link], options: ClusterOptions
    ) -> None:
        self.embedded = embedded
        self.options = options
        self.links = links
        """What lies between each component and the server."""
        self.clock = clock
        self.client: Client = embedded.client
        """As an administrator."""
        self._operators: dict[str, tuple[Component[Any], asyncio.TaskGroup]] = {}
        self._rest = Rest(embedded.journal, clock, self._managers)

    # -- time ---------------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """So much virtual time passes, with all that happens in it."""
        await self._rest.pass_time(seconds)

    async def instant(self) -> None:
        """Everything has happened that needs no time."""
        await self._rest.pass_time(_INSTANT)

    async def advance(self, time: str) -> None:
        """As `sleep`, in the words of Kubernetes: `5m`, `1h30m`."""
        await self._rest.pass_time(parse_duration(time) / 1e9)

    async def settle(self, quiet: float = 1.0, within: float = 600.0) -> None:
        """Returns when the loops are quiet: when nothing but heartbeats and events has been written for so many virtual
        seconds. Fails if there is no rest within that time, and says who goes on writing what: a loop that never
        stops writing, or two that undo each other's work, are bugs in somebody's controller."""
        await self._rest.settle(quiet, within)

    async def at_rest(self, time: str = "10m") -> None:
        """Lets time pass and fails if anything but heartbeats and events is written meanwhile, or if an object is
        reconciled all the time, and says who it is. Operators look at all their objects again, twice: one that acts on
        what is, and not on what happened, finds nothing to do."""
        await self._rest.hold(parse_duration(time) / 1e9)

    async def until(self, check: Callable[[], Any], within: float = 60.0, every: float = _LOOK_EVERY) -> None:
        """Returns as soon as `check` (a function, also an async one) says something true; fails after so many virtual
        seconds. An `AssertionError` of the check means no, and is what is shown at the end. It is asked again and
        again: seldom is cheaper."""
        deadline = self.clock.monotonic() + within
        while True:
            doubt: AssertionError | None = None
            try:
                found = check()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return
            except AssertionError as error:
                doubt = error
            if self.clock.monotonic() >= deadline:
                raise AssertionError(f"not true within {within:g} s: {doubt or inspect.getsource(check).strip()}")
            await self.sleep(every)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def find(self, resource: ResourceRef, name: str, namespace: str = "default") -> Obj | None:
        try:
            return await self.client.get(resource, name, namespace)
        except NotFound:
            return None

    async def all(self, resource: ResourceRef, namespace: str = "default", selector: str = "") -> list[Obj]:
        return (await self.client.list(resource, namespace, label_selector=selector)).items

    async def events(self, name: str = "", namespace: str = "default") -> list[tuple[str, str, str]]:
        """(type, reason, message) of all events about objects with this name, oldest first."""
        found = (await self.client.list(("v1", "Event"), namespace)).items
        found.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [
            (each["type"], each["reason"], each.get("message", ""))
            for each in found
            if not name or each["involvedObject"]["name"] == name
        ]

    def audited(self, by: str = "") -> list[Obj]:
        """The audit events (audit.k8s.io/v1) so far, oldest first, for which the cluster has a policy in its option
        `audit`. `by`: what this operator, or this user, did. The newest 100,000 are kept."""
        if self.embedded.audit is None:
            raise ValueError("nothing is audited: the cluster has no policy, see its option `audit`")
        found = self.embedded.audit.events()
        return [each for each in found if not by or by in (each.get("userAgent"), each["user"].get("username"))]

    def fingerprint(self) -> str:
        """Of every revision so far."""
        return self.embedded.journal.digest().hexdigest()

    # -- copies -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All that is stored now, for other clusters to begin with: `virtual_cluster(start=snapshot)`, on this loop or
        on another, as often as you like."""
        return Snapshot(self.embedded.state(), self.clock.now(), self.options)

    def fork(self, **changed: Unpack[ClusterOptions]) -> AbstractAsyncContextManager[VirtualCluster]:
        """A cluster of its own that begins as this one is now: what happens in one is not seen in the other. Time
        passes for both. Its components begin anew on what is stored, as after a restart; operators are started in it
        with `running`."""
        return virtual_cluster(start=self.snapshot(), **changed)

    # -- operators ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(
        self, operator: Operator | Callable[[], Operator], seed: int = 1, *, dry_run: bool = False
    ) -> AsyncIterator[Manager]:
        """Inside the block its kinds are served, its controllers are at work and its webhooks answer. With `dry_run`
        its kinds are served, and what its controllers would change is logged.

        It can be stopped, killed and started by its name, as a component can; while it does not run, its webhooks
        refuse connections. One that remembers anything is handed in as a function that makes it: a start makes a new
        one, as a new process would."""
        made = operator if isinstance(operator, Operator) else operator()
        client, ids, fresh = self.client.named(made.name), RandomIds(seed), [made]
        if made.name in self.links:
            raise ValueError(f"{made.name} runs already")
        link = Link(made.name)

        @asynccontextmanager
        async def process() -> AsyncIterator[Manager]:
            one = fresh.pop() if fresh else operator if isinstance(operator, Operator) else operator()
            with self._webhooks(one, client):
                async with one.running(LinkedClient(client, link), self.clock, ids, dry_run=dry_run) as manager:
                    yield manager

        with self._webhooks(made, client) as reached:
            await made.install(client, self.clock, reached)
        await _require_served(made, client)
        async with own_tasks() as tasks:
            component = Component(made.name, process)
            self.links[made.name], self._operators[made.name] = link, (component, tasks)
            try:
                await component.start(tasks)
                yield component.running
            finally:
                del self.links[made.name], self._operators[made.name]
                await component.stop()

    @contextmanager
    def _webhooks(self, operator: Operator, client: Client) -> Iterator[ReachedAt | None]:
        if not operator.has_webhooks:
            yield None
            return
        host = f"{operator.name}.webhooks.test"
        with self.embedded.hosts.serving(host, operator.reviewer(client, self.clock).answer):
            yield ReachedAt(url=f"https://{host}")

    def faults(self, plan: str | Plan, of: Operator | str | Sequence[str] = ()) -> Disturbance:
        """Inside the block what the plan says goes wrong, counted from its beginning:

            async with cluster.faults("crash-after:2"): ...

        `of` says with whom: an operator, or names of components; the operators that run by default. See `Plan`."""
        names = [of.name] if isinstance(of, Operator) else [of] if isinstance(of, str) else list(of)
        return Disturbance(self, names or list(self._operators), Plan.parse(plan))

    def _managers(self) -> list[tuple[str, Manager]]:
        """Those that run, and to which operator each belongs."""
        parts = self.embedded.components
        elected = (parts.controllers.current, parts.scheduler.current)
        own = [*(each.manager for each in elected if each is not None), parts.fleet.current]
        found: list[tuple[str, Manager | None]] = [("", each) for each in own]
        found += [(name, component.current) for name, (component, _) in self._operators.items()]
        return [(name, manager) for name, manager in found if manager is not None]

    # -- meddling -----------------------------------------------------------------------------------------------------

    def component(self, name: str) -> Component[Any]:
        """`controllers`, `scheduler`, `fleet`, or an operator that is running."""
        if name in self._operators:
            return self._operators[name][0]
        found: Component[Any] = getattr(self.embedded.components, name)
        return found

    async def stop(self, *names: str) -> None:
        for name in names:
            await self.component(name).stop()

    async def kill(self, *names: str) -> None:
        """As a process dies: nothing of it ends in order."""
        for name in names:
            self.links[name].severed = True
            await self.component(name).kill()

    async def start(self, *names: str) -> None:
        for name in names:
            self.links[name].severed = False
            if name in self._operators:
                component, tasks = self._operators[name]
                await component.start(tasks)
            else:
                await self.embedded.components.start(self.component(name))


async def _require_served(operator: Operator, client: Client) -> None:
    """Raise ValueError for a kind that the server does not serve: the operator would wait for it without end."""
    for controller in operator.controllers:
        for kind in (controller.kind, *controller.owns, *(each.kind for each in controller.watches)):
            try:
                await client.resource(kind.ref)
            except ApiError as error:
                raise ValueError(
                    f"operator {operator.name}: {error}. The operator installs kinds that have a spec model; any other "
                    "kind must be installed before it runs"
                ) from None


@asynccontextmanager
async def virtual_cluster(
    *, start: Snapshot | None = None, **options: Unpack[ClusterOptions]
) -> AsyncIterator[VirtualCluster]:
    """On a virtual loop only (see `run_virtual`); `ClusterOptions` are the options. One that begins with a snapshot has
    those of the cluster that it was taken from, unless others are given, and another seed."""
    if start is not None:
        options = {**start.options, "seed": start.next_seed(), **options}
    clock = VirtualClock() if start is None else VirtualClock.going_on(start.now)
    links = {name: Link(name) for name in ("controllers", "scheduler", "fleet")}
    with component_logs(clock) if options.get("control_plane_pods") else nullcontext() as logs:
        parts = ComponentOptions(
            options.get("nodes", 3), options.get("controllers"), options.get("scheduler", True),
            options.get("controller_options") or ControllerOptions(), options.get("leader_elect", False), "virtual",
            wrap=lambda name, client: LinkedClient(client, links[name]), logs=logs, fleet=_fleet_of(options),
        )  # fmt: skip
        ids = RandomIds(options.get("seed", 1))
        state = await first_state() if start is None else start.state
        audit = options.get("audit", "")
        policy = audit.encode() if isinstance(audit, str) else json.dumps(audit).encode()
        with OwnError() as own:
            async with embedded_cluster(clock, ids, EmbeddedOptions(parts, audit=policy), state) as embedded:
                with own.block():
                    yield VirtualCluster(embedded, clock, links, options)


def _fleet_of(options: ClusterOptions) -> FleetOptions | None:
    fleet = options.get("fleet")
    return replace(fleet, nodes=options.get("nodes", 3)) if fleet is not None else None


def virtual(
    *, start: Snapshot | Prepared | None = None, **options: Unpack[ClusterOptions]
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Makes a test run in virtual time. One that takes a `cluster` has one of its own; see `virtual_cluster` for the
    options. One that takes `virtual_time` gets the clock. Other arguments (fixtures, parameters) are passed on."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(test)

        async def main(begin: Snapshot | None, *args: Any, **named: Any) -> None:
            if "cluster" not in signature.parameters:
                await test(*args, virtual_time=VirtualClock(), **named)
                return
            async with virtual_cluster(start=begin, **options) as cluster:
                if "virtual_time" in signature.parameters:
                    named["virtual_time"] = cluster.clock
                await test(*args, cluster=cluster, **named)

        @functools.wraps(test)
        def runs(*args: Any, **named: Any) -> None:
            run_virtual(main, start.snapshot() if isinstance(start, Prepared) else start, *args, **named)

        others = [each for name, each in signature.parameters.items() if name not in ("cluster", "virtual_time")]
        runs.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return runs

    return decorate
