"""The state of a fake container runtime, and CRI's methods on it, with the texts of containerd 1.6's errors."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from setpoint.node.cri.enums import ContainerEventType, ContainerState, NamespaceMode, SandboxState
from setpoint.node.cri.messages import CLASSES
from setpoint.wire.grpc import Code

_NOT_FOUND = "not found"


class ExecResult(NamedTuple):
    """The result of a command of ExecSync."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0


class FakeError(Exception):
    """A status other than OK: raise it from `on_exec`, or pass its parts to `fail`."""

    def __init__(self, message: str, code: Code = Code.UNKNOWN) -> None:
        super().__init__(message)
        self.message, self.code = message, code


@dataclass(slots=True)
class FakeSandbox:
    id: str
    config: Any
    created_at: int
    ip: str
    state: int = SandboxState.READY
    runtime_handler: str = ""


@dataclass(slots=True)
class FakeContainer:
    id: str
    sandbox_id: str
    config: Any
    image_id: str
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    state: int = ContainerState.CREATED
    resources: Any = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return str(self.config.metadata.name)


class FakeRuntime:
    """The sandboxes, containers and images. The methods of CRI are named after them, and return the response as a dict
    or raise FakeError."""

    def __init__(self, now: Callable[[], int], second: float) -> None:
        self.lock = threading.RLock()
        self.now, self.second = now, second
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.images: dict[str, Any] = {}
        """Messages of type Image by id."""
        self.pull_errors: dict[str, FakeError] = {}
        """Images that cannot be pulled, by the name in the request."""
        self.start_errors: dict[str, str] = {}
        """Messages with which StartContainer fails, by the name of the container."""
        self.exits: dict[str, int] = {}
        """Exit codes of containers that end as soon as they are started, by name."""
        self.ignore_sigterm: set[str] = set()
        """Names of containers that only SIGKILL ends."""
        self.on_exec: Callable[[FakeContainer, list[str]], ExecResult] = lambda container, command: ExecResult()
        self.conditions: dict[str, tuple[bool, str, str]] = {
            "RuntimeReady": (True, "", ""),
            "NetworkReady": (True, "", ""),
        }
        """Status, reason and message of the runtime's conditions."""
        self.version = "1.6.20"
        self.handlers: list[dict[str, Any]] = []
        """The runtime handlers of Status, as dicts of RuntimeHandler."""
        self.features: dict[str, Any] | None = None
        """The features of Status, as a dict of RuntimeFeatures; None if the runtime does not know them."""
        self.info: dict[str, str] = {}
        """The details of a verbose Status."""
        self.cgroup_driver = 1
        self.streaming_url = "http://127.0.0.1:1/"
        """The beginning of the addresses that Exec, Attach and PortForward return."""
        self.running = False
        self.generation = 0
        """The number of times that the runtime was stopped."""
        self.call = threading.local()
        """The call of this thread; `call.generation` is the generation when it arrived."""
        self._count = 0

    def check_alive(self) -> None:
        """Raise FakeError if the runtime was stopped since the call of this thread arrived."""
        if not self.running or self.call.generation != self.generation:
            raise FakeError("the runtime was stopped", Code.UNAVAILABLE)

    def announce(self, topic: str, kind: int, container_id: str, sandbox_id: str) -> None:
        """Send an event to the subscribers of both event streams."""
        raise NotImplementedError

    def add_image(self, name: str, size: int = 1_000_000, **fields: Any) -> str:
        """Make an image present and return its id. `fields` are further ones of the message Image."""
        with self.lock:
            tag = _normalized(name)
            image_id = "sha256:" + hashlib.sha256(tag.encode()).hexdigest()
            digest = "sha256:" + hashlib.sha256(image_id.encode()).hexdigest()
            repository = tag.partition("@")[0]
            if ":" in repository.rpartition("/")[2]:
                repository = repository.rpartition(":")[0]
            tags = [] if "@" in tag else [tag]
            digests = [tag if "@" in tag else f"{repository}@{digest}"]
            made = {"id": image_id, "repo_tags": tags, "repo_digests": digests, "size": size}
            self.images[image_id] = CLASSES["Image"](**(made | fields))
            return image_id

    # -- runtime -------------------------------------------------------------------------------------------------------

    def _Version(self, request: Any) -> dict[str, Any]:
        versions = {"version": "0.1.0", "runtime_version": self.version, "runtime_api_version": "v1"}
        return versions | {"runtime_name": "containerd"}

    def _Status(self, request: Any) -> dict[str, Any]:
        conditions = [
            {"type": kind, "status": status, "reason": reason, "message": message}
            for kind, (status, reason, message) in self.conditions.items()
        ]
        found = {"status": {"conditions": conditions}, "runtime_handlers": self.handlers, "features": self.features}
        return found | ({"info": self.info} if request.verbose else {})

    def _RuntimeConfig(self, request: Any) -> dict[str, Any]:
        return {"linux": {"cgroup_driver": self.cgroup_driver}}

    def _UpdateRuntimeConfig(self, request: Any) -> dict[str, Any]:
        return {}

    # -- sandboxes -----------------------------------------------------------------------------------------------------

    def _RunPodSandbox(self, request: Any) -> dict[str, Any]:
        with self.lock:
            metadata = request.config.metadata
            name = f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"
            for one in self.sandboxes.values():
                if one.config.metadata == metadata:
                    reserved = f'name "{name}" is reserved for "{one.id}"'
                    raise FakeError(f'failed to reserve sandbox name "{name}": {reserved}')
            made = self._new_id()
            host = request.config.linux.security_context.namespace_options.network == NamespaceMode.NODE
            ip = "" if host else f"10.88.{self._count // 250}.{self._count % 250 + 2}"
            self.sandboxes[made] = FakeSandbox(
                made, request.config, self.now(), ip, runtime_handler=request.runtime_handler
            )
            self.announce("/tasks/start", ContainerEventType.STARTED, made, made)
            return {"pod_sandbox_id": made}

    def _StopPodSandbox(self, request: Any) -> dict[str, Any]:
        with self.lock:
            sandbox = self.sandboxes.get(request.pod_sandbox_id)
            if sandbox is None:
                message = f'an error occurred when try to find sandbox "{request.pod_sandbox_id}": {_NOT_FOUND}'
                raise FakeError(message, Code.NOT_FOUND)
            self._stop_sandbox(sandbox)
            return {}

    def _stop_sandbox(self, sandbox: FakeSandbox) -> None:
        for container in self.containers.values():
            if container.sandbox_id == sandbox.id and container.state == ContainerState.RUNNING:
                self._end(container, 137)
        if sandbox.state == SandboxState.READY:
            self.announce("/tasks/exit", ContainerEventType.STOPPED, sandbox.id, sandbox.id)
        sandbox.state, sandbox.ip = SandboxState.NOT_READY, ""

    def _RemovePodSandbox(self, request: Any) -> dict[str, Any]:
        with self.lock:
            sandbox = self.sandboxes.get(request.pod_sandbox_id)
            if sandbox is not None:
                self._stop_sandbox(sandbox)
                for container in [one for one in self.containers.values() if one.sandbox_id == sandbox.id]:
                    del self.containers[container.id]
                del self.sandboxes[sandbox.id]
            return {}

    def _PodSandboxStatus(self, request: Any) -> dict[str, Any]:
        with self.lock:
            sandbox = self.sandboxes.get(request.pod_sandbox_id)
            if sandbox is None:
                raise FakeError(f"an error occurred when try to find sandbox: {_NOT_FOUND}", Code.NOT_FOUND)
            return {"status": self._sandbox_status(sandbox)}

    def _sandbox_status(self, sandbox: FakeSandbox) -> dict[str, Any]:
        options = sandbox.config.linux.security_context.namespace_options
        return self._listed_sandbox(sandbox) | {
            "network": {"ip": sandbox.ip},
            "linux": {"namespaces": {"options": options}},
        }

    def _listed_sandbox(self, sandbox: FakeSandbox) -> dict[str, Any]:
        config = sandbox.config
        return {
            "id": sandbox.id,
            "metadata": config.metadata,
            "state": sandbox.state,
            "created_at": sandbox.created_at,
            "labels": dict(config.labels),
            "annotations": dict(config.annotations),
            "runtime_handler": sandbox.runtime_handler,
        }

    def _ListPodSandbox(self, request: Any) -> dict[str, Any]:
        with self.lock:
            wanted = request.filter
            found = [
                self._listed_sandbox(one)
                for one in self.sandboxes.values()
                if one.id.startswith(wanted.id)
                and (not wanted.HasField("state") or wanted.state.state == one.state)
                and wanted.label_selector.items() <= dict(one.config.labels).items()
            ]
            return {"items": found}

    def _UpdatePodSandboxResources(self, request: Any) -> dict[str, Any]:
        self._PodSandboxStatus(request)
        return {}

    # -- containers ----------------------------------------------------------------------------------------------------

    def _CreateContainer(self, request: Any) -> dict[str, Any]:
        with self.lock:
            sandbox, config = self.sandboxes.get(request.pod_sandbox_id), request.config
            if sandbox is None:
                message = f'failed to find sandbox id "{request.pod_sandbox_id}": {_NOT_FOUND}'
                raise FakeError(message, Code.NOT_FOUND)
            if sandbox.state != SandboxState.READY:
                missing = f"no running task found: task {sandbox.id} not found: not found"
                raise FakeError(f"failed to get sandbox container task: {missing}", Code.NOT_FOUND)
            pod = sandbox.config.metadata
            name = f"{config.metadata.name}_{pod.name}_{pod.namespace}_{pod.uid}_{config.metadata.attempt}"
            for one in self.containers.values():
                other = self.sandboxes[one.sandbox_id].config.metadata
                if one.config.metadata == config.metadata and other.uid == pod.uid:
                    reserved = f'name "{name}" is reserved for "{one.id}"'
                    raise FakeError(f'failed to reserve container name "{name}": {reserved}')
            image = self._find_image(config.image.image)
            if image is None:
                message = f'failed to resolve image "{config.image.image}": {_NOT_FOUND}'
                raise FakeError(message, Code.NOT_FOUND)
            made = self._new_id()
            container = FakeContainer(made, sandbox.id, config, image.id, self.now(), resources=config.linux.resources)
            self.containers[made] = container
            self.announce("/containers/create", ContainerEventType.CREATED, made, sandbox.id)
            return {"container_id": made}

    def _StartContainer(self, request: Any) -> dict[str, Any]:
        with self.lock:
            container = self._existing(request.container_id)
            if container.state != ContainerState.CREATED:
                state = f"CONTAINER_{ContainerState(container.state).name}"
                message = f'failed to set starting state for container "{container.id}": container is in {state} state'
                raise FakeError(message)
            error = self.start_errors.get(container.name, "")
            if self.sandboxes[container.sandbox_id].state != SandboxState.READY:
                error = f'sandbox container "{container.sandbox_id}" is not running'
            if error:
                container.state, container.exit_code, container.reason = ContainerState.EXITED, 128, "StartError"
                container.message, container.finished_at = error, self.now()
                raise FakeError(error)
            container.state, container.started_at = ContainerState.RUNNING, self.now()
            self.announce("/tasks/start", ContainerEventType.STARTED, container.id, container.sandbox_id)
            if container.name in self.exits:
                self._end(container, self.exits[container.name])
            return {}

    def _StopContainer(self, request: Any) -> dict[str, Any]:
        with self.lock:
            container = self._existing(request.container_id)
            if container.state != ContainerState.RUNNING:
                return {}
            self.check_alive()
            ignores, ended = container.name in self.ignore_sigterm, container.ended
            if request.timeout > 0 and not ignores:
                self._end(container, 143)
        if request.timeout > 0 and ignores:
            ended.wait(request.timeout * self.second)
        with self.lock:
            self.check_alive()
            if container.state == ContainerState.RUNNING:
                self._end(container, 137)
        return {}

    def _RemoveContainer(self, request: Any) -> dict[str, Any]:
        with self.lock:
            container = self.containers.get(request.container_id)
            if container is not None:
                if container.state == ContainerState.RUNNING:
                    self._end(container, 137)
                del self.containers[container.id]
                self.announce("/containers/delete", ContainerEventType.DELETED, container.id, container.sandbox_id)
            return {}

    def _ListContainers(self, request: Any) -> dict[str, Any]:
        with self.lock:
            wanted = request.filter
            found = [
                {
                    "id": one.id,
                    "pod_sandbox_id": one.sandbox_id,
                    "metadata": one.config.metadata,
                    "image": one.config.image,
                    "image_ref": one.image_id,
                    "state": one.state,
                    "created_at": one.created_at,
                    "labels": dict(one.config.labels),
                    "annotations": dict(one.config.annotations),
                }
                for one in self.containers.values()
                if one.id.startswith(wanted.id)
                and one.sandbox_id.startswith(wanted.pod_sandbox_id)
                and (not wanted.HasField("state") or wanted.state.state == one.state)
                and wanted.label_selector.items() <= dict(one.config.labels).items()
            ]
            return {"containers": found}

    def _ContainerStatus(self, request: Any) -> dict[str, Any]:
        with self.lock:
            return {"status": self._container_status(self._existing(request.container_id))}

    def _container_status(self, container: FakeContainer) -> dict[str, Any]:
        config, image = container.config, self.images.get(container.image_id)
        ended = container.state == ContainerState.EXITED
        reason = container.reason or (("Error" if container.exit_code else "Completed") if ended else "")
        return {
            "id": container.id,
            "metadata": config.metadata,
            "state": container.state,
            "created_at": container.created_at,
            "started_at": container.started_at,
            "finished_at": container.finished_at,
            "exit_code": container.exit_code,
            "image": {"image": image.repo_tags[0]} if image is not None and image.repo_tags else config.image,
            "image_ref": image.repo_digests[0] if image is not None else container.image_id,
            "reason": reason,
            "message": container.message,
            "labels": dict(config.labels),
            "annotations": dict(config.annotations),
            "mounts": list(config.mounts),
            "log_path": f"{self.sandboxes[container.sandbox_id].config.log_directory}/{config.log_path}",
            "resources": {"linux": container.resources},
        }

    def _UpdateContainerResources(self, request: Any) -> dict[str, Any]:
        with self.lock:
            self._existing(request.container_id, "failed to find container").resources = request.linux
            return {}

    def _ReopenContainerLog(self, request: Any) -> dict[str, Any]:
        with self.lock:
            if self._existing(request.container_id).state != ContainerState.RUNNING:
                raise FakeError("container is not running")
            return {}

    def _CheckpointContainer(self, request: Any) -> dict[str, Any]:
        self._existing(request.container_id)
        return {}

    def _ExecSync(self, request: Any) -> dict[str, Any]:
        try:
            container = self._running(request.container_id)
        except FakeError as error:
            raise FakeError(f"failed to exec in container: {error.message}", error.code) from None
        stdout, stderr, exit_code = self.on_exec(container, list(request.cmd))
        return {"stdout": stdout, "stderr": stderr, "exit_code": exit_code}

    def _Exec(self, request: Any) -> dict[str, Any]:
        return {"url": f"{self.streaming_url}exec/{self._running(request.container_id).id[:8]}"}

    def _Attach(self, request: Any) -> dict[str, Any]:
        return {"url": f"{self.streaming_url}attach/{self._running(request.container_id).id[:8]}"}

    def _PortForward(self, request: Any) -> dict[str, Any]:
        with self.lock:
            sandbox = self.sandboxes.get(request.pod_sandbox_id)
            if sandbox is None:
                message = f'failed to find sandbox "{request.pod_sandbox_id}": {_NOT_FOUND}'
                raise FakeError(message, Code.NOT_FOUND)
            if sandbox.state != SandboxState.READY:
                raise FakeError("sandbox container is not running")
            return {"url": f"{self.streaming_url}portforward/{sandbox.id[:8]}"}

    # -- stats ---------------------------------------------------------------------------------------------------------

    def _ContainerStats(self, request: Any) -> dict[str, Any]:
        with self.lock:
            container = self._existing(request.container_id, "failed to find container")
            if container.state != ContainerState.RUNNING:
                raise FakeError("unexpected metrics response: []")
            return {"stats": self._stats(container)}

    def _ListContainerStats(self, request: Any) -> dict[str, Any]:
        with self.lock:
            running = [one for one in self.containers.values() if one.state == ContainerState.RUNNING]
            wanted = request.filter
            return {
                "stats": [
                    self._stats(one)
                    for one in running
                    if one.id.startswith(wanted.id)
                    and one.sandbox_id.startswith(wanted.pod_sandbox_id)
                    and wanted.label_selector.items() <= dict(one.config.labels).items()
                ]
            }

    def _stats(self, container: FakeContainer) -> dict[str, Any]:
        config, now = container.config, self.now()
        attributes = {"id": container.id, "metadata": config.metadata, "labels": dict(config.labels)}
        return {
            "attributes": attributes | {"annotations": dict(config.annotations)},
            "cpu": {"timestamp": now, "usage_core_nano_seconds": {"value": 1_000_000}},
            "memory": {"timestamp": now, "working_set_bytes": {"value": 2_000_000}},
            "writable_layer": {"timestamp": now, "used_bytes": {"value": 4096}, "inodes_used": {"value": 8}},
        }

    def _PodSandboxStats(self, request: Any) -> dict[str, Any]:
        with self.lock:
            sandbox = self.sandboxes.get(request.pod_sandbox_id)
            if sandbox is None:
                text = f"an error occurred when trying to find sandbox {request.pod_sandbox_id}: {_NOT_FOUND}"
                raise FakeError(text, Code.NOT_FOUND)
            return {"stats": self._sandbox_stats(sandbox)}

    def _ListPodSandboxStats(self, request: Any) -> dict[str, Any]:
        with self.lock:
            wanted = request.filter
            found = [
                self._sandbox_stats(one)
                for one in self.sandboxes.values()
                if one.state == SandboxState.READY
                and one.id.startswith(wanted.id)
                and wanted.label_selector.items() <= dict(one.config.labels).items()
            ]
            return {"stats": found}

    def _sandbox_stats(self, sandbox: FakeSandbox) -> dict[str, Any]:
        config, now = sandbox.config, self.now()
        attributes = {"id": sandbox.id, "metadata": config.metadata, "labels": dict(config.labels)}
        inside = [
            self._stats(one)
            for one in self.containers.values()
            if one.sandbox_id == sandbox.id and one.state == ContainerState.RUNNING
        ]
        return {
            "attributes": attributes | {"annotations": dict(config.annotations)},
            "linux": {
                "cpu": {"timestamp": now, "usage_core_nano_seconds": {"value": 1_500_000}},
                "memory": {"timestamp": now, "working_set_bytes": {"value": 3_000_000}},
                "network": {"timestamp": now, "default_interface": {"name": "eth0", "rx_bytes": {"value": 1}}},
                "process": {"timestamp": now, "process_count": {"value": 1 + len(inside)}},
                "containers": inside,
            },
        }

    # -- images --------------------------------------------------------------------------------------------------------

    def _ListImages(self, request: Any) -> dict[str, Any]:
        with self.lock:
            wanted = request.filter.image.image
            found = self._find_image(wanted) if wanted else None
            return {"images": ([found] if found else []) if wanted else list(self.images.values())}

    def _ImageStatus(self, request: Any) -> dict[str, Any]:
        with self.lock:
            return {"image": self._find_image(request.image.image)}

    def _PullImage(self, request: Any) -> dict[str, Any]:
        with self.lock:
            error = self.pull_errors.get(request.image.image)
            if error is not None:
                raise FakeError(error.message, error.code)
            return {"image_ref": self.add_image(request.image.image)}

    def _RemoveImage(self, request: Any) -> dict[str, Any]:
        with self.lock:
            found = self._find_image(request.image.image)
            if found is not None:
                del self.images[found.id]
            return {}

    def _ImageFsInfo(self, request: Any) -> dict[str, Any]:
        with self.lock:
            used = {"value": sum(one.size for one in self.images.values())}
            where = {"mountpoint": "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"}
            usage = {"timestamp": self.now(), "fs_id": where, "used_bytes": used, "inodes_used": {"value": 100}}
            return {"image_filesystems": [usage]}

    def _find_image(self, name: str) -> Any:
        """Return an image by id, with or without sha256:, by tag or by digest; None if it is not present."""
        tag = _normalized(name)
        for image in self.images.values():
            if name in (image.id, image.id.removeprefix("sha256:")) or tag in (*image.repo_tags, *image.repo_digests):
                return image
        return None

    # -- containers in general -----------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        self._count += 1
        return hashlib.sha256(f"{self._count}".encode()).hexdigest()

    def _existing(self, container_id: str, prefix: str = "") -> FakeContainer:
        container = self.containers.get(container_id)
        if container is None:
            what = prefix or f'an error occurred when try to find container "{container_id}"'
            raise FakeError(f"{what}: {_NOT_FOUND}", Code.NOT_FOUND)
        return container

    def _running(self, container_id: str) -> FakeContainer:
        with self.lock:
            container = self._existing(container_id, f'failed to find container "{container_id}" in store')
            if container.state != ContainerState.RUNNING:
                raise FakeError(f"container is in CONTAINER_{ContainerState(container.state).name} state")
            return container

    def _end(self, container: FakeContainer, code: int, reason: str = "", message: str = "") -> None:
        container.state, container.exit_code, container.reason = ContainerState.EXITED, code, reason
        container.message, container.finished_at = message, self.now()
        container.ended.set()
        self.announce("/tasks/exit", ContainerEventType.STOPPED, container.id, container.sandbox_id)


def _normalized(name: str) -> str:
    """Return the full name of an image, as containerd does."""
    if name.startswith("sha256:"):
        return name
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"
