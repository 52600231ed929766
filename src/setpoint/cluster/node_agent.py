"""The process of a real node: its identity, its connections to the API servers, and the agent that runs Pods.

The containers of Pods are not children of this process. It may end at any moment, and adopts them when it starts again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from setpoint import __version__
from setpoint.client import Client
from setpoint.client.https import connect
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.load_balancer import LoadBalancer
from setpoint.cluster.node_certificates import (
    CLIENT_SIGNER,
    StoredCertificate,
    WantedCertificate,
    keep_renewed,
    make_private_directory,
    write_durably,
)
from setpoint.cluster.node_joining import NodeFiles, node_access, node_name
from setpoint.cluster.node_serving import ServingCertificate
from setpoint.cluster.supervisor import Supervisor
from setpoint.meta.clock import Clock, Ids
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.node_config import NodeConfig, NodeConfigError
from setpoint.system import RandomIds, SystemClock, is_locked, outward_address
from setpoint.tasks import child_tasks, first_completed

log = logging.getLogger("setpoint.node")

_LOCK, _RECORD = "agent.lock", "agent.json"
_PACKAGES: Final = ("hpack", "google.protobuf")
"""The modules of the extra [node]."""


class AgentRecord(NamedTuple):
    """The process of a node's agent, as it is stored in the directory for run-time files."""

    pid: int
    name: str
    """The name of the node."""
    port: int
    """The port of the kubelet API."""

    @classmethod
    def read(cls, directories: NodeDirectories) -> AgentRecord | None:
        """Return the record of the agent that runs; None if none runs."""
        try:
            found = json.loads((directories.run / _RECORD).read_bytes())
            record = cls(int(found["pid"]), str(found["name"]), int(found["port"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return record if is_locked(lock_path(directories)) else None


def lock_path(directories: NodeDirectories) -> Path:
    """Return the file that the agent of these directories holds a lock on."""
    return directories.run / _LOCK


@contextmanager
def locked(config: NodeConfig) -> Iterator[None]:
    """Let no other agent use the directories of the node, and record this process. Raises ConfigError."""
    run = config.directories.run
    try:
        make_private_directory(run)
        lock = os.open(lock_path(config.directories), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot use the directory {run}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            record = AgentRecord.read(config.directories)
            process = f" (process {record.pid})" if record is not None else ""
            raise ConfigError(f"an agent already runs with the directory {run}{process}") from None
        record = AgentRecord(os.getpid(), config.name, config.port)
        write_durably(run / _RECORD, json.dumps(record._asdict()).encode() + b"\n")
        try:
            yield
        finally:
            (run / _RECORD).unlink(missing_ok=True)
    finally:
        os.close(lock)


# -- options ----------------------------------------------------------------------------------------------------------


def save_config(config: NodeConfig) -> None:
    """Store the options for later starts. Raises ConfigError."""
    files = NodeFiles(config.directories)
    try:
        make_private_directory(config.directories.root)
        write_durably(files.settings, json.dumps(config.as_json(), indent=2).encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write {files.settings}: {error.strerror}") from None


def load_config(directories: NodeDirectories) -> NodeConfig | None:
    """Return the stored options; None if there are none. Raises ConfigError."""
    path = NodeFiles(directories).settings
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        return NodeConfig.from_json(found)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # includes NodeConfigError
        raise ConfigError(f"cannot use {path}: {error}") from None


def check_config(config: NodeConfig) -> None:
    """Raises ConfigError."""
    try:
        config.check()
    except NodeConfigError as error:
        raise ConfigError(str(error)) from None


def check_packages() -> None:
    """Raise ConfigError if the packages of the extra [node] are not installed."""
    for name in _PACKAGES:
        try:
            import_module(name)
        except ImportError:
            raise ConfigError(f"real nodes need {name}: pip install 'setpoint[node]'") from None


def node_addresses(config: NodeConfig) -> tuple[str, ...]:
    """Return the addresses of the node. Raises ConfigError if the machine has none that others reach."""
    found = config.node_ips or tuple(filter(None, (outward_address(4),))) or tuple(filter(None, (outward_address(6),)))
    if not found:
        raise ConfigError("this machine has no address that others reach: set --node-ip")
    return found


# -- the process ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeServices:
    """The parts of the process that the agent uses."""

    config: NodeConfig
    addresses: tuple[str, ...]
    """The addresses of the node, the primary one first."""
    client: Client
    """A client with the identity of the node, for all API servers of the cluster."""
    access: DelegatedAuth
    """Authenticates and authorizes requests to the kubelet API."""
    serving: ServingCertificate
    supervisor: Supervisor
    pool: BlockingPool
    clock: Clock
    ids: Ids


class Agent(Protocol):
    """Runs the Pods of a node, and serves the kubelet API."""

    async def wait(self) -> None:
        """Return when the agent has ended, for example because the machine shuts down."""
        ...


AgentFactory = Callable[[NodeServices], AbstractAsyncContextManager[Agent]]
"""Runs an agent while the block runs. At its end the agent stops, and the containers of Pods continue."""


def host_agent(services: NodeServices) -> AbstractAsyncContextManager[Agent]:
    """Run the agent of this machine."""
    # Imported here because it needs the packages of the extra.
    from setpoint.cluster import host_agent as composition

    return composition.host_agent(services)


@asynccontextmanager
async def node_services(config: NodeConfig, clock: Clock, ids: Ids) -> AsyncIterator[NodeServices]:
    """Connect the node to its cluster, and keep its certificates valid while the block runs. Raises ConfigError."""
    files, pool = NodeFiles(config.directories), BlockingPool()
    supervisor = Supervisor(clock)
    async with AsyncExitStack() as stack:
        stack.callback(pool.close)
        try:
            stored = StoredCertificate(files.client, clock, ids, pool)
            access = node_access(files, stored, clock)
            if node_name(stored) != config.name:
                raise ConfigError(f"this machine has joined as {node_name(stored)}, not as {config.name}")
            addresses = node_addresses(config)
            serving = ServingCertificate(files, config.name, (config.name, *addresses), clock, ids, pool)
        except OSError as error:
            raise ConfigError(f"cannot use the files of the node: {error}") from None
        servers = LoadBalancer(access, clock, ids, file=files.servers)
        stack.push_async_callback(servers.close)
        client = connect(access, clock, user_agent=f"kubelet/v{__version__}", servers=servers)
        stack.push_async_callback(client.close)
        identity = WantedCertificate(config.name, CLIENT_SIGNER)
        # Idle connections would keep the former certificate.
        renew_client = partial(keep_renewed, stored, client, clock, lambda: identity, client.close)
        renew_serving = partial(keep_renewed, serving.stored, client, clock, serving.wanted, serving.renewed)
        await stack.enter_async_context(
            child_tasks(
                supervisor.run("list of API servers", partial(servers.follow, client)),
                supervisor.run("health of API servers", servers.check_forever),
                supervisor.run("client certificate", renew_client),
                supervisor.run("serving certificate", renew_serving),
            )
        )
        auth = DelegatedAuth(client, clock)
        yield NodeServices(config, addresses, client, auth, serving, supervisor, pool, clock, ids)


class Stop(Protocol):
    async def wait(self) -> object: ...


async def run_node(
    config: NodeConfig,
    stop: Stop,
    ready: Callable[[], None] = lambda: None,
    build: AgentFactory = host_agent,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> None:
    """Run the node until `stop` is set, or the agent ends by itself. `ready` is called when the agent runs. Pods
    continue afterwards. Raises ConfigError."""
    check_config(config)
    with locked(config):
        async with (
            node_services(config, clock or SystemClock(), ids or RandomIds()) as services,
            build(services) as agent,
        ):
            ready()
            await first_completed(_until(stop), agent.wait())


async def _until(stop: Stop) -> None:
    await stop.wait()
