"""Jobs through the API server; the test acts as the kubelet."""

from __future__ import annotations

from typing import Any

from kubelet_by_hand import Kubelet

from setpoint.client import Unreachable
from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual
from setpoint.testing.link import Proceed, Write

Obj = dict[str, Any]
JOBS, PODS = builtin("jobs", "batch"), builtin("pods")
OWN = ("job-controller", "serviceaccount-controller", "garbage-collector-controller")
bare = virtual(nodes=0, scheduler=False, controllers=OWN, leader_elect=False)


def a_job(name: str = "work", **spec: Any) -> Obj:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    template["spec"].update(spec.pop("pod", {}))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


class World:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.kubelet = Kubelet(cluster.client, cluster.clock)

    async def create(self, **spec: Any) -> Obj:
        made = await self.cluster.client.create(a_job(**spec))
        await self.cluster.sleep(0.1)
        return made

    async def job(self, name: str = "work") -> Obj:
        return await self.cluster.client.get(JOBS, name, "default")

    async def status(self, name: str = "work") -> Obj:
        found: Obj = (await self.job(name)).get("status") or {}
        return found

    async def running(self) -> list[Obj]:
        return await self.kubelet.pods()

    async def conditions(self) -> list[tuple[str, str, str]]:
        found = (await self.status()).get("conditions") or []
        return [(each["type"], each["status"], each["reason"]) for each in found]

    async def settle(self, seconds: float = 5) -> None:
        await self.cluster.sleep(seconds)


@bare
async def test_a_job_runs_one_pod_to_completion(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create()
    (pod,) = await world.running()
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert pod["metadata"]["generateName"] == "work-"
    status = await world.status()
    assert status == {
        "active": 1, "ready": 0, "terminating": 0, "startTime": status["startTime"], "uncountedTerminatedPods": {},
    }  # fmt: skip
    await world.kubelet.run(pod)
    await world.settle()
    assert (await world.status())["ready"] == 1
    await world.kubelet.succeed(pod)
    await world.settle()
    status = await world.status()
    assert (status["succeeded"], status.get("active"), status["ready"]) == (1, None, 0)
    assert [(each["type"], each["reason"], each["message"]) for each in status["conditions"]] == [
        ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"),
        ("Complete", "CompletionsReached", "Reached expected number of succeeded pods"),
    ]
    assert status["completionTime"] == status["conditions"][1]["lastTransitionTime"]
    (pod,) = await cluster.all(PODS)
    assert "finalizers" not in pod["metadata"]
    events = await cluster.events("work")
    assert events == [
        ("Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}"),
        ("Normal", "Completed", "Job completed"),
    ]


@bare
async def test_parallelism_and_completions(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(parallelism=2, completions=5)
    for done in range(5):
        pods = await world.running()
        assert len(pods) == min(2, 5 - done)
        await world.kubelet.succeed(pods[0])
        await world.settle(2)
    await world.settle()
    status = await world.status()
    assert status["succeeded"] == 5
    assert await world.conditions() == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"), ("Complete", "True", "CompletionsReached")
    ]  # fmt: skip


@bare
async def test_failures_wait_longer_each_time_and_end_at_the_limit(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(backoffLimit=2)
    start = cluster.clock.monotonic()
    for wait in (10, 20):
        (pod,) = await world.running()
        await world.kubelet.fail(pod)
        failed_at = cluster.clock.monotonic()
        await world.settle(wait - 2)
        assert await world.running() == []
        await cluster.until(world.running, within=4)
        assert wait - 1 <= cluster.clock.monotonic() - failed_at <= wait + 2
    assert cluster.clock.monotonic() - start > 25
    (pod,) = await world.running()
    await world.kubelet.fail(pod)
    await world.settle()
    status = await world.status()
    assert status["failed"] == 3
    assert [(each["type"], each["reason"], each["message"]) for each in status["conditions"]] == [
        ("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ]
    assert "completionTime" not in status
    last = (await cluster.events("work"))[-1]
    assert last == ("Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


@bare
async def test_an_indexed_job_gives_every_index_one_pod(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(completionMode="Indexed", completions=4, parallelism=3)
    pods = await world.running()
    name = "batch.kubernetes.io/job-completion-index"
    assert [pod["metadata"]["annotations"][name] for pod in pods] == ["0", "1", "2"]
    assert [pod["metadata"]["labels"][name] for pod in pods] == ["0", "1", "2"]
    assert [pod["spec"]["hostname"] for pod in pods] == ["work-0", "work-1", "work-2"]
    assert [pod["metadata"]["generateName"] for pod in pods] == ["work-0-", "work-1-", "work-2-"]
    (variable,) = pods[0]["spec"]["containers"][0]["env"]
    path = f"metadata.labels['{name}']"
    assert variable == {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}},
    }
    await world.kubelet.succeed(pods[0], pods[2])
    await world.settle()
    status = await world.status()
    assert (status["completedIndexes"], status["succeeded"]) == ("0,2", 2)
    pods = await world.running()
    assert [pod["spec"]["hostname"] for pod in pods] == ["work-1", "work-3"]
    await world.kubelet.succeed(*pods)
    await world.settle()
    status = await world.status()
    assert (status["completedIndexes"], status["succeeded"]) == ("0-3", 4)
    assert (await world.conditions())[-1] == ("Complete", "True", "CompletionsReached")


@bare
async def test_each_index_has_its_own_failures(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=1)
    count = "batch.kubernetes.io/job-index-failure-count"
    first, second = await world.running()
    assert first["metadata"]["annotations"][count] == "0"
    await world.kubelet.fail(first)
    await world.kubelet.succeed(second)
    await world.settle(8)
    status = await world.status()
    assert (status["completedIndexes"], status["failedIndexes"]) == ("1", "")
    assert await world.running() == []
    await world.settle(5)
    (again,) = await world.running()
    assert again["metadata"]["annotations"][count] == "1"
    assert (await world.status())["failed"] == 1, "counted once its replacement is there"
    await world.kubelet.fail(again)
    await world.settle()
    status = await world.status()
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("1", "0", 2)
    assert await world.conditions() == [("FailureTarget", "True", "FailedIndexes"), ("Failed", "True", "FailedIndexes")]
    assert (await cluster.events("work"))[-1] == ("Warning", "FailedIndexes", "Job has failed indexes")


@bare
async def test_too_many_failed_indexes_end_the_job(cluster: VirtualCluster) -> None:
    world = World(cluster)
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await world.create(**indexed, backoffLimitPerIndex=0, maxFailedIndexes=0)
    pods = await world.running()
    await world.kubelet.run(*pods)
    await world.kubelet.fail(pods[1])
    await world.settle()
    assert await world.conditions() == [("FailureTarget", "True", "MaxFailedIndexesExceeded")]
    status = await world.status()
    assert (status["failedIndexes"], status["terminating"], status.get("active", 0)) == ("1", 2, 0)
    await world.kubelet.bury(pods[0], pods[2])
    await world.settle()
    assert (await world.conditions())[-1] == ("Failed", "True", "MaxFailedIndexesExceeded")
    assert (await world.status())["terminating"] == 0


@bare
async def test_the_failure_policy_decides(cluster: VirtualCluster) -> None:
    world = World(cluster)
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    await world.create(podFailurePolicy={"rules": rules}, backoffLimit=0)
    (pod,) = await world.running()
    await world.kubelet.end(pod, 1, [{"type": "DisruptionTarget", "status": "True"}])
    await world.settle(13)
    assert (await world.status()).get("failed", 0) == 0
    (pod,) = await world.running()
    await world.kubelet.fail(pod, code=42)
    await world.settle()
    status = await world.status()
    name = f"default/{pod['metadata']['name']}"
    text = f"Container c for pod {name} failed with exit code 42 matching FailJob rule at index 1"
    assert [(each["type"], each["reason"], each["message"]) for each in status["conditions"]] == [
        ("FailureTarget", "PodFailurePolicy", text), ("Failed", "PodFailurePolicy", text),
    ]  # fmt: skip
    assert status["failed"] == 1


@bare
async def test_the_success_policy_ends_the_rest(cluster: VirtualCluster) -> None:
    world = World(cluster)
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await world.create(**indexed, successPolicy={"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]})
    pods = await world.running()
    await world.kubelet.run(*pods)
    await world.kubelet.succeed(pods[2])
    await world.settle()
    assert await world.conditions() == [("SuccessCriteriaMet", "True", "SuccessPolicy")]
    await world.kubelet.bury(pods[0], pods[1])
    await world.settle()
    status = await world.status()
    assert status["conditions"][-1]["message"] == "Matched rules at index 0"
    assert (await world.conditions())[-1] == ("Complete", "True", "SuccessPolicy")
    assert (status["succeeded"], status.get("failed", 0), status["completedIndexes"]) == (1, 0, "2")


@bare
async def test_a_suspended_job_has_no_pods(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(suspend=True, parallelism=2, completions=2, activeDeadlineSeconds=30)
    await world.settle(60)
    status = await world.status()
    assert "startTime" not in status
    assert await world.conditions() == [("Suspended", "True", "JobSuspended")]
    await cluster.client.patch(JOBS, "work", {"spec": {"suspend": False}}, "default")
    await world.settle(3)
    pods = await world.running()
    assert len(pods) == 2
    assert await world.conditions() == [("Suspended", "False", "JobResumed")]
    assert "startTime" in await world.status()
    await world.kubelet.run(*pods)
    await cluster.client.patch(JOBS, "work", {"spec": {"suspend": True}}, "default")
    await world.settle(3)
    assert await world.running() == []
    status = await world.status()
    assert (status.get("active", 0), status["terminating"], status.get("failed", 0)) == (0, 2, 0)
    assert "startTime" not in status
    job_events = {event for event in await cluster.events("work") if "pod" not in event[2]}
    assert job_events == {("Normal", "Suspended", "Job suspended"), ("Normal", "Resumed", "Job resumed")}


@bare
async def test_a_job_that_takes_too_long_is_stopped(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(activeDeadlineSeconds=60)
    (pod,) = await world.running()
    await world.kubelet.run(pod)
    await world.settle(58)
    assert await world.conditions() == []
    await world.settle(4)
    assert await world.conditions() == [("FailureTarget", "True", "DeadlineExceeded")]
    await world.kubelet.bury(pod)
    await world.settle()
    assert (await world.conditions())[-1] == ("Failed", "True", "DeadlineExceeded")
    assert (await world.status())["failed"] == 1
    assert (await cluster.events("work"))[-1][1:] == (
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )


@bare
async def test_restarts_on_the_node_are_failures_too(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(backoffLimit=3, pod={"restartPolicy": "OnFailure"})
    (pod,) = await world.running()
    await world.kubelet.run(pod, restarts=2)
    await world.settle()
    assert await world.conditions() == []
    await world.kubelet.run(pod, restarts=3)
    await world.settle()
    assert await world.conditions() == [("FailureTarget", "True", "BackoffLimitExceeded")]


@bare
async def test_a_pod_on_its_way_out_is_replaced_at_once_or_when_it_has_ended(cluster: VirtualCluster) -> None:
    world = World(cluster)
    for policy, replaced in (("TerminatingOrFailed", 1), ("Failed", 0)):
        await cluster.client.create(a_job(policy.lower(), podReplacementPolicy=policy))
        await world.settle(1)
        (pod,) = await world.kubelet.pods(f"job-name={policy.lower()}")
        # A finalizer of the test's own and the node keep it in sight.
        await cluster.client.patch(
            PODS,
            pod["metadata"]["name"],
            {"metadata": {"finalizers": ["a/b", *pod["metadata"]["finalizers"]]}},
            "default",
        )
        await world.kubelet.run(pod)
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default")
        await world.settle(40)
        status = await world.status(policy.lower())
        assert len(await world.kubelet.pods(f"job-name={policy.lower()}")) == replaced
        assert (status.get("failed", 0), status["terminating"]) == (replaced, 1)


@bare
async def test_somebody_elses_job_is_left_alone(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(managedBy="example.com/other")
    await world.settle(30)
    assert await world.running() == []
    assert await world.status() == {}


@bare
async def test_scaling_down_deletes_and_does_not_count(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(parallelism=3, completions=3)
    await cluster.client.patch(JOBS, "work", {"spec": {"parallelism": 1}}, "default")
    await world.settle()
    assert len(await world.running()) == 1
    status = await world.status()
    assert (status["active"], status.get("failed", 0), status["uncountedTerminatedPods"]) == (1, 0, {})


@bare
async def test_deleting_a_job_lets_its_pods_go(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(parallelism=2, completions=2)
    pods = await world.running()
    await world.kubelet.run(*pods)
    await cluster.client.delete(JOBS, "work", "default", propagation="Background")
    await world.settle()
    assert all("finalizers" not in pod["metadata"] for pod in await cluster.all(PODS))
    await world.create()
    (pod,) = await world.running()
    await cluster.client.delete(JOBS, "work", "default", propagation="Orphan")
    await world.settle()
    pod = await cluster.client.get(PODS, pod["metadata"]["name"], "default")
    assert "finalizers" not in pod["metadata"] and "ownerReferences" not in pod["metadata"]


@bare
async def test_pods_are_adopted_with_a_finalizer_and_released_without(cluster: VirtualCluster) -> None:
    world = World(cluster)
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "orphan", "namespace": "default", "labels": {"task": "x"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip
    await cluster.client.create(pod)
    job = a_job(manualSelector=True, selector={"matchLabels": {"task": "x"}})
    job["spec"]["template"]["metadata"] = {"labels": {"task": "x"}}
    await cluster.client.create(job)
    await world.settle()
    (found,) = await cluster.all(PODS)
    assert found["metadata"]["ownerReferences"][0]["name"] == "work"
    assert found["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    await cluster.client.patch(PODS, "orphan", {"metadata": {"labels": {"task": "y"}}}, "default")
    await world.settle()
    found = await cluster.client.get(PODS, "orphan", "default")
    assert "ownerReferences" not in found["metadata"] and "finalizers" not in found["metadata"]
    assert len(await cluster.all(PODS)) == 2


@bare
async def test_pods_that_end_while_nobody_looks_are_counted_once(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await world.create(parallelism=6, completions=6, backoffLimit=10)
    pods = await world.running()
    await cluster.kill("controllers")
    await world.kubelet.succeed(*pods[:4])
    await world.kubelet.fail(*pods[4:])
    link, writes = cluster.links["controllers"], 0

    async def lost(write: Write, proceed: Proceed) -> Any:
        nonlocal writes
        answer = await proceed()
        writes += 1
        if writes % 2:
            raise Unreachable("the answer is lost")
        return answer

    link.write_interceptor = lost
    for _ in range(10):
        await cluster.start("controllers")
        await cluster.sleep(1.5)
        await cluster.kill("controllers")
    link.write_interceptor = None
    await cluster.start("controllers")
    await world.settle(30)
    status = await world.status()
    assert (status["succeeded"], status["failed"], status["active"]) == (4, 2, 2)
    assert status["uncountedTerminatedPods"] == {}
    await world.kubelet.succeed(*await world.running())
    await world.settle()
    assert (await world.status())["succeeded"] == 6
