"""A whole cluster in one process, optionally with shortened periods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from setpoint.cluster.access import signing_key
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.certificates import CertificateFiles
from setpoint.cluster.component_logs import ComponentLogs, component_logs
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.outgoing_tls import FrontProxy
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Ids
from setpoint.node.options import FleetOptions, NodeTemplate
from setpoint.store.interface import Store
from setpoint.system import SystemClock, hostname

if TYPE_CHECKING:
    from setpoint.node.options import FleetOptions


_PERIODS = (
    "node_monitor_period",
    "node_monitor_grace_period",
    "node_startup_grace_period",
    "horizontal_pod_autoscaler_sync_period",
    "horizontal_pod_autoscaler_downscale_stabilization",
    "horizontal_pod_autoscaler_cpu_initialization_period",
    "horizontal_pod_autoscaler_initial_readiness_delay",
)
_RATES = ("node_eviction_rate", "secondary_node_eviction_rate")
_POD_CIDR, _POD_CIDR_MAX_NODES = "10.244.0.0/16", 200
"""The usual range of Pod addresses, with room for 256 nodes; larger fleets use the next one."""
_LARGE_POD_CIDR = "10.128.0.0/10"


def faster_controllers(options: ControllerOptions, speed: int) -> ControllerOptions:
    """Return options with periods that are `speed` times shorter. Only settings of upstream change, so times in objects
    stay true."""
    if speed == 1:
        return options
    changed = {name: getattr(options, name) / speed for name in _PERIODS}
    changed |= {name: getattr(options, name) * speed for name in _RATES}
    return replace(options, **changed)


def faster_fleet(options: FleetOptions) -> FleetOptions:
    """Return options with shorter lease renewals, unless the fleet's file sets them."""
    if options.pace.speed == 1 or options.template.lease_seconds != NodeTemplate().lease_seconds:
        return options
    lease = max(options.template.lease_seconds // options.pace.speed, 1)
    return replace(options, template=replace(options.template, lease_seconds=lease))


def faster_server(config: ApiServerConfig, speed: int) -> ApiServerConfig:
    """Return a configuration with shorter default tolerations for unready nodes, unless flags set them."""
    if speed == 1:
        return config
    default = ApiServerConfig(config.data_dir)
    fields = ("default_not_ready_toleration_seconds", "default_unreachable_toleration_seconds")
    current = {name: getattr(config, name) for name in fields}
    return replace(
        config, **{name: now // speed if now == getattr(default, name) else now for name, now in current.items()}
    )


@dataclass(slots=True)
class RunningCluster:
    apiserver: RunningApiServer
    components: Components


@asynccontextmanager
async def cluster(
    config: ApiServerConfig,
    *,
    nodes: int | FleetOptions,
    store: Store | None = None,
    step: Callable[[str], None] = lambda _: None,
    node_monitor_grace_period: float | None = None,
    load_balancer_pool: str = "",
) -> AsyncIterator[RunningCluster]:
    """Run a cluster, with its nodes ready when the block begins. At its end the components stop first, then the server,
    then the store. `step` is called with what is started next. `node_monitor_grace_period` is how many seconds a node
    may be silent; None is what fits the pace of the simulated nodes. `load_balancer_pool` has the addresses for
    Services of type LoadBalancer; empty means none. Raises ConfigError."""
    with component_logs(SystemClock()) as logs:
        changed: dict[str, Any] = {"load_balancer_pool": load_balancer_pool}
        if node_monitor_grace_period is not None:
            changed["node_monitor_grace_period"] = node_monitor_grace_period
        async with _cluster(config, nodes, store, logs, step, changed) as running:
            yield running


@asynccontextmanager
async def _cluster(
    config: ApiServerConfig,
    nodes_or_fleet: int | FleetOptions,
    store: Store | None,
    logs: ComponentLogs,
    step: Callable[[str], None],
    changed: Mapping[str, Any],
) -> AsyncIterator[RunningCluster]:
    fleet = None if isinstance(nodes_or_fleet, int) else nodes_or_fleet
    nodes = nodes_or_fleet if isinstance(nodes_or_fleet, int) else nodes_or_fleet.nodes
    speed = fleet.pace.speed if fleet is not None else 1
    if fleet is not None and speed > 1:
        config, fleet = faster_server(config, speed), faster_fleet(fleet)
    step("the API server")
    async with apiserver(config, store, step=step) as server:
        step(f"controllers, scheduler and {nodes} nodes" if nodes else "controllers and scheduler")
        api = server.api
        services = config.service_cluster_ip_range
        controllers = controller_options(server.certificates, nodes=nodes, services=services)
        controllers = replace(controllers, service_account_private_key=signing_key(config).pem)
        controllers = replace(faster_controllers(controllers, speed), **changed)
        identity = _identity(config, api.resources.ids)
        options = ComponentOptions(
            nodes=nodes,
            controller_options=controllers,
            identity=identity,
            logs=logs,
            fleet=fleet,
            supervisor=server.supervisor,
        )
        async with Components(api, api.resources.clock, api.resources.ids, options) as running:
            if server.certificates is not None:
                await FrontProxy(server.certificates, api.resources.clock, config).publish(api.resources)
            yield RunningCluster(server, running)


def _identity(config: ApiServerConfig, ids: Ids) -> str:
    """Return the lease holder identity, which is the same at every start. The data directory has one user at a time, so
    the former holder of this name is gone, and its Leases can be acquired at once."""
    path = config.data_dir / "identity"
    try:
        identity = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        identity = ""
    if not identity:
        identity = f"{hostname()}_{ids.uid()}"
        path.write_text(identity + "\n", encoding="ascii")
    return identity


def controller_options(files: CertificateFiles | None, *, nodes: int, services: str) -> ControllerOptions:
    """Return options for the cluster's own authority, which signs approved certificate requests and which Pods trust,
    and with a Pod range for every node."""
    options = ControllerOptions(
        allocate_node_cidrs=True,
        cluster_cidr=_POD_CIDR if nodes <= _POD_CIDR_MAX_NODES else _LARGE_POD_CIDR,
        service_cluster_ip_range=services,
    )
    if files is None:
        return options
    authority = files.ca.read_text()
    return replace(
        options, root_ca=authority, cluster_signing_cert=authority, cluster_signing_key=files.ca_key.read_text()
    )
