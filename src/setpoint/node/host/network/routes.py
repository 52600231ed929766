"""Keeps the routes to the Pods of other nodes: directly on shared subnets, by VXLAN elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.node.host.network.cluster_nodes import ClusterNodes
from setpoint.node.host.network.kernel_settings import FORWARDING, KernelSettings, accept_advertisements
from setpoint.node.host.network.link_commands import LinkCommandError, LinkCommands
from setpoint.node.host.network.route_plan import (
    ForwardingEntry,
    Link,
    Neighbour,
    NetworkState,
    NodeAddresses,
    RoutePlan,
    RouteSettings,
    parse_forwarding,
    parse_links,
    parse_neighbours,
    parse_routes,
    parse_tunnel,
    plan_routes,
    route_changes,
    valid_networks,
)
from setpoint.tasks import within

log = logging.getLogger("setpoint.node")

_DEFAULT_DESTINATIONS: Final = {4: "0.0.0.0/0", 6: "::/0"}
_RESYNC: Final = 30.0
"""Seconds between two comparisons with the kernel's state while no Node changes."""
_COALESCE: Final = 0.1
_INITIAL_BACKOFF, _MAX_BACKOFF = 0.5, _RESYNC


LinkChanges = Callable[[Callable[[], None]], Awaitable[None]]
"""Calls a function whenever the network interfaces of the machine change, until cancelled."""


class KernelRoutes:
    """The kernel's state as far as it belongs to the agent: routes with its protocol number, and its VXLAN device."""

    def __init__(self, commands: LinkCommands, settings: RouteSettings) -> None:
        self._commands = commands
        self._settings = settings

    async def observe(self) -> tuple[list[Link], NetworkState]:
        """Return the interfaces of the machine, and the state. Raise LinkCommandError."""
        settings, query = self._settings, self._commands.query
        listed = await query("ip", "-json", "-details", "address", "show")
        tunnel = parse_tunnel(listed, settings.device)
        routes = {
            version: parse_routes(
                await query("ip", "-json", f"-{version}", "route", "show", "proto", str(settings.protocol)), default
            )
            for version, default in _DEFAULT_DESTINATIONS.items()
        }
        neighbours, forwarding = frozenset[Neighbour](), frozenset[ForwardingEntry]()
        if tunnel is not None:
            device = settings.device
            neighbours = parse_neighbours(await query("ip", "-json", "neighbour", "show", "dev", device, "nud", "all"))
            forwarding = parse_forwarding(await query("bridge", "-json", "fdb", "show", "dev", device))
        return parse_links(listed), NetworkState(routes[4] | routes[6], neighbours, forwarding, tunnel)

    async def change(self, observed: NetworkState, desired: NetworkState) -> list[str]:
        """Run the commands that lead from one state to the other, and return one sentence for each failure. Raise
        LinkCommandError."""
        changes, batch = route_changes(observed, desired, self._settings), self._commands.batch
        return [
            *await batch("ip", changes.before),
            *await batch("bridge", changes.bridge),
            *await batch("ip", changes.after),
        ]


async def remove_routes(
    commands: LinkCommands, settings: RouteSettings | None = None, kernel: KernelSettings | None = None
) -> list[str]:
    """Remove all routes and the VXLAN device of the agent, restore the kernel's settings, and return one sentence for
    each failure. Raise LinkCommandError."""
    routes = KernelRoutes(commands, settings or RouteSettings())
    _, observed = await routes.observe()
    problems = await routes.change(observed, NetworkState())
    if kernel is not None:
        problems += await kernel.restore()
    return problems


class NodeRoutes:
    """Compares the kernel's routes with the Nodes whenever one changes, and changes only what differs.

    Routes of other programs are never changed. All routes stay when the agent ends; `remove_all` removes them.
    """

    def __init__(
        self,
        nodes: ClusterNodes,
        commands: LinkCommands,
        clock: Clock,
        settings: RouteSettings | None = None,
        kernel: KernelSettings | None = None,
        link_changes: LinkChanges | None = None,
    ) -> None:
        """Create the loop for the own node. `kernel` enables the forwarding of packets; None leaves it to
        the administrator. Without `link_changes`, routes that go with an interface return after half a minute."""
        self._nodes = nodes
        self._commands = commands
        self._clock = clock
        self._settings = settings or RouteSettings()
        self._kernel = kernel
        self._link_changes = link_changes
        self._routes = KernelRoutes(commands, self._settings)
        self._changed = asyncio.Event()
        self.ready = asyncio.Event()
        """Set when the routes of the Nodes of the first list are in place, or have been tried."""
        self.plan: RoutePlan | None = None
        """The plan that was applied last; None before the first one."""
        self.on_mtu: list[Callable[[int], None]] = []
        """Callbacks for the MTU of the interfaces of Pods: called when it is known, and whenever it changes."""
        self.on_plan: list[Callable[[RoutePlan], None]] = []
        """Callbacks for the plan: called before the first one is applied, and before each one that differs."""
        self._reported: tuple[str, ...] = ()
        nodes.on_change.append(self._changed.set)

    @property
    def mtu(self) -> int | None:
        """The MTU of the interfaces of Pods; None before the first plan."""
        return self.plan.mtu if self.plan is not None else None

    async def run(self) -> None:
        """Keep the routes until cancelled. Failures are logged and retried."""
        async with asyncio.TaskGroup() as tasks:
            if self._link_changes is not None:
                tasks.create_task(self._follow_links(self._link_changes))
            await self._keep()

    async def _follow_links(self, link_changes: LinkChanges) -> None:
        await link_changes(self._changed.set)

    async def _keep(self) -> None:
        await self._nodes.informer.synced.wait()
        pause = _INITIAL_BACKOFF
        while True:
            self._changed.clear()
            if await self._attempt():
                pause, wait = _INITIAL_BACKOFF, _RESYNC
            else:
                pause, wait = min(pause * 2, _MAX_BACKOFF), pause
            self.ready.set()
            with suppress(TimeoutError):
                await within(self._clock, wait, self._changed.wait())
                # Changes come in groups, such as all addresses of an interface.
                await self._clock.sleep(_COALESCE)

    async def _attempt(self) -> bool:
        """Return whether the kernel's state is the desired one now."""
        try:
            problems = await self.reconcile()
        except LinkCommandError as error:
            problems = [str(error)]
            failed = True
        else:
            failed = bool(problems)
        shown = (*problems, *(self.plan.problems if self.plan is not None else ()))
        if shown != self._reported:
            for problem in shown:
                log.warning("routes to the Pods of other nodes: %s", problem)
            self._reported = shown
        return not failed

    async def reconcile(self) -> list[str]:
        """Make the kernel's state equal to the desired one, and return one sentence for each failure. Raise
        LinkCommandError."""
        own, others = self._nodes.own, self._nodes.others
        if own is None:
            return []
        links, observed = await self._routes.observe()
        before, plan = self.plan, plan_routes(own, others, links, self._settings)
        problems = await self._enable_forwarding(own)
        self.plan = plan
        if plan != before:
            for call in self.on_plan:
                call(plan)
        if before is None or plan.mtu != before.mtu:
            for notify in self.on_mtu:
                notify(plan.mtu)
        return problems + await self._routes.change(observed, plan.state)

    async def remove_all(self) -> list[str]:
        """Remove everything that this loop has made, see `remove_routes`. The loop must have ended."""
        return await remove_routes(self._commands, self._settings, self._kernel)

    async def _enable_forwarding(self, own: NodeAddresses) -> list[str]:
        if self._kernel is None:
            return []
        versions = {network.version for network in valid_networks(own.pod_cidrs)}
        values = {}
        if 6 in versions:
            advertised = await self._commands.query("ip", "-json", "-6", "route", "show", "proto", "ra")
            for device in sorted({each["dev"] for each in advertised if each.get("dev")}):
                values[accept_advertisements(device)] = "2"
        values.update({FORWARDING[version]: "1" for version in sorted(versions)})
        return await self._kernel.apply(values)
