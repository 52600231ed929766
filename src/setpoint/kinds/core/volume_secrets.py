"""Secrets that a PersistentVolume references and the node needs to mount it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The first source present counts. Old volumes may lack the Secret's namespace: it is the claim's.
_OWN_OR_CLAIMS = ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
_OWN = ("cinder", "storageos")
_OF_CSI = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")


def volume_secrets(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
