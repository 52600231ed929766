"""PodNodeSelector: the Pods of a namespace go to the nodes that its annotation names."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import Forbidden, NotFound, PlainServerError

_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"


class PodNodeSelector(Plugin):
    name = "PodNodeSelector"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        wanted = self._wanted(attrs)
        if wanted:
            spec = attrs.obj["spec"]
            spec["nodeSelector"] = {**wanted, **(spec.get("nodeSelector") or {})}

    async def validate(self, attrs: Attributes) -> None:
        self._wanted(attrs)

    def _wanted(self, attrs: Attributes) -> dict[str, str]:
        """The namespace's labels; the Pod's own must not contradict them."""
        assert attrs.obj is not None
        namespace = self._reader.get("", "namespaces", "", attrs.namespace)
        if namespace is None:
            raise NotFound.of("", "namespaces", attrs.namespace)
        wanted = _labels((namespace["metadata"].get("annotations") or {}).get(_ANNOTATION, ""))
        own = attrs.obj["spec"].get("nodeSelector") or {}
        if any(own.get(key, value) != value for key, value in wanted.items()):
            raise Forbidden.of(
                "", "pods", attrs.obj["metadata"].get("name", ""),
                "pod node label selector conflicts with its namespace node label selector",
            )  # fmt: skip
        return wanted


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for part in text.split(",") if text else ():
        key, sign, value = part.partition("=")
        if not sign or "=" in value:
            raise PlainServerError(f"invalid selector: {part}")
        labels[key.strip()] = value.strip()
    return labels
