"""The storage class that a new cluster has, so that a claim gets a volume without more ado."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.kinds.bootstrap.policy_rules import rule
from setpoint.kinds.storage.binding import WAIT_FOR_FIRST_CONSUMER, annotations_of
from setpoint.meta.errors import AlreadyExists

NAME = "standard"
DEFAULT_STORAGE_RULES = (
    rule("get patch", "core", "namespaces", "kube-system"),
    rule("create", "storage.k8s.io", "storageclasses"),
)
"""What it takes to make it."""
_NAMESPACES = builtin("namespaces")
_HOME = "kube-system"
_MADE = "setpoint.dev/default-storage-class"
"""On the namespace kube-system: the class has been made. Whoever deletes it afterwards means it."""


def default_storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": NAME, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
        "allowVolumeExpansion": True,
    }


async def ensure_default_storage(client: Client) -> None:
    """Once in the life of a cluster. From then on the class is its users' to change or to delete."""
    if _MADE in annotations_of(await client.get(_NAMESPACES, _HOME)):
        return
    with suppress(AlreadyExists):
        await client.create(default_storage_class())
    await client.patch(_NAMESPACES, _HOME, {"metadata": {"annotations": {_MADE: NAME}}})
