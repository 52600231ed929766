"""The control plane: three machines with a member of etcd and an API server each, controllers and scheduler on two of
them, simulated nodes on the third."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.robustness.etcd_members import EtcdctlFailed, EtcdMembers
from tests.robustness.network import MACHINES, Network
from tests.robustness.processes import Process

from setpoint.apiserver.tokens import SigningKey
from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access, Kubeconfig
from setpoint.client.transport import Unreachable
from setpoint.cluster.certificates import ensure_certificates
from setpoint.system import SystemClock

ETCD, APISERVER, CONTROLLERS, SCHEDULER, NODES = "etcd", "apiserver", "controller-manager", "scheduler", "nodes"
LEASES = {CONTROLLERS: "kube-controller-manager", SCHEDULER: "kube-scheduler"}
_ROOT = Path(__file__).parents[2]
_PORT = 6443
_POLL = 0.2
_SHARED = ("ca.crt", "ca.key", "sa.key")


@dataclass(frozen=True, slots=True)
class Exit:
    """A process that ended although no fault ended it."""

    process: str
    at: float
    code: int


class Machines:
    def __init__(self, network: Network, directory: Path, nodes: int) -> None:
        self.network = network
        self.directory = directory
        self.etcd = EtcdMembers(network, directory)
        self.exits: list[Exit] = []
        self._clock = SystemClock()
        self._processes: dict[tuple[str, str], Process] = {}
        self._nodes = nodes

    # -- layout -------------------------------------------------------------------------------------------------------

    def url(self, machine: str) -> str:
        return f"https://{self.network.address(machine)}:{_PORT}"

    def data(self, machine: str) -> Path:
        return self.directory / machine / "data"

    def kubeconfig(self, machine: str, user: str = "admin") -> Path:
        return self.data(machine) / f"{user}.kubeconfig"

    def process(self, role: str, machine: str) -> Process:
        return self._processes[role, machine]

    def processes(self, machine: str = "") -> Iterator[Process]:
        """Yield the processes of one machine, or of all."""
        return (each for each in self._processes.values() if machine in ("", each.machine))

    def roles(self, role: str) -> list[Process]:
        return [each for (name, _), each in self._processes.items() if name == role]

    def prepare(self) -> None:
        """Create the directories, and the keys that all machines share."""
        shared = self.directory / "pki"
        ensure_certificates(shared, datetime.now(UTC))
        SigningKey(shared / "sa.key").pem()
        for machine in MACHINES:
            own = self.data(machine) / "pki"
            own.mkdir(parents=True, mode=0o700)
            for name in _SHARED:
                shutil.copy2(shared / name, own / name)
            self._add(ETCD, machine, self.etcd.command(machine))
            self._add_setpoint(APISERVER, machine, self._apiserver(machine))
        for role, machine in ((CONTROLLERS, "m1"), (CONTROLLERS, "m2"), (SCHEDULER, "m1"), (SCHEDULER, "m2")):
            self._add_setpoint(role, machine, self._component(role, machine))
        self._add_setpoint(NODES, "m3", self._component(NODES, "m3"))

    def _apiserver(self, machine: str) -> list[str]:
        address = self.network.address(machine)
        command = [APISERVER, "--data-dir", str(self.data(machine)), "--bind-address", address, "--port", str(_PORT)]
        # A loopback address is not valid in Endpoints.
        advertised = address if self.network.isolated else f"10.77.0.{11 + MACHINES.index(machine)}"
        return [*command, "--advertise-address", advertised, "--etcd-servers", ",".join(self.etcd.urls(machine))]

    def _component(self, role: str, machine: str) -> list[str]:
        user = "node-fleet" if role == NODES else role
        command = [role, "--kubeconfig", str(self.kubeconfig(machine, user))]
        if role == NODES:
            return [*command, "--nodes", str(self._nodes)]
        more = ["--use-service-account-credentials"] if role == CONTROLLERS else []
        return [*command, *more, "--secure-port=0"]

    def _add_setpoint(self, role: str, machine: str, arguments: Sequence[str]) -> None:
        shift = self.clock_file(role, machine)
        self._add(role, machine, [sys.executable, "-m", "tests.robustness.shifted_clock", str(shift), *arguments])

    def _add(self, role: str, machine: str, command: list[str]) -> None:
        def current() -> list[str]:
            return self.network.command(machine, self.etcd.command(machine) if role == ETCD else command)

        def exited(process: Process, code: int) -> None:
            self.exits.append(Exit(str(process), self._clock.monotonic(), code))

        home = self.directory / machine / "home"
        home.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        log = self.directory / machine / f"{role}.log"
        environment = {"HOME": str(home), "PYTHONPATH": path}
        self._processes[role, machine] = Process(role, machine, current, log, exited, environment)

    # -- running ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything and wait until it is ready. The processes must be supervised meanwhile."""
        if self.network.isolated:
            await self.etcd.mount_disks()
        for role in (ETCD, APISERVER):
            for process in self.roles(role):
                process.start()
            if role == ETCD:
                await self._until(self._etcd_ready, 30.0, "etcd")
        await self._until(self._servers_ready, 90.0, "the API servers")
        for role in (CONTROLLERS, SCHEDULER, NODES):
            for process in self.roles(role):
                process.start()

    async def ready(self, timeout: float = 90.0) -> None:
        """Return when all processes run and all members and servers are ready. Raises TimeoutError."""
        await self._until(self._all_ready, timeout, "the machines")

    async def _until(self, condition: Callable[[], Awaitable[str]], timeout: float, what: str) -> None:
        deadline = self._clock.monotonic() + timeout
        while True:
            reason = await condition()
            if not reason:
                return
            if self._clock.monotonic() > deadline:
                raise TimeoutError(f"{what} did not become ready within {timeout:g} s: {reason}")
            await asyncio.sleep(_POLL)

    async def _all_ready(self) -> str:
        down = [str(each) for each in self.processes() if not each.alive]
        return f"not running: {', '.join(down)}" if down else await self._etcd_ready() or await self._servers_ready()

    async def _etcd_ready(self) -> str:
        try:
            await self.etcd.etcdctl("endpoint", "health", text=True)
            return ""
        except EtcdctlFailed as problem:
            return str(problem)

    async def _servers_ready(self) -> str:
        for machine in MACHINES:
            if not self.kubeconfig(machine).exists():
                return f"the API server of {machine} has no kubeconfig yet"
            transport = HttpsTransport(self.access(machine), self._clock, timeout=2.0, connect_timeout=1.0)
            try:
                reply = await transport.request("GET", "/readyz", "", [], b"")
            except Unreachable as problem:
                return str(problem)
            finally:
                await transport.close()
            if reply.status != 200:
                return f"{machine}: {reply.body.decode(errors='replace')[:300]}"
        return ""

    def access(self, machine: str) -> Access:
        return Kubeconfig.load([self.kubeconfig(machine)]).access()

    # -- faults -------------------------------------------------------------------------------------------------------

    def clock_file(self, role: str, machine: str) -> Path:
        return self.directory / machine / f"{role}.clock"

    def shift_clock(self, role: str, machine: str, seconds: float) -> None:
        self.clock_file(role, machine).write_text(str(seconds))
        self.process(role, machine).send(signal.SIGUSR2)

    async def kill(self, machine: str) -> None:
        """Kill all processes of a machine, and cut its link."""
        if self.network.isolated:
            await self.network.set_link(machine, up=False)
        await asyncio.gather(*(process.end() for process in self.processes(machine)))

    async def boot(self, machine: str) -> None:
        if self.network.isolated:
            await self.network.set_link(machine, up=True)
        for process in self.processes(machine):
            process.start()

    def describe(self) -> str:
        return json.dumps({machine: self.url(machine) for machine in MACHINES})
