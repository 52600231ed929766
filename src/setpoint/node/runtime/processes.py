"""Creates the processes of simulated containers: each runs in a session with the container's files and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from setpoint.meta.clock import Clock
from setpoint.node.environment import expand
from setpoint.node.runtime.container_behavior import HELLO_WORLD_OUTPUT
from setpoint.node.runtime.containers import BoundedLog, Container, PodContainers, Process
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.images import SimulatedImageService, command_line
from setpoint.node.runtime.interface import STDERR, STDOUT, ContainerConfig, ContainerLog
from setpoint.node.runtime.managed_files import container_user, hostname_of, managed_files
from setpoint.node.runtime.network import ClusterNetwork, ContainerNetwork, Network, NoNetwork
from setpoint.node.runtime.servers import SimulatedServers
from setpoint.node.runtime.shell.session import ProgramRun, Session, StdinBuffer, Streams


class SimulatedProcesses:
    """Starts processes in the containers of a fleet."""

    def __init__(
        self,
        pods: Mapping[str, PodContainers],
        images: SimulatedImageService,
        clock: Clock,
        log: Callable[[str, str], ContainerLog],
        changed: Callable[[str], None],
    ) -> None:
        """Create the processes' owner. `log(uid, container)` returns the log of a container; `changed(uid)` is called
        when a process has changed the state of its Pod."""
        self._pods = pods
        self._images = images
        self._clock = clock
        self._changed = changed
        self.network: ClusterNetwork | None = None
        """The cluster's network; None if Pods do not reach each other."""
        self.servers = SimulatedServers(pods, images, clock, self.files, self.network_of, log)

    def files(self, run: Container) -> Files:
        if run.files is None:
            config = run.config
            read_only = bool((config.spec.get("securityContext") or {}).get("readOnlyRootFilesystem"))
            info = self._images.info(config.spec.get("image", ""))
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

    def network_of(self, run: Container) -> Network:
        if self.network is None:
            return NoNetwork()
        pod = run.config.pod
        address = self._pods[pod["metadata"]["uid"]].address
        return ContainerNetwork(pod, address, lambda: self.files(run), self.network, self.servers)

    def _image_fully_known(self, run: Container) -> bool:
        info = self._images.info(run.config.spec.get("image", ""))
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
        self._changed(run.config.pod["metadata"]["uid"])
        return True

    def _process_list(self, run: Container) -> list[str]:
        """Return the command line of the container's first process."""
        spec = run.config.spec
        argv = command_line(spec, self._images.info(spec.get("image", "")))
        return [" ".join(expanded(argv, run.config)) if argv else run.config.name]

    def start(
        self,
        run: Container,
        argv: list[str],
        at: float,
        log: BoundedLog,
        *,
        stdin_buffer: StdinBuffer | None = None,
        unknown_programs_run: bool = True,
    ) -> Process:
        # Imported here because containers that run servers need no interpreter: a cluster without others starts sooner.
        from setpoint.node.runtime.shell.interpreter import run_argv

        config, files = run.config, self.files(run)

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
                network=self.network_of(run),
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


def expanded(argv: list[str], config: ContainerConfig) -> list[str]:
    """Replace `$(NAME)` by variables of the container, and `$$` by a dollar sign."""
    if not any("$" in word for word in argv):
        return argv
    environment = config.provider.environment(config.spec) if any("$(" in word for word in argv) else {}
    return [expand(word, environment) for word in argv]
