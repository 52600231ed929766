"""The horizontal Pod autoscaler controller, and the status that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from setpoint.client import Client, Resource
from setpoint.client.resources import builtin
from setpoint.controllers.expectations import WrittenRevisions
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.podautoscaler.metrics import Metrics, MetricsApis
from setpoint.controllers.podautoscaler.replicas import (
    Bounds,
    History,
    StartupGrace,
    Tolerances,
    highest_recent,
    limit,
    limit_rate,
    stabilize,
)
from setpoint.controllers.podautoscaler.sources import Proposal, Sources, Target, Unmeasured
from setpoint.controllers.subresources import resources_of_kind
from setpoint.kinds.autoscaling.scale import replicas_of
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import is_true, new_condition, with_condition
from setpoint.meta.errors import ApiError, Conflict
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import parse
from setpoint.meta.selectors import Selector, SelectorError, parse_labels
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.run import because
from setpoint.reconcile.workqueue import RateLimitingQueue

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_AUTOSCALERS = builtin("horizontalpodautoscalers", "autoscaling", "v2")
_ATTEMPTS = 5


class Status:
    """Builds the status of an autoscaler."""

    def __init__(self, hpa: Obj, now: datetime) -> None:
        self._before: Obj = hpa.get("status") or {}
        self._status: Obj = dict(self._before)
        self._generation = hpa["metadata"].get("generation")
        self._now = now

    def is_true(self, kind: str) -> bool:
        return is_true({"status": self._status}, kind)

    def set(self, kind: str, status: str, reason: str, message: str) -> None:
        new = new_condition(kind, status, reason, message, self._now)
        self._status["conditions"] = with_condition(self._status.get("conditions") or (), new)

    def replicas(self, current: int, desired: int | None, metrics: list[Obj] | None, *, rescaled: bool = False) -> None:
        """Set the replica counts; None for `desired` leaves it unchanged."""
        if desired is None:
            desired = self._status.get("desiredReplicas", 0)
        status: Obj = {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "lastScaleTime": format_time(self._now) if rescaled else self._status.get("lastScaleTime"),
            "currentMetrics": metrics,
            "conditions": self._status.get("conditions"),
            "observedGeneration": self._generation,
        }
        self._status = status

    def changed(self) -> bool:
        return _without_empty_fields(self._status) != _without_empty_fields(self._before)

    def result(self) -> Obj:
        return {name: value for name, value in self._status.items() if value is not None}


def _without_empty_fields(status: Obj) -> Obj:
    """Return the status without empty fields."""
    return {name: value for name, value in status.items() if value}


class Undecided(Exception):
    """The desired number of replicas cannot be determined."""


def horizontal_pod_autoscaler_controller(manager: Manager, options: ControllerOptions) -> Controller:
    return autoscaler(manager, options, MetricsApis(manager.client_for("horizontal-pod-autoscaler")))


def autoscaler(manager: Manager, options: ControllerOptions, metrics: Metrics) -> Controller:
    name = "horizontal-pod-autoscaler"
    reconciler = Autoscalers(
        manager.client_for(name),
        manager.clock,
        manager.informer(_AUTOSCALERS),
        manager.informer(PODS),
        metrics,
        manager.recorder(name),
        options,
    )
    queue = RateLimitingQueue(manager.clock, (_FixedInterval(options.horizontal_pod_autoscaler_sync_period),))
    workers = options.concurrent_horizontal_pod_autoscaler_syncs
    controller = Controller(f"{name}-controller", reconciler.reconcile, manager.clock, workers=workers, queue=queue)
    reconciler.watch(controller)
    return controller


class _FixedInterval:
    """Requeues at a fixed interval, after successes and failures alike."""

    def __init__(self, period: float) -> None:
        self._period = period

    def when(self, key: str) -> float:
        return self._period

    def forget(self, key: str) -> None:
        pass


class Autoscalers:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        autoscalers: Informer[Obj],
        pods: Informer[Pod],
        metrics: Metrics,
        recorder: EventRecorder,
        options: ControllerOptions,
    ) -> None:
        self._client = client
        self._clock = clock
        self._autoscalers = autoscalers
        self._pods = pods
        self._recorder = recorder
        self._options = options
        startup_grace = StartupGrace(
            options.horizontal_pod_autoscaler_cpu_initialization_period,
            options.horizontal_pod_autoscaler_initial_readiness_delay,
        )
        self._sources = Sources(metrics, startup_grace)
        self._history = History()
        self._written = WrittenRevisions()
        self._selectors: dict[str, dict[str, Selector]] = {}
        """The selector of each autoscaler's target, by namespace and key."""

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def changed(old: Obj | None, new: Obj | None) -> None:
            key = key_of(new or old or {})
            if new is None:
                self._forget(key)
            elif old is None or old["metadata"].get("generation") != new["metadata"].get("generation"):
                controller.enqueue(key)
            else:
                controller.queue.add_rate_limited(key)

        self._autoscalers.add_handler(changed)

    def _forget(self, key: str) -> None:
        self._history.forget(key)
        self._written.forget(key)
        namespace = key.partition("/")[0]
        others = self._selectors.get(namespace)
        if others is not None:
            others.pop(key, None)
            if not others:
                del self._selectors[namespace]

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        if not self._written.seen(key):
            return Result(retry=True)
        cached = self._autoscalers.get(key)
        if cached is None:
            self._forget(key)
            return None
        status = Status(cached, self._clock.now())
        try:
            await self._scale(key, cached, status)
        except Undecided:
            pass  # reported in Events and conditions; retry in the next period
        finally:
            await self._write(key, cached, status)
        return Result(requeue_after=self._options.horizontal_pod_autoscaler_sync_period)

    async def _write(self, key: str, cached: Obj, status: Status) -> None:
        if not status.changed():
            return
        try:
            answer = await self._client.update({**cached, "status": status.result()}, subresource="status")
        except ApiError as error:
            self._recorder.warning(cached, "FailedUpdateStatus", str(error))
            raise
        self._written.wrote(key, self._autoscalers, answer)

    async def _scale(self, key: str, hpa: Obj, status: Status) -> None:
        spec, clock = hpa["spec"], self._clock
        resource, scale = await self._read_scale(hpa, status)
        current, least, most = replicas_of(scale), spec.get("minReplicas", 1), spec["maxReplicas"]
        self._history.begin(key, current, clock.monotonic())
        desired, reason, statuses = 0, "", None
        rescale = measure = True
        was_scaled_to_zero = status.is_true("ScaledToZero")
        may_wake = was_scaled_to_zero and (least != 0 or _has_outside_metrics(spec))
        if current == 0:
            if not may_wake:
                rescale = measure = False
                text = "scaling is disabled since the replica count of the target is zero"
                status.set("ScalingActive", "False", "ScalingDisabled", text)
        elif current > most:
            desired, reason, measure = most, "Current number of replicas above Spec.MaxReplicas", False
        elif current < least:
            desired, reason, measure = least, "Current number of replicas below Spec.MinReplicas", False
        if measure:
            best, statuses = await self._measure(key, hpa, scale, status)
            desired = max(best.replicas, 0)
            if desired > current:
                reason = f"{best.name if best.replicas > 0 else ''} above target"
            if desired < current:
                reason = "All metrics below target"
            desired = self._normalize(key, hpa, status, current, desired, least)
            if current == 0 and least != 0 and was_scaled_to_zero and desired < least:
                desired, reason = least, reason or "Current number of replicas below Spec.MinReplicas"
            rescale = desired != current
        if rescale:
            await self._rescale(hpa, resource, scale, desired, reason, status, statuses)
            if spec.get("behavior") is not None:
                self._history.rescaled(key, desired - current, clock.monotonic())
            if current > 0 and desired == 0 and least == 0 and _has_outside_metrics(spec):
                text = "the HPA controller scaled the workload to zero"
                status.set("ScaledToZero", "True", "ScaledToZero", text)
            else:
                text = "the HPA controller did not scale the workload to zero"
                status.set("ScaledToZero", "False", "NotScaledToZero", text)
        else:
            desired = current
        status.replicas(current, desired, statuses, rescaled=rescale)

    async def _read_scale(self, hpa: Obj, status: Status) -> tuple[Resource, Obj]:
        target, namespace = hpa["spec"]["scaleTargetRef"], hpa["metadata"]["namespace"]
        group = target.get("apiVersion", "").rpartition("/")[0]
        first: ApiError | None = None
        try:
            for resource in await resources_of_kind(self._client, group, target["kind"]):
                try:
                    scale = await self._client.get(resource, target["name"], namespace, subresource="scale")
                except ApiError as error:
                    first = first or error
                    continue
                text = "the HPA controller was able to get the target's current scale"
                status.set("AbleToScale", "True", "SucceededGetScale", text)
                return resource, scale
        except ApiError as error:
            first = error
        self._recorder.warning(hpa, "FailedGetScale", str(first))
        text = f"the HPA controller was unable to get the target's current scale: {first}"
        status.set("AbleToScale", "False", "FailedGetScale", text)
        raise Undecided

    async def _rescale(
        self, hpa: Obj, resource: Resource, scale: Obj, desired: int, reason: str, status: Status, statuses: Any
    ) -> None:
        current, meta = replicas_of(scale), scale["metadata"]
        because(_explained(hpa["spec"], statuses or (), reason, desired))
        for attempt in range(_ATTEMPTS):
            try:
                wanted = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": desired}}
                await self._client.update(wanted, resource=resource, subresource="scale")
                break
            except ApiError as error:
                if isinstance(error, Conflict) and attempt < _ATTEMPTS - 1:
                    scale = await self._client.get(resource, meta["name"], meta["namespace"], subresource="scale")
                    continue
                text = f"New size: {desired}; reason: {reason}; error: {error}"
                self._recorder.warning(hpa, "FailedRescale", text)
                text = f"the HPA controller was unable to update the target scale: {error}"
                status.set("AbleToScale", "False", "FailedUpdateScale", text)
                status.replicas(current, None, statuses)
                raise Undecided from None
        text = f"the HPA controller was able to update the target scale to {desired}"
        status.set("AbleToScale", "True", "SucceededRescale", text)
        self._recorder.normal(hpa, "SuccessfulRescale", f"New size: {desired}; reason: {reason}")

    # -- desired replicas -------------------------------------------------------------------------------------------

    async def _measure(self, key: str, hpa: Obj, scale: Obj, status: Status) -> tuple[Proposal, list[Obj]]:
        """Return the greatest proposal of the metrics, and the status of each metric."""
        metrics = hpa["spec"].get("metrics") or []
        statuses: list[Obj] = [{"type": ""} for _ in metrics]
        try:
            target = self._target(key, hpa, scale, status)
        except Undecided as error:
            status.replicas(replicas_of(scale), None, None)
            self._recorder.warning(hpa, "FailedComputeMetricsReplicas", str(error))
            raise
        best: Proposal | None = None
        failures: list[Unmeasured] = []
        for place, metric in enumerate(metrics):
            try:
                proposal = await self._sources.propose(metric, target)
            except Unmeasured as error:
                self._recorder.warning(hpa, error.reason, error.cause)
                failures.append(error)
                continue
            statuses[place] = proposal.status
            if best is None or best.replicas == 0 or proposal.replicas > best.replicas:
                best = proposal
        # With some metrics missing, scale up but never down: the missing ones might require more.
        if best is None or (failures and best.replicas < target.wanted):
            first = failures[0]
            text = f"the HPA was unable to compute the replica count: {first.cause}"
            status.set("ScalingActive", "False", first.reason, text)
            status.replicas(target.wanted, None, statuses)
            text = f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error is: {first}"
            self._recorder.warning(hpa, "FailedComputeMetricsReplicas", text)
            raise Undecided
        text = f"the HPA was able to successfully calculate a replica count from {best.name}"
        status.set("ScalingActive", "True", "ValidMetricFound", text)
        return best, statuses

    def _target(self, key: str, hpa: Obj, scale: Obj, status: Status) -> Target:
        namespace, there = hpa["metadata"]["namespace"], scale.get("status") or {}
        text = there.get("selector") or ""
        if not text:
            self._recorder.warning(hpa, "SelectorRequired", "selector is required")
            message = "the HPA target's scale is missing a selector"
            status.set("ScalingActive", "False", "InvalidSelector", message)
            raise Undecided("selector is required")
        try:
            selector = parse_labels(text)
        except SelectorError as error:
            message = f"couldn't convert selector into a corresponding internal selector object: {error}"
            self._recorder.warning(hpa, "InvalidSelector", message)
            status.set("ScalingActive", "False", "InvalidSelector", message)
            raise Undecided(message) from None
        inside = self._pods.in_namespace(namespace)
        pods = [pod for pod in inside if selector.matches(pod["metadata"].get("labels") or {})]
        others = self._selectors.setdefault(namespace, {})
        others[key] = selector
        rivals = [
            other
            for other in sorted(others)
            if any(others[other].matches(pod["metadata"].get("labels") or {}) for pod in pods)
        ]
        if len(rivals) > 1:
            shown = f"[{' '.join(rivals[:2])}]"
            message = f"pods by selector {text} are controlled by more than one HPA (e.g. {shown})"
            self._recorder.warning(hpa, "AmbiguousSelector", message)
            status.set("ScalingActive", "False", "AmbiguousSelector", message)
            raise Undecided(message)
        return Target(
            namespace,
            text,
            pods,
            replicas_of(scale),
            there.get("replicas", 0),
            _tolerances(hpa, self._options.horizontal_pod_autoscaler_tolerance),
            self._clock.now(),
        )

    def _normalize(self, key: str, hpa: Obj, status: Status, current: int, wanted: int, least: int) -> int:
        now, most, behavior = self._clock.monotonic(), hpa["spec"]["maxReplicas"], hpa["spec"].get("behavior")
        window = self._options.horizontal_pod_autoscaler_downscale_stabilization
        if behavior is None:
            stable = highest_recent(self._history, key, wanted, window, now)
            reason = "ScaleDownStabilized"
            text = "recent recommendations were higher than current one, applying the highest recent recommendation"
            self._history.recommend(key, wanted, now)
            limited = limit(current, stable, least, most)
        else:
            up = behavior["scaleUp"]
            down = {"stabilizationWindowSeconds": window, **behavior["scaleDown"]}
            stable, reason, text = stabilize(self._history, key, current, wanted, up, down, now)
            self._history.recommend(key, wanted, now)
            limited = limit_rate(self._history, key, current, stable, Bounds(least, most, up, down), now)
        if stable == wanted:
            reason, text = "ReadyForNewScale", "recommended size matches current size"
        status.set("AbleToScale", "True", reason, text)
        is_limited = "False" if limited.replicas == stable else "True"
        status.set("ScalingLimited", is_limited, limited.reason, limited.message)
        return limited.replicas


def _tolerances(hpa: Obj, default: float) -> Tolerances:
    behavior = hpa["spec"].get("behavior") or {}

    def of(direction: str) -> float:
        given = (behavior.get(direction) or {}).get("tolerance")
        return default if given is None else parse(given).nano / 1e9

    return Tolerances(of("scaleDown"), of("scaleUp"))


def _has_outside_metrics(spec: Obj) -> bool:
    return any(metric["type"] in ("Object", "External") for metric in spec.get("metrics") or ())


def _explained(spec: Obj, statuses: Sequence[Obj], reason: str, desired: int) -> str:
    """Return why the target gets this size, with the measured values: `cpu is 91%, its target 70%: 5 replicas`."""
    found = []
    for metric, status in zip(spec.get("metrics") or (), statuses, strict=False):
        kind = metric["type"][:1].lower() + metric["type"][1:]
        source, current = metric.get(kind) or {}, (status.get(kind) or {}).get("current") or {}
        target, name = source.get("target") or {}, source.get("name") or (source.get("metric") or {}).get("name")
        for field, unit in (("averageUtilization", "%"), ("averageValue", ""), ("value", "")):
            if field in current and field in target:
                found.append(f"{name} is {current[field]}{unit}, its target {target[field]}{unit}")
                break
    least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
    bound = " (minReplicas)" if desired == least else " (maxReplicas)" if desired == most else ""
    return f"{'; '.join(found) or reason}: {desired} replicas{bound}"
