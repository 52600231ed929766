"""Fields of disabled features: dropped from new objects, retained where the stored object already has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Dict = dict[str, Any]
Uses = dict[str, list[tuple[Dict, str]]]
"""Locations in a spec that use a feature, by feature."""

_INIT_CONTAINER_ANNOTATIONS = (
    "pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
)  # fmt: skip
_VOLUME_SOURCES = ("secret", "configMap", "downwardAPI", "projected")
_PROJECTIONS = ("secret", "downwardAPI", "configMap", "serviceAccountToken", "clusterTrustBundle", "podCertificate")


def drop_disabled_template_fields(template: Dict | None, old: Mapping[str, Any] | None = None) -> None:
    """Drop disabled fields, for the `prepare_*` hooks of every kind with a pod template."""
    if template:
        drop_disabled_fields(template.get("spec") or {}, template.get("metadata"), (old or {}).get("spec"))


def drop_disabled_fields(spec: Dict, meta: Dict | None, old_spec: Mapping[str, Any] | None = None) -> None:
    uses = _uses(spec)
    if uses:
        kept = _uses(old_spec) if old_spec else {}
        for feature, places in uses.items():
            if feature not in kept:
                for holder, key in places:
                    holder.pop(key, None)
                if feature == "ContainerStopSignals":
                    _drop_empty_lifecycles(spec)
    annotations = (meta or {}).get("annotations")
    if annotations:
        drop_init_container_annotations(annotations)


def drop_init_container_annotations(annotations: Dict) -> None:
    """Drop the legacy annotations of init containers, which fields have replaced."""
    for name in _INIT_CONTAINER_ANNOTATIONS:
        annotations.pop(name, None)


def _drop_empty_lifecycles(spec: Dict) -> None:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(key) or ():
            if container.get("lifecycle") == {}:
                del container["lifecycle"]


def _uses(spec: Any) -> Uses:
    uses: Uses = {}
    if "schedulingGroup" in spec:
        uses["GenericWorkload"] = [(spec, "schedulingGroup")]
    if spec.get("evictionResponders"):
        uses["EvictionRequestAPI"] = [(spec, "evictionResponders")]
    for volume in spec.get("volumes", ()):
        _find_in_volume(volume, uses)
    for key in ("initContainers", "containers", "ephemeralContainers"):
        if key in spec:
            for container in spec[key] or ():
                _find_in_container(container, uses)
    return uses


def _note(uses: Uses, feature: str, holder: Dict, key: str) -> None:
    uses.setdefault(feature, []).append((holder, key))


def _find_in_volume(volume: Dict, uses: Uses) -> None:
    if "emptyDir" in volume and "mode" in volume["emptyDir"]:
        _note(uses, "EmptyDirVolumeMode", volume["emptyDir"], "mode")
    # Of several sources, which validation will reject, only the first is considered.
    for kind in _VOLUME_SOURCES:
        if kind in volume:
            source = volume[kind]
            _find_users(source, "defaultUser", uses)
            if kind == "projected":
                for projection in source.get("sources") or ():
                    for part in _PROJECTIONS:
                        if part in projection:
                            _find_users(projection[part], "user", uses)
                            break
            return


def _find_users(source: Dict, key: str, uses: Uses) -> None:
    if key in source:
        _note(uses, "AtomicWriteVolumeUserFields", source, key)
    for item in source.get("items", ()):
        if "user" in item:
            _note(uses, "AtomicWriteVolumeUserFields", item, "user")


def _find_in_container(container: Dict, uses: Uses) -> None:
    for mount in container.get("volumeMounts", ()):
        if "bindMountOptions" in mount:
            _note(uses, "VolumeBindMountOptions", mount, "bindMountOptions")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            probe = container[name]
            if "grpc" in probe and "mode" in probe["grpc"]:
                _note(uses, "GRPCContainerProbeTLS", probe["grpc"], "mode")
            if "httpGet" in probe and "protocol" in probe["httpGet"]:
                _note(uses, "H2CContainerProbe", probe["httpGet"], "protocol")
    if "lifecycle" in container:
        lifecycle = container["lifecycle"]
        if "stopSignal" in lifecycle:
            _note(uses, "ContainerStopSignals", lifecycle, "stopSignal")
        for name in ("postStart", "preStop"):
            action = (lifecycle.get(name) or {}).get("httpGet")
            if action and "protocol" in action:
                _note(uses, "H2CContainerProbe", action, "protocol")


def drop_disabled_status_fields(status: Dict, old: Mapping[str, Any]) -> None:
    """Drop disabled fields of a Pod's status: volume health, claims of node resources, digests of image volumes."""
    for name in ("volumeHealth", "nodeAllocatableResourceClaimStatuses"):
        if name in status and not old.get(name):
            del status[name]
    shown = [mount for mount in _status_mounts(status) if "volumeStatus" in mount]
    if shown and not any("volumeStatus" in mount for mount in _status_mounts(old)):
        for mount in shown:
            del mount["volumeStatus"]


def _status_mounts(status: Mapping[str, Any]) -> list[Dict]:
    keys = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return [mount for key in keys for one in status.get(key, ()) for mount in one.get("volumeMounts", ())]
