"""DaemonSet: one Pod of a template on every node that fits."""

from __future__ import annotations

from setpoint.kinds.apps.workload import (
    CONTAINERS,
    IMAGES,
    SELECTOR,
    WorkloadStatusStrategy,
    WorkloadStrategy,
    check_int64_annotation,
    count_column,
    shown_rollout_strategy,
    usable_selector,
    validate_labels_match,
    validate_long_running,
)
from setpoint.kinds.cell_texts import labels_text
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    pod_template_options,
    validate_pod_template,
)
from setpoint.kinds.numbers import at_most_100_percent, int_or_percent, non_negative, number_of
from setpoint.kinds.strategy import Column, Context
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.goformat import parse_integer
from setpoint.meta.objectmeta import validate_immutable, validate_label_selector
from setpoint.meta.objects import Obj, ObjView

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""Annotation that represents the former field `templateGeneration`, an integer."""


class DaemonSetStrategy(WorkloadStrategy):
    hidden_annotations = frozenset({_TEMPLATE_GENERATION})
    warns_about_name = False

    def default(self, obj: Obj) -> None:
        annotations = obj.get("metadata", {}).get("annotations")
        if annotations and _TEMPLATE_GENERATION in annotations:
            check_int64_annotation("DaemonSet", annotations[_TEMPLATE_GENERATION])
        # Upstream's conversion writes the annotation before field ownership is computed.
        _set_template_generation(obj, _template_generation(obj))
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
        super().prepare_for_create(obj, ctx)
        _set_template_generation(obj, max(_template_generation(obj), 1))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        generation = _template_generation(old)
        if obj["spec"]["template"] != old["spec"].get("template"):
            generation += 1
        _set_template_generation(obj, generation)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj, errs, CREATE, False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        before = old["spec"].get("selector")
        validate_immutable(obj["spec"].get("selector"), before, "spec.selector", errs)
        already: Errors = []
        validate_label_selector(before, "", already)
        _validate_spec(obj, errs, pod_template_options(old["spec"].get("template")), bool(already))

    def is_template_changed(self, obj: Obj, old: Obj) -> bool:
        return _template_generation(obj) != _template_generation(old)

    columns = (
        NAME,
        count_column("Desired", "status", "desiredNumberScheduled", "Nodes that should run a Pod."),
        count_column("Current", "status", "currentNumberScheduled", "Nodes that run a Pod and should."),
        count_column("Ready", "status", "numberReady", "Nodes with a ready Pod."),
        count_column(
            "Up-to-date", "status", "updatedNumberScheduled", "Nodes whose Pod is made from the current template."
        ),
        count_column("Available", "status", "numberAvailable", "Nodes whose Pod has been ready for minReadySeconds."),
        Column("Node Selector", lambda obj, now: _node_selector(obj), description="Which nodes are meant."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )


class DaemonSetStatusStrategy(WorkloadStatusStrategy):
    counts = (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    )

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        _set_template_generation(obj, _template_generation(old))  # a field of the spec upstream


def _validate_spec(obj: Obj, errs: Errors, options: PodOptions, allow_invalid_values: bool) -> None:
    spec = obj["spec"]
    declared, template = spec.get("selector"), spec.get("template") or {}
    validate_label_selector(declared, "spec.selector", errs, allow_invalid_values=allow_invalid_values)
    validate_labels_match(usable_selector(declared), template, errs)
    if declared is not None and not declared.get("matchLabels") and not declared.get("matchExpressions"):
        errs.append(invalid("spec.selector", declared, "empty selector is invalid for daemonset"))
    validate_pod_template(template, "spec.template", errs, options=options)
    validate_long_running(template, errs, kind="DaemonSet")
    non_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds", errs)
    non_negative(_template_generation(obj), "spec.templateGeneration", errs)
    _validate_strategy(spec.get("updateStrategy") or {}, errs)
    non_negative(spec.get("revisionHistoryLimit", 0), "spec.revisionHistoryLimit", errs)


def _validate_strategy(strategy: ObjView, errs: Errors) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        errs.append(
            not_supported("spec.updateStrategy", shown_rollout_strategy(strategy), ("RollingUpdate", "OnDelete"))
        )
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


def _template_generation(obj: Obj) -> int:
    return parse_integer((obj["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION) or "0")


def _set_template_generation(obj: Obj, generation: int) -> None:
    meta, text = obj["metadata"], str(generation)
    annotations = meta.get("annotations") or {}
    if annotations.get(_TEMPLATE_GENERATION) != text:
        meta["annotations"] = {**annotations, _TEMPLATE_GENERATION: text}


def _node_selector(obj: Obj) -> str:
    template = obj.get("spec", {}).get("template") or {}
    return labels_text((template.get("spec") or {}).get("nodeSelector"))


STRATEGY = DaemonSetStrategy()
STRATEGY.subresources = {"status": DaemonSetStatusStrategy(STRATEGY)}
