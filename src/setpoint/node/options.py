"""The options of a fleet, from code or from a file in YAML:

nodes:
  count: 6
  capacity: {cpu: "16", memory: 64Gi}
  labels: {pool: batch}
  zones: [a, b, c]              # spread over the nodes as topology.kubernetes.io/zone
  leaseDurationSeconds: 40      # of the Leases, which are renewed four times within it
  csiDrivers:                   # in the CSINodes, as if the drivers had registered
  - {name: hostpath.csi.k8s.io, topologyKeys: [topology.hostpath.csi/node], allocatable: {count: 10}}
images:
- {pattern: "^docker.io/library/nginx:", pullSeconds: 2.5, sizeBytes: 72000000}
- {pattern: "registry.example/secret", error: "rpc error: code = Unknown desc = unauthorized"}
pullSeconds: 0.5                # for images that no rule matches
stages: []                      # see setpoint.node.stages
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.quantity import QuantityError, parse
from setpoint.node.pace import INSTANT, DurationRange, Pace
from setpoint.node.runtime.images import ImageRule, SimulatedImageService
from setpoint.node.stages import Stage, StageError, parse_stage

_CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}


class FleetFileError(ValueError):
    """The file is invalid; the message contains the path of the field and the reason."""


@dataclass(frozen=True, slots=True)
class VolumeDriver:
    """A CSI driver that is registered on every node; the node's name is its node ID."""

    name: str
    topology_keys: tuple[str, ...] = ()
    """Labels that every node gets, each with the node's name as its value."""
    max_volumes: int | None = None
    """The maximum number of the driver's volumes on a node; None means no limit."""

    def registered(self, node: str) -> dict[str, Any]:
        """Return the driver's entry in the CSINode of a node."""
        entry: dict[str, Any] = {"name": self.name, "nodeID": node, "topologyKeys": list(self.topology_keys) or None}
        if self.max_volumes is not None:
            entry["allocatable"] = {"count": self.max_volumes}
        return entry


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The properties that the nodes of a fleet have in common."""

    capacity: Mapping[str, str] = field(default_factory=lambda: dict(_CAPACITY))
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    zones: tuple[str, ...] = ()
    lease_seconds: int = 40
    """The duration of a node's Lease in seconds. It is renewed after a quarter of that."""
    drivers: tuple[VolumeDriver, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of a fleet of simulated nodes."""

    nodes: int = 3
    template: NodeTemplate = field(default_factory=NodeTemplate)
    images: tuple[ImageRule, ...] = ()
    pull_seconds: float | None = None
    """The seconds that images take to pull if no rule matches; None means that the pace decides."""
    stages: tuple[Stage, ...] = ()
    pace: Pace = INSTANT
    reject_misspelled_images: bool = False
    """Whether images whose names look like misspelled well-known names do not exist."""
    adopt_all: bool = False
    """Whether every Node that exists is simulated as it is, with its capacity, labels and addresses. A copy of a
    cluster has such a fleet."""

    def image_service(self) -> SimulatedImageService:
        own = self.pull_seconds
        pull = self.pace.pull if own is None else DurationRange(own, own)
        return SimulatedImageService(self.images, pull, reject_misspelled=self.reject_misspelled_images)


def parse_fleet_options(text: str, nodes: int = 3) -> FleetOptions:
    """Parse a file in YAML. `nodes` is the number of nodes if the file does not set it. Raise FleetFileError."""
    try:
        found, _ = parse_yaml(text.encode())
    except BodyError as error:
        raise FleetFileError(f"not YAML: {error}") from None
    document = _mapping(found or {}, "", ("nodes", "images", "pullSeconds", "stages"))
    known = ("count", "capacity", "labels", "annotations", "taints", "zones", "leaseDurationSeconds", "csiDrivers")
    nodes_section = _mapping(document.get("nodes") or {}, "nodes", known)
    stages = []
    for number, each in enumerate(_list(document, "stages", "")):
        try:
            stages.append(parse_stage(each))
        except StageError as problem:
            raise FleetFileError(f"stages[{number}]: {problem}") from None
    template = NodeTemplate(
        {**_CAPACITY, **_quantities(nodes_section.get("capacity") or {})},
        _strings(nodes_section, "labels"),
        _strings(nodes_section, "annotations"),
        tuple(_list(nodes_section, "taints", "nodes.")),
        tuple(str(each) for each in _list(nodes_section, "zones", "nodes.")),
        _integer(nodes_section.get("leaseDurationSeconds", 40), "nodes.leaseDurationSeconds", minimum=1),
        tuple(
            _driver(each, f"nodes.csiDrivers[{number}]")
            for number, each in enumerate(_list(nodes_section, "csiDrivers", "nodes."))
        ),
    )
    rules = tuple(_rule(each, f"images[{number}]") for number, each in enumerate(_list(document, "images", "")))
    count = _integer(nodes_section.get("count", nodes), "nodes.count")
    pull_seconds = _seconds(document["pullSeconds"], "pullSeconds") if "pullSeconds" in document else None
    return FleetOptions(count, template, rules, pull_seconds, tuple(stages))


def _mapping(found: Any, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FleetFileError(f"{where or 'the file'}: must be a mapping")
    for key in found:
        if key not in known:
            raise FleetFileError(
                f"{where + '.' if where else ''}{key}: is not a known field; use one of {', '.join(known)}"
            )
    return found


def _list(table: Mapping[str, Any], key: str, prefix: str) -> list[Any]:
    found = table.get(key) or []
    if not isinstance(found, list):
        raise FleetFileError(f"{prefix}{key}: must be a list")
    return found


def _strings(table: Mapping[str, Any], key: str) -> dict[str, str]:
    found = table.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise FleetFileError(f"nodes.{key}: must map names to texts")
    return found


def _quantities(found: Any) -> dict[str, str]:
    try:
        return {name: parse(str(amount)).text for name, amount in found.items()}
    except (AttributeError, QuantityError) as problem:
        raise FleetFileError(f"nodes.capacity: {problem}") from None


def _integer(found: Any, where: str, minimum: int = 0) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < minimum:
        raise FleetFileError(
            f"{where}: must be a whole number{f' from {minimum} on' if minimum else ''}, not {found!r}"
        )
    return found


def _seconds(found: Any, where: str) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found < 0:
        raise FleetFileError(f"{where}: must be a number of seconds, not {found!r}")
    return float(found)


def _driver(found: Any, where: str) -> VolumeDriver:
    table = _mapping(found, where, ("name", "topologyKeys", "allocatable"))
    name, limits = table.get("name"), _mapping(table.get("allocatable") or {}, f"{where}.allocatable", ("count",))
    if not isinstance(name, str) or not name:
        raise FleetFileError(f"{where}.name: is required")
    count = _integer(limits["count"], f"{where}.allocatable.count") if "count" in limits else None
    return VolumeDriver(name, tuple(str(each) for each in _list(table, "topologyKeys", f"{where}.")), count)


def _rule(found: Any, where: str) -> ImageRule:
    table = _mapping(found, where, ("pattern", "pullSeconds", "sizeBytes", "error", "entrypoint", "command"))
    pattern = table.get("pattern")
    if not isinstance(pattern, str):
        raise FleetFileError(f"{where}.pattern: is required")
    try:
        re.compile(pattern)
    except re.error as problem:
        raise FleetFileError(f"{where}.pattern: {problem}") from None
    return ImageRule(
        pattern,
        _seconds(table["pullSeconds"], f"{where}.pullSeconds") if "pullSeconds" in table else None,
        table.get("sizeBytes"),
        table.get("error"),
        tuple(table["entrypoint"]) if "entrypoint" in table else None,
        tuple(table["command"]) if "command" in table else None,
    )
