"""A runtime that simulates containers: their programs are interpreted by a small shell, and servers are not
executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from setpoint.meta.clock import Clock, Ids
from setpoint.meta.times import parse_time
from setpoint.node.container_ports import resolve_port
from setpoint.node.pace import INSTANT, Pace
from setpoint.node.runtime.container_behavior import (
    exceeds_memory_limit,
    is_missing,
    is_unknown_program,
    linux_user,
    runs_forever,
    runs_to_completion,
    sigterm_reaction,
    startup_output,
    usage_of,
)
from setpoint.node.runtime.containers import (
    CONTAINER_ID_SCHEME,
    KILLED,
    BoundedLog,
    Container,
    PodContainers,
    SimulatedExecution,
    repeated_exit,
)
from setpoint.node.runtime.delayed import Delayed, HookExecution
from setpoint.node.runtime.files import Volume
from setpoint.node.runtime.images import SimulatedImageService, command_line, parse_reference
from setpoint.node.runtime.interface import (
    STDOUT,
    ContainerConfig,
    ContainerLog,
    ContainerRecord,
    Done,
    EnvironmentProvider,
    Execution,
    HookResult,
    Image,
    ImageLookup,
    NoSuchContainer,
    Operation,
    PodRecords,
    ProbeResult,
    PullResult,
    SandboxResult,
    StartResult,
    Usage,
)
from setpoint.node.runtime.network import (
    ClusterNetwork,
    ConnectionFailure,
    PodRequest,
    PodResponse,
)
from setpoint.node.runtime.processes import SimulatedProcesses, expanded
from setpoint.node.runtime.shell.session import StdinBuffer
from setpoint.node.runtime.simulated_probes import simulated_probe
from setpoint.node.simulation_annotations import parse_seconds, simulation_annotation

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.node_state import NodeState

_UNKNOWN_EXIT_CODE = 255
"""The exit code of a container whose end was not observed."""


class SimulatedRuntime:
    """Implements ContainerRuntime for all Pods of a fleet."""

    version = "1.0.0"

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        images: SimulatedImageService | None = None,
        pace: Pace = INSTANT,
        mount_error: Callable[[Pod], str] = lambda pod: "",
    ) -> None:
        """Create the runtime. `mount_error(pod)` returns the kubelet's message if a volume of the Pod cannot be
        mounted, and is empty otherwise."""
        self._clock = clock
        self._ids = ids
        self.images = images or SimulatedImageService()
        self.pace = pace
        self.mount_error = mount_error
        self._pods: dict[str, PodContainers] = {}
        self._addresses: dict[str, str] = {}
        """The uids of Pods by address."""
        self._shared: dict[str, dict[str, Volume]] = {}
        self.on_change: Callable[[str], None] = lambda uid: None
        """Called with the uid of a Pod that must be advanced earlier than `advance` returned."""
        self._processes = SimulatedProcesses(self._pods, self.images, clock, self.log, lambda uid: self.on_change(uid))
        self.servers = self._processes.servers

    def connect(self, network: ClusterNetwork) -> None:
        """Connect the Pods to each other."""
        self._processes.network = network

    # -- for the agent (ContainerRuntime) ------------------------------------------------------------------------------

    @property
    def initial_backoff(self) -> float:
        return self.pace.backoff

    def mount_volumes(self, pod: Pod, provider: EnvironmentProvider) -> Operation[Sequence[str]]:
        problem = self.mount_error(pod)
        return Done((problem,) if problem else ())

    def create_sandbox(self, pod: Pod, node: NodeState) -> Operation[SandboxResult]:
        return Done(SandboxResult(self.restore_sandbox(pod, node)))

    def sandbox_ready(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and pod.has_sandbox

    def restore_sandbox(self, pod: Pod, node: NodeState) -> Sequence[str]:
        address, uid = node.address_for(pod), pod["metadata"]["uid"]
        self.register_address(uid, address, node.name, shared=bool(pod["spec"].get("hostNetwork")))
        self._pods[uid].has_sandbox = True
        return (address,)

    def stop_pod(self, uid: str) -> Operation[str]:
        pod = self._pods.get(uid)
        if pod is not None:
            pod.has_sandbox = False
        return Done("")

    def find_image(self, image: str, pod: Pod, node: NodeState) -> Operation[ImageLookup]:
        info = self.images.info(image)
        present = info is not None and info.name in node.images and info.name not in self.images.faults.broken
        return Done(ImageLookup(Image(info.name, info.id, info.size_bytes) if info is not None and present else None))

    def pull_image(self, image: str, pod: Pod, node: NodeState, at: float) -> Operation[PullResult]:
        info = self.images.info(image)
        assert info is not None, "the name of the image was checked"
        error, duration = self.images.pull_error(info), 0.0
        if info.name not in node.images:
            duration = parse_seconds(simulation_annotation(pod, "pull-seconds"), info.pull_seconds)
        until = at + duration
        if not error:
            until = node.pulls_in_progress.get(info.name, until)  # another container may be pulling the image already
            if until > at:
                node.pulls_in_progress[info.name] = until

        def complete(now: float) -> PullResult:
            if error:
                return PullResult(None, error)
            node.pulls_in_progress.pop(info.name, None)
            node.add_image(info.name, info.id, info.size_bytes)
            return PullResult(Image(info.name, info.id, info.size_bytes), seconds=until - at, waited_seconds=until - at)

        return Delayed(until, complete)

    def start_container(self, uid: str, config: ContainerConfig, at: float) -> Operation[StartResult]:
        duration = self.pace.start.sample(f"{uid} {config.name} {config.attempt}")
        return Delayed(at + duration, lambda now: StartResult(self._start(uid, config, now)))

    def restore_container(
        self, uid: str, config: ContainerConfig, reported: Mapping[str, Any], now: float
    ) -> ContainerRecord | None:
        """Start the container again as it was, if the status says that it runs."""
        if (exits := repeated_exit(config.spec, reported)) is not None:
            pod = self._pods.setdefault(uid, PodContainers())
            pod.repeated_exits = {**pod.repeated_exits, config.name: exits}
        running = (reported.get("state") or {}).get("running")
        info = self.images.info(config.spec.get("image", ""))
        if running is None or info is None:
            return None
        config.image, config.image_id = info.name, info.id
        outdated = _is_other_image(reported.get("image") or "", info.name)
        if outdated:
            config.image, config.image_id = reported["image"], reported.get("imageID") or ""
        began = parse_time(running["startedAt"]).timestamp() if running.get("startedAt") else now
        record = self._start(uid, config, began, reported.get("containerID") or "")
        record.outdated = outdated
        return record

    def update_resources(self, uid: str, config: ContainerConfig) -> Operation[str]:
        run = self._container(uid, config.name)
        if run is not None:
            run.config.spec = config.spec
        return Done("")

    def probe(
        self, uid: str, container: Mapping[str, Any], kind: str, spec: Mapping[str, Any], pod: Pod, ip: str
    ) -> Operation[ProbeResult]:
        return Done(simulated_probe(uid, container, kind, spec, pod, ip, self.servers, self.exec_sync))

    def run_hook(
        self, uid: str, container: Mapping[str, Any], hook: Mapping[str, Any], at: float, *, pre_stop: bool
    ) -> Operation[HookResult]:
        if hook.get("sleep"):
            return Delayed(at + float(hook["sleep"].get("seconds", 0)), lambda now: HookResult(True))
        if hook.get("exec"):
            return HookExecution(self.exec(uid, container["name"], hook["exec"].get("command") or []))
        return Done(HookResult(self._http_hook_succeeds(uid, container, hook["httpGet"])))

    def _http_hook_succeeds(self, uid: str, container: Mapping[str, Any], hook: Mapping[str, Any]) -> bool:
        """Return whether the request of the hook succeeds. It does where the simulation does not know what the server
        would respond."""
        path, _, query = str(hook.get("path") or "/").partition("?")
        port = resolve_port(container, hook.get("port"))
        request = PodRequest(port, path, query, "GET", hook.get("scheme") == "HTTPS")
        found = self.http_request(uid, container["name"], hook.get("host") or "", request)
        return found is ConnectionFailure.RESET or (isinstance(found, PodResponse) and 200 <= found.status < 400)

    def _start(self, uid: str, config: ContainerConfig, at: float, container_id: str = "") -> ContainerRecord:
        """Start a container, or restore the run with the given id."""
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = PodContainers()
        name = config.name
        record = ContainerRecord(
            name,
            container_id or CONTAINER_ID_SCHEME + self._new_id(),
            config.image,
            config.image_id,
            config.attempt,
            at,
            user=linux_user(config.spec, config.pod["spec"]),
        )
        run = Container(config, record)
        before = pod.current.pop(name, None)
        if before is not None:
            pod.previous = {**pod.previous, name: before}
        pod.current[name] = run
        info = self.images.info(config.spec.get("image", ""))
        argv = command_line(config.spec, info)
        completes = runs_to_completion(config.pod, name)
        if argv and info is not None and info.fully_known and is_missing(argv[0]):
            run.fail_to_start(argv[0], at)
        elif argv is not None and not runs_forever(argv):
            run.log = BoundedLog()
            stdin_buffer = StdinBuffer(closed=not config.spec.get("stdin"))
            run.process = self._processes.start(
                run, expanded(argv, config), at, run.log, stdin_buffer=stdin_buffer, unknown_programs_run=not completes
            )
            run.process.advance(at)
            run.sync_record()
        elif completes and is_unknown_program(argv) and not (argv is None and info is not None and info.is_server):
            run.end(0, at)
        exits = pod.repeated_exits.get(name)
        if exits is not None and exits.image == config.spec.get("image") and record.running:
            run.end(exits.code, at)
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
            self._apply_forced_exit(pod, run, now)
            if run.record.running and run.kill_at is not None and run.kill_at <= now:
                run.end(run.record.exit_code or KILLED, run.kill_at)
            if run.record.running:
                for at in (run.kill_at, process.next_wakeup if process is not None else None):
                    if at is not None and (earliest is None or at < earliest):
                        earliest = at
        if pod.executions:
            for name, process in pod.executions:
                process.advance(now)
                if not pod.current[name].record.running:
                    process.end(KILLED, now)
                if process.exit_code is not None:
                    pod.executions = tuple(each for each in pod.executions if each[1] is not process)
                elif process.next_wakeup is not None and (earliest is None or process.next_wakeup < earliest):
                    earliest = process.next_wakeup
        return earliest

    def _apply_forced_exit(self, pod: PodContainers, run: Container, now: float) -> None:
        """End the container if it exceeds its memory limit or an annotation requests an exit."""
        config = run.config
        if not run.record.running:
            return
        if exceeds_memory_limit(config.pod, config.spec):
            run.end(KILLED, now)
            run.record.reason = "OOMKilled"
            return
        code = simulation_annotation(config.pod, "exit-code", config.name)
        if code.isdigit() and code != pod.applied_exit_codes.get(config.name):
            pod.applied_exit_codes = {**pod.applied_exit_codes, config.name: code}
            run.end(int(code) & 255, now)

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
        if pod is not None:
            pod.has_sandbox = False
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
        process = self._processes.start(
            run, list(argv), now, BoundedLog(), stdin_buffer=stdin_buffer, unknown_programs_run=False
        )
        process.advance(now)
        if process.exit_code is None:
            self._pods[uid].executions += ((container, process),)
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
        process = self._processes.start(run, list(argv), now, log, unknown_programs_run=False)
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
        network = self._processes.network_of(run)
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
        """Take over a new version of the Pod, whose annotations determine usage and the reaction to signals. The one
        before is not needed any more."""
        known = self._pods.get(uid)
        for run in (*known.current.values(), *known.previous.values()) if known is not None else ():
            run.config.pod = pod

    # -- internals -----------------------------------------------------------------------------------------------------

    def _container(self, uid: str, name: str) -> Container | None:
        pod = self._pods.get(uid)
        return pod.current.get(name) if pod is not None else None

    def _new_id(self) -> str:
        return sha256(self._ids.uid().encode()).hexdigest()


def _is_other_image(reported: str, name: str) -> bool:
    """Return whether the image of a reported status is another one than that with this full name. An id or a digest
    says nothing about the name."""
    found = parse_reference(reported)
    if found is None or reported.startswith("sha256:") or "@" in reported + name:
        return False
    return found.name != name
