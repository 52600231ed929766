"""PriorityClass: a name for a Pod's priority."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, forbidden, not_supported, required
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.objects import Obj

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {
    "system-node-critical": 2 * HIGHEST_USER_PRIORITY + 1000,
    "system-cluster-critical": 2 * HIGHEST_USER_PRIORITY,
}
_POLICIES = ("PreemptLowerPriority", "Never")


class PriorityClassStrategy(Strategy):
    columns = (
        NAME,
        Column("Value", lambda obj, now: obj.get("value", 0), type="integer", description="The priority."),
        Column(
            "Global-Default",
            lambda obj, now: obj.get("globalDefault", False),
            type="boolean",
            description="Whether Pods without a class get this one.",
        ),
        AGE,
        Column(
            "PreemptionPolicy",
            lambda obj, now: obj.get("preemptionPolicy", ""),
            description="Whether Pods of this class drive out others.",
        ),
    )
    has_generation = True
    spec_fields = ()

    def default(self, obj: Obj) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        if name.startswith("system-"):
            problem = _system_problem(name, value, obj.get("globalDefault", False))
            if problem:
                text = f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                errs.append(forbidden("metadata.name", text))
        elif value > HIGHEST_USER_PRIORITY:
            text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            errs.append(forbidden("value", text))
        policy = obj.get("preemptionPolicy")
        if policy == "":
            errs.append(required("preemptionPolicy"))
        elif policy is not None and policy not in _POLICIES:
            errs.append(not_supported("preemptionPolicy", policy, _POLICIES))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if obj.get("value", 0) != old.get("value", 0):
            errs.append(forbidden("value", "may not be changed in an update."))
        validate_immutable(obj.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy", errs)

    def undeletable(self, name: str) -> str:
        return "this is a system priority class and cannot be deleted" if name in SYSTEM_CLASSES else ""


def _system_problem(name: str, value: int, global_default: bool) -> str:
    if name not in SYSTEM_CLASSES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_CLASSES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if global_default else ""


STRATEGY = PriorityClassStrategy()
