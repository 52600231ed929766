"""DefaultStorageClass and DefaultIngressClass: claims and Ingresses without a class get the default one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj

BETA_STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_STORAGE_DEFAULT_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_NETWORKING = "networking.k8s.io"
_INGRESS_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_INGRESS_DEFAULT_ANNOTATIONS = ("ingressclass.kubernetes.io/is-default-class",)


def _default_class(classes: Iterable[Obj], annotations: Sequence[str]) -> str:
    """Return the name of the newest class with one of the annotations, or "" if there is none."""
    names: list[tuple[str, str]] = [
        (found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"])
        for found in classes
        if any((found["metadata"].get("annotations") or {}).get(key) == "true" for key in annotations)
    ]
    if not names:
        return ""
    newest = max(created for created, _ in names)
    return min(name for created, name in names if created == newest)


class DefaultStorageClass(Plugin):
    name = "DefaultStorageClass"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation == "CREATE" and kind == ("", "persistentvolumeclaims", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        # An empty name explicitly requests no class.
        if spec.get("storageClassName") is not None or BETA_STORAGE_CLASS_ANNOTATION in (
            attrs.obj["metadata"].get("annotations") or {}
        ):
            return
        name = _default_class(self._reader.list("storage.k8s.io", "storageclasses"), _STORAGE_DEFAULT_ANNOTATIONS)
        if name:
            spec["storageClassName"] = name


class DefaultIngressClass(Plugin):
    name = "DefaultIngressClass"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == (
            _NETWORKING,
            "ingresses",
            "",
        )

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        if _INGRESS_CLASS_ANNOTATION in (attrs.obj["metadata"].get("annotations") or {}):
            return
        spec = attrs.obj.setdefault("spec", {})
        if spec.get("ingressClassName") is not None:
            return
        name = _default_class(self._reader.list(_NETWORKING, "ingressclasses"), _INGRESS_DEFAULT_ANNOTATIONS)
        if name:
            spec["ingressClassName"] = name
