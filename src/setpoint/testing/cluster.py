"""A cluster in virtual time, for tests.

    @virtual(nodes=3)
    async def test_a_deployment_comes_up(cluster: VirtualCluster) -> None:
        await cluster.client.create(deployment)
        await cluster.until(lambda: ..., within=30)

All components run against the real API pipeline; the test controls only time and randomness. The same seed gives the
same revisions, byte for byte.
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
from setpoint.cluster.embedded import EmbeddedCluster, EmbeddedOptions, SecondServer, State, embedded_cluster
from setpoint.cluster.virtual.error_unwrapping import ErrorUnwrapper, unwrapping_task_group
from setpoint.cluster.virtual.fault_injection import FaultInjection
from setpoint.cluster.virtual.link import Link, LinkedClient
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_duration
from setpoint.node.options import FleetOptions
from setpoint.reconcile import Manager
from setpoint.sdk import Operator, ReachedAt
from setpoint.system import RandomIds
from setpoint.testing.quiescence import QuiescenceMonitor
from setpoint.testing.snapshot import ClusterOptions, Prepared, Snapshot, first_state, settled_state
from setpoint.testing.virtual_time import VirtualClock, run_virtual
from setpoint.view.fault_plan import Plan

_POLL_INTERVAL = 0.05
_INSTANT = 1e-6


class VirtualCluster:
    def __init__(
        self, embedded: EmbeddedCluster, clock: VirtualClock, links: dict[str, Link], options: ClusterOptions
    ) -> None:
        self.embedded = embedded
        self.options = options
        self.links = links
        """The link between each component and the server, by component name."""
        self.clock = clock
        self.client: Client = embedded.client
        """A client with the rights of an administrator."""
        self._operators: dict[str, tuple[Component[Any], asyncio.TaskGroup]] = {}
        self._quiescence = QuiescenceMonitor(embedded.write_log, clock, self._managers)

    @property
    def second(self) -> SecondServer:
        """The second API server of a cluster with the option `replica_delay`."""
        if self.embedded.second is None:
            raise ValueError("the cluster has one API server; the option replica_delay runs a second one")
        return self.embedded.second

    # -- time ---------------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass, with everything that happens in them."""
        await self._quiescence.pass_time(seconds)

    async def instant(self) -> None:
        """Run everything that needs no time."""
        await self._quiescence.pass_time(_INSTANT)

    async def advance(self, time: str) -> None:
        """Let a Kubernetes duration of virtual time pass: `5m`, `1h30m`."""
        await self._quiescence.pass_time(parse_duration(time) / 1e9)

    async def settle(self, quiet: float = 1.0, within: float = 600.0) -> None:
        """Return when the control loops are quiescent: nothing but heartbeats and events was written for `quiet`
        virtual seconds.

        Raise AssertionError if that does not happen within `within` virtual seconds, with the writers and the fields
        they write: a loop that never stops writing, or two controllers that revert each other's changes, are bugs.
        """
        await self._quiescence.settle(quiet, within)

    async def at_rest(self, time: str = "10m") -> None:
        """Let time pass and fail if anything but heartbeats and events is written, or an object is reconciled
        continuously.

        Operators reconcile all their objects again, twice: a level-based operator finds nothing to do.
        """
        await self._quiescence.assert_quiescent(parse_duration(time) / 1e9)

    async def until(self, check: Callable[[], Any], within: float = 60.0, every: float = _POLL_INTERVAL) -> None:
        """Return as soon as `check`, a plain or async function, returns a true value; fail after `within` virtual
        seconds.

        An AssertionError from `check` counts as false, and the last one is shown on failure. The check runs every
        `every` virtual seconds: a longer interval is cheaper.
        """
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

    # -- reading -------------------------------------------------------------------------------------------------------

    async def find(self, resource: ResourceRef, name: str, namespace: str = "default") -> Obj | None:
        try:
            return await self.client.get(resource, name, namespace)
        except NotFound:
            return None

    async def all(self, resource: ResourceRef, namespace: str = "default", selector: str = "") -> list[Obj]:
        return (await self.client.list(resource, namespace, label_selector=selector)).items

    async def events(self, name: str = "", namespace: str = "default") -> list[tuple[str, str, str]]:
        """Return (type, reason, message) of all events about objects with this name, oldest first."""
        found = (await self.client.list(("v1", "Event"), namespace)).items
        found.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [
            (each["type"], each["reason"], each.get("message", ""))
            for each in found
            if not name or each["involvedObject"]["name"] == name
        ]

    def audited(self, by: str = "") -> list[Obj]:
        """Return the recorded audit events (audit.k8s.io/v1), oldest first.

        The cluster option `audit` is the audit policy. `by` selects the requests of one operator or user. At most the
        newest 100,000 events are retained.
        """
        if self.embedded.audit is None:
            raise ValueError("nothing is audited: the cluster has no policy, see its option `audit`")
        found = self.embedded.audit.events()
        return [each for each in found if not by or by in (each.get("userAgent"), each["user"].get("username"))]

    def fingerprint(self) -> str:
        """Return a digest of every revision so far."""
        return self.embedded.write_log.digest().hexdigest()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return everything that is stored now, as the initial state of other clusters.

        Pass it as `virtual_cluster(start=snapshot)`, on this loop or on another, any number of times.
        """
        return Snapshot(self.embedded.state(), self.clock.now(), self.options)

    def fork(self, **changed: Unpack[ClusterOptions]) -> AbstractAsyncContextManager[VirtualCluster]:
        """Return a separate cluster whose initial state is this cluster's current state.

        Changes in one are not visible in the other; time passes for both. The components of the new cluster start from
        what is stored, as after a restart; start operators in it with `running`.
        """
        return virtual_cluster(start=self.snapshot(), **changed)

    # -- operators ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(
        self, operator: Operator | Callable[[], Operator], seed: int = 1, *, dry_run: bool = False
    ) -> AsyncIterator[Manager]:
        """Run an operator inside the block: its kinds are served, its controllers run and its webhooks answer.

        With `dry_run` its kinds are served, and the changes that its controllers would make are logged.

        The operator can be stopped, killed and started by its name, like a component; while it does not run, its
        webhooks refuse connections. Pass an operator with in-memory state as a factory function: every start calls it
        again, as a new process would start from nothing.
        """
        instance = operator if isinstance(operator, Operator) else operator()
        client, ids, fresh = self.client.named(instance.name), RandomIds(seed), [instance]
        if instance.name in self.links:
            raise ValueError(f"{instance.name} is already running")
        link = Link(instance.name)

        @asynccontextmanager
        async def process() -> AsyncIterator[Manager]:
            one = fresh.pop() if fresh else operator if isinstance(operator, Operator) else operator()
            with self._webhooks(one, client):
                async with one.running(LinkedClient(client, link), self.clock, ids, dry_run=dry_run) as manager:
                    yield manager

        with self._webhooks(instance, client) as reached:
            await instance.install(client, self.clock, reached)
        await _require_served(instance, client)
        async with unwrapping_task_group() as tasks:
            component = Component(instance.name, process)
            self.links[instance.name], self._operators[instance.name] = link, (component, tasks)
            try:
                await component.start(tasks)
                yield component.running
            finally:
                del self.links[instance.name], self._operators[instance.name]
                await component.stop()

    @contextmanager
    def _webhooks(self, operator: Operator, client: Client) -> Iterator[ReachedAt | None]:
        if not operator.has_webhooks:
            yield None
            return
        host = f"{operator.name}.webhooks.test"
        with self.embedded.hosts.serving(host, operator.reviewer(client, self.clock).answer):
            yield ReachedAt(url=f"https://{host}")

    def faults(self, plan: str | Plan, of: Operator | str | Sequence[str] = ()) -> FaultInjection:
        """Inject the faults of `plan` inside the block; writes and events are counted from its beginning.

            async with cluster.faults("crash-after:2"): ...

        `of` selects the operator, or the components by name; the default is all running operators. See `Plan`.
        """
        names = [of.name] if isinstance(of, Operator) else [of] if isinstance(of, str) else list(of)
        return FaultInjection(self, names or list(self._operators), Plan.parse(plan))

    def _managers(self) -> list[tuple[str, Manager]]:
        """Return the running managers, each with the name of its operator; the name is empty for the cluster's own
        components."""
        components = self.embedded.components
        elected = (components.controllers.current, components.scheduler.current)
        own = [*(each.manager for each in elected if each is not None), components.fleet.current]
        found: list[tuple[str, Manager | None]] = [("", each) for each in own]
        found += [(name, component.current) for name, (component, _) in self._operators.items()]
        return [(name, manager) for name, manager in found if manager is not None]

    # -- components ----------------------------------------------------------------------------------------------------

    def component(self, name: str) -> Component[Any]:
        """Return `controllers`, `scheduler`, `fleet`, or a running operator."""
        if name in self._operators:
            return self._operators[name][0]
        found: Component[Any] = getattr(self.embedded.components, name)
        return found

    async def stop(self, *names: str) -> None:
        for name in names:
            await self.component(name).stop()

    async def kill(self, *names: str) -> None:
        """Kill components as a process crash does: nothing is shut down in order."""
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
    """Raise ValueError for a kind that the server does not serve: the operator would wait for it forever."""
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
    """Run a cluster in virtual time; requires a virtual loop (see `run_virtual`).

    A cluster that starts from a snapshot has the options of the snapshot's cluster, with a different seed, unless
    `options` override them.
    """
    if start is not None:
        options = {**start.options, "seed": start.next_seed(), **options}
    clock = VirtualClock() if start is None else VirtualClock.going_on(start.now)
    links = {name: Link(name) for name in ("controllers", "scheduler", "fleet")}
    with component_logs(clock) if options.get("control_plane_pods") else nullcontext() as logs:
        components = ComponentOptions(
            options.get("nodes", 3),
            options.get("controllers"),
            options.get("scheduler", True),
            options.get("controller_options") or ControllerOptions(),
            options.get("leader_elect", False),
            "virtual",
            wrap=lambda name, client: LinkedClient(client, links[name]),
            logs=logs,
            fleet=_fleet_of(options),
        )
        ids = RandomIds(options.get("seed", 1))
        state = await _first_state(options) if start is None else start.state
        audit = options.get("audit", "")
        policy = audit.encode() if isinstance(audit, str) else json.dumps(audit).encode()
        with ErrorUnwrapper() as unwrapper:
            settings = EmbeddedOptions(components, audit=policy, replica_delay=options.get("replica_delay"))
            async with embedded_cluster(clock, ids, settings, state) as embedded:
                with unwrapper.block():
                    yield VirtualCluster(embedded, clock, links, options)


async def _first_state(options: ClusterOptions) -> State:
    """Return the initial state of a cluster with these options."""
    runs_defaults = options.get("controllers") is None and options.get("controller_options") is None
    return await (settled_state() if runs_defaults else first_state())


def _fleet_of(options: ClusterOptions) -> FleetOptions | None:
    fleet = options.get("fleet")
    return replace(fleet, nodes=options.get("nodes", 3)) if fleet is not None else None


def virtual(
    *, start: Snapshot | Prepared | None = None, **options: Unpack[ClusterOptions]
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Return a decorator that runs an async test in virtual time.

    A test with a `cluster` parameter gets a cluster of its own; see `virtual_cluster` for the options. A test with a
    `virtual_time` parameter gets the clock. Other arguments (fixtures, parameters) are passed through.
    """

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
