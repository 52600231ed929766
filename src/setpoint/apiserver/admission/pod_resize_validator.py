"""PodResizeValidator: a Pod on a node cannot grow past what the node has."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.pod_totals import pod_requests
from setpoint.meta.errors import Forbidden
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
        system = (node["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise _because(attrs.forbidden(why), "UnsupportedPlatform")
        lacking = _lacking(attrs.obj, node)
        if lacking:
            why = f"node didn't have enough allocatable resources: {'; '.join(lacking)}"
            raise _because(attrs.forbidden(why), "NodeCapacity")


def _lacking(pod: Obj, node: Obj) -> list[str]:
    # What is wanted counts here, not what the node has granted so far.
    requests = pod_requests({"spec": pod["spec"]})
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    found = []
    for name, amount in (("cpu", milli_value), ("memory", value)):
        wanted, there = requests.get(name, "0"), allocatable.get(name, "0")
        if compare(wanted, there) > 0:
            found.append(f"{name}, requested: {amount(wanted)}, allocatable: {amount(there)}")
    return found


def _because(error: Forbidden, reason: str) -> Forbidden:
    assert error.details is not None
    error.details["causes"] = [{"reason": reason}]
    return error
