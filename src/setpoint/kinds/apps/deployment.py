"""Deployment: a ReplicaSet per version of a template, and the way from one to the next."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apps.legacy_annotations import check_rollback, rollback_revision
from setpoint.kinds.apps.podtemplate import name_warning, validate_replicated
from setpoint.kinds.columns import AGE, NAME, container_images, container_names
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
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
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.selectors import format_labels

_STATUS_COUNTS = (
    "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas",
    "terminatingReplicas", "collisionCount",
)  # fmt: skip
_NOT_MORE = "cannot be greater than status.replicas"


class DeploymentStrategy(Strategy):
    has_status = True
    has_generation = True

    def default(self, obj: Obj) -> None:
        check_rollback(obj)
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

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled_template_fields(obj["spec"]["template"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled_template_fields(obj["spec"]["template"], old["spec"]["template"])
        # Annotations count as desired state here: they are copied to the ReplicaSets.
        meta, before = obj["metadata"], old["metadata"]
        if obj["spec"] != old["spec"] or (meta.get("annotations") or {}) != (before.get("annotations") or {}):
            meta["generation"] = before.get("generation", 0) + 1

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj, errs, CREATE)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj, errs, pod_template_options(old["spec"].get("template")))
        validate_immutable(obj["spec"].get("selector"), old["spec"].get("selector"), "spec.selector", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return name_warning(obj["metadata"]["name"]) + pod_template_warnings(obj["spec"]["template"], "spec.template")

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return []
        return pod_template_warnings(obj["spec"]["template"], "spec.template", old["spec"]["template"])

    columns = (
        NAME,
        Column("Ready", lambda obj, now: _ready(obj), description="Ready Pods of the desired number."),
        Column("Up-to-date", lambda obj, now: obj.get("status", {}).get("updatedReplicas", 0),
               description="Pods made from the current template."),
        Column("Available", lambda obj, now: obj.get("status", {}).get("availableReplicas", 0),
               description="Pods ready for at least minReadySeconds."),
        AGE,
        Column("Containers", container_names, priority=1, description="Names of the containers in the template."),
        Column("Images", container_images, priority=1, description="Images of the containers in the template."),
        Column("Selector", lambda obj, now: _selector(obj), priority=1, description="Which Pods belong to it."),
    )  # fmt: skip


class DeploymentStatusStrategy(StatusStrategy):
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

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        non_negative_fields(status, _STATUS_COUNTS, "status", errs)
        replicas = status.get("replicas", 0)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas"):
            if status.get(name, 0) > replicas:
                errs.append(invalid(f"status.{name}", status.get(name, 0), _NOT_MORE))
        if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
            text = "cannot be greater than readyReplicas"
            errs.append(invalid("status.availableReplicas", status.get("availableReplicas", 0), text))
        never_decremented(status, old.get("status") or {}, "collisionCount", "status", errs)


def _validate_spec(obj: Obj, errs: Errors, options: PodOptions) -> None:
    spec = obj["spec"]
    non_negative(spec.get("replicas", 0), "spec.replicas", errs)
    validate_replicated(spec, errs, options=options)
    _validate_strategy(spec.get("strategy") or {}, errs)
    non_negative_fields(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec", errs)
    rollback = rollback_revision(obj)
    if rollback is not None:
        non_negative(rollback, "spec.rollback.version", errs)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        non_negative(deadline, "spec.progressDeadlineSeconds", errs)
        if deadline <= spec.get("minReadySeconds", 0):
            errs.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))


def _validate_strategy(strategy: dict[str, Any], errs: Errors) -> None:
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
        errs.append(not_supported("spec.strategy", shown_strategy(strategy), ("Recreate", "RollingUpdate")))


def shown_strategy(strategy: dict[str, Any]) -> dict[str, Any]:
    """Return a rollout strategy as messages print it."""
    rolling = strategy.get("rollingUpdate")
    shown = None if rolling is None else {
        "MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0),
    }  # fmt: skip
    return {"Type": strategy.get("type", ""), "RollingUpdate": shown}


def _ready(obj: Obj) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj.get('spec', {}).get('replicas', 0)}"


def _selector(obj: Obj) -> str:
    # Unlike most tables, this one leaves the cell of an empty selector empty.
    selector = obj.get("spec", {}).get("selector")
    return format_labels(selector) if selector and any(selector.values()) else ""


STRATEGY = DeploymentStrategy()
STRATEGY.subresources = {"status": DeploymentStatusStrategy(STRATEGY)}
