"""Volumes of a pod: exactly one source each, by the rules of that source.

The functions per source are shared with PersistentVolumes, whose sources are mostly the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from setpoint.kinds.core.podspec.claims import validate_claim_template
from setpoint.kinds.core.podspec.options import CREATE, PodOptions
from setpoint.kinds.core.podspec.paths import validate_local_descending_path, validate_no_backsteps
from setpoint.kinds.core.podspec.projections import (
    validate_config_map,
    validate_downward_api,
    validate_projected,
    validate_secret,
)
from setpoint.kinds.internal_form import as_json
from setpoint.meta.field import Errors, FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from setpoint.meta.goformat import quote
from setpoint.meta.names import _dns1123_label, dns1123_label, dns1123_subdomain, in_range
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import compare

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_IQN = re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.([a-zA-Z0-9\-.]+)(:[^,;*&$|\s]+)\Z")
_EUI = re.compile(r"eui.[a-zA-Z0-9]{16}")
_NAA = re.compile(r"naa.[a-zA-Z0-9]{32}")
_CACHING = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_MANAGED_DISK = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PAIRS = "must be a host:port pair or multiple pairs separated by commas"
ISCSI_TOO_LONG = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
    "if iscsi.initiatorName is specified."
)


def validate_volumes(
    volumes: Sequence[ObjView], meta: ObjView | None, path: str, errs: Errors, *, options: PodOptions = CREATE
) -> dict[str, ObjView]:
    """Return the valid volumes by name. `meta` is the pod's, None for templates."""
    valid: dict[str, ObjView] = {}
    pod_name = (meta or {}).get("name", "")
    created = {f"{pod_name}-{v.get('name', '')}" for v in volumes if "ephemeral" in v} if pod_name else ()
    for i, volume in enumerate(volumes):
        found: list[FieldError] = []
        name = volume.get("name", "")
        _validate_source(volume, name, pod_name, f"{path}[{i}]", found, options)
        if not name:
            found.append(required(f"{path}[{i}].name", ""))
        else:
            for text in _dns1123_label(name):
                found.append(invalid(f"{path}[{i}].name", name, text))
        if name in valid:
            found.append(duplicate(f"{path}[{i}].name", name))
        if found:
            errs.extend(found)
        else:
            valid[name] = volume
        if created and "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"].get("claimName", "")
            if claim in created:
                text = "must not reference a PVC that gets created for an ephemeral volume"
                errs.append(invalid(f"{path}[{i}].persistentVolumeClaim.claimName", claim, text))
    return valid


def _validate_source(volume: ObjView, name: str, pod_name: str, path: str, errs: Errors, options: PodOptions) -> None:
    kinds = volume.keys() & VOLUME_SOURCES.keys()
    if len(kinds) > 1:
        # The first one in upstream's order is used; further ones are an error.
        ordered = [kind for kind in VOLUME_SOURCES if kind in kinds]
    else:
        ordered = list(kinds)
    if not ordered:
        errs.append(required(path, "must specify a volume type"))
    for position, kind in enumerate(ordered):
        source = volume[kind]
        if position:
            errs.append(forbidden(f"{path}.{_MISNAMED.get(kind, kind)}", "may not specify more than 1 volume type"))
        else:
            at = f"{path}.persistentDisk" if kind == "gcePersistentDisk" else f"{path}.{kind}"
            VOLUME_SOURCES[kind](source, at, errs, options=options)
            if kind == "ephemeral" and pod_name and name:
                claim = f"{pod_name}-{name}"
                for text in dns1123_subdomain(claim):
                    errs.append(invalid(f"{path}.name", name, f"PVC name {quote(claim)}: {text}"))
        if kind == "iscsi" and "initiatorName" in source:
            if len(f"{name}:{source.get('targetPortal', '')}".encode()) > 64:
                errs.append(invalid(f"{path}.name", name, ISCSI_TOO_LONG))


_MISNAMED = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Upstream's spelling of surplus sources."""


def _require(source: ObjView, names: Sequence[str], path: str, errs: Errors) -> None:
    errs.extend(required(f"{path}.{name}", "") for name in names if not source.get(name))


def validate_empty_dir(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and compare(limit, "0") < 0:
        errs.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    mode = source.get("mode")
    if mode is not None and not 0 <= mode <= 0o1777:
        errs.append(invalid(f"{path}.mode", mode, "must be a number between 0 and 01777 (octal), both inclusive"))


def validate_host_path(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    if not source.get("path"):
        errs.append(required(f"{path}.path", ""))
        return
    validate_no_backsteps(source["path"], f"{path}.path", errs)
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errs.append(not_supported(f"{path}.type", as_json(kind), _HOST_PATH_TYPES))


def validate_git_repo(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("repository",), path, errs)
    validate_local_descending_path(source.get("directory", ""), f"{path}.directory", errs)


def _validate_partition(source: ObjView, path: str, errs: Errors) -> None:
    partition = source.get("partition", 0)
    if not 0 <= partition <= 255:
        errs.append(invalid(f"{path}.partition", partition, in_range(1, 255)))


def validate_gce_persistent_disk(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("pdName",), path, errs)
    _validate_partition(source, path, errs)


def validate_aws_elastic_block_store(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("volumeID",), path, errs)
    _validate_partition(source, path, errs)


def validate_nfs(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("server", "path"), path, errs)
    if not source.get("path", "").startswith("/"):
        errs.append(invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))


def iscsi_name_error(name: str) -> str:
    """Return the error of an initiator's or target's name; empty if it is valid."""
    for prefix, pattern in (("iqn", _IQN), ("eui", _EUI), ("naa", _NAA)):
        if name.startswith(prefix):
            matched = pattern.search(name[:4096]) if prefix == "iqn" else pattern.fullmatch(name)
            return "" if matched else "must be valid format"
    return "must be valid format starting with iqn, eui, or naa"


def validate_iscsi(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("targetPortal",), path, errs)
    iqn = source.get("iqn", "")
    if not iqn:
        errs.append(required(f"{path}.iqn", ""))
    elif text := iscsi_name_error(iqn):
        errs.append(invalid(f"{path}.iqn", iqn, text))
    lun = source.get("lun", 0)
    if not 0 <= lun <= 255:
        errs.append(invalid(f"{path}.lun", lun, in_range(0, 255)))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and "secretRef" not in source:
        errs.append(required(f"{path}.secretRef", ""))
    initiator = source.get("initiatorName")
    if initiator is not None and (text := iscsi_name_error(initiator)):
        errs.append(invalid(f"{path}.initiatorname", initiator, text))


def validate_glusterfs(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("endpoints", "path"), path, errs)


def validate_flocker(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        errs.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        errs.append(invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
    if "/" in name:
        errs.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def validate_persistent_volume_claim(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("claimName",), path, errs)


def validate_rbd(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("monitors", "image"), path, errs)


def validate_cinder(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("volumeID",), path, errs)
    if "secretRef" in source and not source["secretRef"].get("name"):
        errs.append(required(f"{path}.secretRef.name", ""))


def validate_ceph_fs(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("monitors",), path, errs)


def validate_quobyte(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    registry = source.get("registry", "")
    if not registry:
        errs.append(required(f"{path}.registry", _PAIRS))
    elif len(source.get("tenant", "").encode()) >= 65:
        text = "must be a UUID and may not exceed a length of 64 characters"
        errs.append(required(f"{path}.tenant", text))
    else:
        for pair in registry.split(","):
            if not _is_host_port(pair):
                errs.append(invalid(f"{path}.registry", registry, _PAIRS))
    _require(source, ("volume",), path, errs)


def _is_host_port(text: str) -> bool:
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        return bool(bracket) and port.startswith(":") and not any(c in port[1:] for c in ":[]") and "[" not in host
    return text.count(":") == 1 and "[" not in text and "]" not in text


def validate_fc(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    names, ids = source.get("targetWWNs"), source.get("wwids")
    at = f"{path}.targetWWNs"
    if not names and not ids:
        errs.append(required(at, "must specify either targetWWNs or wwids, but not both"))
    if names and ids:
        errs.append(invalid(at, as_json(names), "targetWWNs and wwids can not be specified simultaneously"))
    if names:
        lun = source.get("lun")
        if lun is None:
            errs.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
        elif not 0 <= lun <= 255:
            errs.append(invalid(f"{path}.lun", lun, in_range(0, 255)))


def validate_flex(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("driver",), path, errs)
    for key in source.get("options") or ():
        namespace = "." + key.partition("/")[0].lower()
        if namespace.endswith((".kubernetes.io", ".k8s.io")):
            text = "kubernetes.io and k8s.io namespaces are reserved"
            errs.append(invalid(f"{path}.options[{key}]", key, text))


def validate_azure_file(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("secretName", "shareName"), path, errs)


def validate_vsphere(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("volumePath",), path, errs)


def validate_photon(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("pdID",), path, errs)


def validate_portworx(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("volumeID",), path, errs)


def validate_azure_disk(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("diskName", "diskURI"), path, errs)
    caching, kind, uri = source.get("cachingMode"), source.get("kind"), source.get("diskURI", "")
    if caching is not None and caching not in _CACHING:
        errs.append(not_supported(f"{path}.cachingMode", caching, _CACHING))
    if kind is None:
        return
    if kind not in _DISK_KINDS:
        errs.append(not_supported(f"{path}.kind", kind, _DISK_KINDS))
    if kind == "Managed":
        if not uri.startswith("/subscriptions/"):
            errs.append(not_supported(f"{path}.diskURI", uri, (_MANAGED_DISK,)))
    elif not uri.startswith("https://"):
        errs.append(not_supported(f"{path}.diskURI", uri, (_BLOB_DISK,)))


def validate_storage_os(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("volumeName",), path, errs)
    for name in ("volumeName", "volumeNamespace"):
        if source.get(name):
            for text in dns1123_label(source[name]):
                errs.append(invalid(f"{path}.{name}", source[name], text))
    if "secretRef" in source and not source["secretRef"].get("name"):
        errs.append(required(f"{path}.secretRef.name", ""))


def validate_scale_io(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _require(source, ("gateway", "system", "volumeName"), path, errs)


def validate_csi_driver_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path, ""))
        return
    if len(name.encode()) > 63:
        errs.append(too_long(path, 63))
    for text in dns1123_subdomain(name.lower()):
        errs.append(invalid(path, name, text))


def validate_csi(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    validate_csi_driver_name(source.get("driver", ""), f"{path}.driver", errs)
    if "nodePublishSecretRef" in source:
        name = source["nodePublishSecretRef"].get("name", "")
        if not name:
            errs.append(required(f"{path}.nodePublishSecretRef.name", ""))
        else:
            for text in dns1123_subdomain(name):
                errs.append(invalid(f"{path}.name", name, text))


def validate_ephemeral(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        errs.append(required(f"{path}.volumeClaimTemplate", ""))
    else:
        validate_claim_template(template, f"{path}.volumeClaimTemplate", errs)


def validate_image(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    if not options.allow_empty_image_reference:
        _require(source, ("reference",), path, errs)
    policy = source.get("pullPolicy", "")
    if policy not in _PULL_POLICIES:
        at = f"{path}.pullPolicy"
        errs.append(not_supported(at, policy, _PULL_POLICIES) if policy else required(at, ""))


VOLUME_SOURCES: dict[str, Callable[..., None]] = {
    "emptyDir": validate_empty_dir,
    "hostPath": validate_host_path,
    "gitRepo": validate_git_repo,
    "gcePersistentDisk": validate_gce_persistent_disk,
    "awsElasticBlockStore": validate_aws_elastic_block_store,
    "secret": validate_secret,
    "nfs": validate_nfs,
    "iscsi": validate_iscsi,
    "glusterfs": validate_glusterfs,
    "flocker": validate_flocker,
    "persistentVolumeClaim": validate_persistent_volume_claim,
    "rbd": validate_rbd,
    "cinder": validate_cinder,
    "cephfs": validate_ceph_fs,
    "quobyte": validate_quobyte,
    "downwardAPI": validate_downward_api,
    "fc": validate_fc,
    "flexVolume": validate_flex,
    "configMap": validate_config_map,
    "azureFile": validate_azure_file,
    "vsphereVolume": validate_vsphere,
    "photonPersistentDisk": validate_photon,
    "portworxVolume": validate_portworx,
    "azureDisk": validate_azure_disk,
    "storageos": validate_storage_os,
    "projected": validate_projected,
    "scaleIO": validate_scale_io,
    "csi": validate_csi,
    "ephemeral": validate_ephemeral,
    "image": validate_image,
}
"""Validators of sources in upstream's order; each takes (source, path, errs, *, options)."""
