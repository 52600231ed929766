"""Components in processes of their own, with network clients of any Kubernetes API server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint import __version__
from setpoint.client import Client, Impersonation, Unreachable
from setpoint.client.cluster_choice import ClusterFlags, choose_for, find_access
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access, KubeconfigError
from setpoint.client.request_metrics import RequestMetrics
from setpoint.client.resources import builtin
from setpoint.client.service_account import as_service_account
from setpoint.cluster.component import ElectedComponent
from setpoint.cluster.component_factory import ComponentFactory, ElectionOptions
from setpoint.cluster.component_files import ComponentPods, component_files
from setpoint.cluster.component_server import ServingOptions, component_server
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.load_balancer import SERVER_LIST, LoadBalancer
from setpoint.cluster.supervisor import Supervisor
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Family
from setpoint.reconcile import ElectionTimes
from setpoint.system import RandomIds, SystemClock, hostname
from setpoint.tasks import child_tasks

if TYPE_CHECKING:
    from setpoint.node.fleet import Fleet
    from setpoint.scheduler.config import Configuration

log = logging.getLogger(__name__)
Serving = Callable[["Fleet"], AbstractAsyncContextManager[None]]
_NAMESPACE = "kube-system"
_NODES = builtin("nodes")
_NODES_CHECK = "/readyz/nodes"
_REVIEWS = builtin("selfsubjectaccessreviews", "authorization.k8s.io")
_RETRY_INTERVAL = 1.0
_MAX_NODE_CLIENTS = 65_536
"""Bound of the client cache, since nodes come and go under new names; a full cache is cleared."""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """How a component reaches the API server, and its leader election."""

    kubeconfig: str = ""
    component: str = ""
    """The name of the component, and of its kubeconfig in a data directory."""
    leader_elect: bool = True
    times: ElectionTimes = field(default_factory=ElectionTimes)
    leader_elect_namespace: str = _NAMESPACE
    use_service_account_credentials: bool = False
    balance_servers: bool = True
    """Whether to use all API servers of the cluster, not only that of the kubeconfig."""

    def check(self) -> None:
        """Raises ConfigError."""
        times = self.times
        if times.lease_duration <= times.renew_deadline:
            raise ConfigError("--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline")
        if times.renew_deadline <= times.retry_period * 1.2:
            raise ConfigError("--leader-elect-renew-deadline must be more than 1.2 times --leader-elect-retry-period")
        if min(times.lease_duration, times.renew_deadline, times.retry_period) <= 0:
            raise ConfigError("the leader election times must be greater than 0")


class RemoteClients:
    """Clients with the user of a kubeconfig, or for controllers with their service accounts."""

    def __init__(
        self, access: Access, clock: Clock, *, own_accounts: bool, servers: LoadBalancer | None = None
    ) -> None:
        self._access = access
        self._servers = servers
        self._clock = clock
        self._own_accounts = own_accounts
        self.counts = RequestMetrics(access.server)
        self._client = self._connect(access, f"setpoint/v{__version__}")
        self._controllers: dict[str, Client] = {}
        self._nodes: dict[str, Client] = {}
        self._impersonates_nodes = False

    @property
    def base(self) -> Client:
        return self._client

    def controller_manager(self) -> Client:
        return self._named("kube-controller-manager")

    def controller(self, name: str) -> Client:
        if not self._own_accounts:
            return self.controller_manager()
        found = self._controllers.get(name)
        if found is None:
            access = as_service_account(self._access, self._client, self._clock, name, _NAMESPACE)
            agent = f"kube-controller-manager/v{__version__}/system:serviceaccount:{_NAMESPACE}:{name}"
            found = self._controllers[name] = self._connect(access, agent)
        return found

    def scheduler(self) -> Client:
        return self._named("kube-scheduler")

    def fleet(self) -> Client:
        return self._named("kubelet")

    def stages(self) -> Client:
        return self._named("kubelet")

    def node(self, name: str) -> Client:
        if not self._impersonates_nodes:
            return self.fleet()
        found = self._nodes.get(name)
        if found is None:
            if len(self._nodes) >= _MAX_NODE_CLIENTS:
                self._nodes.clear()
            found = self._nodes[name] = self._as_node(name)
        return found

    def _as_node(self, name: str) -> Client:
        return self._client.named(f"kubelet/v{__version__}", Impersonation(user=f"system:node:{name}"))

    async def impersonate_nodes(self) -> None:
        """Let each node write as its own user from now on, if the kubeconfig's user may impersonate nodes and nodes
        have their usual rights. Otherwise all requests keep the kubeconfig's user."""
        if self._access.impersonate is not None:
            return  # the kubeconfig impersonates another user already
        wanted = {"verb": "create", "resource": "nodes"}
        reported = False
        review = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": {"resourceAttributes": wanted}}
        while True:
            try:
                answer = await self._as_node("any").create(review, resource=_REVIEWS)
                self._impersonates_nodes = bool((answer.get("status") or {}).get("allowed"))
                return
            except ApiError:
                return
            except Unreachable as error:
                if not reported:
                    log.warning("waiting for the API server: %s", error)
                    reported = True
                await self._clock.sleep(_RETRY_INTERVAL)

    async def simulated_by_server(self, names: Collection[str]) -> list[str]:
        """Return those of the nodes that the server's own process simulates, in order.

        The server of `setpoint up` has a health check of its nodes. Nodes of other processes report the address at
        which the server reaches these."""
        wanted = set(names)
        while True:
            try:
                reply = await self._client.sender.transport.request("GET", _NODES_CHECK, "", [], b"")
                if reply.status not in (HTTPStatus.OK, HTTPStatus.INTERNAL_SERVER_ERROR):
                    return []
                nodes = (await self._client.list(_NODES)).items
                return [node["metadata"]["name"] for node in nodes if _is_in_server(node, wanted)]
            except ApiError:
                return []
            except Unreachable:
                await self._clock.sleep(_RETRY_INTERVAL)

    def _connect(self, access: Access, agent: str) -> Client:
        return self.counts.instrument(connect(access, self._clock, user_agent=agent, servers=self._servers))

    def _named(self, agent: str) -> Client:
        return self._client.named(f"{agent}/v{__version__}")

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for client in (self._client, *self._controllers.values()):
                stack.push_async_callback(client.close)


def _is_in_server(node: Mapping[str, Any], wanted: Collection[str]) -> bool:
    name, status = node["metadata"]["name"], node.get("status") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    return name in wanted and ready and addresses.get("Hostname") == name


def access_of(config: RemoteConfig) -> Access:
    """Raises ConfigError."""
    try:
        return find_access(config.kubeconfig, part=config.component)
    except KubeconfigError as error:
        raise ConfigError(str(error)) from None


def data_directory_of(config: RemoteConfig) -> Path | None:
    """Return the data directory that contains the component's kubeconfig; None if it is somewhere else."""
    choice = choose_for(config.component, ClusterFlags(config.kubeconfig))
    directory = choice.paths[0].absolute().parent if choice.paths else Path("/")
    ours = (directory / "pki").is_dir() and os.access(directory, os.W_OK)
    return directory if ours and directory.stat().st_uid == os.geteuid() else None


def component_pods(directory: Path, serving: Serving, clock: Clock) -> Serving:
    """Return a variant of `serving` in which the fleet shows the components of a data directory as static Pods."""

    @asynccontextmanager
    async def with_pods(fleet: Fleet) -> AsyncIterator[None]:
        async with serving(fleet), asyncio.TaskGroup() as tasks:
            following = None
            if fleet.static is not None:
                following = tasks.create_task(ComponentPods(directory, clock).follow(fleet.static.set))
            try:
                yield
            finally:
                if following is not None:
                    following.cancel()

    return with_pods


class RemoteComponents(ComponentFactory):
    """The components of a process of its own, with a server for health checks and metrics."""

    def __init__(
        self, clients: RemoteClients, *args: Any, supervisor: Supervisor, access: DelegatedAuth, ca: bytes | None
    ) -> None:
        super().__init__(clients, *args, supervisor=supervisor)
        self.supervisor = supervisor
        self._counts = clients.counts
        self.impersonate_nodes = clients.impersonate_nodes
        self.simulated_by_server = clients.simulated_by_server
        self.access = access
        """Authenticates and authorizes requests to this process."""
        self._ca = ca

    def server(
        self, config: ServingOptions, elected: ElectedComponent
    ) -> AbstractAsyncContextManager[tuple[str, int] | None]:
        """Serve health checks and metrics of a component while the block runs. Raises ConfigError."""
        checks = {"ping": lambda: "", "leaderElection": elected.error}

        def families() -> list[Family]:
            return [*elected.families(), *self._counts.families(), *self.supervisor.families()]

        return component_server(config, self.access, self._ca, self._clock, checks, families)


@asynccontextmanager
async def remote_components(config: RemoteConfig) -> AsyncIterator[RemoteComponents]:
    """Yield the components of this process, connected to the server of the kubeconfig. Raises ConfigError."""
    config.check()
    access = access_of(config)
    clock, ids = SystemClock(), RandomIds()
    directory, supervisor = data_directory_of(config), Supervisor(clock)
    servers = None
    if config.balance_servers:
        servers = LoadBalancer(access, clock, ids, file=directory / SERVER_LIST if directory is not None else None)
    clients = RemoteClients(access, clock, own_accounts=config.use_service_account_credentials, servers=servers)
    election = None
    if config.leader_elect:
        election = ElectionOptions(f"{hostname()}_{ids.uid()}", config.times, config.leader_elect_namespace)
    name = f"kube-{config.component}" if config.component in ("controller-manager", "scheduler") else ""
    try:
        async with child_tasks(*_balancing(servers, clients.base, supervisor)):
            with component_files(directory if name else None, name, clock):
                yield RemoteComponents(
                    clients,
                    clock,
                    ids,
                    election,
                    hostname(),
                    supervisor=supervisor,
                    access=DelegatedAuth(clients.base, clock),
                    ca=access.ca,
                )
    finally:
        await clients.close()
        if servers is not None:
            await servers.close()


def _balancing(
    servers: LoadBalancer | None, client: Client, supervisor: Supervisor
) -> Iterator[Coroutine[Any, Any, None]]:
    if servers is not None:
        yield supervisor.run("list of API servers", partial(servers.follow, client))
        yield supervisor.run("health of API servers", servers.check_forever)


def scheduler_configuration(path: Path | None) -> Configuration | None:
    """Return the scheduler's configuration from a file; None without a file. Raises ConfigError."""
    # Imported here because other components do not need it.
    from setpoint.meta.body import parse_yaml
    from setpoint.scheduler import config

    if path is None:
        return None
    try:
        return config.load(parse_yaml(path.read_bytes())[0] or {})
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}") from None
    except (ValueError, config.ConfigError) as error:
        raise ConfigError(f"--config {path}: {error}") from None


def enabled_controllers(
    patterns: Iterable[str],
    known: Collection[str],
    off_by_default: Collection[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the controllers that `--controllers` enables: by name, `-name` to disable one, `*` for all that are on by
    default. Raises ConfigError."""
    names = aliases or {}
    patterns = [
        "-" * each.startswith("-") + names.get(each.removeprefix("-"), each.removeprefix("-")) for each in patterns
    ]
    unknown = sorted({each.removeprefix("-") for each in patterns if each != "*"} - set(known))
    if unknown:
        raise ConfigError(f"--controllers: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    everything = "*" in patterns
    return [
        name
        for name in known
        if f"-{name}" not in patterns and (name in patterns or (everything and name not in off_by_default))
    ]
