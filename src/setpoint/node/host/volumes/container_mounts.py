"""Translates the volume mounts of a container into mounts of the container runtime (CRI)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.volumes.interface import HostVolume
from setpoint.node.host.volumes.sub_path import bind_sub_path, create_missing
from setpoint.node.projection import sub_path_of

_PROPAGATIONS = {"None": 0, "HostToContainer": 1, "Bidirectional": 2}


class VolumeFeatures(NamedTuple):
    """Features of the container runtime that mounts depend on."""

    recursive_read_only: bool = False


class PlannedMount(NamedTuple):
    """A mount of a container whose sub-path is not prepared yet."""

    mount: Obj
    """The runtime's mount, without `host_path` unless it is a volume of an image."""
    volume: HostVolume | None
    """The volume; None if it is an image."""
    sub_path: str
    target: Path
    """The path on the node at which the sub-path is mounted."""
    name: str
    container: str


def plan_mounts(
    container: ObjView,
    volumes: Mapping[str, HostVolume],
    images: Mapping[str, tuple[str, str]],
    environment: Mapping[str, str],
    features: VolumeFeatures,
    sub_paths: Path,
) -> list[PlannedMount]:
    """Return the mounts of a container. `images` are the ids of image volumes and their references in the spec, by
    name; `sub_paths` is the directory for the sub-paths of the Pod. Raise ContainerConfigError if one is invalid."""
    planned = []
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        name, owner = mount["name"], container["name"]
        volume = volumes.get(name)
        if volume is None and name not in images:
            raise ContainerConfigError(f"cannot find volume {quote(name)} to mount into container {quote(owner)}")
        path = sub_path_of(mount, environment)
        mode = mount.get("mountPropagation") or "None"
        if mode not in _PROPAGATIONS:
            raise ContainerConfigError(f"invalid MountPropagation mode: {quote(mode)}")
        made: Obj = {
            "container_path": "/" + mount["mountPath"].lstrip("/"),
            "readonly": bool(mount.get("readOnly")) or volume is None or volume.read_only,
            "propagation": _PROPAGATIONS[mode],
        }
        if _recursive_read_only(mount, mode, features):
            made["recursive_read_only"] = True
        if volume is None:
            identifier, reference = images[name]
            made["image"] = {"image": identifier, "user_specified_image": reference}
            if path:
                made["image_sub_path"] = path
        inner = volume.name if volume is not None else name
        planned.append(PlannedMount(made, volume, path, sub_paths / inner / owner / str(index), name, owner))
    return planned


def prepare_mounts(planned: list[PlannedMount]) -> list[Obj]:
    """Prepare the sub-paths and return the runtime's mounts. Blocks. The messages of errors contain no path of the
    node, because users see them."""
    found = []
    for each in planned:
        if each.volume is not None:
            each.mount["host_path"] = str(each.volume.path)
            if each.sub_path:
                about = f"for volumeMount {quote(each.name)} of container {quote(each.container)}"
                try:
                    create_missing(each.volume.path, each.sub_path)
                except OSError as error:
                    raise ContainerConfigError(f"failed to create subPath directory {about}") from error
                try:
                    bind_sub_path(each.volume.path, each.sub_path, each.target)
                except OSError as error:
                    raise ContainerConfigError(f"failed to prepare subPath {about}") from error
                each.mount["host_path"] = str(each.target)
        found.append(each.mount)
    return found


def _recursive_read_only(mount: ObjView, propagation: str, features: VolumeFeatures) -> bool:
    mode = mount.get("recursiveReadOnly") or "Disabled"
    if mode == "Disabled":
        return False
    problem = ""
    if not mount.get("readOnly"):
        problem = f"volume {quote(mount['name'])} requested recursive read-only mode, but it is not read-only"
    elif propagation != "None":
        about = f"but it is not compatible with propagation {quote(propagation)}"
        problem = f"volume {quote(mount['name'])} requested recursive read-only mode, {about}"
    elif mode == "Enabled" and not features.recursive_read_only:
        about = "but it is not supported by the runtime"
        problem = f"volume {quote(mount['name'])} requested recursive read-only mode, {about}"
    elif mode not in ("Enabled", "IfPossible"):
        problem = f"unknown recursive read-only mode {quote(mode)}"
    if problem:
        raise ContainerConfigError(f"failed to resolve recursive read-only mode: {problem}")
    return features.recursive_read_only
