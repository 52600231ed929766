"""A container runtime without containers: a CRI server on a unix socket, with faults, for tests without privileges.

It answers as containerd 1.6 does, texts of errors included. Every state is in memory and outlives `stop` and `start`, as
containers outlive a crash of containerd. All methods may be called from any thread, also on the event loop: none blocks.

    with FakeCri() as cri:
        client = CriClient(cri.endpoint, clock)
        cri.fail("RunPodSandbox", "plugin type=\\"ptp\\" failed", times=2)    # the next two calls fail
        held = cri.hold("PullImage")                                        # calls wait ...
        held.release()                                                      # ... until here
        cri.missing_image("docker.io/library/absent:1")                     # a pull of it fails as with containerd
        cri.start_errors["main"] = "exec: \\"/none\\": no such file"          # containers of this name do not start
        cri.exit(cri.container("main").id, 3)                               # the program ends
        cri.on_exec = lambda container, command: ExecResult(b"out")         # what ExecSync answers
        cri.stop()                                                          # connections are lost; the socket is gone
        cri.start()                                                         # the same containers are there again
        assert cri.count("StopContainer") == 1 and cri.requests("RunPodSandbox")[0].config.hostname == "a"
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from fake_cri_runtime import ExecResult as ExecResult
from fake_cri_runtime import FakeContainer as FakeContainer
from fake_cri_runtime import FakeError as FakeError
from fake_cri_runtime import FakeRuntime
from fake_cri_runtime import FakeSandbox as FakeSandbox

from setpoint.node.cri.enums import ContainerEventType, ContainerState, SandboxState
from setpoint.node.cri.messages import GET_CONTAINER_EVENTS, METHODS, SUBSCRIBE, Method, TaskEvent
from setpoint.wire.grpc import Code

LACKING = {"GetContainerEvents", "RuntimeConfig", "UpdatePodSandboxResources", "CheckpointContainer"}
"""The methods that containerd 1.6 does not have."""
SUBSCRIBE_NAME = "Subscribe"
"""The name of containerd's event stream in `fail`, `hold`, `unimplemented`, `count`."""


class Held:
    """Calls of a method that wait. Created by `FakeCri.hold`."""

    def __init__(self) -> None:
        self._arrived, self._released = threading.Semaphore(0), threading.Event()

    def arrived(self, timeout: float = 10.0) -> bool:
        """Block until a call waits here. Use `await asyncio.to_thread(held.arrived)` on an event loop."""
        return self._arrived.acquire(timeout=timeout)

    def release(self) -> None:
        """Let the waiting calls and all later ones continue."""
        self._released.set()

    def pass_through(self) -> None:
        self._arrived.release()
        self._released.wait()


@dataclass(slots=True)
class _Failure:
    message: str
    code: Code
    times: int | None


class FakeCri(FakeRuntime):
    """The server and the state of a container runtime. `endpoint` is the address for a client."""

    def __init__(self, *, now: Callable[[], int] = time.time_ns, second: float = 0.02) -> None:
        """`now` returns nanoseconds since the epoch. `second` is how long a second of the grace period lasts for
        containers that ignore SIGTERM."""
        super().__init__(now, second)
        self._directory = Path(tempfile.mkdtemp(prefix="fake-cri-"))
        self.socket = self._directory / "cri.sock"
        self.endpoint = f"unix://{self.socket}"
        self.unimplemented = set(LACKING)
        """Methods that answer UNIMPLEMENTED."""
        self.log: list[tuple[str, Any]] = []
        """All calls in the order of their arrival: name of the method and request."""
        self._failures: dict[str, _Failure] = {}
        self._delays: dict[str, float] = {}
        self._held: dict[str, Held] = {}
        self._subscribers: list[tuple[str, queue.SimpleQueue[bytes | None]]] = []
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> FakeCri:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the server ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on the socket."""
        self.socket.unlink(missing_ok=True)
        self._pool = ThreadPoolExecutor(64, thread_name_prefix="fake-cri")
        server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        services: dict[str, dict[str, Any]] = {}
        for name, method in METHODS.items():
            service, _, bare = method.path[1:].partition("/")
            services.setdefault(service, {})[bare] = self._unary(name, method)
        for name, method in (("GetContainerEvents", GET_CONTAINER_EVENTS), (SUBSCRIBE_NAME, SUBSCRIBE)):
            service, _, bare = method.path[1:].partition("/")
            services.setdefault(service, {})[bare] = self._event_stream(name, method)
        for service, handlers in services.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{self.socket}")
        self._server, self.running = server, True
        server.start()

    def stop(self) -> None:
        """Close all connections and the socket, as when the runtime is killed. Calls in progress are lost,
        and have no effect if they waited."""
        server, self._server = self._server, None
        if server is None:
            return
        with self.lock:
            self.running, self.generation = False, self.generation + 1
        stopped = server.stop(None)
        self._wake_all()
        stopped.wait(10)
        self.socket.unlink(missing_ok=True)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def close(self) -> None:
        """Stop, and delete the socket's directory."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wake_all(self) -> None:
        with self.lock:
            held, self._held = self._held, {}
            subscribers, self._subscribers = self._subscribers, []
            for container in self.containers.values():
                container.ended.set()  # wakes a StopContainer that waits
                if container.state == ContainerState.RUNNING:
                    container.ended = threading.Event()
        for one in held.values():
            one.release()
        for _, events in subscribers:
            events.put(None)

    def _unary(self, name: str, method: Method) -> Any:
        def handle(request: Any, context: Any) -> Any:
            try:
                self._arrive(name, request)
                return method.response(**getattr(self, f"_{name}")(request))
            except FakeError as error:
                return context.abort(_status(error.code), error.message)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=method.request.FromString, response_serializer=_serialize
        )

    def _event_stream(self, name: str, method: Method) -> Any:
        def handle(request: Any, context: Any) -> Iterator[bytes]:
            events: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            try:
                self._arrive(name, request, lambda: self._subscribers.append((name, events)))
            except FakeError as error:
                context.abort(_status(error.code), error.message)
            context.add_callback(lambda: events.put(None))
            context.send_initial_metadata(())
            while (event := events.get()) is not None:
                yield event

        return grpc.unary_stream_rpc_method_handler(handle, request_deserializer=method.request.FromString)

    def _arrive(self, name: str, request: Any, then: Callable[[], None] = lambda: None) -> None:
        with self.lock:
            self.log.append((name, request))
            self.call.generation = self.generation
            held, delay = self._held.get(name), self._delays.get(name, 0.0)
        if held is not None:
            held.pass_through()
        if delay:
            time.sleep(delay)
        with self.lock:
            self.check_alive()
            if name in self.unimplemented:
                path = METHODS[name].path if name in METHODS else f"/runtime.v1.RuntimeService/{name}"
                service, _, method = path[1:].partition("/")
                raise FakeError(f"unknown method {method} for service {service}", Code.UNIMPLEMENTED)
            failure = self._failures.get(name)
            if failure is not None:
                if failure.times is not None:
                    failure.times -= 1
                    if failure.times <= 0:
                        del self._failures[name]
                raise FakeError(failure.message, failure.code)
            then()

    # -- faults --------------------------------------------------------------------------------------------------------

    def fail(self, method: str, message: str, code: Code = Code.UNKNOWN, times: int | None = 1) -> None:
        """Let the next `times` calls of a method fail without an effect; all calls if it is None, none if it is 0."""
        with self.lock:
            self._failures.pop(method, None)
            if times != 0:
                self._failures[method] = _Failure(message, code, times)

    def delay(self, method: str, seconds: float) -> None:
        """Let each call of a method wait for real seconds. `hold` needs no real time."""
        self._delays[method] = seconds

    def hold(self, method: str) -> Held:
        """Let the calls of a method wait before they have any effect, until the result is released."""
        with self.lock:
            held = self._held[method] = Held()
        return held

    def unhold(self, method: str) -> None:
        """Release the waiting calls of a method; later calls do not wait."""
        with self.lock:
            held = self._held.pop(method, None)
        if held is not None:
            held.release()

    def missing_image(self, image: str) -> None:
        """Let pulls of an image fail as those of an image that its registry does not have."""
        text = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'
        self.pull_errors[image] = FakeError(text, Code.NOT_FOUND)

    def exit(self, container_id: str, code: int = 0, reason: str = "", message: str = "") -> None:
        """Let the program of a running container end. An empty reason is Completed or Error."""
        with self.lock:
            container = self.containers[container_id]
            assert container.state == ContainerState.RUNNING, "only a running container can exit"
            self._end(container, code, reason, message)

    def break_sandbox(self, sandbox_id: str) -> None:
        """Let the process of a sandbox end; its containers go on."""
        with self.lock:
            self.sandboxes[sandbox_id].state = SandboxState.NOT_READY
            self.announce("/tasks/exit", ContainerEventType.STOPPED, sandbox_id, sandbox_id)

    def reboot(self) -> None:
        """Let all sandboxes and containers end as when the machine restarts: no exit status is known."""
        with self.lock:
            for sandbox in self.sandboxes.values():
                sandbox.state, sandbox.ip = SandboxState.NOT_READY, ""
            for container in self.containers.values():
                if container.state == ContainerState.RUNNING:
                    container.state, container.exit_code, container.reason = ContainerState.EXITED, 255, "Unknown"
                    container.finished_at = self.now()
                    container.ended.set()

    # -- what happened -------------------------------------------------------------------------------------------------

    def requests(self, method: str) -> list[Any]:
        """Return the requests of a method in the order of their arrival."""
        with self.lock:
            return [request for name, request in self.log if name == method]

    def count(self, method: str) -> int:
        return len(self.requests(method))

    @property
    def subscribers(self) -> int:
        """The number of open event streams."""
        return len(self._subscribers)

    def container(self, name: str) -> FakeContainer:
        """Return the newest container of a name."""
        with self.lock:
            return [one for one in self.containers.values() if one.name == name][-1]

    def sandbox(self, pod: str) -> FakeSandbox:
        """Return the newest sandbox of a Pod, by the Pod's name."""
        with self.lock:
            return [one for one in self.sandboxes.values() if one.config.metadata.name == pod][-1]

    def announce(self, topic: str, kind: int, container_id: str, sandbox_id: str) -> None:
        with self.lock:
            if not self._subscribers:
                return
            process = container_id if topic == "/tasks/exit" else ""
            event = {"value": TaskEvent(container_id=container_id, process_id=process).SerializeToString()}
            topics = [topic, "/tasks/delete"] if topic == "/tasks/exit" else [topic]
            envelopes = [SUBSCRIBE.response(namespace="k8s.io", topic=one, event=event) for one in topics]
            event_of_cri = GET_CONTAINER_EVENTS.response(
                container_id=container_id, container_event_type=kind, created_at=self.now()
            ).SerializeToString()
            for name, events in self._subscribers:
                if name == "GetContainerEvents":
                    events.put(event_of_cri)
                elif topic.startswith("/tasks/"):
                    for envelope in envelopes:
                        events.put(envelope.SerializeToString())

    def announce_exec_exit(self, container_id: str, process_id: str) -> None:
        """Send containerd's event of the end of a command that was executed in a container."""
        event = {"value": TaskEvent(container_id=container_id, process_id=process_id).SerializeToString()}
        self.announce_raw(SUBSCRIBE.response(namespace="k8s.io", topic="/tasks/exit", event=event).SerializeToString())

    def announce_raw(self, message: bytes) -> None:
        """Send bytes as an event to the subscribers of both event streams."""
        with self.lock:
            for _, events in self._subscribers:
                events.put(message)


def _status(code: Code) -> Any:
    return grpc.StatusCode[code.name]


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())
