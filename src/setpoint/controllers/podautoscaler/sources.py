"""Evaluates each entry of an autoscaler's `spec.metrics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.controllers.podautoscaler.metrics import Metrics, MetricsFailure, PodMetrics
from setpoint.controllers.podautoscaler.replicas import (
    NO_PODS,
    Groups,
    StartupGrace,
    Tolerances,
    by_average_value,
    by_usage,
    by_utilization,
    by_value,
    group_pods,
    requests_of,
)
from setpoint.meta.goformat import label_selector, quote
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import BINARY, DECIMAL, milli_value, of_milli
from setpoint.meta.selectors import SelectorError, format_labels, from_label_selector

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


class Proposal(NamedTuple):
    replicas: int
    name: str
    """The description of the metric for Events and conditions."""
    status: Obj
    """The entry of `status.currentMetrics`."""


class Unmeasured(Exception):
    def __init__(self, reason: str, cause: str, text: str) -> None:
        """Create the error. `cause` is for the Event and the condition, `text` for the summary."""
        super().__init__(text)
        self.reason = reason
        self.cause = cause


class Target(NamedTuple):
    """The current state of the scale target."""

    namespace: str
    selector: str
    pods: Sequence[Pod]
    wanted: int
    """`spec.replicas` of the scale."""
    there: int
    """`status.replicas` of the scale."""
    tolerances: Tolerances
    now: datetime


class Sources:
    def __init__(self, metrics: Metrics, startup_grace: StartupGrace) -> None:
        self._metrics = metrics
        self._startup_grace = startup_grace

    async def propose(self, metric: Obj, target: Target) -> Proposal:
        """Return what the metric requires. Raise Unmeasured."""
        kind = metric["type"]
        if kind == "Object":
            return await self._object(metric["object"], target)
        if kind == "Pods":
            return await self._pods(metric["pods"], target)
        if kind == "Resource":
            return await self._resource(metric["resource"], target)
        if kind == "ContainerResource":
            return await self._container_resource(metric["containerResource"], target)
        if kind == "External":
            return await self._external(metric["external"], target)
        text = f"unknown metric source type {quote(kind)}"
        raise Unmeasured("InvalidMetricSourceType", text, text)

    # -- resources ------------------------------------------------------------------------------------------------

    async def _resource(self, source: Obj, target: Target) -> Proposal:
        name = source["name"]
        try:
            replicas, current, shown = await self._usage(name, source["target"], target, "")
        except MetricsFailure as error:
            text = f"failed to get {name} resource metric value: {error}"
            raise Unmeasured("FailedGetResourceMetric", str(error), text) from None
        return Proposal(replicas, shown, {"type": "Resource", "resource": {"name": name, "current": current}})

    async def _container_resource(self, source: Obj, target: Target) -> Proposal:
        name, container = source["name"], source["container"]
        try:
            replicas, current, shown = await self._usage(name, source["target"], target, container)
        except MetricsFailure as error:
            text = f"failed to get {container} container metric value: {error}"
            raise Unmeasured("FailedGetContainerResourceMetric", str(error), text) from None
        status = {"name": name, "container": container, "current": current}
        return Proposal(replicas, shown, {"type": "ContainerResource", "containerResource": status})

    async def _usage(self, name: str, wanted: Obj, target: Target, container: str) -> tuple[int, Obj, str]:
        """Return replicas, the current value, and the description of the metric."""
        if wanted.get("averageValue") is not None:
            try:
                metrics = await self._resource_metrics(name, target, container)
                groups = self._groups(metrics, name, target)
                goal = milli_value(wanted["averageValue"])
                replicas, average = by_usage(target.wanted, goal, metrics, groups, target.tolerances)
            except MetricsFailure as error:
                raise MetricsFailure(f"failed to get {name} usage: {error}") from None
            return replicas, {"averageValue": _quantity(name, average)}, f"{name} resource"
        if wanted.get("averageUtilization") is None:
            raise MetricsFailure(
                "invalid resource metric source: neither an average utilization target nor an average value (usage) "
                "target was set"
            )
        try:
            metrics = await self._resource_metrics(name, target, container)
            groups = self._groups(metrics, name, target)
            # Check before the requests: Pods without usable metrics need no requests.
            _measurable(metrics, groups)
            requests = requests_of(target.pods, name, container)
            replicas, percent, average = by_utilization(
                target.wanted, wanted["averageUtilization"], metrics, groups, requests, target.tolerances
            )
        except MetricsFailure as error:
            raise MetricsFailure(f"failed to get {name} utilization: {error}") from None
        current = {"averageUtilization": percent, "averageValue": _quantity(name, average)}
        middle = "container resource" if container else "resource"
        return replicas, current, f"{name} {middle} utilization (percentage of request)"

    async def _resource_metrics(self, name: str, target: Target, container: str) -> PodMetrics:
        try:
            return await self._metrics.resource(name, target.namespace, target.selector, container)
        except MetricsFailure as error:
            raise MetricsFailure(f"unable to get metrics for resource {name}: {error}") from None

    def _groups(self, metrics: PodMetrics, resource: str, target: Target) -> Groups:
        if not target.pods:
            raise MetricsFailure(NO_PODS)
        return group_pods(target.pods, metrics, resource, self._startup_grace, target.now)

    # -- custom metrics -------------------------------------------------------------------------------------------

    async def _pods(self, source: Obj, target: Target) -> Proposal:
        name, selector = source["metric"]["name"], source["metric"].get("selector")
        try:
            selector_text = _selector_text(selector)
            try:
                metrics = await self._metrics.pods(name, target.namespace, target.selector, selector_text)
            except MetricsFailure as error:
                raise MetricsFailure(f"unable to get metric {name}: {error}") from None
            goal = milli_value(source["target"]["averageValue"])
            groups = self._groups(metrics, "", target)
            replicas, average = by_usage(target.wanted, goal, metrics, groups, target.tolerances)
        except MetricsFailure as error:
            text = f"failed to get pods metric value: {error}"
            raise Unmeasured("FailedGetPodsMetric", str(error), text) from None
        status = {"metric": _identifier(source), "current": {"averageValue": of_milli(average).text}}
        return Proposal(replicas, f"pods metric {name}", {"type": "Pods", "pods": status})

    async def _object(self, source: Obj, target: Target) -> Proposal:
        name, reference, wanted = source["metric"]["name"], source["describedObject"], source["target"]
        selector = source["metric"].get("selector")
        status = {"metric": _identifier(source), "describedObject": reference}
        prefix = ""
        try:
            selector_text = _selector_text(selector)
            if wanted.get("type") == "Value" and wanted.get("value") is not None:
                usage = await self._object_usage(name, reference, selector_text, target)
                goal = milli_value(wanted["value"])
                replicas = by_value(target.wanted, usage, goal, target.pods, target.tolerances)
                current, shown = {"value": of_milli(usage).text}, f"{reference['kind']} metric {name}"
            elif wanted.get("type") == "AverageValue" and wanted.get("averageValue") is not None:
                prefix = f"failed to get {name} object metric: "
                usage = await self._object_usage(name, reference, selector_text, target)
                goal = milli_value(wanted["averageValue"])
                replicas, average = by_average_value(target.there, usage, goal, target.tolerances)
                current = {"averageValue": of_milli(average).text}
                shown = f"external metric {name}({label_selector(selector)})"
            else:
                raise MetricsFailure(
                    "invalid object metric source: neither a value target nor an average value target was set"
                )
        except MetricsFailure as error:
            text = f"failed to get object metric value: {prefix}{error}"
            raise Unmeasured("FailedGetObjectMetric", str(error), text) from None
        return Proposal(replicas, shown, {"type": "Object", "object": {**status, "current": current}})

    async def _object_usage(self, name: str, reference: Obj, selector: str, target: Target) -> int:
        try:
            return await self._metrics.object(name, target.namespace, reference, selector)
        except MetricsFailure as error:
            where = f"{reference['kind']} {target.namespace}/{reference['name']}"
            raise MetricsFailure(f"unable to get metric {name} on {where}: {error}") from None

    # -- external metrics -----------------------------------------------------------------------------------------

    async def _external(self, source: Obj, target: Target) -> Proposal:
        name, wanted = source["metric"]["name"], source["target"]
        selector = source["metric"].get("selector")
        prefix = ""
        try:
            if wanted.get("averageValue") is not None:
                prefix = f"failed to get {name} external metric: "
                usage = await self._external_usage(name, selector, target)
                goal = milli_value(wanted["averageValue"])
                replicas, average = by_average_value(target.there, usage, goal, target.tolerances)
                current = {"averageValue": of_milli(average).text}
            elif wanted.get("value") is not None:
                prefix = f"failed to get external metric {name}: "
                usage = await self._external_usage(name, selector, target)
                goal = milli_value(wanted["value"])
                replicas = by_value(target.wanted, usage, goal, target.pods, target.tolerances)
                current = {"value": of_milli(usage).text}
            else:
                raise MetricsFailure(
                    "invalid external metric source: neither a value target nor an average value target was set"
                )
        except MetricsFailure as error:
            text = f"failed to get {name} external metric value: {prefix}{error}"
            raise Unmeasured("FailedGetExternalMetric", str(error), text) from None
        status = {"metric": _identifier(source), "current": current}
        shown = f"external metric {name}({label_selector(selector)})"
        return Proposal(replicas, shown, {"type": "External", "external": status})

    async def _external_usage(self, name: str, selector: Obj | None, target: Target) -> int:
        try:
            return sum(await self._metrics.external(name, target.namespace, _selector_text(selector)))
        except MetricsFailure as error:
            what = f"{target.namespace}/{name}/{label_selector(selector)}"
            raise MetricsFailure(f"unable to get external metric {what}: {error}") from None


def _measurable(metrics: PodMetrics, groups: Groups) -> None:
    """Raise MetricsFailure if no Pod has usable metrics."""
    if not metrics.keys() - groups.ignored - groups.unready:
        raise MetricsFailure("did not receive metrics for targeted pods (pods might be unready)")


def _quantity(resource: str, amount: int) -> str:
    return of_milli(amount, BINARY if resource == "memory" else DECIMAL).text


def _identifier(source: Mapping[str, Any]) -> Obj:
    metric = source["metric"]
    return {key: metric[key] for key in ("name", "selector") if metric.get(key) is not None}


def _selector_text(selector: Obj | None) -> str:
    try:
        from_label_selector(selector)
    except SelectorError as error:
        raise MetricsFailure(str(error)) from None
    return format_labels(selector) if selector and any(selector.values()) else ""
