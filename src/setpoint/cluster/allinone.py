"""A whole cluster in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from setpoint.apiserver.http.certificates import CertificateFiles
from setpoint.cluster.access import signing_key
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.component_logs import ComponentLogs, component_logs
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.front_proxy import FrontProxy
from setpoint.cluster.speed import faster_controllers, faster_fleet, faster_server
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Ids
from setpoint.store.interface import Store
from setpoint.system import SystemClock, hostname

if TYPE_CHECKING:
    from setpoint.node.options import FleetOptions

_FEW, _AS_FEW = "10.244.0.0/16", 200
"""Where Pods live, as most people know it: room for 256 nodes."""
_MANY = "10.128.0.0/10"


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
) -> AsyncIterator[RunningCluster]:
    """From nothing to nodes that are ready, and back: first the components end, then the server, then the store.
    `step` is told what is being started. Raises ConfigError."""
    with component_logs(SystemClock()) as logs:
        async with _cluster(config, nodes, store, logs, step) as running:
            yield running


@asynccontextmanager
async def _cluster(
    config: ApiServerConfig,
    wanted: int | FleetOptions,
    store: Store | None,
    logs: ComponentLogs,
    step: Callable[[str], None],
) -> AsyncIterator[RunningCluster]:
    fleet = None if isinstance(wanted, int) else wanted
    nodes = wanted if isinstance(wanted, int) else wanted.nodes
    speed = fleet.pace.speed if fleet is not None else 1
    if fleet is not None and speed > 1:
        config, fleet = faster_server(config, speed), faster_fleet(fleet)
    step("the API server")
    async with apiserver(config, store) as server:
        step(f"controllers, scheduler and {nodes} nodes" if nodes else "controllers and scheduler")
        api = server.api
        services = config.service_cluster_ip_range
        controllers = controller_options(server.certificates, nodes=nodes, services=services)
        controllers = replace(controllers, service_account_private_key=signing_key(config).pem)
        controllers = faster_controllers(controllers, speed)
        identity = _identity(config, api.ids)
        options = ComponentOptions(
            nodes=nodes,
            controller_options=controllers,
            identity=identity,
            logs=logs,
            fleet=fleet,
            supervisor=server.supervisor,
        )
        async with Components(api, api.clock, api.ids, options) as running:
            if server.certificates is not None:
                await FrontProxy(server.certificates, api.clock, config).publish(api)
            yield RunningCluster(server, running)


def _identity(config: ApiServerConfig, ids: Ids) -> str:
    """Who holds the Leases: the same at every start. Nobody else can have the data directory at the same time, so
    whoever held them under this name is gone, and they can be taken up at once."""
    path = config.data_dir / "identity"
    try:
        known = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        known = ""
    if not known:
        known = f"{hostname()}_{ids.uid()}"
        path.write_text(known + "\n", encoding="ascii")
    return known


def controller_options(files: CertificateFiles | None, *, nodes: int, services: str) -> ControllerOptions:
    """The cluster's own authority signs what is approved, and is what Pods trust. Every node has a range for Pods."""
    options = ControllerOptions(
        allocate_node_cidrs=True,
        cluster_cidr=_FEW if nodes <= _AS_FEW else _MANY,
        service_cluster_ip_range=services,
    )
    if files is None:
        return options
    authority = files.ca.read_text()
    return replace(
        options, root_ca=authority, cluster_signing_cert=authority, cluster_signing_key=files.ca_key.read_text()
    )
