"""Reports the Node of this machine: capacity, allocatable resources, conditions, images and versions, as the kubelet
does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from setpoint.kinds.core.resources import is_huge_page
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import BINARY, of_value, parse
from setpoint.meta.times import format_duration
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.eviction_signals import (
    DEFAULT_HARD,
    DISK_PRESSURE,
    EPHEMERAL_STORAGE,
    MEMORY,
    MEMORY_PRESSURE,
    PID_PRESSURE,
    Threshold,
    parse_thresholds,
    reserved_for_eviction,
)
from setpoint.node.host.machine import ROOT, Filesystem, MachineFacts, read_filesystem, read_machine
from setpoint.node.node_state import NodeState
from setpoint.node.options import NodeTemplate
from setpoint.node.registration import (
    Endpoint,
    NodeEvent,
    default_labels,
    extended_resources,
    node_conditions,
    node_object,
)

log = logging.getLogger("setpoint.node")

KUBELET_PORT = 10250
MAX_NAMES_PER_IMAGE = 5
RUNTIME_DOWN_SECONDS = 30.0
"""Seconds without a successful status check after which the runtime counts as down."""
RELIST_SECONDS = 180.0
"""Seconds without a complete list of the containers after which the node is not ready."""
_RUNTIME_PERIOD, _START_PERIOD, _IMAGES_PERIOD, _FACTS_PERIOD = 5.0, 0.1, 30.0, 60.0
"""Seconds between status checks of the runtime, the same before the node was ready once, and between reads of the
images and of the machine's facts."""
_START_SECONDS = 30.0
"""Seconds after the start within which the runtime is checked in short intervals."""
_CALL_TIMEOUT = 10.0
_READY_EVENTS = {"True": "NodeReady", "False": "NodeNotReady"}
_PRESSURES = (
    (
        MEMORY_PRESSURE,
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
    ),
    (
        DISK_PRESSURE,
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    ),
    (
        PID_PRESSURE,
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
    ),
)
"""The type of each condition; reason, message and Event if there is no pressure, and if there is."""
_SEMANTIC = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
_GENERIC = re.compile(r"\s*v?([0-9]+(?:\.[0-9]+)*)")


class RuntimeClient(Protocol):
    """Calls methods of the container runtime."""

    async def call(self, method: str, request: Obj, *, timeout: float) -> Any: ...


@dataclass(frozen=True, slots=True)
class NodeReportSettings:
    """The settings of a node that its status depends on."""

    kubelet_version: str
    max_pods: int = 110
    max_images: int = 50
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    """Amounts by resource that are not allocatable to Pods."""
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: tuple[Threshold, ...] = parse_thresholds(DEFAULT_HARD)
    addresses: tuple[str, ...] = ()
    """All addresses of the node, the primary one first; empty means the address in the `NodeState`."""


class RuntimeView(NamedTuple):
    """The status of the container runtime, as observed last."""

    version: str = ""
    """Name and version, such as `containerd://1.6.20`; empty before the first answer."""
    checked_at: float | None = None
    """The monotonic time of the last status check that found the runtime ready."""
    runtime_error: str = ""
    network_error: str = "network state unknown"
    handlers: tuple[tuple[str, bool, bool], ...] | None = None
    """Name, recursive read-only mounts and user namespaces of each handler; None if the runtime does not list them."""
    supplemental_groups_policy: bool | None = None
    """Whether the runtime supports the policy for supplemental groups; None if it does not say."""


# -- pure functions ----------------------------------------------------------------------------------------------------


def runtime_version(name: str, version: str) -> str:
    """Return the text for `containerRuntimeVersion`: the semantic version, or the numbers that the text starts with."""
    found = _SEMANTIC.fullmatch(version) or _GENERIC.match(version)
    return f"{name}://{found[1] if found else 'Unknown'}"


def host_capacity(facts: MachineFacts, node_fs: Filesystem | None, max_pods: int) -> dict[str, str]:
    capacity = {"cpu": str(facts.cpus), MEMORY: of_value(facts.memory_bytes, BINARY).text, "pods": str(max_pods)}
    for size, amount in facts.huge_pages.items():
        capacity[f"hugepages-{of_value(size, BINARY).text}"] = of_value(amount, BINARY).text
    if node_fs is not None:
        capacity[EPHEMERAL_STORAGE] = of_value(node_fs.capacity_bytes, BINARY).text
    return capacity


def host_allocatable(capacity: Mapping[str, str], settings: NodeReportSettings) -> dict[str, str]:
    """Return the capacity without what is reserved and what eviction thresholds keep free."""
    bytes_of = {name: parse(capacity[name]).value() for name in (MEMORY, EPHEMERAL_STORAGE) if name in capacity}
    kept = reserved_for_eviction(settings.eviction_hard, bytes_of)
    left = {}
    for name, amount in capacity.items():
        rest = parse(amount)
        for reserved in (settings.kube_reserved, settings.system_reserved):
            if name in reserved:
                rest = rest.minus(parse(reserved[name]))
        if kept.get(name):
            rest = rest.minus(of_value(kept[name], BINARY))
        left[name] = rest.text if rest.sign() > 0 else "0"
    pages = sum(parse(amount).value() for name, amount in capacity.items() if is_huge_page(name))
    if pages:
        rest = parse(left[MEMORY]).minus(of_value(pages, BINARY))
        left[MEMORY] = rest.text if rest.sign() > 0 else "0"
    return left


def enforced_limits(capacity: Mapping[str, str], settings: NodeReportSettings) -> tuple[int, int]:
    """Return the thousandths of CPUs and the bytes of memory that all Pods together may use. They may use what eviction
    thresholds keep free: only then can the eviction see that they do."""
    left = host_allocatable(capacity, replace(settings, eviction_hard=()))
    return parse(left.get("cpu", "0")).milli_value(), parse(left.get(MEMORY, "0")).value()


def aggregate_errors(errors: Iterable[str]) -> str:
    """Join messages as Go's error aggregates do; empty ones and repeated ones are left out."""
    distinct = [*dict.fromkeys(error for error in errors if error)]
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def relist_error(last_at: float | None, now: float) -> str:
    """Return the kubelet's message if the containers were not listed for too long, and empty otherwise. `last_at` is
    the monotonic time of the last complete list."""
    if last_at is None:
        return "PLEG is not healthy: pleg has yet to be successful"
    if now - last_at <= RELIST_SECONDS:
        return ""
    ago, limit = format_duration(int((now - last_at) * 1e9)), format_duration(int(RELIST_SECONDS * 1e9))
    return f"PLEG is not healthy: pleg was last seen active {ago} ago; threshold is {limit}"


def image_list(images: Iterable[Any], maximum: int) -> list[Obj]:
    """Return the largest images as a Node's status lists them; `images` are those of CRI."""
    largest = sorted(images, key=lambda image: (image.size, image.id), reverse=True)[:maximum]
    return [
        {"names": [*image.repo_digests, *image.repo_tags][:MAX_NAMES_PER_IMAGE], "sizeBytes": int(image.size)}
        for image in largest
    ]


def _condition_text(conditions: Iterable[Any], kind: str) -> str:
    """Return the kubelet's text of a condition of CRI that is not true; empty if it is true."""
    for each in conditions:
        if each.type == kind:
            return "" if each.status else f"{kind}=false reason:{each.reason} message:{each.message}"
    return "<nil>"


class HostNodeReporter:
    """A `NodeReporter` for this machine. `observe` or `run` measure; everything else uses the last measurement."""

    def __init__(
        self,
        node: NodeState,
        client: RuntimeClient,
        pool: BlockingPool,
        clock: Clock,
        settings: NodeReportSettings,
        template: NodeTemplate,
        *,
        node_fs: Path,
        root: Path = ROOT,
    ) -> None:
        """Create the reporter. `node_fs` is a directory of the file system for volumes and logs; the template provides
        labels, annotations and taints."""
        self._node = node
        self._client = client
        self._pool = pool
        self._clock = clock
        self._settings = settings
        self._template = template
        self._node_fs_path = node_fs
        self._root = root
        self._facts: MachineFacts | None = None
        self._node_fs: Filesystem | None = None
        self._facts_at = self._images_at = float("-inf")
        self._runtime = RuntimeView()
        self._version_outdated = True
        """Whether the runtime must be asked for its version."""
        self._images: list[Obj] = []
        self._reboot_reported = False
        self.pressures: Callable[[], Collection[str]] = frozenset
        """Returns the types of the pressure conditions that are true."""
        self.health_checks: list[Callable[[], str]] = []
        """Functions that return why the node is not ready, or an empty text, such as `relist_error`."""
        self.shutting_down = False
        """Whether the machine is shutting down, so that the node is not ready."""
        self.on_urgent_change: Callable[[], None] = lambda: None
        """Called when the status must be reported without delay: readiness or a pressure condition changed."""

    @property
    def facts(self) -> MachineFacts | None:
        """The facts about the machine; None before the first measurement."""
        return self._facts

    @property
    def runtime(self) -> RuntimeView:
        return self._runtime

    def capacity(self) -> dict[str, str]:
        """Return the machine's capacity, without extended resources; empty before the first measurement."""
        return host_capacity(self._facts, self._node_fs, self._settings.max_pods) if self._facts is not None else {}

    # -- measuring -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Measure periodically; in short intervals until the node is ready for the first time."""
        started = self._clock.monotonic()
        starting = True
        while True:
            await self.observe()
            starting = starting and bool(self.not_ready()) and self._clock.monotonic() - started < _START_SECONDS
            await self._clock.sleep(_START_PERIOD if starting else _RUNTIME_PERIOD)

    async def observe(self) -> None:
        """Measure once, and request a report if something changed. A failure changes conditions; it never raises."""
        now = self._clock.monotonic()
        before = (self._facts, self._images, self._runtime.version, self._runtime.handlers)
        if self._facts is None or now - self._facts_at >= _FACTS_PERIOD:
            await self._read_machine()
            self._facts_at = now
        await self._check_runtime()
        if self._runtime.version and now - self._images_at >= _IMAGES_PERIOD:
            await self._read_images()
            self._images_at = now
        if self._conditions_changed():
            self._node.status_changed = True
            self.on_urgent_change()
        elif before != (self._facts, self._images, self._runtime.version, self._runtime.handlers):
            self._node.status_changed = True

    def images_changed(self) -> None:
        """Read the images in the next interval, such as after a pull."""
        self._images_at = float("-inf")

    async def _read_machine(self) -> None:
        try:
            self._facts = await self._pool.run(read_machine, self._root)
            self._node_fs = await self._pool.run(read_filesystem, self._node_fs_path)
        except (OSError, ValueError) as error:
            log.warning("cannot read the facts about this machine: %s", error)

    async def _check_runtime(self) -> None:
        try:
            if self._version_outdated:
                version = await self._client.call("Version", {}, timeout=_CALL_TIMEOUT)
                named = runtime_version(version.runtime_name, version.runtime_version)
                self._runtime = self._runtime._replace(version=named)
                self._version_outdated = False
            found = await self._client.call("Status", {}, timeout=_CALL_TIMEOUT)
        except Exception as error:  # whatever fails, the node is not ready after a while
            log.debug("the status check of the container runtime failed: %s", error)
            self._version_outdated = True  # another version may be running when it returns
            return
        network = _condition_text(found.status.conditions, "NetworkReady")
        runtime = _condition_text(found.status.conditions, "RuntimeReady")
        view = self._runtime._replace(
            network_error=f"container runtime network not ready: {network}" if network else "",
            runtime_error=f"container runtime not ready: {runtime}" if runtime else "",
        )
        if not runtime:
            handlers = [
                (each.name, bool(each.features.recursive_read_only_mounts), bool(each.features.user_namespaces))
                for each in found.runtime_handlers
            ]
            policy = bool(found.features.supplemental_groups_policy) if found.HasField("features") else None
            view = view._replace(
                handlers=tuple(sorted(handlers)) if handlers else None,
                supplemental_groups_policy=policy,
                checked_at=self._clock.monotonic(),
            )
        self._runtime = view

    async def _read_images(self) -> None:
        try:
            found = await self._client.call("ListImages", {}, timeout=_CALL_TIMEOUT)
        except Exception as error:  # the images of the last call remain
            log.debug("cannot list the images: %s", error)
            return
        self._images = image_list(found.images, self._settings.max_images)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        """Return why the node is not ready, in the kubelet's words; empty if it is ready."""
        view, errors = self._runtime, []
        if view.checked_at is None:
            errors.append("container runtime status check may not have completed yet")
        elif self._clock.monotonic() - view.checked_at >= RUNTIME_DOWN_SECONDS:
            errors.append("container runtime is down")
        errors += [check() for check in self.health_checks]
        errors += [view.runtime_error, view.network_error]
        if self.shutting_down:
            errors.append("node is shutting down")
        missing = [name for name in ("cpu", MEMORY, "pods", EPHEMERAL_STORAGE) if name not in self.capacity()]
        if missing:
            errors.append(f"missing node capacity for resources: {', '.join(missing)}")
        return aggregate_errors(errors)

    def _wanted_conditions(self) -> list[tuple[str, str, str, str]]:
        pressures = self.pressures()
        wanted = []
        for kind, good, bad in _PRESSURES:
            reason, message, _ = bad if kind in pressures else good
            wanted.append((kind, "True" if kind in pressures else "False", reason, message))
        problem = self.not_ready()
        if problem:
            wanted.append(("Ready", "False", "KubeletNotReady", problem))
        else:
            wanted.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
        return wanted

    def _conditions_changed(self) -> bool:
        """Return whether the conditions in the API differ, also because another client changed them."""
        if self._node.object is None:
            return False
        found = _by_type((self._node.object.get("status") or {}).get("conditions"))
        return any(
            (each := found.get(kind)) is None
            or (each.get("status"), each.get("reason"), each.get("message")) != (status, reason, message)
            for kind, status, reason, message in self._wanted_conditions()
        )

    # -- NodeReporter --------------------------------------------------------------------------------------------------

    def node(self, node: NodeState, number: int, endpoint: Endpoint | None) -> Obj:
        return node_object(node.name, number, self._template, self.status(node, {}, endpoint), self._architecture)

    def labels(self, node: NodeState) -> dict[str, str]:
        labels = default_labels(node.name, self._architecture)
        return labels | {key: value for key, value in self._template.labels.items() if key in labels}

    def status(self, node: NodeState, current: ObjView, endpoint: Endpoint | None) -> Obj:
        capacity = {**extended_resources(current.get("capacity") or {}), **self.capacity()}
        allocatable = host_allocatable(capacity, self._settings)
        found: Obj = {
            # The status is merged into the Node: to remove a resource, the patch must set it to null.
            "capacity": {**_removed(current.get("capacity"), capacity), **capacity},
            "allocatable": {**_removed(current.get("allocatable"), allocatable), **allocatable},
            "conditions": node_conditions(
                self._clock.now(), _by_type(current.get("conditions")), self._wanted_conditions()
            ),
            "addresses": [
                *({"type": "InternalIP", "address": each} for each in self._settings.addresses or (node.address,)),
                {"type": "Hostname", "address": node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": endpoint[1] if endpoint else KUBELET_PORT}},
            "nodeInfo": self._node_info(),
        }
        if self._images or current.get("images"):
            found["images"] = self._images
        if self._runtime.handlers is not None:
            found["runtimeHandlers"] = [
                {"name": name, "features": {"recursiveReadOnlyMounts": mounts, "userNamespaces": namespaces}}
                for name, mounts, namespaces in self._runtime.handlers
            ]
        if self._runtime.supplemental_groups_policy is not None:
            found["features"] = {"supplementalGroupsPolicy": self._runtime.supplemental_groups_policy}
        return found

    def start_events(self) -> tuple[str, ...]:
        pressures = self.pressures()
        return tuple((bad if kind in pressures else good)[2] for kind, good, bad in _PRESSURES)

    def transitions(self, node: NodeState, before: ObjView, after: ObjView) -> list[NodeEvent]:
        events = []
        old_boot = (before.get("nodeInfo") or {}).get("bootID")
        new_boot = after["nodeInfo"]["bootID"]
        if old_boot and new_boot and old_boot != new_boot and not self._reboot_reported:
            self._reboot_reported = True
            message = f"Node {node.name} has been rebooted, boot id: {new_boot}"
            events.append(NodeEvent("Rebooted", message, warning=True))
        old, new = _by_type(before.get("conditions")), _by_type(after["conditions"])
        reasons = {kind: {"False": good[2], "True": bad[2]} for kind, good, bad in _PRESSURES} | {
            "Ready": _READY_EVENTS
        }
        for kind, names in reasons.items():
            if kind in old and old[kind].get("status") != new[kind]["status"]:
                reason = names[new[kind]["status"]]
                events.append(NodeEvent(reason, f"Node {node.name} status is now: {reason}"))
        return events

    # -- parts of the status -------------------------------------------------------------------------------------------

    @property
    def _architecture(self) -> str:
        return self._facts.architecture if self._facts is not None else "amd64"

    def _node_info(self) -> Obj:
        facts = self._facts
        info: Obj = {
            "machineID": facts.machine_id if facts else "",
            "systemUUID": facts.system_uuid if facts else "",
            "bootID": facts.boot_id if facts else "",
            "kernelVersion": facts.kernel if facts else "",
            "osImage": facts.os_image if facts else "",
            "containerRuntimeVersion": self._runtime.version or "containerd://Unknown",
            "kubeletVersion": self._settings.kubelet_version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": self._architecture,
        }
        if facts is not None and facts.swap_bytes:
            info["swap"] = {"capacity": facts.swap_bytes}
        return info


def _by_type(conditions: Any) -> dict[str, ObjView]:
    return {each["type"]: each for each in conditions or ()}


def _removed(current: Any, wanted: Mapping[str, str]) -> dict[str, None]:
    """Return null for the resources of `current` that are not wanted any more."""
    return {name: None for name in current or () if name not in wanted}
