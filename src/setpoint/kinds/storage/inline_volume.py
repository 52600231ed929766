"""A volume spec inside an attachment, for volumes that have no object of their own: a CSI volume and little else."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.core.persistentvolume_sources import validate_sources
from setpoint.kinds.core.podspec.claims import ACCESS_MODES
from setpoint.meta.field import Errors, forbidden, not_supported, required

_NOT_HERE = "may not be specified in the context of inline volumes"


def validate_inline_volume(spec: dict[str, Any], path: str, errs: Errors) -> None:
    for name in ("claimRef", "capacity"):
        if spec.get(name):
            errs.append(forbidden(f"{path}.{name}", _NOT_HERE))
    if spec.get("csi") is None:
        errs.append(required(f"{path}.csi", "has to be specified in the context of inline volumes"))
    modes = spec.get("accessModes") or []
    if not modes:
        errs.append(required(f"{path}.accessModes"))
    for mode in modes:
        if mode not in ACCESS_MODES:
            errs.append(not_supported(f"{path}.accessModes", mode, ACCESS_MODES))
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errs.append(forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes"))
    if spec.get("persistentVolumeReclaimPolicy", "Retain") != "Retain":
        text = "may only be Retain in the context of inline volumes"
        errs.append(forbidden(f"{path}.persistentVolumeReclaimPolicy", text))
    if spec.get("nodeAffinity") is not None:
        errs.append(forbidden(f"{path}.nodeAffinity", _NOT_HERE))
    found: Errors = []
    validate_sources(spec, "", found)
    # The rules of sources are written for a volume of its own, whose spec is at the top.
    errs.extend(error._replace(field=path + error.field.removeprefix("spec")) for error in found)
    if spec.get("storageClassName"):
        errs.append(forbidden(f"{path}.storageClassName", _NOT_HERE))
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        text = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        errs.append(forbidden(f"{path}.volumeMode", text))
