"""ClusterRole: what may be done in the whole cluster, or in each namespace that binds it."""

from __future__ import annotations

from setpoint.kinds.rbac.rules import RbacStrategy, validate_rules, validate_verbs
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.objectmeta import validate_label_selector

_SELECTORS = "aggregationRule.clusterRoleSelectors"


class ClusterRoleStrategy(RbacStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate(obj, errs, False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        already: Errors = []
        for selector in (old.get("aggregationRule") or {}).get("clusterRoleSelectors", ()):
            validate_label_selector(selector, "", already)
        _validate(obj, errs, bool(already))


def _validate(obj: Obj, errs: Errors, allow_invalid_values: bool) -> None:
    rules, aggregation = obj.get("rules") or [], obj.get("aggregationRule")
    validate_rules(rules, errs, namespaced=False)
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", [])
        if not selectors:
            text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errs.append(required(_SELECTORS, text))
        for i, selector in enumerate(selectors):
            path = f"{_SELECTORS}[{i}]"
            validate_label_selector(selector, path, errs, allow_invalid_values=allow_invalid_values)
            found: Errors = []
            validate_label_selector(selector, path, found)
            if found:
                errs.append(invalid(path, None, "invalid label selector."))
    validate_verbs(rules, errs)


STRATEGY = ClusterRoleStrategy()
