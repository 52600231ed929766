"""PersistentVolume: a piece of storage that outlives Pods.

Most of its volume sources are those of Pods; the others differ in the namespace of their Secrets.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from datetime import datetime
from typing import Any

from setpoint.kinds.cell_texts import UNSET
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import volumes
from setpoint.kinds.core.podspec.claims import ACCESS_MODES, VOLUME_MODES
from setpoint.kinds.core.podspec.paths import validate_no_backsteps
from setpoint.kinds.core.podspec.resources import round_up_to_milli
from setpoint.kinds.core.podspec.scheduling import validate_node_selector
from setpoint.kinds.core.podspec.warnings import DEPRECATED_NODE_LABELS
from setpoint.kinds.internal_form import internal, internal_diff
from setpoint.kinds.storage.binding import STORAGE_CLASS_ANNOTATION, access_modes_text
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_label, dns1123_subdomain, in_range, label_value
from setpoint.meta.node_labels import DEPRECATED
from setpoint.meta.objectmeta import IMMUTABLE, validate_immutable
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import parse
from setpoint.meta.times import format_time

_BAD_FORMAT = "must be valid format"
_CHECKED_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_DEPRECATED_SOURCES = {
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "photonPersistentDisk": ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}


def _require(source: ObjView, names: tuple[str, ...], path: str, errs: Errors) -> None:
    errs.extend(required(f"{path}.{name}") for name in names if not source.get(name))


def _requires(*names: str) -> Callable[[ObjView, str, Errors], None]:
    return lambda source, path, errs: _require(source, names, path, errs)


def _glusterfs(source: ObjView, path: str, errs: Errors) -> None:
    _require(source, ("endpoints", "path"), path, errs)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        text = "if the endpointnamespace is set, it must be a valid namespace name"
        errs.append(invalid(f"{path}.endpointsNamespace", "", text))
    elif namespace is not None:
        errs.extend(invalid(f"{path}.endpointsNamespace", namespace, text) for text in dns1123_label(namespace))


def _iscsi(source: ObjView, path: str, errs: Errors) -> None:
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


def _cinder(source: ObjView, path: str, errs: Errors) -> None:
    _require(source, ("volumeID",), path, errs)
    if "secretRef" in source:
        _require(source["secretRef"], ("name", "namespace"), f"{path}.secretRef", errs)


def _flex(source: ObjView, path: str, errs: Errors) -> None:
    _require(source, ("driver",), path, errs)
    for key in source.get("options", ()):
        if ("." + key.partition("/")[0].lower()).endswith((".kubernetes.io", ".k8s.io")):
            text = "kubernetes.io and k8s.io namespaces are reserved"
            errs.append(invalid(f"{path}.options[{key}]", key, text))


def _azure_file(source: ObjView, path: str, errs: Errors) -> None:
    _require(source, ("secretName", "shareName"), path, errs)
    if source.get("secretNamespace") == "":
        errs.append(required(f"{path}.secretNamespace"))


def _local(source: ObjView, path: str, errs: Errors) -> None:
    _require(source, ("path",), path, errs)
    if source.get("path"):
        validate_no_backsteps(source["path"], f"{path}.path", errs)


def _storage_os(source: ObjView, path: str, errs: Errors) -> None:
    _require(source, ("volumeName",), path, errs)
    for name in ("volumeName", "volumeNamespace"):
        value = source.get(name)
        errs.extend(invalid(f"{path}.{name}", value, text) for text in (dns1123_label(value) if value else ()))
    if "secretRef" in source:
        _require(source["secretRef"], ("name", "namespace"), f"{path}.secretRef", errs)


def _csi(source: ObjView, path: str, errs: Errors) -> None:
    volumes.validate_csi_driver_name(source.get("driver", ""), f"{path}.driver", errs)
    _require(source, ("volumeHandle",), path, errs)
    # Upstream does not validate nodeStageSecretRef.
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


SOURCES: dict[str, Callable[[ObjView, str, Errors], None]] = {
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


def validate_sources(spec: ObjView, name: str, errs: Errors) -> None:
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


def _check_iscsi_length(source: ObjView, name: str, path: str, errs: Errors) -> None:
    portal = source.get("targetPortal", "")
    if "initiatorName" in source and len(f"{name}:{portal}".encode()) > 64:
        errs.append(invalid(f"{path}.targetportal", portal, volumes.ISCSI_TOO_LONG))


def default_sources(spec: Obj) -> None:
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


def _fill(source: Obj, **values: str) -> None:
    for name, value in values.items():
        if not source.get(name):
            source[name] = value


_TAKE_MOUNT_OPTIONS = frozenset(
    {
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    }
)


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _annotations(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def phase_text(obj: Obj, now: datetime) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((obj.get("status") or {}).get("phase", ""))


def _claim(obj: Obj, now: datetime) -> str:
    claim = _spec(obj).get("claimRef")
    return "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}"


def _class(obj: Obj, now: datetime) -> str:
    return str(_annotations(obj).get(STORAGE_CLASS_ANNOTATION, _spec(obj).get("storageClassName", "")))


def _field(name: str, missing: str) -> Any:
    return lambda obj, now: _spec(obj).get(name, missing)


class PersistentVolumeStrategy(Strategy):
    columns = (
        NAME,
        Column(
            "Capacity",
            lambda obj, now: _spec(obj).get("capacity", {}).get("storage", "0"),
            description="How much it holds.",
        ),
        Column(
            "Access Modes",
            lambda obj, now: access_modes_text(_spec(obj).get("accessModes")),
            description="Ways it can be mounted.",
        ),
        Column("Reclaim Policy", _field("persistentVolumeReclaimPolicy", ""), description="What follows its release."),
        Column("Status", phase_text, description="Where it is in its life."),
        Column("Claim", _claim, description="The claim it is bound to."),
        Column("StorageClass", _class, description="Class of storage."),
        Column("VolumeAttributesClass", _field("volumeAttributesClassName", UNSET), description="Class of attributes."),
        Column("Reason", lambda obj, now: (obj.get("status") or {}).get("reason", ""), description="Why it failed."),
        AGE,
        Column("VolumeMode", _field("volumeMode", UNSET), priority=1, description="Filesystem or raw device."),
    )
    field_labels = frozenset({"metadata.name", "metadata.namespace"})
    has_status = True
    returns_deleted = True

    def __init__(self) -> None:
        self.subresources = {"status": PersistentVolumeStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec, status = obj.setdefault("spec", {}), obj.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Pending"
        if not spec.get("persistentVolumeReclaimPolicy"):
            spec["persistentVolumeReclaimPolicy"] = "Retain"
        spec.setdefault("volumeMode", "Filesystem")
        round_up_to_milli(spec.get("capacity") or {})
        default_sources(spec)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": format_time(ctx.now)}

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate(obj, errs, allow_invalid_values=False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        terms = ((_spec(old).get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        loose = any(
            label_value(value)
            for term in terms
            for expression in term.get("matchExpressions", ())
            for value in expression.get("values", ())
        )
        _validate(obj, errs, allow_invalid_values=loose)
        _validate_change(_spec(obj), _spec(old), errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        spec, warnings = _spec(obj), []
        for key, text in (
            (STORAGE_CLASS_ANNOTATION, 'deprecated since v1.8; use "storageClassName" attribute instead'),
            (_MOUNT_OPTIONS, 'deprecated since v1.31; use "mountOptions" attribute instead'),
        ):
            if key in _annotations(obj):
                warnings.append(f"metadata.annotations[{key}]: {text}")
        if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            warnings.append(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
                "Instead, the recommended approach is to use dynamic provisioning."
            )
        terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        for i, term in enumerate(terms):
            for j, expression in enumerate(term.get("matchExpressions", ())):
                key = expression.get("key", "")
                if key in DEPRECATED_NODE_LABELS:
                    path = f"spec.nodeAffinity.required.nodeSelectorTerms[{i}].matchExpressions[{j}].key"
                    warnings.append(f"{path}: {key} is {DEPRECATED_NODE_LABELS[key]}")
        for kind, (shown, text) in _DEPRECATED_SOURCES.items():
            if kind in spec:
                warnings.append(f"spec.{shown}: {text}")
        return warnings


class PersistentVolumeStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        status, before = obj.setdefault("status", {}), old.get("status") or {}
        given, known = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
        if status.get("phase", "") == before.get("phase", ""):
            if given is None and known is not None:
                status["lastPhaseTransitionTime"] = known
        elif given is None or given == known:
            status["lastPhaseTransitionTime"] = format_time(ctx.now)


def _validate(obj: Obj, errs: Errors, *, allow_invalid_values: bool) -> None:
    spec = _spec(obj)
    _validate_access_modes(spec.get("accessModes") or (), errs)
    _validate_capacity(spec.get("capacity"), errs)
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    if policy and policy not in _RECLAIM_POLICIES:
        errs.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES))
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        path = "spec.nodeAffinity.required"
        if "required" in affinity:
            validate_node_selector(affinity["required"], path, errs, allow_invalid_values=allow_invalid_values)
        else:
            errs.append(required(path, "must specify required node constraints"))
    validate_sources(spec, obj["metadata"].get("name", ""), errs)
    host_path = spec.get("hostPath")
    if host_path is not None and policy == "Recycle" and _clean(host_path.get("path", "")) == "/":
        text = "may not be 'recycle' for a hostPath mount of '/'"
        errs.append(forbidden("spec.persistentVolumeReclaimPolicy", text))
    name, mode = spec.get("storageClassName", ""), spec.get("volumeMode")
    for text in dns1123_subdomain(name) if name else ():
        errs.append(invalid("spec.storageClassName", name, text))
    if mode is not None and mode not in VOLUME_MODES:
        errs.append(not_supported("spec.volumeMode", mode, VOLUME_MODES))
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        if not attributes:
            errs.append(required("spec.volumeAttributesClassName", "an empty string is disallowed"))
        for text in dns1123_subdomain(attributes) if attributes else ():
            errs.append(invalid("spec.volumeAttributesClassName", attributes, text))
        if "csi" not in spec:
            errs.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    if _MOUNT_OPTIONS in _annotations(obj) and not spec.keys() & _TAKE_MOUNT_OPTIONS:
        text = "may not specify mount options for this volume type"
        errs.append(forbidden(f"metadata.annotations.{_MOUNT_OPTIONS}", text))


def _clean(path: str) -> str:
    cleaned = posixpath.normpath(path) if path else "."
    return "/" if cleaned == "//" else cleaned


def _validate_access_modes(modes: list[str] | tuple[str, ...], errs: Errors) -> None:
    path = "spec.accessModes"
    if not modes:
        errs.append(required(path))
    for mode in modes:
        if mode not in ACCESS_MODES:
            errs.append(not_supported(path, mode, ACCESS_MODES))
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        errs.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def _validate_capacity(capacity: dict[str, str] | None, errs: Errors) -> None:
    path = "spec.capacity"
    if not capacity:
        errs.append(required(path))
    if set(capacity or ()) != {"storage"}:
        errs.append(not_supported(path, capacity, ("storage",)))
    for name, amount in (capacity or {}).items():
        quantity = parse(amount)
        if quantity.value() < 0:
            errs.append(invalid(f"{path}[{name}]", quantity.value(), "must be a valid resource quantity"))
        if quantity.nano <= 0:
            errs.append(invalid(f"{path}[{name}]", quantity.text, "must be greater than zero"))


def _validate_change(spec: Obj, old: Obj, errs: Errors) -> None:
    sources = {name: spec[name] for name in SOURCES if name in spec}
    before = {name: old[name] for name in SOURCES if name in old}
    csi = sources.get("csi")
    if csi is not None and "csi" in before and "controllerExpandSecretRef" not in before["csi"]:
        # The class may allow expansion later.
        sources["csi"] = {name: value for name, value in csi.items() if name != "controllerExpandSecretRef"}
    if sources != before:
        text = "spec.persistentvolumesource is immutable after creation\n"
        text += internal_diff("PersistentVolumeSource", before, sources)
        errs.append(forbidden("spec.persistentvolumesource", text))
    validate_immutable(spec.get("volumeMode"), old.get("volumeMode"), "volumeMode", errs)
    affinity, old_affinity = spec.get("nodeAffinity"), old.get("nodeAffinity")
    if old_affinity is not None and not _same_affinity(affinity, old_affinity):
        shown = None if affinity is None else internal("VolumeNodeAffinity", affinity)
        errs.append(invalid("nodeAffinity", shown, f"{IMMUTABLE}, except for updating from beta label to GA"))
    if "volumeAttributesClassName" in old and "volumeAttributesClassName" not in spec:
        text = "update from non-nil value to nil is forbidden"
        errs.append(forbidden("spec.volumeAttributesClassName", text))


def _same_affinity(affinity: Any, old: Any) -> bool:
    """Return whether affinities are equal, except for labels renamed from beta to stable names."""
    if isinstance(affinity, dict) and isinstance(old, dict):
        # A key that became empty passes here, as it does upstream; the rules for keys reject it.
        if "key" in old and "operator" in old and DEPRECATED.get(old["key"], "") == affinity.get("key", ""):
            old = {**old, "key": affinity.get("key", "")}
        return affinity.keys() == old.keys() and all(_same_affinity(affinity[name], old[name]) for name in old)
    if isinstance(affinity, list) and isinstance(old, list):
        return len(affinity) == len(old) and all(map(_same_affinity, affinity, old))
    return bool(affinity == old)


STRATEGY = PersistentVolumeStrategy()
