"""Defaults of a pod spec. They run on every write of every workload: plain dict operations only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.kinds.core.podspec.images import default_pull_policy
from setpoint.kinds.core.podspec.rounding import round_up_to_milli

Dict = dict[str, Any]

FILE_MODE = 0o644
TOKEN_SECONDS = 3600


def default_pod_spec(spec: Dict) -> None:
    """Apply the defaults of a pod spec in a Pod or in a template."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    setdefault = spec.setdefault
    setdefault("dnsPolicy", "ClusterFirst")
    setdefault("restartPolicy", "Always")
    setdefault("securityContext", {})
    setdefault("terminationGracePeriodSeconds", 30)
    setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    for container in spec.get("initContainers") or ():
        default_container(container)
    for container in spec.get("containers") or ():
        default_container(container)
    for container in spec.get("ephemeralContainers") or ():
        default_container(container)
    if "overhead" in spec:
        round_up_to_milli(spec["overhead"])
    if "resources" in spec:
        _default_resources(spec["resources"])


def default_pod_template(template: Dict) -> None:
    """Apply the defaults of a PodTemplateSpec; metadata has none."""
    default_pod_spec(template.setdefault("spec", {}))


def default_container(container: Dict) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        source = variable.get("valueFrom")
        if source:
            if "fieldRef" in source:
                source["fieldRef"].setdefault("apiVersion", "v1")
            if "fileKeyRef" in source:
                source["fileKeyRef"].setdefault("optional", False)
    resources = container.get("resources")
    if resources:
        _default_resources(resources)
    if "livenessProbe" in container:
        _default_probe(container["livenessProbe"])
    if "readinessProbe" in container:
        _default_probe(container["readinessProbe"])
    if "startupProbe" in container:
        _default_probe(container["startupProbe"])
    if "lifecycle" in container:
        for handler in container["lifecycle"].values():
            if isinstance(handler, dict) and "httpGet" in handler:
                _default_http_get(handler["httpGet"])


def _default_resources(resources: Dict) -> None:
    if "limits" in resources:
        round_up_to_milli(resources["limits"])
    if "requests" in resources:
        round_up_to_milli(resources["requests"])


def _default_probe(probe: Dict) -> None:
    setdefault = probe.setdefault
    setdefault("timeoutSeconds", 1)
    setdefault("periodSeconds", 10)
    setdefault("successThreshold", 1)
    setdefault("failureThreshold", 3)
    if "httpGet" in probe:
        _default_http_get(probe["httpGet"])
    if "grpc" in probe:
        action = probe["grpc"]
        if action.get("service") is None:
            action["service"] = ""


def _default_http_get(action: Dict) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


# -- volumes --------------------------------------------------------------------------------------------------------


def default_volume(volume: Dict) -> None:
    """Apply the defaults of a volume; without a source it becomes an emptyDir."""
    if (len(volume) == 1 and "name" in volume) or not volume:
        volume["emptyDir"] = {}
        return
    for name, source in volume.items():
        fill = VOLUME_SOURCE_DEFAULTS.get(name)
        if fill is not None:
            fill(source)


def default_persistent_volume_claim_spec(spec: Dict) -> None:
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.get("resources")
    if resources:
        _default_resources(resources)


def _default_mode(source: Dict) -> None:
    source.setdefault("defaultMode", FILE_MODE)


def _default_host_path(source: Dict) -> None:
    source.setdefault("type", "")


def _default_iscsi(source: Dict) -> None:
    source.setdefault("iscsiInterface", "default")


def _default_rbd(source: Dict) -> None:
    source.setdefault("pool", "rbd")
    source.setdefault("user", "admin")
    source.setdefault("keyring", "/etc/ceph/keyring")


def _default_azure_disk(source: Dict) -> None:
    source.setdefault("cachingMode", "ReadWrite")
    source.setdefault("fsType", "ext4")
    source.setdefault("readOnly", False)
    source.setdefault("kind", "Shared")


def _default_scale_io(source: Dict) -> None:
    source.setdefault("storageMode", "ThinProvisioned")
    source.setdefault("fsType", "xfs")


def _default_downward_items(source: Dict) -> None:
    for item in source.get("items", ()):
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _default_downward_api(source: Dict) -> None:
    _default_mode(source)
    _default_downward_items(source)


def _default_projected(source: Dict) -> None:
    _default_mode(source)
    for projection in source.get("sources") or ():
        if "downwardAPI" in projection:
            _default_downward_items(projection["downwardAPI"])
        if "serviceAccountToken" in projection:
            projection["serviceAccountToken"].setdefault("expirationSeconds", TOKEN_SECONDS)


def _default_image(source: Dict) -> None:
    if "pullPolicy" not in source:
        source["pullPolicy"] = default_pull_policy(source.get("reference", ""))


def _default_ephemeral(source: Dict) -> None:
    template = source.get("volumeClaimTemplate")
    if template is not None:
        default_persistent_volume_claim_spec(template.setdefault("spec", {}))


VOLUME_SOURCE_DEFAULTS: dict[str, Callable[[Dict], None]] = {
    "hostPath": _default_host_path,
    "secret": _default_mode,
    "iscsi": _default_iscsi,
    "rbd": _default_rbd,
    "downwardAPI": _default_downward_api,
    "configMap": _default_mode,
    "azureDisk": _default_azure_disk,
    "projected": _default_projected,
    "scaleIO": _default_scale_io,
    "ephemeral": _default_ephemeral,
    "image": _default_image,
}
"""Default functions by volume source; PersistentVolumes use the same ones."""
