"""A containerd on a machine of the tests: own directories, socket, network configuration and cgroup."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from images import TAG
from real_machine import RealMachine, wait_until
from real_registry import CLOSED_PORT, PRIVATE_PORT, Registry

from setpoint.node.cri.client import CriClient, CriError
from setpoint.system import SystemClock

CNI_PLUGINS = Path("/usr/lib/cni")
SUBNET = "10.244.1.0/24"
_START_TIMEOUT = 20.0
_SNAPSHOTTERS = ("aufs", "btrfs", "devmapper", "zfs")
_LOG_TAIL = 4000

_CONFIG = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = [{disabled}]
oom_score = 0
[debug]
  level = "warn"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Lowering it needs CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{runc}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{certs}"
"""


class Containerd:
    """A containerd that can be killed and started again; its containers go on meanwhile."""

    def __init__(self, machine: RealMachine, registry: Registry, subnet: str = SUBNET) -> None:
        self.machine = machine
        self.subnet = subnet
        self.directory = machine.directory / "containerd"
        self.socket = self.directory / "containerd.sock"
        self.log = self.directory / "log"
        self._config = self.directory / "config.toml"
        self._process: subprocess.Popen[bytes] | None = None
        self._configure(registry)

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    @property
    def cgroup_root(self) -> str:
        """The cgroup under which all Pods must be."""
        return self.machine.cgroup_root

    @property
    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL:] if self.log.exists() else ""

    def _configure(self, registry: Registry) -> None:
        cni, certs = self.directory / "cni", self.directory / "certs.d"
        for path in (cni, certs):
            path.mkdir(parents=True)
        disabled = [
            "io.containerd.internal.v1.opt",
            *(f"io.containerd.snapshotter.v1.{each}" for each in _SNAPSHOTTERS),
        ]
        self._config.write_text(
            _CONFIG.format(
                root=self.directory / "root",
                state=self.directory / "state",
                runc=self.directory / "runc",
                disabled=", ".join(f'"{each}"' for each in disabled),
                socket=self.socket,
                pause=registry.image("pause", TAG),
                plugins=CNI_PLUGINS,
                cni=cni,
                certs=certs,
            )
        )
        # The registry stands for all others: registry.k8s.io/pause:1 is its image pause:1.
        hosts = {f"127.0.0.1:{port}": f"http://127.0.0.1:{port}" for port in (PRIVATE_PORT, CLOSED_PORT)}
        for host, url in {"_default": registry.url, **hosts}.items():
            (certs / host).mkdir()
            (certs / host / "hosts.toml").write_text(f'[host."{url}"]\n  capabilities = ["pull", "resolve"]\n')
        network = {
            "type": "ptp",
            "mtu": 1450,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self.subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self.directory / "ipam"),
            },
        }
        plugins = [network, {"type": "portmap", "capabilities": {"portMappings": True}}]
        conflist = {"cniVersion": "1.0.0", "name": "setpoint", "plugins": plugins}
        (cni / "10-setpoint.conflist").write_text(json.dumps(conflist))

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = self.machine.spawn(["containerd", "--config", self._config], self.log)
        try:
            wait_until(self._answers, _START_TIMEOUT, lambda: f"containerd does not answer: {self.log_tail}")
        except AssertionError:
            self.kill()
            raise

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def ctr(self, *arguments: str | Path) -> str:
        """Run containerd's own client and return what it prints. Raises AssertionError if it fails."""
        return self.machine.run("ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, f"containerd ended: {self.log_tail}"
        if not self.socket.exists():
            return False
        # In a thread because the caller may run an event loop.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, self._is_ready()).result()

    async def _is_ready(self) -> bool:
        """Return whether the runtime and its network are ready; a running process is not initialized at once."""
        client = CriClient(self.endpoint, SystemClock())
        try:
            found = await client.call("Status", {}, timeout=5.0)
        except CriError:
            return False
        finally:
            client.close()
        # containerd 2.x reports the use of deprecated features as a condition too.
        ready = {each.type for each in found.status.conditions if each.status}
        return ready >= {"RuntimeReady", "NetworkReady"}


@contextmanager
def containerd(machine: RealMachine, registry: Registry, subnet: str = SUBNET) -> Iterator[Containerd]:
    """Run a containerd. Its containers end with the machine."""
    running = Containerd(machine, registry, subnet)
    running.start()
    try:
        yield running
    finally:
        running.kill()
