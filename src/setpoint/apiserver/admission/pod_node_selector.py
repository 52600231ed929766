"""PodNodeSelector: a namespace's annotation selects the nodes of its Pods, within the labels that the configuration
allows."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.config_files import FileProblem
from setpoint.kinds.catalog import Resource
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.errors import Forbidden, NotFound, PlainServerError
from setpoint.meta.field import invalid
from setpoint.meta.names import label_value, qualified_name

CLUSTER = "clusterDefaultNodeSelector"
"""Key of the selector for namespaces without an annotation."""
_CONFIGURATION = "podNodeSelectorPluginConfig"
_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"


class PodNodeSelector(Plugin):
    name = "PodNodeSelector"

    def __init__(self, reader: Reader, selectors: Mapping[str, str] | None = None) -> None:
        """`selectors` holds the labels that Pods may select, by namespace; other namespaces are not restricted."""
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
            raise _denial(attrs, "pod node label selector labels conflict with its namespace whitelist")

    def _wanted(self, attrs: Attributes) -> dict[str, str]:
        """Return the namespace's labels. Raises Forbidden if the Pod's own selector contradicts them."""
        assert attrs.obj is not None
        namespace = self._reader.get("", "namespaces", "", attrs.namespace)
        if namespace is None:
            raise NotFound.of("", "namespaces", attrs.namespace)
        annotated = (namespace["metadata"].get("annotations") or {}).get(_ANNOTATION)
        wanted = _labels(self._selectors.get(CLUSTER, "") if annotated is None else annotated)
        own = attrs.obj["spec"].get("nodeSelector") or {}
        if any(own.get(key, value) != value for key, value in wanted.items()):
            raise _denial(attrs, "pod node label selector conflicts with its namespace node label selector")
        return wanted


def _denial(attrs: Attributes, why: str) -> Forbidden:
    assert attrs.obj is not None
    return Forbidden.of("", "pods", attrs.obj["metadata"].get("name", ""), why)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for part in text.split(",") if text else ():
        pieces = part.split("=")
        if len(pieces) != 2:
            raise PlainServerError(f"invalid selector: [{' '.join(pieces)}]")
        key, value = pieces[0].strip(), pieces[1].strip()
        # Upstream reports these without a field path.
        for where, what, wrong in (("<nil>", key, qualified_name(key)), (f"[{key}]", value, label_value(value))):
            if wrong:
                raise PlainServerError(invalid(where, what, "; ".join(wrong)).message())
        labels[key] = value
    return labels


def read_node_selectors(data: bytes | None) -> dict[str, str]:
    """Read the node selectors by namespace, with CLUSTER as the key of the default; None stands for a missing
    configuration. Raises FileProblem if it is invalid."""
    if not data:
        return {}
    try:
        found = parse_yaml(data)[0]
    except BodyError as error:
        raise FileProblem(str(error)) from None
    selectors = found.get(_CONFIGURATION) or {} if isinstance(found, dict) else None
    if not isinstance(selectors, dict) or not all(isinstance(value, str) for value in selectors.values()):
        raise FileProblem(f"{_CONFIGURATION} must be a map from namespaces to labels")
    return selectors
