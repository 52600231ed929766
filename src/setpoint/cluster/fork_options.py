"""The bounds of forks, and the options of their clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from setpoint.cluster.embedded import EmbeddedOptions
from setpoint.reconcile.cpu_limit import CpuLimit
from setpoint.store.quota import StoreQuota

_RENEWAL_SHARE = 0.6
"""The time between two renewals of a node's Lease in forks with few renewals, as a share of the grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkLimits:
    """The bounds of the forks of one server."""

    most: int = 8
    """The number of forks, and also of empty ones."""
    quota: StoreQuota | None = None
    """The largest content of each fork; None means no limit."""
    isolated: bool = False
    """Whether forks connect to no webhook and no other server."""
    frugal: bool = False
    """Whether forks renew as few Leases as possible, because there are many of them."""
    cpu_limit: Callable[[str], CpuLimit | None] | None = None
    """Function from a fork's name to the limit of the CPU time of its control loops; None means no limit."""

    def applied_to(self, name: str, options: EmbeddedOptions) -> EmbeddedOptions:
        """Return the options of the fork `name` within these limits."""
        options = replace(options, quota=self.quota, isolated=self.isolated)
        if self.cpu_limit is not None:
            options = replace(options, components=replace(options.components, cpu_limit=self.cpu_limit(name)))
        return _with_few_renewals(options) if self.frugal else options


def _with_few_renewals(options: EmbeddedOptions) -> EmbeddedOptions:
    """Return options without leader election, and with nodes that renew their Leases just in time."""
    components = replace(options.components, leader_elect=False)
    if components.fleet is not None:
        # A Lease is renewed four times in its duration. A node is silent after the grace period.
        grace = components.controller_options.node_monitor_grace_period
        template = replace(components.fleet.template, lease_seconds=max(int(_RENEWAL_SHARE * grace * 4), 1))
        components = replace(components, fleet=replace(components.fleet, template=template))
    return replace(options, components=components)


def without_loops(options: EmbeddedOptions) -> EmbeddedOptions:
    """Return options of a cluster in which nothing runs besides the API server."""
    components = replace(options.components, controllers=(), scheduler=False, fleet=None)
    return replace(options, components=components)
