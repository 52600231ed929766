"""Role: what may be done in one namespace."""

from __future__ import annotations

from setpoint.kinds.rbac.rules import RbacStrategy, validate_rules, validate_verbs
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors


class RoleStrategy(RbacStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        rules = obj.get("rules") or []
        validate_rules(rules, errs, namespaced=True)
        validate_verbs(rules, errs)


STRATEGY = RoleStrategy()
