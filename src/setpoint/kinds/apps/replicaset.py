"""ReplicaSet: a number of Pods of one template."""

from __future__ import annotations

from setpoint.kinds.apps.workload import (
    CONTAINERS,
    IMAGES,
    SELECTOR,
    WorkloadStatusStrategy,
    WorkloadStrategy,
    count_column,
    validate_replicated,
)
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import PodOptions, default_pod_template
from setpoint.kinds.numbers import non_negative_fields
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj


class ReplicaSetStrategy(WorkloadStrategy):
    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        default_pod_template(spec.setdefault("template", {}))

    def validate_spec(self, obj: Obj, errs: Errors, options: PodOptions) -> None:
        non_negative_fields(obj["spec"], ("replicas", "minReadySeconds"), "spec", errs)
        validate_replicated(obj["spec"], errs, options=options)

    columns = (
        NAME,
        count_column("Desired", "spec", "replicas", "Pods wanted."),
        count_column("Current", "status", "replicas", "Pods that exist."),
        count_column("Ready", "status", "readyReplicas", "Pods that are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )


class ReplicaSetStatusStrategy(WorkloadStatusStrategy):
    counts = (
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    )
    counts_of_replicas = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


STRATEGY = ReplicaSetStrategy()
STRATEGY.subresources = {"status": ReplicaSetStatusStrategy(STRATEGY)}
