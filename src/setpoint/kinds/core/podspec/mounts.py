"""Volume mounts and volume devices of containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.paths import has_backsteps, validate_local_descending_path
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_found, not_supported, required

Item = Mapping[str, Any]
_NAME_AND_PATH = frozenset({"name", "mountPath", "readOnly"})
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")
_OPTIONS = ("nodev", "noexec", "nosuid")


def validate_volume_mounts(
    mounts: Sequence[Item], container: Item, volumes: Mapping[str, Item], path: str, errs: Errors
) -> None:
    devices = {device.get("name", ""): device.get("devicePath", "") for device in container.get("volumeDevices", ())}
    taken: set[str] = set()
    for i, mount in enumerate(mounts):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errs.append(required(f"{path}[{i}].name", ""))
        if name not in volumes:
            errs.append(not_found(f"{path}[{i}].name", name))
        if not target:
            errs.append(required(f"{path}[{i}].mountPath", ""))
        if target in taken:
            errs.append(invalid(f"{path}[{i}].mountPath", target, "must be unique"))
        taken.add(target)
        if devices:
            if name in devices:
                errs.append(invalid(f"{path}[{i}].name", name, "must not already exist in volumeDevices"))
            if target in devices.values():
                text = "must not already exist as a path in volumeDevices"
                errs.append(invalid(f"{path}[{i}].mountPath", target, text))
        if len(mount) > 2 and not mount.keys() <= _NAME_AND_PATH:
            _validate_mount_details(mount, i, container, volumes.get(name), path, errs)


def _validate_mount_details(mount: Item, i: int, container: Item, volume: Item | None, path: str, errs: Errors) -> None:
    # Several of these stand at the list, not at the element.
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub_path:
        validate_local_descending_path(sub_path, f"{path}.subPath", errs)
    if expression:
        if sub_path:
            text = "subPathExpr and subPath are mutually exclusive"
            errs.append(invalid(f"{path}[{i}].subPathExpr", expression, text))
        validate_local_descending_path(expression, f"{path}.subPathExpr", errs)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in _PROPAGATION:
            errs.append(not_supported(f"{path}.mountPropagation", propagation, _PROPAGATION))
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            errs.append(forbidden(f"{path}.mountPropagation", text))
    recursive = mount.get("recursiveReadOnly")
    if recursive is not None:
        _validate_recursive_read_only(mount, recursive, f"{path}.recursiveReadOnly", errs)
    options = mount.get("bindMountOptions")
    if options:
        at = f"{path}[{i}].bindMountOptions"
        validate_bind_mount_options(options, at, errs)
        if volume is not None and "image" in volume:
            errs.append(invalid(at, options, "bindMountOptions may not be used with image volumes"))


def _validate_recursive_read_only(mount: Item, mode: str, path: str, errs: Errors) -> None:
    if mode == "Disabled":
        return
    if mode not in _RECURSIVE:
        errs.append(not_supported(path, mode, _RECURSIVE))
        return
    if not mount.get("readOnly"):
        errs.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation", "None") != "None":
        errs.append(forbidden(path, "may only be specified when mountPropagation is None or not specified"))


def validate_bind_mount_options(options: Sequence[str], path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, option in enumerate(options):
        if option not in _OPTIONS:
            errs.append(not_supported(f"{path}[{i}]", option, _OPTIONS))
        if option in seen:
            errs.append(duplicate(f"{path}[{i}]", option))
        seen.add(option)


def validate_volume_devices(
    devices: Sequence[Item], container: Item, volumes: Mapping[str, Item], path: str, errs: Errors
) -> None:
    mounts = {mount.get("name", ""): mount.get("mountPath", "") for mount in container.get("volumeMounts", ())}
    names: set[str] = set()
    paths: set[str] = set()
    for i, device in enumerate(devices):
        name, target = device.get("name", ""), device.get("devicePath", "")
        at_name, at_path = f"{path}[{i}].name", f"{path}[{i}].devicePath"
        if not name:
            errs.append(required(at_name, ""))
        if name in names:
            errs.append(invalid(at_name, name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errs.append(not_found(at_name, name))
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errs.append(invalid(at_name, name, text))
        if not target:
            errs.append(required(at_path, ""))
        if target in paths:
            errs.append(invalid(at_path, target, "must be unique"))
        if has_backsteps(target):
            errs.append(invalid(at_path, target, "can not contain backsteps ('..')"))
        else:
            paths.add(target)
        if name in mounts:
            errs.append(invalid(at_name, name, "must not already exist in volumeMounts"))
        if target in mounts.values():
            errs.append(invalid(at_path, target, "must not already exist as a path in volumeMounts"))
        if name:
            names.add(name)
