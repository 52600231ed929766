"""One run: start the machines, let the clients work, inject faults one after the other, and check the history."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.robustness.checks import violations
from tests.robustness.etcd_log import EtcdLog
from tests.robustness.etcd_members import EtcdctlFailed
from tests.robustness.faults import Fault, Place, sequence
from tests.robustness.history import OK, FaultRecord, History, LastWrite, Violation, read
from tests.robustness.kubectl_loop import KubectlLoop
from tests.robustness.machines import Machines
from tests.robustness.network import MACHINES, Loopback, Namespaces
from tests.robustness.report import say, show, shown_violations
from tests.robustness.workload import CONFIGMAPS, Workload

from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks

_WARM_UP = 5.0
_CALM = 2.0
_END_TIMEOUT = 60.0
_NODES = 3


@dataclass(frozen=True, slots=True)
class Options:
    seed: int
    faults: int
    seconds: float
    """No fault begins after this time; 0 means no limit."""
    rate: float
    """Calls a second of each client."""
    directory: Path
    isolated: bool
    kubectl: bool
    only: tuple[str, ...] = ()
    """Names of faults; empty means all."""


@dataclass(slots=True)
class _Run:
    options: Options
    machines: Machines
    history: History
    log: EtcdLog
    workload: Workload
    kubectl: KubectlLoop | None
    clock: SystemClock
    problems: list[Violation]
    started: float


async def run(options: Options) -> bool:
    """Run and report; return whether nothing was violated."""
    clock = SystemClock()
    for name in ("setpoint", "asyncio"):  # what faults do to clients, and children that end when they are signalled
        logging.getLogger(name).setLevel(logging.ERROR)
    say(f"seed {options.seed}, {options.faults} faults, records in {options.directory}")
    if not options.isolated:
        say("no network namespaces: the machines are loopback addresses, and only processes are disturbed")
    path = options.directory / "history.jsonl"
    with path.open("w") as file:
        history = History(file=file)
        machines = Machines(await Namespaces.create() if options.isolated else Loopback(), options.directory, _NODES)
        machines.prepare()
        log = EtcdLog(machines.etcd.urls(), history.add)
        started = clock.monotonic()
        problems: list[Violation] = []
        async with child_tasks(*(process.supervise() for process in machines.processes())):
            await machines.start()
            say(f"ready after {clock.monotonic() - started:.1f} s")
            access = {machine: machines.access(machine) for machine in MACHINES}
            # Faults have their own random numbers: how many the clients use depends on the time.
            random = Random(f"clients {options.seed}")
            workload = Workload(access, history, clock, RandomIds(), random, options.rate)
            kubectl = None
            if options.kubectl:
                kubeconfigs = [machines.kubeconfig(machine) for machine in MACHINES]
                kubectl = KubectlLoop(kubeconfigs, options.directory / "m1" / "home", clock.monotonic)
            current = _Run(options, machines, history, log, workload, kubectl, clock, problems, started)
            async with AsyncExitStack() as stack:
                stack.push_async_callback(workload.close)
                await _disturb(current)
        for (process, code), times in Counter((each.process, each.code) for each in machines.exits).items():
            say(f"{process} ended by itself with code {code}: {times} times")
        history.flush()
    problems += violations(history)
    if kubectl is not None:
        problems += kubectl.violations
    _report(current)
    return not problems


async def _disturb(run: _Run) -> None:
    await run.workload.prepare()
    async with child_tasks(run.log.follow(), *run.workload.watches()):
        loops = run.workload.clients()
        if run.kubectl is not None:
            loops.append(run.kubectl.run())
        async with child_tasks(*loops) as tasks:
            await asyncio.sleep(_WARM_UP)
            random = Random(run.options.seed)
            planned = sequence(run.options.faults, random, isolated=run.options.isolated, only=run.options.only)
            place = Place(run.machines, run.log, random)
            for fault in planned:
                if run.options.seconds and run.clock.monotonic() - run.started > run.options.seconds:
                    break
                if not await _inject(run, fault, place):
                    break
                for task in tasks:
                    if task.done():
                        task.result()  # a client that ends is a defect of the suite
        if not run.problems:
            await _finish(run)
        await _complete_log(run)


async def _inject(run: _Run, fault: Fault, place: Place) -> bool:
    """Inject a fault, heal it, and wait until everything is ready; return False if that does not happen."""
    clock, began = run.clock, run.clock.monotonic()
    target = ""
    injected = healed = began
    try:
        async with fault.inject(place) as target:
            injected = began if not fault.no_quorum else clock.monotonic()
            await asyncio.sleep(fault.seconds)
            healed = clock.monotonic()
        await run.machines.ready()
    except (TimeoutError, EtcdctlFailed) as problem:
        run.problems.append(Violation("recovery", f"after {fault.name} {target}: {problem}"))
    recovered = clock.monotonic()
    record = FaultRecord(fault.name, target, injected, healed, recovered, fault.no_quorum)
    run.history.add(record)
    say(
        f"{began - run.started:7.1f} {fault.name} {target}: {healed - began:.1f} s, ready after {recovered - healed:.1f} s"
    )
    await asyncio.sleep(_CALM)
    return not run.problems


async def _finish(run: _Run) -> None:
    """Let everything settle: the last write reaches all watches, the Deployments converge, the log is complete."""
    await run.workload.converge()
    client = run.workload.client("last", 0)
    key, deadline = f"{CONFIGMAPS}last", run.clock.monotonic() + _END_TIMEOUT
    while (call := await client.create(key, f"last-{run.clock.monotonic()}")).outcome != OK:
        if run.clock.monotonic() > deadline:
            run.problems.append(Violation("recovery", "no write succeeds at the end", (call,)))
            return
        key += "-"
    run.history.add(LastWrite(CONFIGMAPS, call.revision))
    with suppress(TimeoutError):  # the checks report it
        await run.workload.watched(call.revision, _END_TIMEOUT)
    if run.kubectl is not None:
        await run.kubectl.finish()


async def _complete_log(run: _Run) -> None:
    try:
        await run.log.reached(await run.machines.etcd.revision())
    except (TimeoutError, EtcdctlFailed) as problem:
        run.problems.append(Violation("log", f"etcd's log is known up to {run.log.revision} only: {problem}"))
    if run.log.problem:
        run.problems.append(Violation("log", run.log.problem))


def _report(run: _Run) -> None:
    show(run.history, run.started)
    if run.kubectl is not None:
        made = f"{len(run.kubectl.created)} objects, {run.kubectl.repeated} repeated attempts"
        say(f"kubectl: {made}, longest command {run.kubectl.longest:.1f} s")
    faults, options = len(run.history.of(FaultRecord)), run.options
    if run.problems:
        say(
            f"\n{len(run.problems)} VIOLATIONS after {faults} faults, seed {options.seed}, history {options.directory}:"
        )
        for line in shown_violations(run.problems):
            say(line)
    else:
        say(f"{faults} faults, no violation, seed {options.seed}, commit {_commit()}")


def check(path: Path) -> bool:
    """Check and report a recorded history again; return whether nothing was violated."""
    history = read(path)
    show(history, min((fault.injected for fault in history.of(FaultRecord)), default=0.0))
    found = violations(history)
    for line in shown_violations(found):
        say(line)
    say(f"{len(history.of(FaultRecord))} faults, {len(found)} violations")
    return not found


def _commit() -> str:
    if shutil.which("git") is None:
        return "unknown"
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
