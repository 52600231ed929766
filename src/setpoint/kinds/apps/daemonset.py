"""DaemonSet: one Pod of a template on every node that fits."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apps.deployment import shown_strategy
from setpoint.kinds.apps.legacy_annotations import (
    TEMPLATE_GENERATION,
    check_template_generation,
    set_template_generation,
    template_generation,
)
from setpoint.kinds.apps.podtemplate import MISMATCH, usable_selector, validate_long_running
from setpoint.kinds.columns import AGE, NAME, container_images, container_names, labels_text
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
    validate_pod_template,
)  # fmt: skip
from setpoint.kinds.numbers import (
    at_most_100_percent,
    int_or_percent,
    never_decremented,
    non_negative,
    non_negative_fields,
    number_of,
)  # fmt: skip
from setpoint.kinds.strategy import Column, Context, Obj, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.objectmeta import validate_immutable, validate_label_selector
from setpoint.meta.selectors import format_labels

_STATUS_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
    "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
)  # fmt: skip


class DaemonSetStrategy(Strategy):
    hidden_annotations = frozenset({TEMPLATE_GENERATION})
    has_status = True
    has_generation = True

    def default(self, obj: Obj) -> None:
        check_template_generation(obj)
        # Upstream's conversion writes the annotation before field ownership is computed.
        set_template_generation(obj, template_generation(obj))
        spec = obj.setdefault("spec", {})
        strategy = spec.setdefault("updateStrategy", {})
        kind = strategy.get("type")
        if not kind:
            kind = strategy["type"] = "RollingUpdate"
        rolling = strategy.get("rollingUpdate")
        if rolling is None and kind == "RollingUpdate":
            rolling = strategy["rollingUpdate"] = {}
        if rolling is not None:
            if rolling.get("maxUnavailable") is None:
                rolling["maxUnavailable"] = 1 if kind == "RollingUpdate" else 0
            if rolling.get("maxSurge") is None:
                rolling["maxSurge"] = 0
        if spec.get("revisionHistoryLimit") is None:
            spec["revisionHistoryLimit"] = 10
        default_pod_template(spec.setdefault("template", {}))

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        set_template_generation(obj, max(template_generation(obj), 1))
        drop_disabled_template_fields(obj["spec"]["template"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        drop_disabled_template_fields(obj["spec"]["template"], old["spec"].get("template"))
        self.retain_status(obj, old)
        generation = template_generation(old)
        if obj["spec"]["template"] != old["spec"].get("template"):
            generation += 1
        set_template_generation(obj, generation)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj, errs, CREATE, False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        before = old["spec"].get("selector")
        validate_immutable(obj["spec"].get("selector"), before, "spec.selector", errs)
        already: Errors = []
        validate_label_selector(before, "", already)
        _validate_spec(obj, errs, pod_template_options(old["spec"].get("template")), bool(already))

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return pod_template_warnings(obj["spec"]["template"], "spec.template")

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if template_generation(obj) == template_generation(old):
            return []
        return pod_template_warnings(obj["spec"]["template"], "spec.template", old["spec"].get("template"))

    columns = (
        NAME,
        Column("Desired", lambda obj, now: _count(obj, "desiredNumberScheduled"), type="integer",
               description="Nodes that should run a Pod."),
        Column("Current", lambda obj, now: _count(obj, "currentNumberScheduled"), type="integer",
               description="Nodes that run a Pod and should."),
        Column("Ready", lambda obj, now: _count(obj, "numberReady"), type="integer",
               description="Nodes with a ready Pod."),
        Column("Up-to-date", lambda obj, now: _count(obj, "updatedNumberScheduled"), type="integer",
               description="Nodes whose Pod is made from the current template."),
        Column("Available", lambda obj, now: _count(obj, "numberAvailable"), type="integer",
               description="Nodes whose Pod has been ready for minReadySeconds."),
        Column("Node Selector", lambda obj, now: _node_selector(obj), description="Which nodes are meant."),
        AGE,
        Column("Containers", container_names, priority=1, description="Names of the containers in the template."),
        Column("Images", container_images, priority=1, description="Images of the containers in the template."),
        Column("Selector", lambda obj, now: format_labels(obj.get("spec", {}).get("selector")), priority=1,
               description="Which Pods belong to it."),
    )  # fmt: skip


class DaemonSetStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        set_template_generation(obj, template_generation(old))  # a field of the spec upstream

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        non_negative_fields(status, _STATUS_COUNTS, "status", errs)
        never_decremented(status, old.get("status") or {}, "collisionCount", "status", errs)


def _validate_spec(obj: Obj, errs: Errors, options: PodOptions, allow_invalid_values: bool) -> None:
    spec = obj["spec"]
    declared, template = spec.get("selector"), spec.get("template") or {}
    validate_label_selector(declared, "spec.selector", errs, allow_invalid_values=allow_invalid_values)
    selector = usable_selector(declared)
    labels = (template.get("metadata") or {}).get("labels")
    if selector is not None and not selector.matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", labels, MISMATCH))
    if declared is not None and not declared.get("matchLabels") and not declared.get("matchExpressions"):
        errs.append(invalid("spec.selector", declared, "empty selector is invalid for daemonset"))
    validate_pod_template(template, "spec.template", errs, options=options)
    validate_long_running(template, "spec.template", errs, kind="DaemonSet")
    non_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds", errs)
    non_negative(template_generation(obj), "spec.templateGeneration", errs)
    _validate_strategy(spec.get("updateStrategy") or {}, errs)
    non_negative(spec.get("revisionHistoryLimit", 0), "spec.revisionHistoryLimit", errs)


def _validate_strategy(strategy: dict[str, Any], errs: Errors) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        errs.append(not_supported("spec.updateStrategy", shown_strategy(strategy), ("RollingUpdate", "OnDelete")))
        return
    path = "spec.updateStrategy.rollingUpdate"
    if rolling is None:
        errs.append(required(path))
        return
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    int_or_percent(unavailable, f"{path}.maxUnavailable", errs)
    int_or_percent(surge, f"{path}.maxSurge", errs)
    at_most_100_percent(unavailable, f"{path}.maxUnavailable", errs)
    at_most_100_percent(surge, f"{path}.maxSurge", errs)
    has_unavailable, has_surge = number_of(unavailable) != 0, number_of(surge) != 0
    if has_unavailable and has_surge:
        errs.append(invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not has_unavailable and not has_surge:
        errs.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def _count(obj: Obj, name: str) -> int:
    count: int = (obj.get("status") or {}).get(name, 0)
    return count


def _node_selector(obj: Obj) -> str:
    template = obj.get("spec", {}).get("template") or {}
    return labels_text((template.get("spec") or {}).get("nodeSelector"))


STRATEGY = DaemonSetStrategy()
STRATEGY.subresources = {"status": DaemonSetStatusStrategy(STRATEGY)}
