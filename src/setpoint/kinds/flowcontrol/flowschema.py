"""FlowSchema: which requests belong to which priority level, and what makes one flow of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from setpoint.kinds.bootstrap.flowcontrol import MANDATORY, flow_schemas
from setpoint.kinds.columns import AGE, NAME, NONE
from setpoint.kinds.flowcontrol.conditions import FlowControlStatusStrategy, validate_status
from setpoint.kinds.flowcontrol.policy_rules import RULE_FORM, validate_rule
from setpoint.kinds.internal_form import internal_form, items, pointer, struct
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain

_DISTINGUISHERS = ("ByNamespace", "ByUser")
_DEFAULT_PRECEDENCE, _LAST_PRECEDENCE = 1000, 10000
_SPEC_FORM = {
    "priorityLevelConfiguration": struct({"name": ""}), "matchingPrecedence": 0,
    "distinguisherMethod": pointer({"type": ""}), "rules": items(RULE_FORM),
}  # fmt: skip
_FIXED = {obj["metadata"]["name"]: obj["spec"] for obj in flow_schemas() if obj["metadata"]["name"] in MANDATORY}


def _level(obj: Obj, now: datetime) -> str:
    return str((obj["spec"].get("priorityLevelConfiguration") or {}).get("name", ""))


def _precedence(obj: Obj, now: datetime) -> int:
    return int(obj["spec"].get("matchingPrecedence", 0))


def _distinguisher(obj: Obj, now: datetime) -> str:
    method = obj["spec"].get("distinguisherMethod")
    return NONE if method is None else str(method.get("type", ""))


def _missing(obj: Obj, now: datetime) -> str:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Dangling":
            return str(condition.get("status", ""))
    return "?"


class FlowSchemaStrategy(Strategy):
    has_status = True
    has_generation = True
    columns = (
        NAME,
        Column("PriorityLevel", _level, description="The level that matching requests belong to."),
        Column("MatchingPrecedence", _precedence, description="Schemas are tried in this order, lowest first."),
        Column("DistinguisherMethod", _distinguisher, description="What makes requests one flow."),
        AGE,
        Column("MissingPL", _missing, description="Whether that level does not exist."),
    )

    def __init__(self) -> None:
        self.subresources = {"status": FlowControlStatusStrategy(self)}

    def sorted_for_table(self, objs: Sequence[Obj]) -> Sequence[Obj]:
        """Return the schemas in matching order."""
        return sorted(objs, key=lambda obj: (obj["spec"].get("matchingPrecedence", 0), obj["metadata"].get("name", "")))

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = _DEFAULT_PRECEDENCE

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        name, spec = obj["metadata"].get("name", ""), obj["spec"]
        precedence, path = spec["matchingPrecedence"], "spec.matchingPrecedence"
        if precedence <= 0:
            errs.append(invalid(path, precedence, "must be a positive value"))
        if precedence > _LAST_PRECEDENCE:
            errs.append(invalid(path, precedence, f"must not be greater than {_LAST_PRECEDENCE}"))
        if precedence == 1 and name != "exempt":
            text = "only the schema named 'exempt' may have matchingPrecedence 1"
            errs.append(invalid(path, precedence, text))
        method = spec.get("distinguisherMethod")
        if method is not None and method.get("type", "") not in _DISTINGUISHERS:
            shown = {"Type": method.get("type", "")}
            errs.append(not_supported("spec.distinguisherMethod.type", shown, _DISTINGUISHERS))
        level, path = _level(obj, ctx.now), "spec.priorityLevelConfiguration.name"
        if level:
            errs.extend(invalid(path, level, text) for text in dns1123_subdomain(level))
        else:
            errs.append(required(path, "must reference a priority level"))
        for i, rule in enumerate(spec.get("rules") or ()):
            validate_rule(rule, f"spec.rules[{i}]", errs)
        if name in _FIXED and spec != _FIXED[name]:
            shown = internal_form(spec, _SPEC_FORM)
            errs.append(invalid("spec", shown, f"spec of '{name}' must equal the fixed value"))
        validate_status(obj, errs)


STRATEGY = FlowSchemaStrategy()
