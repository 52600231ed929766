"""Builds the volumes of Pods from the volumes in their specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.volumes import empty_dir, local_volumes, projected
from setpoint.node.host.volumes.claims import ClaimLister, bound_volume, check_node_affinity, claim_name
from setpoint.node.host.volumes.host_path import HostPath
from setpoint.node.host.volumes.interface import HostVolume, SetUpError
from setpoint.node.host.volumes.ownership import fs_group_of
from setpoint.node.host.volumes.payload import Contents
from setpoint.node.projection import on_disk, projection_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The node, for the node affinity of persistent volumes."""

    name: str
    labels: Callable[[], Mapping[str, str]]


def checked_uid(uid: str) -> str:
    """Return the uid of a Pod. Raise ValueError if it is not usable as the name of a directory."""
    if not uid or "/" in uid or "\0" in uid or uid in (".", ".."):
        raise ValueError(f"invalid uid of a Pod: {uid!r}")
    return uid


class VolumeBuilder:
    """Determines what each volume of a Pod is, and where."""

    def __init__(
        self,
        directories: NodeDirectories,
        clock: Clock,
        lister: ClaimLister,
        node: NodeIdentity,
    ) -> None:
        self._directories = directories
        self._clock = clock
        self._lister = lister
        self._node = node

    def build(self, pod: Pod, spec: ObjView, contents: Contents, memory: str | None) -> HostVolume | None:
        """Return a volume of a Pod; None if it is an image, which the container runtime mounts. `contents` are the
        files of a projected volume, `memory` is the node's allocatable memory. Raise SetUpError or ProcessingError if
        the volume cannot be used on this node."""
        if projection_of(spec) is not None:
            return self._projected(pod, spec, contents, memory)
        if spec.get("hostPath") is not None:
            return _host_path(spec["name"], spec["hostPath"])
        if claim_name(pod, spec):
            return self._persistent(pod, spec)
        if spec.get("image") is not None:
            return None
        kind = next((key for key in spec if key != "name" and spec[key] is not None), "emptyDir")
        if kind == "csi":
            raise _csi_error(spec["csi"])
        if kind != "emptyDir":
            raise SetUpError(f"volumes of type {kind} are not supported on this node")
        return self._empty_dir(pod, spec, memory)

    def _projected(self, pod: Pod, spec: ObjView, contents: Contents, memory: str | None) -> HostVolume:
        name, in_memory = spec["name"], not on_disk(spec)
        plugin = next(plugin for kind, plugin in projected.PLUGINS.items() if spec.get(kind) is not None)
        return projected.ProjectedVolume(
            name,
            self._path(pod, plugin, name),
            self._clock,
            in_memory,
            contents.payload,
            contents.problem,
            empty_dir.memory_size(pod, memory) if in_memory else None,
            _group(pod),
            projected.nested_mount_points(pod["spec"], name),
        )

    def _empty_dir(self, pod: Pod, spec: ObjView, memory: str | None) -> HostVolume:
        name, source = spec["name"], spec.get("emptyDir") or {}
        medium = source.get("medium") or ""
        return empty_dir.EmptyDir(
            name,
            self._path(pod, empty_dir.PLUGIN, name),
            self._directories.pod(checked_uid(pod["metadata"]["uid"])) / "plugins" / empty_dir.PLUGIN / name / "ready",
            medium,
            empty_dir.memory_size(pod, memory, source.get("sizeLimit")) if medium else None,
            _group(pod),
        )

    def _persistent(self, pod: Pod, spec: ObjView) -> HostVolume:
        volume, read_only = bound_volume(pod, spec, self._lister)
        name, source = volume["metadata"]["name"], volume["spec"]
        check_node_affinity(volume, self._node.name, self._node.labels())
        if (source.get("volumeMode") or "Filesystem") != "Filesystem":
            raise SetUpError("block volumes are not supported on this node", name=name)
        provisioned = local_volumes.is_provisioned(volume)
        if provisioned or source.get("local") is not None:
            return local_volumes.LocalVolume(
                name,
                self._directories.local_volumes / name if provisioned else Path(source["local"].get("path", "")),
                self._path(pod, local_volumes.PLUGIN, name),
                read_only,
                fs_group_of(pod["spec"]),
                local_volumes.policy_of(volume) if provisioned else "",
                [*(source.get("accessModes") or ())] == ["ReadWriteOncePod"],
            )
        if source.get("hostPath") is not None:
            return _host_path(name, source["hostPath"], read_only)
        if source.get("csi") is not None:
            raise _csi_error(source["csi"], name)
        raise SetUpError("persistent volumes of this type are not supported on this node", name=name)

    def _path(self, pod: Pod, plugin: str, name: str) -> Path:
        return self._directories.volume(checked_uid(pod["metadata"]["uid"]), plugin, name)


def _group(pod: Pod) -> int | None:
    fs_group = fs_group_of(pod["spec"])
    return fs_group.group if fs_group is not None else None


def _host_path(name: str, source: ObjView, read_only: bool = False) -> HostPath:
    return HostPath(name, Path(source.get("path", "")), source.get("type") or "", read_only)


def _csi_error(source: ObjView, name: str = "") -> SetUpError:
    about = f"driver name {source.get('driver', '')} not found in the list of registered CSI drivers"
    return SetUpError(f"CSI drivers are not supported on this node: {about}", name=name)
