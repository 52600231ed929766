"""What a fleet is made of: data, from code or from a file.

nodes:
  count: 6
  capacity: {cpu: "16", memory: 64Gi}
  labels: {pool: batch}
  zones: [a, b, c]              # spread over the nodes as topology.kubernetes.io/zone
  leaseDurationSeconds: 40      # of their Leases; they are renewed four times as often
  csiDrivers:                   # in their CSINodes, as if the drivers had registered
  - {name: hostpath.csi.k8s.io, topologyKeys: [topology.hostpath.csi/node], allocatable: {count: 10}}
images:
- {pattern: "^docker.io/library/nginx:", pullSeconds: 2.5, sizeBytes: 72000000}
- {pattern: "registry.example/secret", error: "rpc error: code = Unknown desc = unauthorized"}
pullSeconds: 0.5                # of images of which no rule says it
stages: []                      # see setpoint.node.stages
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.quantity import QuantityError, parse
from setpoint.node.pace import INSTANT, Pace, Span
from setpoint.node.runtime.images import ImageRule, Images
from setpoint.node.stages import Stage, StageProblem, stage_of

_CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}


class FleetProblem(ValueError):
    """The file cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class VolumeDriver:
    """A CSI driver that is registered on every node; it calls a node by the node's name."""

    name: str
    topology_keys: tuple[str, ...] = ()
    """Labels of the nodes, each with the node's name as its value."""
    most_volumes: int | None = None
    """How many of its volumes a node can have; None means no limit."""

    def registered(self, node: str) -> dict[str, Any]:
        """Return its entry in the CSINode of a node."""
        entry: dict[str, Any] = {"name": self.name, "nodeID": node, "topologyKeys": list(self.topology_keys) or None}
        if self.most_volumes is not None:
            entry["allocatable"] = {"count": self.most_volumes}
        return entry


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    capacity: Mapping[str, str] = field(default_factory=lambda: dict(_CAPACITY))
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    zones: tuple[str, ...] = ()
    lease_seconds: int = 40
    """How long a node's Lease is good for. It is renewed after a quarter of that."""
    drivers: tuple[VolumeDriver, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetOptions:
    nodes: int = 3
    template: NodeTemplate = field(default_factory=NodeTemplate)
    images: tuple[ImageRule, ...] = ()
    pull_seconds: float | None = None
    """Of images of which no rule says it; None leaves that to the pace."""
    stages: tuple[Stage, ...] = ()
    pace: Pace = INSTANT
    only_plausible_images: bool = False
    """Images whose names look like misspelled well-known ones do not exist."""

    def image_catalogue(self) -> Images:
        own = self.pull_seconds
        pull = self.pace.pull if own is None else Span(own, own)
        return Images(self.images, pull, only_plausible=self.only_plausible_images)


def read_fleet(text: str, nodes: int = 3) -> FleetOptions:
    """From YAML; `nodes` is how many there are if the file does not say. Raises FleetProblem."""
    try:
        found, _ = parse_yaml(text.encode())
    except BodyError as error:
        raise FleetProblem(f"not YAML: {error}") from None
    document = _table(found or {}, "", ("nodes", "images", "pullSeconds", "stages"))
    known = ("count", "capacity", "labels", "annotations", "taints", "zones", "leaseDurationSeconds", "csiDrivers")
    about = _table(document.get("nodes") or {}, "nodes", known)
    stages = []
    for number, each in enumerate(_list(document, "stages", "")):
        try:
            stages.append(stage_of(each))
        except StageProblem as problem:
            raise FleetProblem(f"stages[{number}]: {problem}") from None
    template = NodeTemplate(
        {**_CAPACITY, **_amounts(about.get("capacity") or {})},
        _texts(about, "labels"),
        _texts(about, "annotations"),
        tuple(_list(about, "taints", "nodes.")),
        tuple(str(each) for each in _list(about, "zones", "nodes.")),
        _whole(about.get("leaseDurationSeconds", 40), "nodes.leaseDurationSeconds", least=1),
        tuple(
            _driver(each, f"nodes.csiDrivers[{number}]")
            for number, each in enumerate(_list(about, "csiDrivers", "nodes."))
        ),
    )
    rules = tuple(_rule(each, f"images[{number}]") for number, each in enumerate(_list(document, "images", "")))
    count = _whole(about.get("count", nodes), "nodes.count")
    pull_seconds = _seconds(document["pullSeconds"], "pullSeconds") if "pullSeconds" in document else None
    return FleetOptions(count, template, rules, pull_seconds, tuple(stages))


def _table(found: Any, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FleetProblem(f"{where or 'the file'}: must be a mapping")
    for key in found:
        if key not in known:
            raise FleetProblem(f"{where + '.' if where else ''}{key}: unknown; there are {', '.join(known)}")
    return found


def _list(table: Mapping[str, Any], key: str, prefix: str) -> list[Any]:
    found = table.get(key) or []
    if not isinstance(found, list):
        raise FleetProblem(f"{prefix}{key}: must be a list")
    return found


def _texts(table: Mapping[str, Any], key: str) -> dict[str, str]:
    found = table.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise FleetProblem(f"nodes.{key}: must map names to texts")
    return found


def _amounts(found: Any) -> dict[str, str]:
    try:
        return {name: parse(str(amount)).text for name, amount in found.items()}
    except (AttributeError, QuantityError) as problem:
        raise FleetProblem(f"nodes.capacity: {problem}") from None


def _whole(found: Any, where: str, least: int = 0) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < least:
        raise FleetProblem(f"{where}: must be a whole number{f' from {least} on' if least else ''}, not {found!r}")
    return found


def _seconds(found: Any, where: str) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found < 0:
        raise FleetProblem(f"{where}: must be a number of seconds, not {found!r}")
    return float(found)


def _driver(found: Any, where: str) -> VolumeDriver:
    table = _table(found, where, ("name", "topologyKeys", "allocatable"))
    name, limits = table.get("name"), _table(table.get("allocatable") or {}, f"{where}.allocatable", ("count",))
    if not isinstance(name, str) or not name:
        raise FleetProblem(f"{where}.name: is required")
    count = _whole(limits["count"], f"{where}.allocatable.count") if "count" in limits else None
    return VolumeDriver(name, tuple(str(each) for each in _list(table, "topologyKeys", f"{where}.")), count)


def _rule(found: Any, where: str) -> ImageRule:
    table = _table(found, where, ("pattern", "pullSeconds", "sizeBytes", "error", "entrypoint", "command"))
    pattern = table.get("pattern")
    if not isinstance(pattern, str):
        raise FleetProblem(f"{where}.pattern: is required")
    try:
        re.compile(pattern)
    except re.error as problem:
        raise FleetProblem(f"{where}.pattern: {problem}") from None
    return ImageRule(
        pattern,
        _seconds(table["pullSeconds"], f"{where}.pullSeconds") if "pullSeconds" in table else None,
        table.get("sizeBytes"),
        table.get("error"),
        tuple(table["entrypoint"]) if "entrypoint" in table else None,
        tuple(table["command"]) if "command" in table else None,
    )
