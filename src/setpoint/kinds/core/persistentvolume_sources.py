"""Volume sources of PersistentVolumes. Most are a Pod's own; the rest differ in whom their secrets belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.kinds.core.podspec import volumes
from setpoint.kinds.core.podspec.paths import validate_no_backsteps
from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import dns1123_label, dns1123_subdomain, in_range

Source = Mapping[str, Any]
_BAD_FORMAT = "must be valid format"
_CHECKED_SECRETS = (
    "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef",
)  # fmt: skip


def _require(source: Source, names: tuple[str, ...], path: str, errs: Errors) -> None:
    errs.extend(required(f"{path}.{name}") for name in names if not source.get(name))


def _requires(*names: str) -> Callable[[Source, str, Errors], None]:
    return lambda source, path, errs: _require(source, names, path, errs)


def _glusterfs(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("endpoints", "path"), path, errs)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        text = "if the endpointnamespace is set, it must be a valid namespace name"
        errs.append(invalid(f"{path}.endpointsNamespace", "", text))
    elif namespace is not None:
        errs.extend(invalid(f"{path}.endpointsNamespace", namespace, text) for text in dns1123_label(namespace))


def _iscsi(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("targetPortal",), path, errs)
    if not source.get("iqn"):
        errs.append(required(f"{path}.iqn"))
    elif volumes.iscsi_name_error(source["iqn"]):
        errs.append(invalid(f"{path}.iqn", source["iqn"], _BAD_FORMAT))
    lun = source.get("lun", 0)
    if not 0 <= lun <= 255:
        errs.append(invalid(f"{path}.lun", lun, in_range(0, 255)))
    secret = source.get("secretRef")
    if secret is None:
        if source.get("chapAuthDiscovery") or source.get("chapAuthSession"):
            errs.append(required(f"{path}.secretRef"))
    else:
        _require(secret, ("name",), f"{path}.secretRef", errs)
    initiator = source.get("initiatorName")
    if initiator is not None and volumes.iscsi_name_error(initiator):
        errs.append(invalid(f"{path}.initiatorname", initiator, _BAD_FORMAT))


def _cinder(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("volumeID",), path, errs)
    if "secretRef" in source:
        _require(source["secretRef"], ("name", "namespace"), f"{path}.secretRef", errs)


def _flex(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("driver",), path, errs)
    for key in source.get("options", ()):
        if ("." + key.partition("/")[0].lower()).endswith((".kubernetes.io", ".k8s.io")):
            text = "kubernetes.io and k8s.io namespaces are reserved"
            errs.append(invalid(f"{path}.options[{key}]", key, text))


def _azure_file(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("secretName", "shareName"), path, errs)
    if source.get("secretNamespace") == "":
        errs.append(required(f"{path}.secretNamespace"))


def _local(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("path",), path, errs)
    if source.get("path"):
        validate_no_backsteps(source["path"], f"{path}.path", errs)


def _storage_os(source: Source, path: str, errs: Errors) -> None:
    _require(source, ("volumeName",), path, errs)
    for name in ("volumeName", "volumeNamespace"):
        value = source.get(name)
        errs.extend(invalid(f"{path}.{name}", value, text) for text in (dns1123_label(value) if value else ()))
    if "secretRef" in source:
        _require(source["secretRef"], ("name", "namespace"), f"{path}.secretRef", errs)


def _csi(source: Source, path: str, errs: Errors) -> None:
    volumes.validate_csi_driver_name(source.get("driver", ""), f"{path}.driver", errs)
    _require(source, ("volumeHandle",), path, errs)
    # nodeStageSecretRef is not checked, upstream forgot it.
    for name in _CHECKED_SECRETS:
        secret = source.get(name)
        if secret is None:
            continue
        for part, rule in (("name", dns1123_subdomain), ("namespace", dns1123_label)):
            value = secret.get(part, "")
            if not value:
                errs.append(required(f"{path}.{name}.{part}"))
            else:
                errs.extend(invalid(f"{path}.{name}.{part}", value, text) for text in rule(value))


SOURCES: dict[str, Callable[[Source, str, Errors], None]] = {
    "hostPath": volumes.validate_host_path,
    "gcePersistentDisk": volumes.validate_gce_persistent_disk,
    "awsElasticBlockStore": volumes.validate_aws_elastic_block_store,
    "glusterfs": _glusterfs,
    "flocker": volumes.validate_flocker,
    "nfs": volumes.validate_nfs,
    "rbd": _requires("monitors", "image"),
    "quobyte": volumes.validate_quobyte,
    "cephfs": _requires("monitors"),
    "iscsi": _iscsi,
    "cinder": _cinder,
    "fc": volumes.validate_fc,
    "flexVolume": _flex,
    "azureFile": _azure_file,
    "vsphereVolume": volumes.validate_vsphere,
    "photonPersistentDisk": volumes.validate_photon,
    "portworxVolume": volumes.validate_portworx,
    "azureDisk": volumes.validate_azure_disk,
    "scaleIO": _requires("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os,
    "csi": _csi,
}
"""Validators of sources in upstream's order: the first one present is used, further ones are an error."""


def validate_sources(spec: Source, name: str, errs: Errors) -> None:
    count = 0
    for kind, rule in SOURCES.items():
        source = spec.get(kind)
        if source is None:
            continue
        if count and kind != "flexVolume":
            at = "cephFS" if kind == "cephfs" else kind
            errs.append(forbidden(f"spec.{at}", "may not specify more than 1 volume type"))
            continue
        count += 1
        path = "spec.persistentDisk" if kind == "gcePersistentDisk" else f"spec.{kind}"
        if kind == "iscsi":
            _check_iscsi_length(source, name, path, errs)
        rule(source, path, errs)
        if kind == "local" and "nodeAffinity" not in spec:
            errs.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if not count:
        errs.append(required("spec", "must specify a volume type"))


def _check_iscsi_length(source: Source, name: str, path: str, errs: Errors) -> None:
    portal = source.get("targetPortal", "")
    if "initiatorName" in source and len(f"{name}:{portal}".encode()) > 64:
        errs.append(invalid(f"{path}.targetportal", portal, volumes.ISCSI_TOO_LONG))


def default_sources(spec: dict[str, Any]) -> None:
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")
    rbd, iscsi, azure, scale_io = (spec.get(name) for name in ("rbd", "iscsi", "azureDisk", "scaleIO"))
    if rbd is not None:
        _fill(rbd, pool="rbd", user="admin", keyring="/etc/ceph/keyring")
    if iscsi is not None:
        _fill(iscsi, iscsiInterface="default")
    if azure is not None:
        for name, value in (("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("readOnly", False), ("kind", "Shared")):
            azure.setdefault(name, value)
    if scale_io is not None:
        _fill(scale_io, storageMode="ThinProvisioned", fsType="xfs")


def _fill(source: dict[str, Any], **values: str) -> None:
    for name, value in values.items():
        if not source.get(name):
            source[name] = value
