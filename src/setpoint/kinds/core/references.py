"""References of Pods and PersistentVolumes to other objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from setpoint.meta.objects import ObjView

_SECRET_FIELDS = (
    ("azureFile", "secretName"),
    ("secret", "secretName"),
    ("csi", "nodePublishSecretRef"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
)
# Volumes that refer to no API object.
_PLAIN_VOLUMES = (
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)
_VOLUMES = (
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
)
_SOURCES = (
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
)


class UnknownSource(ValueError):
    """A volume source that is not handled here."""


def containers(spec: ObjView) -> Iterator[ObjView]:
    """Yield containers of every type, so that none of them bypasses a rule."""
    return chain.from_iterable(spec.get(key) or () for key in ("initContainers", "containers", "ephemeralContainers"))


def secret_names(spec: ObjView) -> Iterator[str]:
    """Yield every Secret that the spec names, on whatever path."""
    for ref in spec.get("imagePullSecrets") or ():
        if ref.get("name"):
            yield ref["name"]
    yield from _from_environment(spec, "secretRef", "secretKeyRef")
    for volume in spec.get("volumes") or ():
        for source, field in _SECRET_FIELDS:
            held = (volume.get(source) or {}).get(field)
            name = held.get("name") if isinstance(held, Mapping) else held
            if name:
                yield name
        for part in (volume.get("projected") or {}).get("sources") or ():
            if (part.get("secret") or {}).get("name"):
                yield part["secret"]["name"]


def config_map_names(spec: ObjView) -> Iterator[str]:
    yield from _from_environment(spec, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        parts = (volume, *((volume.get("projected") or {}).get("sources") or ()))
        for part in parts:
            if (part.get("configMap") or {}).get("name"):
                yield part["configMap"]["name"]


def _from_environment(spec: ObjView, whole: str, key: str) -> Iterator[str]:
    for container in containers(spec):
        for env in container.get("envFrom") or ():
            if (env.get(whole) or {}).get("name"):
                yield env[whole]["name"]
        for env in container.get("env") or ():
            ref = (env.get("valueFrom") or {}).get(key)
            if ref and ref.get("name"):
                yield ref["name"]


def api_reference(spec: ObjView) -> str:
    """Return the first sort of object that the Pod needs of the API; empty: it needs none. Raises UnknownSource."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(True for _ in secret_names(spec)):
        return "secrets"
    if any(True for _ in config_map_names(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        if any(volume.get(kind) is not None for kind in _PLAIN_VOLUMES):
            continue
        for kind, what in _VOLUMES:
            if volume.get(kind) is not None:
                return what
        if volume.get("projected") is None:
            raise UnknownSource(f'unknown volume type for volume  "{volume.get("name", "")}"')
        for source in volume["projected"].get("sources") or ():
            for kind, what in _SOURCES:
                if source.get(kind) is not None:
                    return what
            if source.get("downwardAPI") is None:
                raise UnknownSource(f'unknown source for projected volume "{volume.get("name", "")}"')
    return ""


# The first source present counts. Old volumes may lack the Secret's namespace: it is the claim's.
_OWN_OR_CLAIMS = ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
_OWN = ("cinder", "storageos")
_OF_CSI = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")


def volume_secrets(spec: ObjView) -> Iterator[tuple[str, str]]:
    """Yield the (namespace, name) of each Secret."""
    beside = (spec.get("claimRef") or {}).get("namespace", "")
    azure, csi = spec.get("azureFile"), spec.get("csi")
    if azure is not None:
        if azure.get("secretName"):
            yield azure.get("secretNamespace") or beside, azure["secretName"]
        return
    for kind in (*_OWN_OR_CLAIMS, *_OWN):
        reference = (spec.get(kind) or {}).get("secretRef") or {}
        if reference.get("name"):
            yield reference.get("namespace") or (beside if kind in _OWN_OR_CLAIMS else ""), reference["name"]
    for field in _OF_CSI:
        reference = (csi or {}).get(field) or {}
        if reference.get("name"):
            yield reference.get("namespace", ""), reference["name"]
