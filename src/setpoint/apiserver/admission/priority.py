"""Priority: a PriorityClass sets the priority of a Pod, and only one class may be the default."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj

_GROUP, _PLURAL = "scheduling.k8s.io", "priorityclasses"


class Priority(Plugin):
    name = "Priority"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        if subresource or operation not in ("CREATE", "UPDATE"):
            return False
        return (resource.group, resource.plural) in (("", "pods"), (_GROUP, _PLURAL))

    async def mutate(self, attrs: Attributes) -> None:
        if attrs.resource.plural != "pods":
            return
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        if attrs.operation == "UPDATE":
            assert attrs.old is not None
            for key in ("priority", "preemptionPolicy"):
                if spec.get(key) is None and key in attrs.old["spec"]:
                    spec[key] = attrs.old["spec"][key]
            return
        name, priority, policy = self._resolve(attrs, spec.get("priorityClassName", ""))
        if name:
            spec["priorityClassName"] = name
        given = spec.get("priority")
        if given is not None and given != priority:
            raise attrs.forbidden(
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {priority} from the given PriorityClass name"
            )
        spec["priority"] = priority
        if policy is not None:
            wanted = spec.get("preemptionPolicy")
            if wanted is not None and wanted != policy:
                raise attrs.forbidden(
                    f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod spec; priority "
                    f"admission controller computed {policy} from the given PriorityClass name"
                )
            spec["preemptionPolicy"] = policy

    async def validate(self, attrs: Attributes) -> None:
        if attrs.resource.plural != _PLURAL:
            return
        assert attrs.obj is not None
        if not attrs.obj.get("globalDefault"):
            return
        default = self._default_class()
        if default is None:
            return
        name = default["metadata"]["name"]
        if attrs.operation == "CREATE" or name != attrs.obj["metadata"].get("name"):
            raise attrs.forbidden(f"PriorityClass {name} is already marked as default. Only one default can exist")

    def _resolve(self, attrs: Attributes, name: str) -> tuple[str, int, str | None]:
        """Return the name of the class, its value, and its preemption policy."""
        if name:
            found = self._reader.get(_GROUP, _PLURAL, "", name)
            if found is None:
                raise attrs.forbidden(f"no PriorityClass with name {name} was found")
        else:
            found = self._default_class()
            if found is None:
                return "", 0, "PreemptLowerPriority"
        return found["metadata"]["name"], found.get("value", 0), found.get("preemptionPolicy")

    def _default_class(self) -> Obj | None:
        """Return the default class; if a race created several, the one with the lowest value."""
        default: Obj | None = None
        for candidate in self._reader.list(_GROUP, _PLURAL):
            if candidate.get("globalDefault") and (default is None or default["value"] > candidate["value"]):
                default = candidate
        return default
