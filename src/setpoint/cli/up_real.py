"""`setpoint up --real`: a cluster, and this machine as a real node of it.

Three processes: this one, as root, starts the server as the user who called sudo, and then the agent of the node as
root. It ends both when one of them, or the user, ends the cluster. The containers of Pods continue.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from setpoint.cli.failures import Exit, Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.node import require_machine, require_root
from setpoint.cli.node_options import NODE_FLAGS_OF_UP, node_config
from setpoint.cli.real_node import Account, RealNode, account_of, acting_as, read_real_node, write_real_node
from setpoint.cli.running import Running, find_running, has_member
from setpoint.cli.serving import STARTED, print_line
from setpoint.cli.up_page import written_link
from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.cluster.processes import stop_process
from setpoint.meta.conditions import conditions_of
from setpoint.meta.errors import ApiError

if TYPE_CHECKING:
    from setpoint.node.host.node_config import NodeConfig

_OWN_FLAGS: Final = ("real", "user", "detach", "pace", "nodes", "data-dir")
"""Flags of `up` that the server's process does not get as they were typed."""
_NODES = builtin("nodes")
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_POLL_INTERVAL: Final = 0.02
_READY_TIMEOUT: Final = 60.0
_STOP_TIMEOUT: Final = 30.0
_FIRST_BACKOFF, _LAST_BACKOFF = 1.0, 60.0
_STABLE_SECONDS: Final = 120.0


def prepare(invocation: Invocation) -> tuple[NodeConfig, Account]:
    """Check everything that can be checked before a process starts. Raise Failed."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.node_agent import check_config, check_packages, node_addresses
    from setpoint.system import hostname

    flags = invocation.flags
    require_root("setpoint up --real")
    if flags.insecure_http:
        raise Failed("--real cannot be combined with --insecure-http: nodes authenticate with certificates")
    config = node_config(flags, flags.node_name or hostname().lower())
    try:
        check_packages()
        check_config(config)
        node_addresses(config)
    except ConfigError as error:
        raise Failed(str(error)) from None
    require_machine(config)
    return config, account_of(flags.user, invocation.io.environment)


def server_flags(invocation: Invocation, config: NodeConfig, directory: Path, pace: str) -> list[str]:
    """Return the flags of the server's process. It listens where Pods and the agent reach it."""
    from setpoint.cluster.node_agent import node_addresses

    flags, skipped = invocation.flags, {*_OWN_FLAGS, *(flag.name for flag in NODE_FLAGS_OF_UP)}
    found = [f"--{flag.name}={value}" for flag, value in flags.occurrences if flag.name not in skipped]
    found += [f"--data-dir={directory.absolute()}", f"--nodes={flags.nodes}", f"--pace={pace}"]
    found.append(f"--beside-node={config.name}")
    # A member of etcd decides by its own address.
    if not flags.given("bind-address") and not (flags.etcd or flags.join or has_member(directory)):
        found.append("--bind-address=0.0.0.0")
    if not flags.given("advertise-address"):
        found.append(f"--advertise-address={node_addresses(config)[0]}")
    return found


def warn_of_root(invocation: Invocation, account: Account) -> None:
    if account.is_root:
        invocation.print_err(
            "Warning: the API server runs as root. Start it with sudo as another user, or name one with --user."
        )


@dataclass(slots=True)
class RealUp:
    """A running `setpoint up --real`."""

    invocation: Invocation
    config: NodeConfig
    account: Account
    directory: Path
    flags: list[str]
    """The flags of the server's process."""

    async def run(self) -> int:
        """Run until the user or the server ends it; return the exit code."""
        from setpoint.cluster.signals import stop_on_signals

        stop = stop_on_signals()
        server = await self._start_server()
        agent: asyncio.subprocess.Process | None = None
        try:
            running = await self._server_ready(server, stop)
            if running is None:
                return await stop_process(server, _STOP_TIMEOUT)
            await self._admit()
            agent = await self._start_agent()
            await self._node_ready(server, stop)
            self._record(os.getpid())
            took = time.monotonic() - STARTED
            if not stop.is_set() and server.returncode is None:
                from setpoint.cli.up import welcome

                invocation, kubeconfig = self.invocation, Path(running.kubeconfig)
                link = written_link(invocation, self.directory)
                text = welcome(invocation, running.url, kubeconfig, running.nodes, took, link, self._about())
                print_line(invocation, text)
            agent = await self._supervise(server, agent, stop)
        finally:
            if agent is not None:
                await stop_process(agent, _STOP_TIMEOUT)
            code = await stop_process(server, _STOP_TIMEOUT)
            self._record(0)
        return code if not stop.is_set() else 0

    def _about(self) -> str:
        """Return the sentence about the processes."""
        user = "" if self.account.is_root else f" as {self.account.name}"
        return (
            f"This machine is the node {self.config.name}: it runs containers. The server runs{user}, "
            "the agent of the node as root; Pods continue when they stop."
        )

    async def _start_server(self) -> asyncio.subprocess.Process:
        account = self.account
        identity: dict[str, object] = {}
        if os.geteuid() == 0 and not account.is_root:
            identity = {"user": account.uid, "group": account.gid, "extra_groups": account.groups(), "umask": 0o077}
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "setpoint", "up", *self.flags),
                stdin=subprocess.DEVNULL,
                env=account.environment(self.invocation.io.environment),
                **identity,  # type: ignore[arg-type]
            )
        except OSError as error:
            raise Failed(f"the user {account.name} cannot run {sys.executable}: {error.strerror}") from None

    async def _server_ready(self, server: asyncio.subprocess.Process, stop: asyncio.Event) -> Running | None:
        """Return the record of the server; None if the user stopped it. Raise Exit if it ended: it has said why."""
        while not stop.is_set():
            running = find_running(self.directory)
            if running is not None and running.pid == server.pid:
                return running
            if server.returncode is not None:
                raise Exit(server.returncode or 1)
            await asyncio.sleep(_POLL_INTERVAL)
        return None

    def _client(self) -> Client:
        from setpoint.client.cluster_choice import ADMIN
        from setpoint.client.https import connect
        from setpoint.client.kubeconfig import Kubeconfig

        access = Kubeconfig.load([self.directory / ADMIN], must_exist=True).access()
        return connect(access, self.invocation.io.clock, user_agent="setpoint", timeout=10.0)

    async def _admit(self) -> None:
        """Make this machine a node: it needs no token, because the key of the authority is here. Raise Failed."""
        from setpoint.cluster.certificates import CertificateFiles
        from setpoint.cluster.config import ConfigError
        from setpoint.cluster.node_agent import node_addresses, save_config
        from setpoint.cluster.node_joining import NodeFiles, issue_identity
        from setpoint.cluster.node_tokens import ensure_node_rights

        flags, clock = self.invocation.flags, self.invocation.io.clock
        client = self._client()
        try:
            await ensure_node_rights(client)
            pki = Path(flags.cert_dir) if flags.cert_dir else self.directory / "pki"
            files, addresses = NodeFiles(self.config.directories), node_addresses(self.config)
            url = self._url()
            issue_identity(files, CertificateFiles.within(pki), url, self.config.name, addresses, clock)
            save_config(self.config)
        except (ConfigError, ApiError, Unreachable) as error:
            raise Failed(str(error)) from None
        finally:
            await client.close()

    def _url(self) -> str:
        running = find_running(self.directory)
        assert running is not None
        return running.url

    async def _start_agent(self) -> asyncio.subprocess.Process:
        root, run = self.config.directories.root, self.config.directories.run
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "setpoint", "node", "run", f"--root-dir={root}", f"--run-dir={run}", "--quiet"),
            stdin=subprocess.DEVNULL,
        )

    async def _node_ready(self, server: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
        """Wait until the node is ready; after a minute, say that it is not."""
        client, until = self._client(), time.monotonic() + _READY_TIMEOUT
        try:
            while not stop.is_set() and server.returncode is None and time.monotonic() < until:
                with suppress(ApiError, Unreachable):
                    node = await client.get(_NODES, self.config.name)
                    if _CONTROL_PLANE not in (node["metadata"].get("labels") or {}):
                        # The machine of the API server: its serving certificate may be renewed.
                        await client.patch(_NODES, self.config.name, {"metadata": {"labels": {_CONTROL_PLANE: ""}}})
                    if any(each["type"] == "Ready" and each.get("status") == "True" for each in conditions_of(node)):
                        return
                await asyncio.sleep(0.1)
        finally:
            await client.close()
        if not stop.is_set() and server.returncode is None:
            self.invocation.print_err(
                f"Warning: the node {self.config.name} is not ready after {_READY_TIMEOUT:.0f} s; "
                f"`setpoint describe node {self.config.name}` tells why."
            )

    async def _supervise(
        self, server: asyncio.subprocess.Process, agent: asyncio.subprocess.Process, stop: asyncio.Event
    ) -> asyncio.subprocess.Process:
        """Start the agent again when it fails, until the server ends or the user stops; return the last agent."""
        from setpoint.tasks import first_completed

        backoff = _FIRST_BACKOFF
        while True:
            began = time.monotonic()
            await first_completed(_ended(server), _ended(agent), _is_set(stop))
            if server.returncode is not None or stop.is_set():
                return agent
            backoff = _FIRST_BACKOFF if time.monotonic() - began > _STABLE_SECONDS else backoff
            self.invocation.print_err(
                f"The agent of the node ended with {agent.returncode}; it is started again in {backoff:g} s."
            )
            await first_completed(_ended(server), _is_set(stop), asyncio.sleep(backoff))
            if server.returncode is not None or stop.is_set():
                return agent
            backoff = min(backoff * 2, _LAST_BACKOFF)
            agent = await self._start_agent()

    def _record(self, pid: int) -> None:
        """Record the node in the data directory, with the rights of its owner."""
        node = RealNode(pid, self.config.name, str(self.config.directories.root))
        with suppress(OSError), acting_as(self.account):
            if self.directory.is_dir() and (pid or read_real_node(self.directory) is not None):
                write_real_node(self.directory, node)


async def _ended(process: asyncio.subprocess.Process) -> None:
    await process.wait()


async def _is_set(stop: asyncio.Event) -> None:
    await stop.wait()


def run_real(invocation: Invocation, directory: Path, pace: str) -> int:
    """Run a cluster with this machine as a node, until it is stopped. Raise Failed."""
    config, account = prepare(invocation)
    warn_of_root(invocation, account)
    up = RealUp(invocation, config, account, directory, server_flags(invocation, config, directory, pace))
    return asyncio.run(up.run())
