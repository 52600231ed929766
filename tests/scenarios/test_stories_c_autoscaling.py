"""Story C6 end to end: the usage of simulated Pods scales them."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, DEPLOYMENTS = builtin("pods"), builtin("deployments", "apps")
AUTOSCALERS = ("autoscaling/v2", "HorizontalPodAutoscaler")
CPU = "simulate.setpoint.dev/cpu"


def web(replicas: int) -> Obj:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "200m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def autoscaler() -> Obj:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 6,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


async def replicas(cluster: VirtualCluster) -> int:
    return int((await cluster.client.get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"])


async def use(cluster: VirtualCluster, amount: str | None) -> None:
    """Every Pod that is there uses so much; None: what it uses by itself, half of what it asked for."""
    for pod in await cluster.all(PODS):
        await cluster.client.patch(
            PODS, pod["metadata"]["name"], {"metadata": {"annotations": {CPU: amount}}}, "default"
        )


@virtual(nodes=2)
async def test_usage_scales_up_and_down_again(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(2))
    await cluster.client.create(autoscaler())
    await cluster.sleep(120)
    assert await replicas(cluster) == 2, "half of the request is just what is wanted"
    status = (await cluster.client.get(AUTOSCALERS, "web", "default"))["status"]
    assert status["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 50

    await use(cluster, "200m")
    started = cluster.clock.monotonic()

    async def scaled_up() -> bool:
        return await replicas(cluster) == 4

    await cluster.until(scaled_up, within=60)
    assert ("Normal", "SuccessfulRescale") in [event[:2] for event in await cluster.events("web")]

    await use(cluster, "20m")
    dropped = cluster.clock.monotonic()

    async def scaled_down() -> bool:
        return await replicas(cluster) == 2

    await cluster.sleep(240)
    assert await replicas(cluster) >= 4, "five minutes of quiet are needed before anything is taken away"
    await cluster.until(scaled_down, within=600)
    assert cluster.clock.monotonic() - dropped >= 290
    assert cluster.clock.monotonic() - started < 1000
