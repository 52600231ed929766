"""A runtime that simulates containers: their programs are interpreted by a small shell, and servers are not
executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock, Ids
from setpoint.node.environment import expand
from setpoint.node.pace import INSTANT, Pace
from setpoint.node.runtime.container_behavior import (
    HELLO_WORLD_OUTPUT,
    is_missing,
    is_unknown_program,
    runs_forever,
    runs_to_completion,
    sigterm_reaction,
    startup_output,
    usage_of,
)
from setpoint.node.runtime.containers import KILLED, BoundedLog, Container, PodContainers, Process, SimulatedExecution
from setpoint.node.runtime.files import Files, Volume
from setpoint.node.runtime.images import SimulatedImageService, command_line
from setpoint.node.runtime.interface import (
    STDERR,
    STDOUT,
    ContainerConfig,
    ContainerLog,
    ContainerRecord,
    Execution,
    NoSuchContainer,
    PodRecords,
    Usage,
)
from setpoint.node.runtime.managed_files import container_user, hostname_of, managed_files
from setpoint.node.runtime.network import (
    ClusterNetwork,
    ConnectionFailure,
    ContainerNetwork,
    Network,
    NoNetwork,
    PodRequest,
    PodResponse,
)
from setpoint.node.runtime.servers import SimulatedServers
from setpoint.node.runtime.shell.interpreter import run_argv
from setpoint.node.runtime.shell.session import ProgramRun, Session, StdinBuffer, Streams
from setpoint.node.simulation_annotations import simulation_annotation

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_CONTAINER_ID_SCHEME = "simulated://"
_UNKNOWN_EXIT_CODE = 255
"""The exit code of a container whose end was not observed."""


class SimulatedRuntime:
    """Implements ContainerRuntime for all Pods of a fleet."""

    version = "1.0.0"

    def __init__(
        self, clock: Clock, ids: Ids, images: SimulatedImageService | None = None, pace: Pace = INSTANT
    ) -> None:
        self._clock = clock
        self._ids = ids
        self.images = images or SimulatedImageService()
        self.pace = pace
        self._pods: dict[str, PodContainers] = {}
        self._addresses: dict[str, str] = {}
        """The uids of Pods by address."""
        self._shared: dict[str, dict[str, Volume]] = {}
        self.network: ClusterNetwork | None = None
        """The cluster's network; None if Pods do not reach each other."""
        self.servers = SimulatedServers(self._pods, self.images, clock, self._files, self._network, self.log)
        self.on_change: Callable[[str], None] = lambda uid: None
        """Called with the uid of a Pod that must be advanced earlier than `advance` returned."""

    # -- for the agent (ContainerRuntime) ------------------------------------------------------------------------------

    def start_container(self, uid: str, config: ContainerConfig, at: float) -> ContainerRecord:
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = PodContainers()
        name = config.name
        record = ContainerRecord(
            name,
            config.container_id or _CONTAINER_ID_SCHEME + self._new_id(),
            config.image,
            config.image_id,
            config.attempt,
            at,
        )
        run = Container(config, record)
        before = pod.current.pop(name, None)
        if before is not None:
            pod.previous[name] = before
        pod.current[name] = run
        info = self.images.info(config.spec.get("image", ""))
        argv = command_line(config.spec, info)
        completes = runs_to_completion(config.pod, name)
        if argv and info is not None and info.fully_known and is_missing(argv[0]):
            run.fail_to_start(argv[0], at)
        elif argv is not None and not runs_forever(argv):
            run.log = BoundedLog()
            stdin_buffer = StdinBuffer(closed=not config.spec.get("stdin"))
            run.process = self._process(
                run, _expanded(argv, config), at, run.log, stdin_buffer=stdin_buffer, unknown_programs_run=not completes
            )
            run.process.advance(at)
            run.sync_record()
        elif completes and is_unknown_program(argv) and not (argv is None and info is not None and info.is_server):
            run.end(0, at)
        return record

    def stop_container(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        run = self._container(uid, name)
        if run is None or not run.record.running:
            return
        if run.kill_at is not None:
            run.kill_at = min(run.kill_at, at + grace_seconds)
            return
        if run.process is not None and run.process.signal("TERM", at):
            run.kill_at = at + grace_seconds
            run.sync_record()
            return
        pod = run.config.pod
        annotation = simulation_annotation(pod, "sigterm")
        delay, code = sigterm_reaction(run.config.spec, pod["spec"], run.process is not None, annotation)
        if delay == 0.0 and not annotation:
            delay = self.pace.stop.sample(run.record.id)
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
                run.sync_record()
            if run.record.running and run.kill_at is not None and run.kill_at <= now:
                run.end(run.record.exit_code or KILLED, run.kill_at)
            if run.record.running:
                for at in (run.kill_at, process.next_wakeup if process is not None else None):
                    if at is not None and (earliest is None or at < earliest):
                        earliest = at
        if pod.executions:
            for name, process in tuple(pod.executions):
                process.advance(now)
                if not pod.current[name].record.running:
                    process.end(KILLED, now)
                if process.exit_code is not None:
                    pod.executions.remove((name, process))
                elif process.next_wakeup is not None and (earliest is None or process.next_wakeup < earliest):
                    earliest = process.next_wakeup
        return earliest

    def records(self, uid: str) -> PodRecords:
        pod = self._pods.get(uid)
        if pod is None:
            return PodRecords()
        return PodRecords(
            {name: run.record for name, run in pod.current.items()},
            {name: run.record for name, run in pod.previous.items()},
        )

    def power_off(self, uid: str, at: float) -> None:
        pod = self._pods.get(uid)
        for run in pod.current.values() if pod is not None else ():
            if run.record.running:
                run.end(_UNKNOWN_EXIT_CODE, at)
                run.record.reason = "Unknown"

    def kill_container(self, uid: str, name: str, at: float, reason: str) -> None:
        """End a container from outside, as the kernel does when memory runs out."""
        run = self._container(uid, name)
        if run is not None and run.record.running:
            run.end(KILLED, at)
            run.record.reason = reason

    def exit_container(self, uid: str, name: str, at: float, code: int) -> None:
        run = self._container(uid, name)
        if run is not None and run.record.running:
            run.end(code, at)

    def remove_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._shared.pop(uid, None)
        if pod is not None:
            if self._addresses.get(pod.address) == uid:
                del self._addresses[pod.address]
            now = self._clock.now().timestamp()
            for run in pod.current.values():
                if run.process is not None:
                    run.process.end(KILLED, now)
            for _, process in pod.executions:
                process.end(KILLED, now)

    # -- logs, exec, network, usage ------------------------------------------------------------------------------------

    def log(self, uid: str, container: str, previous: bool = False) -> ContainerLog:
        pod = self._pods.get(uid)
        run = (pod.previous if previous else pod.current).get(container) if pod is not None else None
        if run is None:
            raise NoSuchContainer(container)
        if run.log is None:
            run.log = BoundedLog()
            argv = command_line(run.config.spec, self.images.info(run.config.spec.get("image", "")))
            if argv is not None and (text := startup_output(argv)):
                run.log.write(run.record.started_at, STDOUT, text)
            if not run.record.running:
                run.log.close()
        return run.log

    def exec(self, uid: str, container: str, argv: Sequence[str], *, stdin: bool = False) -> Execution:
        run = self._container(uid, container)
        if run is None or not run.record.running:
            raise NoSuchContainer(container)
        now = self._clock.now().timestamp()
        if run.process is not None:
            run.process.advance(now)
        stdin_buffer = StdinBuffer(closed=not stdin)
        process = self._process(
            run, list(argv), now, BoundedLog(), stdin_buffer=stdin_buffer, unknown_programs_run=False
        )
        process.advance(now)
        if process.exit_code is None:
            self._pods[uid].executions.append((container, process))
            self.on_change(uid)
        return SimulatedExecution(process, self._clock, lambda: self.on_change(uid))

    def attach(self, uid: str, container: str) -> tuple[list[str], Execution] | None:
        """Return command line and execution of a container's main program; None if it does not read its input."""
        run = self._container(uid, container)
        process = run.process if run is not None and run.record.running else None
        if run is None or process is None or process.stdin_buffer.closed:
            return None
        argv = command_line(run.config.spec, self.images.info(run.config.spec.get("image", "")))
        return argv or [], SimulatedExecution(process, self._clock, lambda: self.on_change(uid))

    def exec_sync(self, uid: str, container: str, argv: Sequence[str], limit: float) -> tuple[int | None, str]:
        """Execute a command at once, although it may take time. Return its exit code (None: it exceeds the limit) and
        its output. Raise NoSuchContainer."""
        run = self._container(uid, container)
        if run is None or not run.record.running:
            raise NoSuchContainer(container)
        now = self._clock.now().timestamp()
        log = BoundedLog()
        process = self._process(run, list(argv), now, log, unknown_programs_run=False)
        process.advance(now + limit)
        code = process.exit_code
        process.end(KILLED, now)
        return code, log.text()

    def register_address(self, uid: str, address: str, node: str, *, shared: bool = False) -> None:
        """Record the address and the node of a Pod. `uid_at` does not find a Pod by an address that it shares."""
        pod = self._pods.setdefault(uid, PodContainers())
        pod.address, pod.node = address, node
        if not shared:
            self._addresses[address] = uid

    def uid_at(self, address: str) -> str | None:
        """Return the uid of the Pod at the address, or None."""
        return self._addresses.get(address)

    def node_of(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return pod.node if pod is not None else ""

    def http_request(self, uid: str, container: str, host: str, request: PodRequest) -> PodResponse | ConnectionFailure:
        """Send a request as a container; without a host, to its own Pod. There, a server that is not simulated counts
        as listening on every port."""
        run = self._container(uid, container)
        if run is None or not host:
            try:
                return self.servers.respond(uid, request) or ConnectionFailure.REFUSED
            except NoSuchContainer:
                return ConnectionFailure.RESET
        network = self._network(run)
        address = network.resolve(host)
        return network.exchange(address, request) if address else ConnectionFailure.UNREACHABLE

    def usage(self, uid: str) -> dict[str, Usage]:
        pod = self._pods.get(uid)
        if pod is None:
            return {}
        now = self._clock.now().timestamp()
        return {
            name: usage_of(run.config.pod, run.config.spec, now - run.record.started_at)
            for name, run in pod.current.items()
            if run.record.running
        }

    def shared_volume(self, owner: str, volume: str) -> Volume:
        """Return a volume that several containers share; `remove_pod` or `remove_volumes` for its owner deletes it."""
        return self._shared.setdefault(owner, {}).setdefault(volume, Volume())

    def remove_volumes(self, owner: str) -> None:
        """Delete the volumes of an owner that no longer exists."""
        self._shared.pop(owner, None)

    def update_pod(self, uid: str, pod: Pod) -> None:
        """Take over a new version of the Pod, whose annotations determine usage and the reaction to signals."""
        known = self._pods.get(uid)
        for run in known.current.values() if known is not None else ():
            run.config.pod = pod

    # -- internals -----------------------------------------------------------------------------------------------------

    def _container(self, uid: str, name: str) -> Container | None:
        pod = self._pods.get(uid)
        return pod.current.get(name) if pod is not None else None

    def _files(self, run: Container) -> Files:
        if run.files is None:
            config = run.config
            read_only = bool((config.spec.get("securityContext") or {}).get("readOnlyRootFilesystem"))
            info = self.images.info(config.spec.get("image", ""))
            address = self._pods[config.pod["metadata"]["uid"]].address
            initial_files = managed_files(config.pod, address)
            if info is not None:
                initial_files |= dict.fromkeys(info.files, "") | (
                    {info.index_page: info.index_page_text} if info.index_page else {}
                )
            run.files = Files(
                lambda: config.provider.mounts(config.spec),
                initial_files,
                container_user(config.pod, config.spec),
                read_only,
            )
        return run.files

    def _network(self, run: Container) -> Network:
        if self.network is None:
            return NoNetwork()
        pod = run.config.pod
        address = self._pods[pod["metadata"]["uid"]].address
        return ContainerNetwork(pod, address, lambda: self._files(run), self.network, self.servers)

    def _image_fully_known(self, run: Container) -> bool:
        info = self.images.info(run.config.spec.get("image", ""))
        return info is not None and info.fully_known

    @staticmethod
    def _set_server(run: Container, argv: list[str]) -> None:
        run.server_argv = argv

    def _send_signal(self, run: Container, sender: Process, pid: int, name: str) -> bool:
        """Send a signal from a program in the container to a process of it. As on Linux, the first process ignores
        signals that it does not handle, and SIGKILL from within the container."""
        if pid != 1:
            known = sender.has_job(pid)
            if known and name:
                sender.kill_job(pid)
            return known
        main, now = run.process, self._clock.now().timestamp()
        if not name or name == "KILL":
            return True
        if main is sender:
            return True  # signals for which it has a trap are handled by the session
        if main is not None:
            main.signal(name, now)
            run.sync_record()
        elif name in ("TERM", "INT", "QUIT"):
            run.end(0, now)
        self.on_change(run.config.pod["metadata"]["uid"])
        return True

    def _process_list(self, run: Container) -> list[str]:
        """Return the command line of the container's first process."""
        spec = run.config.spec
        argv = command_line(spec, self.images.info(spec.get("image", "")))
        return [" ".join(_expanded(argv, run.config)) if argv else run.config.name]

    def _new_id(self) -> str:
        return sha256(self._ids.uid().encode()).hexdigest()

    def _process(
        self,
        run: Container,
        argv: list[str],
        at: float,
        log: BoundedLog,
        *,
        stdin_buffer: StdinBuffer | None = None,
        unknown_programs_run: bool = True,
    ) -> Process:
        config, files = run.config, self._files(run)

        def begin(process: Process) -> tuple[Session, ProgramRun]:
            session = Session(
                lambda: config.provider.environment(config.spec),
                files,
                hostname_of(config.pod),
                lambda: process.time,
                process.spawn,
                unknown_programs_run=unknown_programs_run,
                image_fully_known=self._image_fully_known(run),
                stdin_buffer=stdin_buffer or StdinBuffer(),
                directory=config.spec.get("workingDir") or "/",
                network=self._network(run),
                processes=lambda: self._process_list(run),
                on_server_start=lambda argv: self._set_server(run, argv),
                kill=lambda pid, signal: self._send_signal(run, process, pid, signal),
            )
            streams = Streams(
                lambda text: log.write(process.time, STDOUT, text), lambda text: log.write(process.time, STDERR, text)
            )
            return session, run_argv(session, argv, streams)

        if argv == ["hello-world"]:
            argv = ["echo", HELLO_WORLD_OUTPUT]
        return Process(begin, at, log)


def _expanded(argv: list[str], config: ContainerConfig) -> list[str]:
    """Replace `$(NAME)` by variables of the container, and `$$` by a dollar sign."""
    if not any("$" in word for word in argv):
        return argv
    environment = config.provider.environment(config.spec) if any("$(" in word for word in argv) else {}
    return [expand(word, environment) for word in argv]
