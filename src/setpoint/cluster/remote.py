"""The components as processes of their own, against any Kubernetes API server over the wire."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint import __version__
from setpoint.client import Client, Impersonation, Unreachable
from setpoint.client.access import Access
from setpoint.client.cluster_choice import ClusterFlags, choose_for, find_access
from setpoint.client.connect import connect
from setpoint.client.kubeconfig import KubeconfigError
from setpoint.client.request_metrics import RequestMetrics
from setpoint.client.resources import builtin
from setpoint.client.service_account import as_service_account
from setpoint.cluster.component_door import DoorConfig, component_door
from setpoint.cluster.component_files import ComponentPods, component_files
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_access import DelegatedAccess
from setpoint.cluster.elected import Elected
from setpoint.cluster.parts import Election, Parts
from setpoint.cluster.supervisor import Supervisor
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Family
from setpoint.reconcile import ElectionTimes
from setpoint.system import RandomIds, SystemClock, hostname

if TYPE_CHECKING:
    from setpoint.node.fleet import Fleet
    from setpoint.scheduler.config import Configuration

Serving = Callable[["Fleet"], AbstractAsyncContextManager[None]]
_NAMESPACE = "kube-system"
_REVIEWS = builtin("selfsubjectaccessreviews", "authorization.k8s.io")
_LOOK_AGAIN = 1.0
_MOST_NODE_CLIENTS = 65_536
"""Nodes come and go under ever new names; beyond so many clients, those that are needed are made anew."""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    kubeconfig: str = ""
    part: str = ""
    """The name of the component, which has a kubeconfig of its own in a data directory."""
    leader_elect: bool = True
    times: ElectionTimes = field(default_factory=ElectionTimes)
    leader_elect_namespace: str = _NAMESPACE
    use_service_account_credentials: bool = False

    def check(self) -> None:
        """Raises ConfigError."""
        times = self.times
        if times.lease_duration <= times.renew_deadline:
            raise ConfigError("--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline")
        if times.renew_deadline <= times.retry_period * 1.2:
            raise ConfigError("--leader-elect-renew-deadline must be greater than --leader-elect-retry-period by far")
        if min(times.lease_duration, times.renew_deadline, times.retry_period) <= 0:
            raise ConfigError("the times of the leader election must be greater than 0")


class RemoteClients:
    """All in the name of one kubeconfig, or each controller in that of its service account."""

    def __init__(self, access: Access, clock: Clock, *, own_accounts: bool) -> None:
        self._access = access
        self._clock = clock
        self._own_accounts = own_accounts
        self.counts = RequestMetrics(access.server)
        self._client = self.counts.instrument(connect(access, clock, user_agent=f"setpoint/v{__version__}"))
        self._controllers: dict[str, Client] = {}
        self._nodes: dict[str, Client] = {}
        self._speaks_for_nodes = False

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
            found = self.counts.instrument(connect(access, self._clock, user_agent=agent))
            self._controllers[name] = found
        return found

    def scheduler(self) -> Client:
        return self._named("kube-scheduler")

    def fleet(self) -> Client:
        return self._named("kubelet")

    def stages(self) -> Client:
        return self._named("kubelet")

    def node(self, name: str) -> Client:
        if not self._speaks_for_nodes:
            return self.fleet()
        found = self._nodes.get(name)
        if found is None:
            if len(self._nodes) >= _MOST_NODE_CLIENTS:
                self._nodes.clear()
            found = self._nodes[name] = self._as_node(name)
        return found

    def _as_node(self, name: str) -> Client:
        return self._client.named(f"kubelet/v{__version__}", Impersonation(user=f"system:node:{name}"))

    async def speak_for_nodes(self) -> None:
        """From now on each node writes in its own name, if the server lets this kubeconfig's user do that, and lets
        nodes be nodes. Else all is done in the name of the kubeconfig."""
        if self._access.impersonate is not None:
            return  # it is somebody else already
        wanted = {"verb": "create", "resource": "nodes"}
        review = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": {"resourceAttributes": wanted}}
        while True:
            try:
                answer = await self._as_node("any").create(review, resource=_REVIEWS)
                self._speaks_for_nodes = bool((answer.get("status") or {}).get("allowed"))
                return
            except ApiError:
                return
            except Unreachable:
                await self._clock.sleep(_LOOK_AGAIN)

    def _named(self, agent: str) -> Client:
        return self._client.named(f"{agent}/v{__version__}")

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for client in (self._client, *self._controllers.values()):
                stack.push_async_callback(client.close)


def access_of(config: RemoteConfig) -> Access:
    """Raises ConfigError."""
    try:
        return find_access(config.kubeconfig, part=config.part)
    except KubeconfigError as error:
        raise ConfigError(str(error)) from None


def data_directory_of(config: RemoteConfig) -> Path | None:
    """Return the data directory that the kubeconfig of a part is in; None if it is somewhere else."""
    choice = choose_for(config.part, ClusterFlags(config.kubeconfig))
    directory = choice.paths[0].absolute().parent if choice.paths else Path("/")
    ours = (directory / "pki").is_dir() and os.access(directory, os.W_OK)
    return directory if ours and directory.stat().st_uid == os.geteuid() else None


def component_pods(directory: Path, serving: Serving, clock: Clock) -> Serving:
    """Let the fleet show the components of a data directory as Pods, for as long as it is served."""

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


class RemoteParts(Parts):
    """Those of a process of its own, which can be asked how they fare."""

    def __init__(
        self, clients: RemoteClients, *args: Any, supervisor: Supervisor, access: DelegatedAccess, ca: bytes | None
    ) -> None:
        super().__init__(clients, *args, supervisor=supervisor)
        self.supervisor = supervisor
        self._counts = clients.counts
        self.speak_for_nodes = clients.speak_for_nodes
        self.access = access
        """Who may ask."""
        self._ca = ca

    def door(self, config: DoorConfig, elected: Elected) -> AbstractAsyncContextManager[tuple[str, int] | None]:
        """Raises ConfigError."""
        checks = {"ping": lambda: "", "leaderElection": elected.trouble}

        def families() -> list[Family]:
            return [*elected.families(), *self._counts.families(), *self.supervisor.families()]

        return component_door(config, self.access, self._ca, self._clock, checks, families)


@asynccontextmanager
async def remote_parts(config: RemoteConfig) -> AsyncIterator[RemoteParts]:
    """Raises ConfigError when no server is configured."""
    config.check()
    access = access_of(config)
    clock, ids = SystemClock(), RandomIds()
    clients = RemoteClients(access, clock, own_accounts=config.use_service_account_credentials)
    election = None
    if config.leader_elect:
        election = Election(f"{hostname()}_{ids.uid()}", config.times, config.leader_elect_namespace)
    name = f"kube-{config.part}" if config.part in ("controller-manager", "scheduler") else ""
    try:
        with component_files(data_directory_of(config) if name else None, name, clock):
            yield RemoteParts(
                clients,
                clock,
                ids,
                election,
                hostname(),
                supervisor=Supervisor(clock),
                access=DelegatedAccess(clients.base, clock),
                ca=access.ca,
            )
    finally:
        await clients.close()


def scheduler_configuration(path: Path | None) -> Configuration | None:
    """Raises ConfigError for a file that cannot be used."""
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


def chosen(
    wanted: Iterable[str],
    known: Collection[str],
    off_by_default: Collection[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> list[str]:
    """What `--controllers` means: names, `-name` for all but that one, `*` for all that are on by default.
    Raises ConfigError."""
    names = aliases or {}
    wanted = ["-" * each.startswith("-") + names.get(each.removeprefix("-"), each.removeprefix("-")) for each in wanted]
    unknown = sorted({each.removeprefix("-") for each in wanted if each != "*"} - set(known))
    if unknown:
        raise ConfigError(f"--controllers: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    everything = "*" in wanted
    return [
        name
        for name in known
        if f"-{name}" not in wanted and (name in wanted or (everything and name not in off_by_default))
    ]
