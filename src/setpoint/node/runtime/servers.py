"""The servers in simulated Pods: which ports they have open, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from setpoint.meta.clock import Clock
from setpoint.node.runtime.containers import Container, PodContainers
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.given_files import hostname_of
from setpoint.node.runtime.images import Images, argv_of
from setpoint.node.runtime.interface import STDERR, ContainerLog, NoSuchContainer
from setpoint.node.runtime.network import TCP, UDP, Failure, Network
from setpoint.node.runtime.web import Server, agnhost_ports, answer, grpc_port
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest


class Servers:
    def __init__(
        self,
        pods: Mapping[str, PodContainers],
        images: Images,
        clock: Clock,
        files: Callable[[Container], Files],
        network: Callable[[Container], Network],
        log: Callable[[str, str], ContainerLog],
    ) -> None:
        """`log(uid, container)` makes sure that there is a log to write to."""
        self._pods = pods
        self._images = images
        self._clock = clock
        self._files = files
        self._network = network
        self._log = log

    def deliver(self, uid: str, request: WebRequest) -> WebAnswer | Failure:
        """Return what the Pod answers. Of servers of which nobody knows what they serve, it is known which ports are
        open: those that the container declares, and those that the image is known for."""
        try:
            found = self.ask(uid, request)
        except NoSuchContainer:
            protocol = TCP if request.datagram is None else UDP
            return self.listens(uid, request.port, protocol) or Failure.CLOSED
        return Failure.REFUSED if found is None else found

    def listens(self, uid: str, port: int, protocol: str) -> Failure | None:
        """Return None if something in the Pod listens at the port."""
        pod = self._pods.get(uid)
        for run in pod.current.values() if pod is not None else ():
            if run.record.running and run.serves and (port, protocol) in self._open_ports(run):
                return None
        return Failure.REFUSED

    def _open_ports(self, run: Container) -> set[tuple[int, str]]:
        spec = run.launch.spec
        facts = self._images.facts(spec.get("image", ""))
        found = {(int(each["containerPort"]), each.get("protocol", TCP)) for each in spec.get("ports") or ()}
        argv = run.serving or argv_of(spec, facts)
        if argv is not None and argv[0].rpartition("/")[2] in ("agnhost", "agnhost-2"):
            return agnhost_ports(argv, run.launch.home.environment(spec))
        if facts is not None:
            found |= {(port, TCP) for port in facts.ports}
        return found

    def ask(self, uid: str, request: WebRequest) -> WebAnswer | None:
        pod, now = self._pods.get(uid), self._clock.now().timestamp()
        unknown = False
        for run in pod.current.values() if pod is not None else ():
            if not run.record.running or not run.serves:
                continue
            try:
                found = answer(self._server(run), request)
            except LookupError:
                unknown = True
                continue
            if found is not None:
                if found[1]:
                    self._log(uid, run.launch.name)
                    assert run.log is not None
                    run.log.write(now, STDERR, found[1])
                return found[0]
        if unknown or pod is None:
            raise NoSuchContainer(uid)
        return None

    def health(self, uid: str, container: str, request: WebRequest, *, grpc: bool = False) -> int:
        """The status with which its server answers a probe; 0: nothing listens there. Where nobody knows, all is well:
        so is every page of a web server, unless somebody removed it."""
        pod = self._pods.get(uid)
        run = pod.current.get(container) if pod is not None else None
        if run is None:
            return 0
        facts = self._images.facts(run.launch.spec.get("image", ""))
        argv = argv_of(run.launch.spec, facts)
        if grpc:
            port = grpc_port(argv)
            return 200 if port is None or port == request.port else 0
        if argv is None or argv[0].rpartition("/")[2] not in ("agnhost", "agnhost-2"):
            gone = facts is not None and facts.page and run.files is not None and not run.files.is_file(facts.page)
            return 404 if gone and request.path in ("", "/", "/index.html") else 200
        try:
            found = answer(self._server(run), request)
        except LookupError:
            return 200
        return found[0].status if found is not None else 0

    def _server(self, run: Container) -> Server:
        launch, now = run.launch, self._clock.now().timestamp()
        facts = self._images.facts(launch.spec.get("image", ""))
        ports = [each["containerPort"] for each in launch.spec.get("ports") or ()]
        return Server(
            run.serving or argv_of(launch.spec, facts), facts.page if facts is not None else "", self._files(run),
            hostname_of(launch.pod), launch.home.environment(launch.spec), ports, now, now - run.record.started_at,
            self._network(run),
        )  # fmt: skip
