"""The faults. Each is injected when its block begins and healed when it ends, and never takes away two machines of
three, except where the point is that nothing is acknowledged without a quorum."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.robustness.etcd_log import EtcdLog
from tests.robustness.etcd_members import QUOTA, EtcdctlFailed
from tests.robustness.machines import APISERVER, CONTROLLERS, ETCD, LEASES, SCHEDULER, Machines
from tests.robustness.network import MACHINES
from tests.robustness.processes import Process

_BLOCK = 1024 * 1024
_REPEATED_FOR = 60.0
_GROWTH = 20
"""Blocks that are written while a disk is full; a database grows by 16 MiB at a time."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a fault is injected into."""

    machines: Machines
    log: EtcdLog
    random: Random
    _next: list[str] = field(default_factory=list)
    """The machines that are hit before the others are hit again."""

    async def etcd_leader(self) -> str:
        return await self.machines.etcd.leader()

    async def etcd_follower(self) -> str:
        leader = await self.etcd_leader()
        return self.random.choice([each for each in MACHINES if each != leader])

    def any_machine(self) -> str:
        """Return a machine; each one is chosen once before one is chosen again."""
        if not self._next:
            self._next.extend(self.random.sample(MACHINES, len(MACHINES)))
        return self._next.pop()

    def holder(self, role: str) -> Process:
        """Return the process that leads, by its Lease; the first one if there is no holder."""
        held = self.log.latest.get(f"coordination.k8s.io/leases/kube-system/{LEASES[role]}") or "/"
        machine = held.partition("/")[2].partition("_")[0]
        candidates = self.machines.roles(role)
        return next((each for each in candidates if each.machine == machine), candidates[0])


Injection = Callable[[Place], AbstractAsyncContextManager[str]]


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    inject: Injection
    """A block in which the fault lasts; its value says what was hit."""
    seconds: float = 3.0
    """How long it lasts."""
    cuts_links: bool = False
    """Whether it needs machines with a network and disks of their own."""
    no_quorum: bool = False


# -- processes --------------------------------------------------------------------------------------------------------


async def _etcd_leader(place: Place) -> Process:
    return place.machines.process(ETCD, await place.etcd_leader())


async def _etcd_follower(place: Place) -> Process:
    return place.machines.process(ETCD, await place.etcd_follower())


async def _apiserver(place: Place) -> Process:
    return place.machines.process(APISERVER, place.any_machine())


async def _controllers(place: Place) -> Process:
    return place.holder(CONTROLLERS)


async def _scheduler(place: Place) -> Process:
    return place.holder(SCHEDULER)


_TARGETS = {
    "etcd-leader": _etcd_leader,
    "etcd-follower": _etcd_follower,
    "apiserver": _apiserver,
    "controller-manager": _controllers,
    "scheduler": _scheduler,
}


def _ended(target: str, number: signal.Signals) -> Injection:
    """Return a fault that ends a process and starts it again."""

    @asynccontextmanager
    async def inject(place: Place) -> AsyncIterator[str]:
        process = await _TARGETS[target](place)
        await process.end(number)
        try:
            yield str(process)
        finally:
            process.start()

    return inject


def _stopped(target: str) -> Injection:
    """Return a fault that suspends a process and continues it."""

    @asynccontextmanager
    async def inject(place: Place) -> AsyncIterator[str]:
        process = await _TARGETS[target](place)
        process.send(signal.SIGSTOP)
        try:
            yield str(process)
        finally:
            process.send(signal.SIGCONT)

    return inject


@asynccontextmanager
async def _no_quorum(place: Place) -> AsyncIterator[str]:
    stopped = [place.machines.process(ETCD, each) for each in place.random.sample(MACHINES, 2)]
    for process in stopped:
        await process.suspend()
    try:
        yield " ".join(map(str, stopped))
    finally:
        for process in stopped:
            process.send(signal.SIGCONT)


# -- machines ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _machine_killed(place: Place) -> AsyncIterator[str]:
    machine = place.any_machine()
    await place.machines.kill(machine)
    try:
        yield machine
    finally:
        await place.machines.boot(machine)


@asynccontextmanager
async def _etcd_leader_machine_killed(place: Place) -> AsyncIterator[str]:
    machine = await place.etcd_leader()
    await place.machines.kill(machine)
    try:
        yield machine
    finally:
        await place.machines.boot(machine)


@asynccontextmanager
async def _link_down(place: Place) -> AsyncIterator[str]:
    machine = place.any_machine()
    await place.machines.network.set_link(machine, up=False)
    try:
        yield machine
    finally:
        await place.machines.network.set_link(machine, up=True)


@asynccontextmanager
async def _one_way_drop(place: Place) -> AsyncIterator[str]:
    """Drop what one machine sends to both others; it still receives what they send."""
    machine, network = place.any_machine(), place.machines.network
    others = [each for each in MACHINES if each != machine]
    for other in others:
        await network.set_drop(machine, other, dropped=True)
    try:
        yield f"from {machine}"
    finally:
        for other in others:
            await network.set_drop(machine, other, dropped=False)


@asynccontextmanager
async def _one_way_drop_of_a_pair(place: Place) -> AsyncIterator[str]:
    sender, receiver = place.random.sample(MACHINES, 2)
    await place.machines.network.set_drop(sender, receiver, dropped=True)
    try:
        yield f"from {sender} to {receiver}"
    finally:
        await place.machines.network.set_drop(sender, receiver, dropped=False)


@asynccontextmanager
async def _disk_full(place: Place) -> AsyncIterator[str]:
    """Fill the disk of a member, and write so much that its database must grow."""
    machine, etcd = place.any_machine(), place.machines.etcd
    ballast = etcd.disk(machine) / "ballast"
    others = [each for each in MACHINES if each != machine]
    with ballast.open("wb") as file, suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, _BLOCK)
    try:
        await etcd.ballast(others, (place.random.randbytes(_BLOCK) for _ in range(_GROWTH)))
        yield machine
    finally:
        ballast.unlink()
        await _until_done(lambda: etcd.remove_ballast(others))


@asynccontextmanager
async def _quota_reached(place: Place) -> AsyncIterator[str]:
    """Write until etcd accepts no more writes, and then do what its documentation demands."""
    etcd = place.machines.etcd
    reached = await etcd.ballast(MACHINES, (place.random.randbytes(_BLOCK) for _ in range(2 * QUOTA // _BLOCK)))
    try:
        yield "all members" if reached else "not reached"
    finally:
        await _until_done(lambda: etcd.remove_ballast(MACHINES))
        await place.log.reached(await etcd.revision())
        await _compact(place)
        await _defragment(place)
        await _until_done(partial(etcd.etcdctl, "alarm", "disarm", text=True))


@asynccontextmanager
async def _machine_suspended(place: Place) -> AsyncIterator[str]:
    """Suspend all processes of a machine for longer than Leases last, as when a virtual machine is moved."""
    machine = place.any_machine()
    for process in place.machines.processes(machine):
        process.send(signal.SIGSTOP)
    try:
        yield machine
    finally:
        for process in place.machines.processes(machine):
            process.send(signal.SIGCONT)


@asynccontextmanager
async def _clock_jumped(place: Place) -> AsyncIterator[str]:
    """Shift the wall clock of a server, or of the leading controllers or scheduler, by 50 minutes."""
    random = place.random
    role = random.choice((APISERVER, APISERVER, CONTROLLERS, SCHEDULER))
    process = place.machines.process(APISERVER, place.any_machine()) if role == APISERVER else place.holder(role)
    seconds = random.choice((-3000.0, 3000.0))
    place.machines.shift_clock(role, process.machine, seconds)
    try:
        yield f"{process} {seconds:+g} s"
    finally:
        place.machines.shift_clock(role, process.machine, 0.0)


# -- maintenance ------------------------------------------------------------------------------------------------------


async def _compact(place: Place) -> int:
    """Compact everything that the log of this run already has; return the revision."""
    revision = place.log.revision
    await _until_done(partial(place.machines.etcd.etcdctl, "compaction", str(revision), text=True))
    return revision


async def _defragment(place: Place) -> None:
    for machine in MACHINES:
        command = partial(place.machines.etcd.etcdctl, "defrag", machines=[machine], text=True, timeout=30)
        await _until_done(command)


@asynccontextmanager
async def _compaction(place: Place) -> AsyncIterator[str]:
    yield f"up to {await _compact(place)}"


@asynccontextmanager
async def _defragmentation(place: Place) -> AsyncIterator[str]:
    await _defragment(place)
    yield "all members"


@asynccontextmanager
async def _member_replaced(place: Place) -> AsyncIterator[str]:
    machine, etcd = place.any_machine(), place.machines.etcd
    process = place.machines.process(ETCD, machine)
    await process.end()
    await _until_done(lambda: etcd.remove(machine))
    await _until_done(lambda: etcd.add_learner(machine))
    process.start()
    try:
        yield machine
    finally:
        await _until_done(lambda: etcd.promote(machine))


async def _until_done(attempt: Callable[[], Awaitable[object]]) -> None:
    """Repeat what etcd refuses while a member is missing or has not caught up. Raises EtcdctlFailed."""
    deadline = time.monotonic() + _REPEATED_FOR
    while True:
        try:
            await attempt()
            return
        except EtcdctlFailed as problem:
            # A repeated compaction was made by an attempt without an answer.
            if "has been compacted" in str(problem):
                return
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _rolling_restart(place: Place) -> AsyncIterator[str]:
    """Restart all processes of one machine after the other, in order, as an upgrade does."""
    machines = place.machines
    for machine in MACHINES:
        for process in reversed([*machines.processes(machine)]):
            await process.end(signal.SIGTERM)
        for process in machines.processes(machine):
            process.start()
        await machines.ready()
    yield "all machines"


KILL, TERM = signal.SIGKILL, signal.SIGTERM
FAULTS = (
    Fault("kill-etcd-leader", _ended("etcd-leader", KILL)),
    Fault("stop-apiserver", _stopped("apiserver")),
    Fault("link-down", _link_down, cuts_links=True),
    Fault("kill-controller-manager", _ended("controller-manager", KILL)),
    Fault("compaction", _compaction, 1.0),
    Fault("suspend-machine", _machine_suspended, 18.0),
    Fault("kill-machine", _machine_killed),
    Fault("one-way-drop", _one_way_drop, cuts_links=True),
    Fault("kill-apiserver", _ended("apiserver", KILL)),
    Fault("member-replaced", _member_replaced),
    Fault("disk-full", _disk_full, cuts_links=True),
    Fault("clock-jump", _clock_jumped),
    Fault("no-quorum", _no_quorum, 4.0, no_quorum=True),
    Fault("stop-scheduler", _stopped("scheduler"), 18.0),
    Fault("stop-etcd-leader", _stopped("etcd-leader"), 4.0),
    Fault("kill-scheduler", _ended("scheduler", KILL)),
    Fault("rolling-restart", _rolling_restart, 0.0),
    Fault("kill-etcd-follower", _ended("etcd-follower", KILL)),
    Fault("stop-etcd-follower", _stopped("etcd-follower"), 4.0),
    Fault("term-etcd-leader", _ended("etcd-leader", TERM)),
    Fault("term-apiserver", _ended("apiserver", TERM)),
    Fault("stop-controller-manager", _stopped("controller-manager"), 18.0),
    Fault("term-controller-manager", _ended("controller-manager", TERM)),
    Fault("term-scheduler", _ended("scheduler", TERM)),
    Fault("kill-etcd-leader-machine", _etcd_leader_machine_killed),
    Fault("one-way-drop-of-a-pair", _one_way_drop_of_a_pair, cuts_links=True),
    Fault("defragmentation", _defragmentation, 1.0),
    Fault("quota-reached", _quota_reached),
)
"""All faults. A short run takes them from the beginning."""


def sequence(count: int, random: Random, *, isolated: bool, only: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of a run: all that are possible in random order, again and again. A run with fewer faults than
    there are takes the first ones of the list."""
    possible = [each for each in FAULTS if (isolated or not each.cuts_links) and (not only or each.name in only)]
    if unknown := set(only) - {each.name for each in possible}:
        raise ValueError(f"there is no fault {', '.join(sorted(unknown))} here")
    found: list[Fault] = []
    while len(found) < count:
        block = possible[:count]
        random.shuffle(block)
        found += block
    return found[:count]
