"""How a machine stops being a node: it removes everything that the agent has made.

Each step is attempted, and a failure does not stop the later ones. All steps may be repeated. The files of the node's
identity are removed last, so that an interrupted attempt can be continued.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from setpoint.client import Client, Unreachable
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.cluster.config import ConfigError
from setpoint.cluster.node_agent import AgentRecord, lock_path
from setpoint.cluster.node_certificates import StoredCertificate, make_private_directory
from setpoint.cluster.node_joining import NodeFiles, node_access
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_time
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.logind import CONFIGURATION
from setpoint.node.host.node_config import NodeConfig

_PODS, _NODES = builtin("pods"), builtin("nodes")
_MIRROR: Final = "kubernetes.io/config.mirror"
_REQUEST_TIMEOUT: Final = 5.0
_POLL_INTERVAL: Final = 0.5
_STOP_TIMEOUT: Final = 30.0
_KILL_TIMEOUT: Final = 5.0
_RUNTIME_PROGRAMS: Final = ("containerd", "containerd-shim")
_SANDBOX_LABEL: Final = "setpoint.dev/node"
_MOUNT_ATTEMPTS: Final = 3


class Runtime(Protocol):
    """A connection to the container runtime."""

    async def call(self, method: str, request: Mapping[str, Any], *, timeout: float) -> Any: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Leaving:
    """One attempt to remove a node from this machine."""

    config: NodeConfig
    clock: Clock
    ids: Ids
    report: Callable[[str], None]
    """Prints a line about what was done."""
    drain_timeout: float = 60.0
    """Seconds that Pods have to end; 0 removes them at once."""
    notifies_cluster: bool = True
    """Whether to use the API server; False if the cluster is removed too."""
    problems: list[str] = field(default_factory=list)
    """One sentence for each thing that could not be removed."""

    @property
    def _files(self) -> NodeFiles:
        return NodeFiles(self.config.directories)

    async def run(self) -> None:
        """Do all steps. `problems` has what is left."""
        pool = BlockingPool()
        try:
            async with self._api() as client:
                if client is not None:
                    await self._drain(client)
                await self._stop_agent()
                with self._lock():
                    await self._remove_sandboxes()
                    await self._stop_runtime()
                    await self._remove_network(pool)
                    await self._remove_cgroups(pool)
                    await pool.run(self._unmount)
                    await pool.run(self._remove_logind_configuration)
                    if client is not None:
                        await self._forget_node(client)
                    if not self.problems:
                        await pool.run(self._remove_directories)
        finally:
            pool.close()

    # -- the API server ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _api(self) -> AsyncIterator[Client | None]:
        """Yield a client with the identity of the node; None if the server cannot be used, which is not a problem."""
        client: Client | None = None
        if not self.notifies_cluster or not self._files.kubeconfig.exists():
            yield None
            return
        try:
            access = node_access(self._files, StoredCertificate(self._files.client, self.clock, self.ids), self.clock)
            client = connect(access, self.clock, user_agent="setpoint", timeout=_REQUEST_TIMEOUT)
            await client.get(_NODES, self.config.name)
        except NotFound:
            pass
        except (ConfigError, OSError, ApiError, Unreachable) as error:
            self.report(f"The cluster does not know that this node leaves: {error}")
            self.report(f"Delete the Node there: kubectl delete node {self._name}")
            if client is not None:
                await client.close()
            client = None
        try:
            yield client
        finally:
            if client is not None:
                await client.close()

    @property
    def _name(self) -> str:
        return self.config.name

    async def _drain(self, client: Client) -> None:
        """Let the Pods of the node end while its agent runs."""
        if AgentRecord.read(self.config.directories) is None or not self.drain_timeout:
            return
        try:
            with suppress(NotFound):
                await client.patch(_NODES, self._name, {"spec": {"unschedulable": True}})
            waiting = [pod for pod in await self._pods(client) if _is_to_be_drained(pod)]
            for pod in waiting:
                with suppress(NotFound):
                    await client.delete(_PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
            if waiting:
                self.report(f"Waiting for {len(waiting)} Pods to end.")
            uids, until = {pod["metadata"]["uid"] for pod in waiting}, self.clock.monotonic() + self.drain_timeout
            while uids and self.clock.monotonic() < until:
                await self.clock.sleep(_POLL_INTERVAL)
                uids &= {pod["metadata"]["uid"] for pod in await self._pods(client)}
            if uids:
                self.report(f"{len(uids)} Pods have not ended after {self.drain_timeout:g} s, and are removed.")
        except (ApiError, Unreachable) as error:
            self.report(f"The node is not drained: {error}.")

    async def _pods(self, client: Client) -> list[ObjView]:
        return [*(await client.list(_PODS, field_selector=f"spec.nodeName={self._name}")).items]

    async def _forget_node(self, client: Client) -> None:
        """Delete the Pods that are gone now, and the Node. A node may not delete itself unless it was permitted; then
        it reports at least that it is not ready."""
        stamp = format_time(self.clock.now())
        gone = {"type": "Ready", "status": "False", "reason": "NodeLeft", "message": "the node has left the cluster"}
        condition = {**gone, "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        try:
            status = {"status": {"conditions": [condition]}}
            await client.patch(_NODES, self._name, status, kind="strategic", subresource="status")
            for pod in await self._pods(client):
                meta = pod["metadata"]
                with suppress(NotFound):
                    await client.delete(_PODS, meta["name"], meta["namespace"], grace_period=0)
            await client.delete(_NODES, self._name)
            self.report(f"The Node {self._name} was deleted.")
        except NotFound:
            pass
        except (ApiError, Unreachable):
            self.report(f"The Node {self._name} is still in the cluster. Delete it: kubectl delete node {self._name}")

    # -- processes -----------------------------------------------------------------------------------------------------

    async def _stop_agent(self) -> None:
        record = AgentRecord.read(self.config.directories)
        if record is None:
            return
        await self._end([record.pid], _STOP_TIMEOUT)
        self.report(f"The agent (process {record.pid}) was stopped.")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let no agent start meanwhile, for example by systemd. Raises ConfigError."""
        path = lock_path(self.config.directories)
        try:
            make_private_directory(path.parent)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot use {path}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            text = "the agent was started again: stop it first, for example with `systemctl stop setpoint-node`"
            raise ConfigError(text) from None
        try:
            yield
        finally:
            os.close(lock)

    async def _remove_sandboxes(self) -> None:
        """Stop and remove the Pods of this node, and nothing else that the runtime has."""
        runtime = self._runtime()
        if runtime is None:
            return
        try:
            selector = {"label_selector": {_SANDBOX_LABEL: self._name}}
            found = await runtime.call("ListPodSandbox", {"filter": selector}, timeout=10.0)
            for sandbox in found.items:
                await runtime.call("StopPodSandbox", {"pod_sandbox_id": sandbox.id}, timeout=60.0)
                await runtime.call("RemovePodSandbox", {"pod_sandbox_id": sandbox.id}, timeout=60.0)
            if found.items:
                self.report(f"{len(found.items)} Pods were removed from the container runtime.")
        except Exception as error:  # the client's error type needs the extra
            message = f"the container runtime does not remove its Pods: {error}"
            if self.config.container_runtime_endpoint:
                self.problems.append(message)
            else:
                self.report(f"{message[0].upper()}{message[1:]}. Their processes are ended instead.")
        finally:
            runtime.close()

    def _runtime(self) -> Runtime | None:
        """Return a connection to the runtime; None if it does not run."""
        endpoint = self.config.container_runtime_endpoint
        if not endpoint:
            socket = self.config.directories.run / "containerd.sock"
            if not socket.is_socket():
                return None
            endpoint = f"unix://{socket}"
        try:
            from setpoint.node.cri.client import CriClient, MissingDependency  # the extra [node]
        except ImportError:
            return None
        try:
            found: Runtime = CriClient(endpoint, self.clock)
        except (MissingDependency, ValueError) as error:
            self.report(f"The container runtime is not used: {error}.")
            return None
        return found

    async def _stop_runtime(self) -> None:
        """End the containerd of the node and its shims. A containerd that others own is left alone."""
        found = own_processes(self.config)
        if found:
            await self._end(found, _KILL_TIMEOUT)
            self.report("containerd was stopped.")

    async def _end(self, pids: Iterable[int], timeout: float) -> None:
        """End processes: with SIGTERM, and after `timeout` seconds with SIGKILL."""
        left = set(pids)
        for number, wait in ((signal.SIGTERM, timeout), (signal.SIGKILL, _KILL_TIMEOUT)):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = self.clock.monotonic() + wait
            while (left := {pid for pid in left if _is_alive(pid)}) and self.clock.monotonic() < until:
                await self.clock.sleep(0.05)
        if left:
            self.problems.append(f"the process {min(left)} does not end")

    # -- the machine ---------------------------------------------------------------------------------------------------

    async def _remove_network(self, pool: BlockingPool) -> None:
        """Remove packet rules and routes, unless the administrator provides the network."""
        from setpoint.node.host.network.link_commands import LinkCommandError
        from setpoint.node.host.network.manager import remove_network

        if self.config.cni_conf_dir:
            return
        try:
            self.problems += await remove_network(self.config.directories, pool, self.clock)
        except LinkCommandError as error:
            self.problems.append(f"the routes to other nodes cannot be removed: {error}")

    async def _remove_cgroups(self, pool: BlockingPool) -> None:
        from setpoint.node.host.cgroup_files import CgroupError
        from setpoint.node.host.cgroups import CgroupManager

        try:
            await CgroupManager(pool, self.clock, self.config.cgroup_root).remove_all()
        except (CgroupError, OSError, ValueError) as error:
            self.problems.append(str(error))

    def _unmount(self) -> None:
        """End all mounts below the directories of the node, the last first."""
        from setpoint.node.host.mounts import mount_points, unmount

        for path in self._directories():
            for attempt in range(_MOUNT_ATTEMPTS):
                found = mount_points(path) if path.exists() else []
                for mount in reversed(found):
                    with suppress(OSError):
                        unmount(mount.path, lazy=attempt > 0)
                if not found:
                    break
            if path.exists() and (left := mount_points(path)):
                self.problems.append(f"{left[0].path} is still mounted")

    def _remove_logind_configuration(self) -> None:
        """Remove the file by which shutdowns of the machine may be delayed, if there is one."""
        try:
            if self.config.shutdown_grace_period:
                CONFIGURATION.unlink(missing_ok=True)
        except OSError as error:
            self.problems.append(f"{CONFIGURATION} cannot be removed: {error.strerror}")

    def _directories(self) -> tuple[Path, ...]:
        found = self.config.directories
        return found.root, found.run

    def _remove_directories(self) -> None:
        """Remove the files of the node; nothing below them is mounted any more."""
        directories = self.config.directories
        uids = [each.name for each in directories.pods.iterdir()] if directories.pods.is_dir() else []
        for uid in uids:
            for folder in directories.logs.glob(f"*_{uid}"):
                shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            directories.logs.rmdir()  # unless it has logs of others
        for path in self._directories():
            try:
                shutil.rmtree(path)
                self.report(f"{path} was removed.")
            except FileNotFoundError:
                continue
            except OSError as error:
                self.problems.append(f"{error.filename or path} cannot be removed: {error.strerror}")
            with suppress(OSError):
                path.parent.rmdir()  # such as /var/lib/setpoint


def _is_to_be_drained(pod: ObjView) -> bool:
    """Return whether a Pod ends for good when it is deleted. Others are made anew while the agent runs."""
    meta = pod["metadata"]
    owners = meta.get("ownerReferences") or ()
    by_daemon_set = any(one.get("kind") == "DaemonSet" and one.get("controller") for one in owners)
    return not by_daemon_set and _MIRROR not in (meta.get("annotations") or {})


def own_processes(config: NodeConfig, proc: Path = Path("/proc")) -> list[int]:
    """Return the processes of the node's own containerd and of its shims: those that were given a path below the
    node's directories. Empty if the node uses a runtime that others own."""
    if config.container_runtime_endpoint:
        return []
    below = tuple(f"{path}/" for path in (config.directories.root, config.directories.run))
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        program = os.path.basename(words[0])
        ours = any(part.removeprefix("unix://").startswith(below) for word in words[1:] for part in word.split("="))
        if program.startswith(_RUNTIME_PROGRAMS) and ours:
            found.append(int(folder.name))
    return found


def _is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not reaped does not."""
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1]
    except OSError:
        return False
    return state != [b"Z"]
