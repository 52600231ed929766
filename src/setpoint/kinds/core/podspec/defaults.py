"""Defaults of a pod spec, and image references, which decide about the pull policy.

Defaults run on every write of every workload: plain dict operations only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from setpoint.kinds.core.podspec.resources import round_up_to_milli
from setpoint.meta.caching import memoized
from setpoint.meta.objects import Obj

_DOMAIN_PART = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?(?P<path>{_PATH_PART}(?:/{_PATH_PART})*))"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER = re.compile("[a-f0-9]{64}")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}


@memoized(maxsize=4096)
def split_reference(image: str) -> tuple[str, str, str] | None:
    """Return the repository with its host, tag and digest (empty: none) of a reference that is well formed."""
    if len(image) > 2048 or _IDENTIFIER.fullmatch(image):
        return None
    first, slash, rest = image.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost" or first.lower() != first):
        image, rest = f"docker.io/library/{image}" if not slash else f"docker.io/{image}", image
    name = rest.partition(":")[0]
    if name.lower() != name:
        return None
    match = _REFERENCE.fullmatch(image)
    if match is None or len(match["path"]) > 255:
        return None
    digest = match["digest"]
    if digest:
        algorithm, _, value = digest.partition(":")
        if _DIGEST_LENGTHS.get(algorithm) != len(value) or value.lower() != value:
            return None
    return match["name"], match["tag"] or "", digest or ""


def _uses_latest_tag(image: str) -> bool:
    """Return whether the reference is well formed and has the tag `latest`, explicitly or by default."""
    parts = split_reference(image)
    return parts is not None and (parts[1] == "latest" or not (parts[1] or parts[2]))


def default_pull_policy(image: str) -> str:
    return "Always" if _uses_latest_tag(image) else "IfNotPresent"


FILE_MODE = 0o644
TOKEN_SECONDS = 3600


def default_pod_spec(spec: Obj) -> None:
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
        _default_container(container)
    for container in spec.get("containers") or ():
        _default_container(container)
    for container in spec.get("ephemeralContainers") or ():
        _default_container(container)
    if "overhead" in spec:
        round_up_to_milli(spec["overhead"])
    if "resources" in spec:
        _default_resources(spec["resources"])


def default_pod_template(template: Obj) -> None:
    """Apply the defaults of a PodTemplateSpec; metadata has none."""
    default_pod_spec(template.setdefault("spec", {}))


def _default_container(container: Obj) -> None:
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


def _default_resources(resources: Obj) -> None:
    if "limits" in resources:
        round_up_to_milli(resources["limits"])
    if "requests" in resources:
        round_up_to_milli(resources["requests"])


def _default_probe(probe: Obj) -> None:
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


def _default_http_get(action: Obj) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


# -- volumes --------------------------------------------------------------------------------------------------------


def default_volume(volume: Obj) -> None:
    """Apply the defaults of a volume; without a source it becomes an emptyDir."""
    if (len(volume) == 1 and "name" in volume) or not volume:
        volume["emptyDir"] = {}
        return
    for name, source in volume.items():
        fill = VOLUME_SOURCE_DEFAULTS.get(name)
        if fill is not None:
            fill(source)


def default_persistent_volume_claim_spec(spec: Obj) -> None:
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.get("resources")
    if resources:
        _default_resources(resources)


def _default_mode(source: Obj) -> None:
    source.setdefault("defaultMode", FILE_MODE)


def _default_host_path(source: Obj) -> None:
    source.setdefault("type", "")


def _default_iscsi(source: Obj) -> None:
    source.setdefault("iscsiInterface", "default")


def _default_rbd(source: Obj) -> None:
    source.setdefault("pool", "rbd")
    source.setdefault("user", "admin")
    source.setdefault("keyring", "/etc/ceph/keyring")


def _default_azure_disk(source: Obj) -> None:
    source.setdefault("cachingMode", "ReadWrite")
    source.setdefault("fsType", "ext4")
    source.setdefault("readOnly", False)
    source.setdefault("kind", "Shared")


def _default_scale_io(source: Obj) -> None:
    source.setdefault("storageMode", "ThinProvisioned")
    source.setdefault("fsType", "xfs")


def _default_downward_items(source: Obj) -> None:
    for item in source.get("items", ()):
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _default_downward_api(source: Obj) -> None:
    _default_mode(source)
    _default_downward_items(source)


def _default_projected(source: Obj) -> None:
    _default_mode(source)
    for projection in source.get("sources") or ():
        if "downwardAPI" in projection:
            _default_downward_items(projection["downwardAPI"])
        if "serviceAccountToken" in projection:
            projection["serviceAccountToken"].setdefault("expirationSeconds", TOKEN_SECONDS)


def _default_image(source: Obj) -> None:
    if "pullPolicy" not in source:
        source["pullPolicy"] = default_pull_policy(source.get("reference", ""))


def _default_ephemeral(source: Obj) -> None:
    template = source.get("volumeClaimTemplate")
    if template is not None:
        default_persistent_volume_claim_spec(template.setdefault("spec", {}))


VOLUME_SOURCE_DEFAULTS: dict[str, Callable[[Obj], None]] = {
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
