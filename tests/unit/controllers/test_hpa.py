"""Horizontal Pod autoscalers through the API server, with metrics that the test sets."""

from __future__ import annotations

from typing import Any

import pytest
from kubelet_by_hand import Kubelet
from metrics_by_hand import MetricsByHand

from setpoint.client.resources import builtin
from setpoint.controllers.builtin import CONTROLLERS
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.podautoscaler.controller import autoscaler
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
HPAS, DEPLOYMENTS = builtin("horizontalpodautoscalers", "autoscaling", "v2"), builtin("deployments", "apps")
NAME = "horizontal-pod-autoscaler-controller"
OWN = (NAME, "deployment-controller", "replicaset-controller", "serviceaccount-controller")
bare = virtual(nodes=0, scheduler=False, controllers=OWN, leader_elect=False)
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> MetricsByHand:
    metrics = MetricsByHand()

    def build(manager: Any, options: Any) -> Any:
        metrics.clock, metrics.running = manager.clock, manager.informer(PODS)
        return autoscaler(manager, options, metrics)

    monkeypatch.setitem(CONTROLLERS, NAME, build)
    return metrics


def a_deployment(replicas: int, name: str = "web") -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def an_hpa(*metrics: Obj, name: str = "hpa", target: str = "web", **spec: Any) -> Obj:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 10, "metrics": list(metrics), **spec},
    }


class Harness:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.kubelet = Kubelet(cluster.client, cluster.clock)

    async def deploy(self, replicas: int, name: str = "web") -> None:
        await self.cluster.client.create(a_deployment(replicas, name))
        await self.pass_time(1)
        # Long enough that what is measured is believed.
        await self.cluster.sleep(400)

    async def pass_time(self, seconds: float) -> None:
        """Start new Pods at once and remove those that are being deleted."""
        for _ in range(max(1, int(seconds // 15))):
            await self.cluster.sleep(min(seconds, 15))
            for pod in await self.cluster.all(PODS):
                if "deletionTimestamp" in pod["metadata"]:
                    await self.kubelet.bury(pod)
                elif pod["status"].get("phase") == "Pending":
                    await self.kubelet.run(pod)

    async def replicas(self, name: str = "web") -> int:
        return int((await self.cluster.client.get(DEPLOYMENTS, name, "default"))["spec"]["replicas"])

    async def status(self, name: str = "hpa") -> Obj:
        found: Obj = (await self.cluster.client.get(HPAS, name, "default"))["status"]
        return found

    async def conditions(self, name: str = "hpa") -> dict[str, tuple[str, str, str]]:
        found = (await self.status(name)).get("conditions") or []
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}

    async def said(self, reason: str) -> list[str]:
        return [text for _, why, text in await self.cluster.events("hpa") if why == reason]


@bare
async def test_scales_up_at_once_and_down_after_five_minutes(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(2)
    numbers.usage["cpu"] = 1000
    await cluster.client.create(an_hpa(CPU))
    await cluster.sleep(1)
    assert await harness.replicas() == 4
    conditions = await harness.conditions()
    assert conditions["AbleToScale"] == (
        "True",
        "SucceededRescale",
        "the HPA controller was able to update the target scale to 4",
    )
    metric = "cpu resource utilization (percentage of request)"
    assert conditions["ScalingActive"] == (
        "True",
        "ValidMetricFound",
        f"the HPA was able to successfully calculate a replica count from {metric}",
    )
    in_range = ("False", "DesiredWithinRange", "the desired count is within the acceptable range")
    assert conditions["ScalingLimited"] == in_range
    status = await harness.status()
    assert (status["currentReplicas"], status["desiredReplicas"], status["observedGeneration"]) == (2, 4, 1)
    assert status["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 100, "averageValue": "1"}}}
    ]
    assert "lastScaleTime" in status
    assert await harness.said("SuccessfulRescale") == [f"New size: 4; reason: {metric} above target"]
    numbers.usage["cpu"] = 500
    await harness.pass_time(30)
    numbers.usage["cpu"] = 250
    await harness.pass_time(240)
    assert await harness.replicas() == 4
    assert (await harness.conditions())["AbleToScale"] == (
        "True",
        "ScaleDownStabilized",
        "recent recommendations were higher than current one, applying the highest recent recommendation",
    )
    await harness.pass_time(120)
    assert await harness.replicas() == 2
    assert (await harness.said("SuccessfulRescale"))[-1] == "New size: 2; reason: All metrics below target"
    numbers.usage["cpu"] = 100
    await harness.pass_time(400)
    assert await harness.replicas() == 2
    too_few = "the desired replica count is less than the minimum replica count"
    assert (await harness.conditions())["ScalingLimited"] == ("True", "TooFewReplicas", too_few)


@bare
async def test_bounds_take_precedence_over_metrics(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(1)
    await cluster.client.create(an_hpa(CPU))
    await cluster.sleep(1)
    assert await harness.replicas() == 2
    assert await harness.said("SuccessfulRescale") == [
        "New size: 2; reason: Current number of replicas below Spec.MinReplicas"
    ]
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 20}}, "default")
    await cluster.sleep(16)
    assert await harness.replicas() == 10
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "default")
    await cluster.sleep(31)
    assert await harness.replicas() == 0
    text = "scaling is disabled since the replica count of the target is zero"
    assert (await harness.conditions())["ScalingActive"] == ("False", "ScalingDisabled", text)


@bare
async def test_without_metrics_nothing_is_scaled(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(3)
    await cluster.client.create(an_hpa(CPU))
    await cluster.sleep(1)
    cause = "unable to get metrics for resource cpu: no metrics returned from resource metrics API"
    assert (await harness.conditions())["ScalingActive"] == (
        "False",
        "FailedGetResourceMetric",
        f"the HPA was unable to compute the replica count: failed to get cpu utilization: {cause}",
    )
    assert await harness.said("FailedGetResourceMetric") == [f"failed to get cpu utilization: {cause}"]
    assert await harness.said("FailedComputeMetricsReplicas") == [
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get "
        f"cpu utilization: {cause}"
    ]
    status = await harness.status()
    assert (status["currentReplicas"], status["desiredReplicas"]) == (3, 0)
    assert await harness.replicas() == 3


@bare
async def test_the_maximum_of_all_metrics_and_with_missing_ones_only_up(
    cluster: VirtualCluster, numbers: MetricsByHand
) -> None:
    harness = Harness(cluster)
    await harness.deploy(3)
    queue = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
    }
    numbers.usage["cpu"] = 100
    await cluster.client.create(an_hpa(CPU, queue))
    await cluster.sleep(1)  # from here on between two evaluations
    await harness.pass_time(400)
    assert await harness.replicas() == 3, "the queue might ask for more"
    assert (await harness.conditions())["ScalingActive"][:2] == ("False", "FailedGetExternalMetric")
    numbers.outside["queue"] = [30000, 40000]
    await harness.pass_time(15)
    assert await harness.replicas() == 6, "at most twice as many in one go"
    assert (await harness.conditions())["ScalingLimited"][1] == "ScaleUpLimit"
    await harness.pass_time(15)
    assert await harness.replicas() == 7
    # For each replica that there was when it was looked at.
    assert (await harness.status())["currentMetrics"][1] == {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "current": {"averageValue": "11667m"}},
    }
    assert (await harness.said("SuccessfulRescale"))[
        -1
    ] == "New size: 7; reason: external metric queue(nil) above target"


@bare
async def test_objects_pods_memory_and_containers(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(2)
    numbers.usage.update(memory=512 * 2**20 * 1000, cpu=400)
    numbers.custom.update(requests=6000, depth=5000)
    described = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    value = {"type": "Value", "value": "2"}
    metrics = (
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 40},
            },
        },
        {
            "type": "Pods",
            "pods": {"metric": {"name": "depth"}, "target": {"type": "AverageValue", "averageValue": "5"}},
        },
        {"type": "Object", "object": {"metric": {"name": "requests"}, "describedObject": described, "target": value}},
    )
    await cluster.client.create(an_hpa(*metrics))
    await cluster.sleep(1)
    assert await harness.said("SuccessfulRescale") == ["New size: 4; reason: Service metric requests above target"]
    assert (await harness.conditions())["ScalingLimited"][1] == "ScaleUpLimit", "six were asked for"
    assert (await harness.status())["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "512Mi"}}},
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "c",
                "current": {"averageUtilization": 40, "averageValue": "400m"},
            },
        },
        {"type": "Pods", "pods": {"metric": {"name": "depth"}, "current": {"averageValue": "5"}}},
        {
            "type": "Object",
            "object": {"metric": {"name": "requests"}, "describedObject": described, "current": {"value": "6"}},
        },
    ]


@bare
async def test_behavior_policies_limit_the_rate(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(8)
    numbers.usage["cpu"] = 100
    behavior = {
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}],
        },
        "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}], "tolerance": "0.5"},
    }
    await cluster.client.create(an_hpa(CPU, behavior=behavior))
    await cluster.sleep(1)  # from here on between two evaluations
    seen = [await harness.replicas()]
    for _ in range(12):
        await harness.pass_time(15)
        seen.append(await harness.replicas())
    assert seen == [6, 6, 6, 6, 4, 4, 4, 4, 2, 2, 2, 2, 2]
    numbers.usage["cpu"] = 700
    await harness.pass_time(60)
    assert await harness.replicas() == 2, "within the tolerance of the way up"
    numbers.usage["cpu"] = 900
    seen = []
    for _ in range(6):
        await harness.pass_time(15)
        seen.append(await harness.replicas())
    assert seen[0] == 3 and seen[-1] <= 5 and sorted(seen) == seen


@bare
async def test_to_zero_and_back(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(1)
    numbers.outside["queue"] = [0]
    queue = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
    }
    await cluster.client.create(an_hpa(queue, minReplicas=0))
    await harness.pass_time(330)
    assert await harness.replicas() == 0
    assert (await harness.conditions())["ScaledToZero"][:2] == ("True", "ScaledToZero")
    numbers.outside["queue"] = [25000]
    await harness.pass_time(30)
    assert await harness.replicas() == 3
    assert (await harness.conditions())["ScaledToZero"][:2] == ("False", "NotScaledToZero")


@bare
async def test_a_target_without_scale_is_reported(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await cluster.client.create(an_hpa(CPU, target="gone"))
    await cluster.sleep(1)
    (status, reason, text) = (await harness.conditions())["AbleToScale"]
    assert (status, reason) == ("False", "FailedGetScale")
    assert text.startswith("the HPA controller was unable to get the target's current scale: ")
    assert text.endswith('"gone" not found')
    foreign = an_hpa(CPU, name="foreign")
    foreign["spec"]["scaleTargetRef"] = {"apiVersion": "example.com/v1", "kind": "Crowd", "name": "x"}
    await cluster.client.create(foreign)
    await cluster.sleep(1)
    assert (await harness.conditions("foreign"))["AbleToScale"][2] == (
        'the HPA controller was unable to get the target\'s current scale: no matches for kind "Crowd" in group '
        '"example.com"'
    )


@bare
async def test_two_autoscalers_of_the_same_pods_do_nothing(cluster: VirtualCluster, numbers: MetricsByHand) -> None:
    harness = Harness(cluster)
    await harness.deploy(2)
    numbers.usage["cpu"] = 500
    await cluster.client.create(an_hpa(CPU))
    await cluster.sleep(1)
    await cluster.client.create(an_hpa(CPU, name="other"))
    await cluster.sleep(20)
    text = "pods by selector app=web are controlled by more than one HPA (e.g. [default/hpa default/other])"
    for name in ("hpa", "other"):
        assert (await harness.conditions(name))["ScalingActive"] == ("False", "AmbiguousSelector", text)
    await cluster.client.delete(HPAS, "other", "default")
    await cluster.sleep(20)
    assert (await harness.conditions())["ScalingActive"][1] == "ValidMetricFound"


@virtual(nodes=0, scheduler=False, controllers=OWN, leader_elect=False)
async def test_a_missing_metrics_api_is_reported(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.deploy(2)
    custom = {
        "type": "Pods",
        "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    await cluster.client.create(an_hpa(custom))
    await cluster.sleep(1)
    text = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
    assert await harness.said("FailedGetPodsMetric") == [f"unable to get metric x: {text}"]
