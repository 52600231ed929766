"""PodNodeSelector: the Pods of a namespace go to the nodes that its annotation names, and to no others than those that
the administrator names."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import Forbidden, NotFound, PlainServerError
from setpoint.meta.field import invalid
from setpoint.meta.names import label_value, qualified_name

CLUSTER = "clusterDefaultNodeSelector"
"""Stands for namespaces that say nothing."""
_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"


class PodNodeSelector(Plugin):
    name = "PodNodeSelector"

    def __init__(self, reader: Reader, selectors: Mapping[str, str] | None = None) -> None:
        """`selectors`: the labels that Pods may ask for, by namespace."""
        self._reader = reader
        self._selectors = selectors or {}

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        wanted = self._wanted(attrs)
        if wanted:
            spec = attrs.obj["spec"]
            spec["nodeSelector"] = {**wanted, **(spec.get("nodeSelector") or {})}
        await self.validate(attrs)

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        self._wanted(attrs)
        allowed = _labels(self._selectors.get(attrs.namespace, ""))
        own = attrs.obj["spec"].get("nodeSelector") or {}
        if allowed and any(allowed.get(key) != value for key, value in own.items()):
            raise _refusal(attrs, "pod node label selector labels conflict with its namespace whitelist")

    def _wanted(self, attrs: Attributes) -> dict[str, str]:
        """The namespace's labels; the Pod's own must not contradict them."""
        assert attrs.obj is not None
        namespace = self._reader.get("", "namespaces", "", attrs.namespace)
        if namespace is None:
            raise NotFound.of("", "namespaces", attrs.namespace)
        said = (namespace["metadata"].get("annotations") or {}).get(_ANNOTATION)
        wanted = _labels(self._selectors.get(CLUSTER, "") if said is None else said)
        own = attrs.obj["spec"].get("nodeSelector") or {}
        if any(own.get(key, value) != value for key, value in wanted.items()):
            raise _refusal(attrs, "pod node label selector conflicts with its namespace node label selector")
        return wanted


def _refusal(attrs: Attributes, why: str) -> Forbidden:
    assert attrs.obj is not None
    return Forbidden.of("", "pods", attrs.obj["metadata"].get("name", ""), why)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for part in text.split(",") if text else ():
        pieces = part.split("=")
        if len(pieces) != 2:
            raise PlainServerError(f"invalid selector: [{' '.join(pieces)}]")
        key, value = pieces[0].strip(), pieces[1].strip()
        # Upstream knows of no field that these are in.
        for where, what, wrong in (("<nil>", key, qualified_name(key)), (f"[{key}]", value, label_value(value))):
            if wrong:
                raise PlainServerError(invalid(where, what, "; ".join(wrong)).message())
        labels[key] = value
    return labels
