"""Conversion between autoscaling/v1 and v2: v1 has CPU utilization only, and holds everything else in annotations."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta.objects import Obj
from setpoint.meta.quantity import QuantityError, canonical

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_ROUND_TRIP = (
    METRICS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
    CURRENT_METRICS,
    CONDITIONS,
)
_SOURCES = ("object", "pods", "resource", "containerResource", "external")
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def drop_round_trip_annotations(obj: Obj) -> None:
    annotations = obj.get("metadata", {}).get("annotations")
    if annotations and any(name in annotations for name in _ROUND_TRIP):
        remaining = {name: value for name, value in annotations.items() if name not in _ROUND_TRIP}
        obj["metadata"] = {**obj["metadata"], "annotations": remaining}
        if not remaining:
            del obj["metadata"]["annotations"]


def to_v1(obj: Obj) -> Obj:
    """Return the v1 form of a v2 object, which is not modified."""
    out: Obj = {**obj}
    if "apiVersion" in out:  # Stored objects and items of lists have none.
        out["apiVersion"] = "autoscaling/v1"
    drop_round_trip_annotations(out)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    out["spec"] = _present(
        {
            "scaleTargetRef": spec.get("scaleTargetRef") or {"kind": "", "name": ""},
            "minReplicas": spec.get("minReplicas"),
            "maxReplicas": spec.get("maxReplicas", 0),
            "targetCPUUtilizationPercentage": next(filter(None, map(_cpu_utilization, metrics)), None),
        }
    )
    used = [
        (metric["resource"].get("current") or {}).get("averageUtilization")
        for metric in current
        if metric.get("type") == "Resource" and (metric.get("resource") or {}).get("name") == "cpu"
    ]
    out["status"] = _present(
        {
            "observedGeneration": status.get("observedGeneration"),
            "lastScaleTime": status.get("lastScaleTime"),
            "currentReplicas": status.get("currentReplicas", 0),
            "desiredReplicas": status.get("desiredReplicas", 0),
            "currentCPUUtilizationPercentage": next((value for value in reversed(used) if value is not None), None),
        }
    )
    carried: dict[str, str] = {}
    other_metrics = [_metric_to_v1(metric, "target") for metric in metrics if _cpu_utilization(metric) is None]
    if other_metrics:
        carried[METRICS] = _go_json(other_metrics)
    if current:
        carried[CURRENT_METRICS] = _go_json([_metric_to_v1(metric, "current") for metric in current])
    if spec.get("behavior") is not None:
        carried[BEHAVIOR] = _go_json(_behavior_to_annotation(spec["behavior"]))
    if status.get("conditions"):
        carried[CONDITIONS] = _go_json(
            [
                {
                    "type": condition.get("type", ""),
                    "status": condition.get("status", ""),
                    "lastTransitionTime": condition.get("lastTransitionTime"),
                    **{
                        key: condition[key] for key in ("reason", "message", "observedGeneration") if condition.get(key)
                    },
                }
                for condition in status["conditions"]
            ]
        )
    if carried:
        meta = dict(out["metadata"])
        merged = {**(meta.pop("annotations", None) or {}), **carried}
        out["metadata"] = _with_annotations(meta, dict(sorted(merged.items())))
    return out


def from_v1(obj: Obj) -> Obj:
    """Return the v2 object that a v1 object stands for, which stays as it is. Annotations that cannot be read are
    dropped."""
    out: Obj = {**obj}
    if "apiVersion" in out:  # Stored objects and items of lists have none.
        out["apiVersion"] = "autoscaling/v2"
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    metrics: list[Obj] = [_spec_from_v1(metric) for metric in _read_list(annotations.get(METRICS)) or ()]
    utilization = spec.get("targetCPUUtilizationPercentage")
    if utilization is not None or not metrics:
        # Without any metric, the default is CPU utilization, as in the v1 controller.
        target = {"type": "Utilization", "averageUtilization": 80 if utilization is None else utilization}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    out["spec"] = _present(
        {
            "scaleTargetRef": spec.get("scaleTargetRef") or {"kind": "", "name": ""},
            "minReplicas": spec.get("minReplicas"),
            "maxReplicas": spec.get("maxReplicas", 0),
            "metrics": metrics,
            "behavior": _behavior_from_annotation(annotations.get(BEHAVIOR)),
        }
    )
    used = status.get("currentCPUUtilizationPercentage")
    current = _read_list(annotations.get(CURRENT_METRICS))
    shown: list[Obj] | None = None
    if current is not None:
        shown = [_status_from_v1(metric) for metric in current]
    elif used is not None:
        shown = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}]
    out["status"] = _present(
        {
            "observedGeneration": status.get("observedGeneration"),
            "lastScaleTime": status.get("lastScaleTime"),
            "currentReplicas": status.get("currentReplicas") or None,
            "desiredReplicas": status.get("desiredReplicas", 0),
        }
    )
    out["status"]["currentMetrics"] = shown
    conditions = _read_list(annotations.get(CONDITIONS))
    if conditions:
        out["status"]["conditions"] = conditions
    drop_round_trip_annotations(out)
    return out


# -- metrics -----------------------------------------------------------------------------------------------------------


def _cpu_utilization(metric: Obj) -> int | None:
    resource = metric.get("resource")
    if metric.get("type") != "Resource" or resource is None or resource.get("name") != "cpu":
        return None
    value: int | None = (resource.get("target") or {}).get("averageUtilization")
    return value


def _metric_to_v1(metric: Obj, part: str) -> Obj:
    """Return a metric of the spec (`part` is "target") or of the status ("current") as v1's annotations hold it."""

    def required_in_status(value: Any) -> Any:
        return "0" if value is None and part == "current" else value

    out: Obj = {"type": metric.get("type", "")}
    for name in _SOURCES:
        source = metric.get(name)
        if source is None:
            continue
        amounts, measured = source.get(part) or {}, source.get("metric") or {}
        value, average = amounts.get("value"), amounts.get("averageValue")
        if name == "object":
            converted = {
                "target": source.get("describedObject") or {"kind": "", "name": ""},
                "metricName": measured.get("name", ""),
                f"{part}Value": "0" if value is None else value,
                "selector": measured.get("selector"),
                "averageValue": average,
            }
        elif name == "pods":
            converted = {
                "metricName": measured.get("name", ""),
                f"{part}AverageValue": "0" if average is None else average,
                "selector": measured.get("selector"),
            }
        elif name == "external":
            converted = {
                "metricName": measured.get("name", ""),
                "metricSelector": measured.get("selector"),
                f"{part}Value": required_in_status(value),
                f"{part}AverageValue": average,
            }
        else:
            converted = {
                "name": source.get("name", ""),
                f"{part}AverageUtilization": amounts.get("averageUtilization"),
                f"{part}AverageValue": required_in_status(average),
                "container": source.get("container", "") if name == "containerResource" else None,
            }
        out[name] = _present(converted)
    return out


def _spec_from_v1(metric: Obj) -> Obj:
    out: Obj = {"type": metric.get("type", "")}
    for name in _SOURCES:
        source = metric.get(name)
        if source is None:
            continue
        measured = _present({"name": source.get("metricName", ""), "selector": source.get("selector")})
        if name == "object":
            average, fixed = _quantity(source.get("averageValue")), _quantity(source.get("targetValue")) or "0"
            target: Obj = {"type": "Value", "value": fixed}
            if average is not None:
                # v1 cannot omit the value: zero beside an average means none.
                kept = None if fixed == "0" else fixed
                target = _present({"type": "AverageValue", "value": kept, "averageValue": average})
            out[name] = {"describedObject": source.get("target") or {}, "target": target, "metric": measured}
        elif name == "pods":
            average = _quantity(source.get("targetAverageValue")) or "0"
            out[name] = {"metric": measured, "target": {"type": "AverageValue", "averageValue": average}}
        elif name == "external":
            value, average = _quantity(source.get("targetValue")), _quantity(source.get("targetAverageValue"))
            measured = _present({"name": source.get("metricName", ""), "selector": source.get("metricSelector")})
            kind = "AverageValue" if value is None else "Value"
            target = _present({"type": kind, "value": value, "averageValue": average})
            out[name] = {"metric": measured, "target": target}
        else:
            utilization = source.get("targetAverageUtilization")
            target = _present(
                {
                    "type": "AverageValue" if utilization is None else "Utilization",
                    "averageValue": _quantity(source.get("targetAverageValue")),
                    "averageUtilization": utilization,
                }
            )
            out[name] = {"name": source.get("name", ""), "target": target}
            if name == "containerResource":
                out[name]["container"] = source.get("container", "")
    return out


def _status_from_v1(metric: Obj) -> Obj:
    out: Obj = {"type": metric.get("type", "")}
    for name in _SOURCES:
        source = metric.get(name)
        if source is None:
            continue
        selector = source.get("metricSelector" if name == "external" else "selector")
        measured = _present({"name": source.get("metricName", ""), "selector": selector})
        if name in ("object", "external"):
            extra = "averageValue" if name == "object" else "currentAverageValue"
            current = _present(
                {
                    "value": _quantity(source.get("currentValue")) or "0",
                    "averageValue": _quantity(source.get(extra)),
                }
            )
            out[name] = {"metric": measured, "current": current}
            if name == "object":
                out[name]["describedObject"] = source.get("target") or {}
        else:
            current = _present(
                {
                    "averageValue": _quantity(source.get("currentAverageValue")) or "0",
                    "averageUtilization": source.get("currentAverageUtilization"),
                }
            )
            if name == "pods":
                out[name] = {"metric": measured, "current": current}
            else:
                out[name] = {"name": source.get("name", ""), "current": current}
                if name == "containerResource":
                    out[name]["container"] = source.get("container", "")
    return out


# -- behavior ----------------------------------------------------------------------------------------------------------


def _behavior_to_annotation(behavior: Obj) -> Obj:
    """Return the annotation with upstream's internal type: Go's field names, and null for absent values."""

    def rules(name: str) -> Obj | None:
        given = behavior.get(name)
        if given is None:
            return None
        policies = [
            {
                "Type": policy.get("type", ""),
                "Value": policy.get("value", 0),
                "PeriodSeconds": policy.get("periodSeconds", 0),
            }
            for policy in given.get("policies") or ()
        ]
        return {
            "StabilizationWindowSeconds": given.get("stabilizationWindowSeconds"),
            "SelectPolicy": given.get("selectPolicy"),
            "Policies": policies or None,
            "Tolerance": given.get("tolerance"),
        }

    return {"ScaleUp": rules("scaleUp"), "ScaleDown": rules("scaleDown")}


def _behavior_from_annotation(text: str | None) -> Obj | None:
    read = _read(text)
    if not isinstance(read, dict):
        return None
    given = _caseless(read)
    behavior: Obj = {}
    for name in ("scaleUp", "scaleDown"):
        rules = given.get(name.lower())
        if isinstance(rules, dict):
            behavior[name] = _rules_from(_caseless(rules))
    if behavior and all(rules.get("policies") for rules in behavior.values()):
        # The stored form gets the defaults of v2; an invalid one stays unchanged, to be rejected.
        default_behavior(behavior)
    return behavior or None


def default_behavior(behavior: Obj) -> None:
    up, down = behavior.get("scaleUp") or {}, behavior.get("scaleDown") or {}
    behavior["scaleUp"] = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
        **up,
    }
    behavior["scaleDown"] = {
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        **down,
    }


def _rules_from(given: Obj) -> Obj:
    policies = [
        {"type": one.get("type", ""), "value": one.get("value", 0), "periodSeconds": one.get("periodseconds", 0)}
        for one in (_caseless(policy) for policy in given.get("policies") or () if isinstance(policy, dict))
    ]
    return _present(
        {
            "stabilizationWindowSeconds": given.get("stabilizationwindowseconds"),
            "selectPolicy": given.get("selectpolicy"),
            "policies": policies or None,
            "tolerance": _quantity(given.get("tolerance")),
        }
    )


def _caseless(given: Obj) -> Obj:
    """Return the object with lower-case keys, because Go reads JSON keys case-insensitively."""
    return {name.lower(): value for name, value in given.items()}


# -- text --------------------------------------------------------------------------------------------------------------


def _present(item: Obj) -> Obj:
    return {name: value for name, value in item.items() if value is not None}


def _with_annotations(meta: Obj, annotations: dict[str, str]) -> Obj:
    """Return the metadata with annotations in their usual position."""
    later: Obj = {name: meta.pop(name) for name in ("ownerReferences", "finalizers", "managedFields") if name in meta}
    return {**meta, "annotations": annotations, **later}


def _go_json(value: Any) -> str:
    return orjson.dumps(value).decode().translate(_HTML)


def _read(text: str | None) -> Any:
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None


def _read_list(text: str | None) -> list[Obj] | None:
    read = _read(text)
    if not isinstance(read, list) or not all(isinstance(item, dict) for item in read):
        return None
    return read


def _quantity(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return canonical(str(value))
    except QuantityError:
        return None
