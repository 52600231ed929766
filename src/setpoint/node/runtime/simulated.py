"""A runtime that runs nothing: containers are programs of a small shell, or servers that just run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from setpoint.meta.clock import Clock, Ids
from setpoint.node.annotations import said
from setpoint.node.pace import INSTANT, Pace
from setpoint.node.runtime.commands import (
    HELLO,
    greeting,
    is_meant_to_end,
    is_missing,
    is_riddle,
    outlives_a_signal,
    runs_for_ever,
)
from setpoint.node.runtime.container_network import ContainerNetwork
from setpoint.node.runtime.containers import Command, Container, PodContainers
from setpoint.node.runtime.expansion import expand
from setpoint.node.runtime.files import Files, Volume
from setpoint.node.runtime.given_files import given_files, hostname_of, user_of
from setpoint.node.runtime.images import Images, argv_of
from setpoint.node.runtime.interface import (
    STDERR,
    STDOUT,
    ContainerLog,
    ContainerRecord,
    Execution,
    Launch,
    NoSuchContainer,
    PodRuns,
    Usage,
)
from setpoint.node.runtime.log import BoundedLog
from setpoint.node.runtime.network import ClusterNetwork, Failure, Network, NoNetwork
from setpoint.node.runtime.process import KILLED, Process
from setpoint.node.runtime.servers import Servers
from setpoint.node.runtime.shell.interpreter import run_argv
from setpoint.node.runtime.shell.session import Input, Running, Session, Streams
from setpoint.node.runtime.usage import usage_of
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

SCHEME = "simulated://"
_LOST = 255
"""What is said of a container of which nobody saw how it ended."""


class SimulatedRuntime:
    version = "1.0.0"

    def __init__(self, clock: Clock, ids: Ids, images: Images | None = None, pace: Pace = INSTANT) -> None:
        self._clock = clock
        self._ids = ids
        self.images = images or Images()
        self.pace = pace
        self._pods: dict[str, PodContainers] = {}
        self._addresses: dict[str, str] = {}
        """Of Pods: their uids."""
        self._shared: dict[str, dict[str, Volume]] = {}
        self.network: ClusterNetwork | None = None
        """None: Pods do not reach each other."""
        self.servers = Servers(self._pods, self.images, clock, self._files, self._network, self.log)
        self.changed: Callable[[str], None] = lambda uid: None
        """Called when the next thing happens earlier than `advance` said."""

    # -- for the agent ------------------------------------------------------------------------------------------------

    def start(self, uid: str, launch: Launch, at: float) -> ContainerRecord:
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = PodContainers()
        name = launch.name
        record = ContainerRecord(
            name, launch.container_id or SCHEME + self._fresh_id(), launch.image, launch.image_id, launch.attempt, at
        )
        run = Container(launch, record)
        before = pod.current.pop(name, None)
        if before is not None:
            pod.previous[name] = before
        pod.current[name] = run
        facts = self.images.facts(launch.spec.get("image", ""))
        argv = argv_of(launch.spec, facts)
        ends = is_meant_to_end(launch.pod, name)
        if argv and facts is not None and facts.complete and is_missing(argv[0]):
            run.fail_to_start(argv[0], at)
        elif argv is not None and not runs_for_ever(argv):
            run.log = BoundedLog()
            typed = Input(closed=not launch.spec.get("stdin"))
            run.process = self._process(run, _expanded(argv, launch), at, run.log, typed=typed, unknown_runs=not ends)
            run.process.advance(at)
            run.settle()
        elif ends and is_riddle(argv) and not (argv is None and facts is not None and facts.serves):
            run.end(0, at)
        return record

    def stop(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        run = self._run(uid, name)
        if run is None or not run.record.running:
            return
        if run.kill_at is not None:
            run.kill_at = min(run.kill_at, at + grace_seconds)
            return
        if run.process is not None and run.process.signal("TERM", at):
            run.kill_at = at + grace_seconds
            run.settle()
            return
        pod = run.launch.pod
        wish = said(pod, "sigterm")
        delay, code = outlives_a_signal(run.launch.spec, pod["spec"], run.process is not None, wish)
        if delay == 0.0 and not wish:
            delay = self.pace.stop.of(run.record.id)
        if delay is None or delay >= grace_seconds:
            run.kill_at = at + grace_seconds
            if grace_seconds <= 0:
                run.end(KILLED, at)
        elif delay > 0:
            run.kill_at = at + delay
            run.record.exit_code = code
        else:
            run.end(code, at)

    def advance(self, uid: str, now: float) -> float | None:
        pod = self._pods.get(uid)
        if pod is None:
            return None
        earliest: float | None = None
        for run in pod.current.values():
            if not run.record.running:
                continue
            process = run.process
            if process is not None:
                process.advance(now)
                run.settle()
            if run.record.running and run.kill_at is not None and run.kill_at <= now:
                run.end(run.record.exit_code or KILLED, run.kill_at)
            if run.record.running:
                for at in (run.kill_at, process.wake if process is not None else None):
                    if at is not None and (earliest is None or at < earliest):
                        earliest = at
        if pod.commands:
            for name, process in tuple(pod.commands):
                process.advance(now)
                if not pod.current[name].record.running:
                    process.end(KILLED, now)
                if process.exit_code is not None:
                    pod.commands.remove((name, process))
                elif process.wake is not None and (earliest is None or process.wake < earliest):
                    earliest = process.wake
        return earliest

    def runs(self, uid: str) -> PodRuns:
        pod = self._pods.get(uid)
        if pod is None:
            return PodRuns()
        return PodRuns(
            {name: run.record for name, run in pod.current.items()},
            {name: run.record for name, run in pod.previous.items()},
        )

    def halt(self, uid: str, at: float) -> None:
        pod = self._pods.get(uid)
        for run in pod.current.values() if pod is not None else ():
            if run.record.running:
                run.end(_LOST, at)
                run.record.reason = "Unknown"

    def kill(self, uid: str, name: str, at: float, reason: str) -> None:
        """From outside the container, as the kernel does when memory runs out."""
        run = self._run(uid, name)
        if run is not None and run.record.running:
            run.end(KILLED, at)
            run.record.reason = reason

    def exit(self, uid: str, name: str, at: float, code: int) -> None:
        run = self._run(uid, name)
        if run is not None and run.record.running:
            run.end(code, at)

    def forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._shared.pop(uid, None)
        if pod is not None:
            if self._addresses.get(pod.address) == uid:
                del self._addresses[pod.address]
            now = self._clock.now().timestamp()
            for run in pod.current.values():
                if run.process is not None:
                    run.process.end(KILLED, now)
            for _, process in pod.commands:
                process.end(KILLED, now)

    # -- for everybody ------------------------------------------------------------------------------------------------

    def log(self, uid: str, container: str, previous: bool = False) -> ContainerLog:
        pod = self._pods.get(uid)
        run = (pod.previous if previous else pod.current).get(container) if pod is not None else None
        if run is None:
            raise NoSuchContainer(container)
        if run.log is None:
            run.log = BoundedLog()
            argv = argv_of(run.launch.spec, self.images.facts(run.launch.spec.get("image", "")))
            if argv is not None and (text := greeting(argv)):
                run.log.write(run.record.started_at, STDOUT, text)
            if not run.record.running:
                run.log.close()
        return run.log

    def run_command(self, uid: str, container: str, argv: Sequence[str], *, stdin: bool = False) -> Execution:
        run = self._run(uid, container)
        if run is None or not run.record.running:
            raise NoSuchContainer(container)
        now = self._clock.now().timestamp()
        if run.process is not None:
            run.process.advance(now)
        typed = Input(closed=not stdin)
        process = self._process(run, list(argv), now, BoundedLog(), typed=typed, unknown_runs=False)
        process.advance(now)
        if process.exit_code is None:
            self._pods[uid].commands.append((container, process))
            self.changed(uid)
        return Command(process, self._clock, lambda: self.changed(uid))

    def attach(self, uid: str, container: str) -> tuple[list[str], Execution] | None:
        """The main program of a container, and what it was started as, where it reads what somebody types."""
        run = self._run(uid, container)
        process = run.process if run is not None and run.record.running else None
        if run is None or process is None or process.typed.closed:
            return None
        argv = argv_of(run.launch.spec, self.images.facts(run.launch.spec.get("image", "")))
        return argv or [], Command(process, self._clock, lambda: self.changed(uid))

    def run_to_its_end(self, uid: str, container: str, argv: Sequence[str], limit: float) -> tuple[int | None, str]:
        """Now, although it may take a while: its exit code (None: it would take longer than the limit) and what it
        says. Raises NoSuchContainer."""
        run = self._run(uid, container)
        if run is None or not run.record.running:
            raise NoSuchContainer(container)
        now = self._clock.now().timestamp()
        log = BoundedLog()
        process = self._process(run, list(argv), now, log, unknown_runs=False)
        process.advance(now + limit)
        code = process.exit_code
        process.end(KILLED, now)
        return code, log.text()

    def place(self, uid: str, address: str, node: str) -> None:
        """Where the Pod can be reached, and on which node it is."""
        pod = self._pods.setdefault(uid, PodContainers())
        pod.address, pod.node = address, node
        self._addresses[address] = uid

    def uid_at(self, address: str) -> str | None:
        """Return the uid of the Pod at the address."""
        return self._addresses.get(address)

    def node_of(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return pod.node if pod is not None else ""

    def request(self, uid: str, container: str, host: str, request: WebRequest) -> WebAnswer | Failure:
        """Send a request in the name of a container; without a host, to its own Pod, where a server of which nobody
        knows what it serves is taken to listen at any port."""
        run = self._run(uid, container)
        if run is None or not host:
            try:
                return self.servers.ask(uid, request) or Failure.REFUSED
            except NoSuchContainer:
                return Failure.CLOSED
        network = self._network(run)
        address = network.resolve(host)
        return network.exchange(address, request) if address else Failure.UNREACHABLE

    def usage(self, uid: str) -> dict[str, Usage]:
        pod = self._pods.get(uid)
        if pod is None:
            return {}
        now = self._clock.now().timestamp()
        return {
            name: usage_of(run.launch.pod, run.launch.spec, now - run.record.started_at)
            for name, run in pod.current.items()
            if run.record.running
        }

    def shared_volume(self, owner: str, volume: str) -> Volume:
        """One that several containers see, until its owner goes: `forget` for a Pod, `forget_volumes` for others."""
        return self._shared.setdefault(owner, {}).setdefault(volume, Volume())

    def forget_volumes(self, owner: str) -> None:
        """The owner of shared volumes is gone for good."""
        self._shared.pop(owner, None)

    def update(self, uid: str, pod: Mapping[str, Any]) -> None:
        """The Pod as it is now: its annotations say what is used and how signals are taken."""
        known = self._pods.get(uid)
        for run in known.current.values() if known is not None else ():
            run.launch.pod = pod

    # -- within -------------------------------------------------------------------------------------------------------

    def _run(self, uid: str, name: str) -> Container | None:
        pod = self._pods.get(uid)
        return pod.current.get(name) if pod is not None else None

    def _files(self, run: Container) -> Files:
        if run.files is None:
            launch = run.launch
            locked = bool((launch.spec.get("securityContext") or {}).get("readOnlyRootFilesystem"))
            facts = self.images.facts(launch.spec.get("image", ""))
            address = self._pods[launch.pod["metadata"]["uid"]].address
            given = given_files(launch.pod, address)
            if facts is not None:
                given |= dict.fromkeys(facts.files, "") | ({facts.page: facts.page_text} if facts.page else {})
            run.files = Files(lambda: launch.home.mounts(launch.spec), given, user_of(launch.pod, launch.spec), locked)
        return run.files

    def _network(self, run: Container) -> Network:
        if self.network is None:
            return NoNetwork()
        pod = run.launch.pod
        address = self._pods[pod["metadata"]["uid"]].address
        return ContainerNetwork(pod, address, lambda: self._files(run), self.network, self.servers)

    def _is_complete(self, run: Container) -> bool:
        facts = self.images.facts(run.launch.spec.get("image", ""))
        return facts is not None and facts.complete

    @staticmethod
    def _serves(run: Container, argv: list[str]) -> None:
        run.serving = argv

    def _signal(self, run: Container, sender: Process, pid: int, name: str) -> bool:
        """Send a signal from a program in the container to another one, or to itself. The first process ignores those
        that it does not handle, and SIGKILL from within the container: that is the kernel's rule."""
        if pid != 1:
            known = sender.has_job(pid)
            if known and name:
                sender.kill_job(pid)
            return known
        main, now = run.process, self._clock.now().timestamp()
        if not name or name == "KILL":
            return True
        if main is sender:
            return True  # a signal for which it has a trap is not sent through here
        if main is not None:
            main.signal(name, now)
            run.settle()
        elif name in ("TERM", "INT", "QUIT"):
            run.end(0, now)
        self.changed(run.launch.pod["metadata"]["uid"])
        return True

    def _commands(self, run: Container) -> list[str]:
        """What the container was started with, as its first process is shown."""
        spec = run.launch.spec
        argv = argv_of(spec, self.images.facts(spec.get("image", "")))
        return [" ".join(_expanded(argv, run.launch)) if argv else run.launch.name]

    def _fresh_id(self) -> str:
        return sha256(self._ids.uid().encode()).hexdigest()

    def _process(
        self,
        run: Container,
        argv: list[str],
        at: float,
        log: BoundedLog,
        *,
        typed: Input | None = None,
        unknown_runs: bool = True,
    ) -> Process:
        launch, files = run.launch, self._files(run)

        def begin(process: Process) -> tuple[Session, Running]:
            session = Session(
                lambda: launch.home.environment(launch.spec), files, hostname_of(launch.pod),
                lambda: process.time, process.spawn,
                unknown_runs=unknown_runs, complete=self._is_complete(run), typed=typed or Input(),
                directory=launch.spec.get("workingDir") or "/",
                network=self._network(run), processes=lambda: self._commands(run),
                serve=lambda argv: self._serves(run, argv),
                kill=lambda pid, signal: self._signal(run, process, pid, signal),
            )  # fmt: skip
            streams = Streams(
                lambda text: log.write(process.time, STDOUT, text), lambda text: log.write(process.time, STDERR, text)
            )
            return session, run_argv(session, argv, streams)

        if argv == ["hello-world"]:
            argv = ["echo", HELLO]
        return Process(begin, at, log)


def _expanded(argv: list[str], launch: Launch) -> list[str]:
    """With `$(NAME)` replaced by variables of the container, where there are any; `$$` is a dollar."""
    if not any("$" in word for word in argv):
        return argv
    environment = launch.home.environment(launch.spec) if any("$(" in word for word in argv) else {}
    return [expand(word, environment) for word in argv]
