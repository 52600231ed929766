"""Deployment: a ReplicaSet per version of a template, and the rollout from one to the next."""

from __future__ import annotations

from setpoint.kinds.apps.workload import (
    CONTAINERS,
    IMAGES,
    READY,
    WorkloadStatusStrategy,
    WorkloadStrategy,
    check_int64_annotation,
    count_column,
    shown_rollout_strategy,
    validate_replicated,
)
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import PodOptions, default_pod_template
from setpoint.kinds.numbers import at_most_100_percent, int_or_percent, non_negative, non_negative_fields, number_of
from setpoint.kinds.strategy import Column, Context
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.goformat import parse_integer
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import format_labels

_ROLLBACK_TO = "deprecated.deployment.rollback.to"
"""Annotation that represents the former field `rollbackTo.revision`, an integer."""


class DeploymentStrategy(WorkloadStrategy):
    def default(self, obj: Obj) -> None:
        _check_rollback(obj)
        spec = obj.setdefault("spec", {})
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        strategy = spec.setdefault("strategy", {})
        kind = strategy.get("type")
        if not kind:
            kind = strategy["type"] = "RollingUpdate"
        if kind == "RollingUpdate":
            rolling = strategy.get("rollingUpdate")
            if rolling is None:
                rolling = strategy["rollingUpdate"] = {}
            if rolling.get("maxUnavailable") is None:
                rolling["maxUnavailable"] = "25%"
            if rolling.get("maxSurge") is None:
                rolling["maxSurge"] = "25%"
        if spec.get("revisionHistoryLimit") is None:
            spec["revisionHistoryLimit"] = 10
        if spec.get("progressDeadlineSeconds") is None:
            spec["progressDeadlineSeconds"] = 600
        default_pod_template(spec.setdefault("template", {}))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        # Annotations count as desired state here: they are copied to the ReplicaSets.
        meta, before = obj["metadata"], old["metadata"]
        if obj["spec"] != old["spec"] or (meta.get("annotations") or {}) != (before.get("annotations") or {}):
            meta["generation"] = before.get("generation", 0) + 1

    def is_template_changed(self, obj: Obj, old: Obj) -> bool:
        return bool(obj["metadata"].get("generation") != old["metadata"].get("generation"))

    def validate_spec(self, obj: Obj, errs: Errors, options: PodOptions) -> None:
        spec = obj["spec"]
        non_negative(spec.get("replicas", 0), "spec.replicas", errs)
        validate_replicated(spec, errs, options=options)
        _validate_strategy(spec.get("strategy") or {}, errs)
        non_negative_fields(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec", errs)
        rollback = (obj["metadata"].get("annotations") or {}).get(_ROLLBACK_TO)
        if rollback:
            non_negative(parse_integer(rollback), "spec.rollback.version", errs)
        deadline = spec.get("progressDeadlineSeconds")
        if deadline is not None:
            non_negative(deadline, "spec.progressDeadlineSeconds", errs)
            if deadline <= spec.get("minReadySeconds", 0):
                errs.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))

    columns = (
        NAME,
        READY,
        count_column("Up-to-date", "status", "updatedReplicas", "Pods made from the current template.", "string"),
        count_column("Available", "status", "availableReplicas", "Pods ready for at least minReadySeconds.", "string"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", lambda obj, now: _selector(obj), priority=1, description="Which Pods belong to it."),
    )


class DeploymentStatusStrategy(WorkloadStatusStrategy):
    counts = (
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    )
    counts_of_replicas = ("updatedReplicas", "readyReplicas", "availableReplicas")

    @property
    def resets(self) -> tuple[str, ...]:
        return ("spec", "metadata.labels")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        labels = old["metadata"].get("labels")
        if labels:
            obj["metadata"]["labels"] = labels
        else:
            obj["metadata"].pop("labels", None)


def _check_rollback(obj: Obj) -> None:
    annotations = obj.get("metadata", {}).get("annotations")
    if not annotations or _ROLLBACK_TO not in annotations:
        return
    text = annotations[_ROLLBACK_TO]
    if not text:
        del annotations[_ROLLBACK_TO]
        if not annotations:
            del obj["metadata"]["annotations"]
        return
    check_int64_annotation("Deployment", text, f"failed to parse annotation[{_ROLLBACK_TO}]={text} as int64: ")


def _validate_strategy(strategy: ObjView, errs: Errors) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    path = "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is not None:
            errs.append(forbidden(path, "may not be specified when strategy `type` is 'Recreate'"))
    elif kind == "RollingUpdate":
        if rolling is None:
            errs.append(required(path, "this should be defaulted and never be nil"))
            return
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        int_or_percent(unavailable, f"{path}.maxUnavailable", errs)
        int_or_percent(surge, f"{path}.maxSurge", errs)
        if number_of(unavailable) == 0 and number_of(surge) == 0:
            errs.append(invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
        at_most_100_percent(unavailable, f"{path}.maxUnavailable", errs)
    else:
        errs.append(not_supported("spec.strategy", shown_rollout_strategy(strategy), ("Recreate", "RollingUpdate")))


def _selector(obj: Obj) -> str:
    # Unlike most tables, this one leaves the cell of an empty selector empty.
    selector = obj.get("spec", {}).get("selector")
    return format_labels(selector) if selector and any(selector.values()) else ""


STRATEGY = DeploymentStrategy()
STRATEGY.subresources = {"status": DeploymentStatusStrategy(STRATEGY)}
