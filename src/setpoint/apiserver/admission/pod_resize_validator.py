"""PodResizeValidator: the requests of a bound Pod may not exceed the node's allocatable resources."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.pod_demand import pod_requests
from setpoint.meta.errors import Forbidden
from setpoint.meta.node_labels import OS
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare, milli_value, value


class PodResizeValidator(Plugin):
    name = "PodResizeValidator"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "UPDATE" and (resource.group, resource.plural, subresource) == ("", "pods", "resize")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None and attrs.old is not None
        name = attrs.obj["spec"].get("nodeName")
        if not name or attrs.obj["metadata"].get("generation") == attrs.old["metadata"].get("generation"):
            return
        node = self._reader.get("", "nodes", "", name)
        if node is None:
            raise attrs.forbidden(f'node "{name}" not found')
        system = (node["metadata"].get("labels") or {}).get(OS, "linux")
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise _with_cause(attrs.forbidden(why), "UnsupportedPlatform")
        exceeded = _exceeded(attrs.obj, node)
        if exceeded:
            why = f"node didn't have enough allocatable resources: {'; '.join(exceeded)}"
            raise _with_cause(attrs.forbidden(why), "NodeCapacity")


def _exceeded(pod: Obj, node: Obj) -> list[str]:
    # The desired requests count, not those that the node has already allocated.
    requests = pod_requests({"spec": pod["spec"]})
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    found = []
    for name, amount in (("cpu", milli_value), ("memory", value)):
        wanted, available = requests.get(name, "0"), allocatable.get(name, "0")
        if compare(wanted, available) > 0:
            found.append(f"{name}, requested: {amount(wanted)}, allocatable: {amount(available)}")
    return found


def _with_cause(error: Forbidden, reason: str) -> Forbidden:
    assert error.details is not None
    error.details["causes"] = [{"reason": reason}]
    return error
