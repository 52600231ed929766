"""Jobs through the API server; the test acts as the kubelet."""

from __future__ import annotations

from typing import Any

from kubelet_by_hand import Kubelet

from setpoint.client import Unreachable
from setpoint.client.resources import builtin
from setpoint.cluster.virtual.link import Proceed, Write
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging", "two-views")
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


class Harness:
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
    harness = Harness(cluster)
    await harness.create()
    (pod,) = await harness.running()
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert pod["metadata"]["generateName"] == "work-"
    status = await harness.status()
    assert status == {
        "active": 1,
        "ready": 0,
        "terminating": 0,
        "startTime": status["startTime"],
        "uncountedTerminatedPods": {},
    }
    await harness.kubelet.run(pod)
    await harness.settle()
    assert (await harness.status())["ready"] == 1
    await harness.kubelet.succeed(pod)
    await harness.settle()
    status = await harness.status()
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
    harness = Harness(cluster)
    await harness.create(parallelism=2, completions=5)
    for done in range(5):
        pods = await harness.running()
        assert len(pods) == min(2, 5 - done)
        await harness.kubelet.succeed(pods[0])
        await harness.settle(2)
    await harness.settle()
    status = await harness.status()
    assert status["succeeded"] == 5
    assert await harness.conditions() == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]


@bare
async def test_failures_back_off_and_end_at_the_limit(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(backoffLimit=2)
    start = cluster.clock.monotonic()
    for wait in (10, 20):
        (pod,) = await harness.running()
        await harness.kubelet.fail(pod)
        failed_at = cluster.clock.monotonic()
        await harness.settle(wait - 2)
        assert await harness.running() == []
        await cluster.until(harness.running, within=4)
        assert wait - 1 <= cluster.clock.monotonic() - failed_at <= wait + 2
    assert cluster.clock.monotonic() - start > 25
    (pod,) = await harness.running()
    await harness.kubelet.fail(pod)
    await harness.settle()
    status = await harness.status()
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
    harness = Harness(cluster)
    await harness.create(completionMode="Indexed", completions=4, parallelism=3)
    pods = await harness.running()
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
    await harness.kubelet.succeed(pods[0], pods[2])
    await harness.settle()
    status = await harness.status()
    assert (status["completedIndexes"], status["succeeded"]) == ("0,2", 2)
    pods = await harness.running()
    assert [pod["spec"]["hostname"] for pod in pods] == ["work-1", "work-3"]
    await harness.kubelet.succeed(*pods)
    await harness.settle()
    status = await harness.status()
    assert (status["completedIndexes"], status["succeeded"]) == ("0-3", 4)
    assert (await harness.conditions())[-1] == ("Complete", "True", "CompletionsReached")


@bare
async def test_each_index_has_its_own_failures(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=1)
    count = "batch.kubernetes.io/job-index-failure-count"
    first, second = await harness.running()
    assert first["metadata"]["annotations"][count] == "0"
    await harness.kubelet.fail(first)
    await harness.kubelet.succeed(second)
    await harness.settle(8)
    status = await harness.status()
    assert (status["completedIndexes"], status["failedIndexes"]) == ("1", "")
    assert await harness.running() == []
    await harness.settle(5)
    (again,) = await harness.running()
    assert again["metadata"]["annotations"][count] == "1"
    assert (await harness.status())["failed"] == 1, "counted once its replacement is there"
    await harness.kubelet.fail(again)
    await harness.settle()
    status = await harness.status()
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("1", "0", 2)
    assert await harness.conditions() == [
        ("FailureTarget", "True", "FailedIndexes"),
        ("Failed", "True", "FailedIndexes"),
    ]
    assert (await cluster.events("work"))[-1] == ("Warning", "FailedIndexes", "Job has failed indexes")


@bare
async def test_too_many_failed_indexes_end_the_job(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await harness.create(**indexed, backoffLimitPerIndex=0, maxFailedIndexes=0)
    pods = await harness.running()
    await harness.kubelet.run(*pods)
    await harness.kubelet.fail(pods[1])
    await harness.settle()
    assert await harness.conditions() == [("FailureTarget", "True", "MaxFailedIndexesExceeded")]
    status = await harness.status()
    assert (status["failedIndexes"], status["terminating"], status.get("active", 0)) == ("1", 2, 0)
    await harness.kubelet.bury(pods[0], pods[2])
    await harness.settle()
    assert (await harness.conditions())[-1] == ("Failed", "True", "MaxFailedIndexesExceeded")
    assert (await harness.status())["terminating"] == 0


@bare
async def test_the_failure_policy_decides(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    await harness.create(podFailurePolicy={"rules": rules}, backoffLimit=0)
    (pod,) = await harness.running()
    await harness.kubelet.end(pod, 1, [{"type": "DisruptionTarget", "status": "True"}])
    await harness.settle(13)
    assert (await harness.status()).get("failed", 0) == 0
    (pod,) = await harness.running()
    await harness.kubelet.fail(pod, code=42)
    await harness.settle()
    status = await harness.status()
    name = f"default/{pod['metadata']['name']}"
    text = f"Container c for pod {name} failed with exit code 42 matching FailJob rule at index 1"
    assert [(each["type"], each["reason"], each["message"]) for each in status["conditions"]] == [
        ("FailureTarget", "PodFailurePolicy", text),
        ("Failed", "PodFailurePolicy", text),
    ]
    assert status["failed"] == 1


@bare
async def test_the_success_policy_terminates_remaining_pods(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await harness.create(**indexed, successPolicy={"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]})
    pods = await harness.running()
    await harness.kubelet.run(*pods)
    await harness.kubelet.succeed(pods[2])
    await harness.settle()
    assert await harness.conditions() == [("SuccessCriteriaMet", "True", "SuccessPolicy")]
    await harness.kubelet.bury(pods[0], pods[1])
    await harness.settle()
    status = await harness.status()
    assert status["conditions"][-1]["message"] == "Matched rules at index 0"
    assert (await harness.conditions())[-1] == ("Complete", "True", "SuccessPolicy")
    assert (status["succeeded"], status.get("failed", 0), status["completedIndexes"]) == (1, 0, "2")


@bare
async def test_a_suspended_job_has_no_pods(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(suspend=True, parallelism=2, completions=2, activeDeadlineSeconds=30)
    await harness.settle(60)
    status = await harness.status()
    assert "startTime" not in status
    assert await harness.conditions() == [("Suspended", "True", "JobSuspended")]
    await cluster.client.patch(JOBS, "work", {"spec": {"suspend": False}}, "default")
    await harness.settle(3)
    pods = await harness.running()
    assert len(pods) == 2
    assert await harness.conditions() == [("Suspended", "False", "JobResumed")]
    assert "startTime" in await harness.status()
    await harness.kubelet.run(*pods)
    await cluster.client.patch(JOBS, "work", {"spec": {"suspend": True}}, "default")
    await harness.settle(3)
    assert await harness.running() == []
    status = await harness.status()
    assert (status.get("active", 0), status["terminating"], status.get("failed", 0)) == (0, 2, 0)
    assert "startTime" not in status
    job_events = {event for event in await cluster.events("work") if "pod" not in event[2]}
    assert job_events == {("Normal", "Suspended", "Job suspended"), ("Normal", "Resumed", "Job resumed")}


@bare
async def test_a_job_past_its_deadline_is_stopped(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(activeDeadlineSeconds=60)
    (pod,) = await harness.running()
    await harness.kubelet.run(pod)
    await harness.settle(58)
    assert await harness.conditions() == []
    await harness.settle(4)
    assert await harness.conditions() == [("FailureTarget", "True", "DeadlineExceeded")]
    await harness.kubelet.bury(pod)
    await harness.settle()
    assert (await harness.conditions())[-1] == ("Failed", "True", "DeadlineExceeded")
    assert (await harness.status())["failed"] == 1
    assert (await cluster.events("work"))[-1][1:] == (
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )


@bare
async def test_container_restarts_count_as_failures(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(backoffLimit=3, pod={"restartPolicy": "OnFailure"})
    (pod,) = await harness.running()
    await harness.kubelet.run(pod, restarts=2)
    await harness.settle()
    assert await harness.conditions() == []
    await harness.kubelet.run(pod, restarts=3)
    await harness.settle()
    assert await harness.conditions() == [("FailureTarget", "True", "BackoffLimitExceeded")]


@bare
async def test_a_terminating_pod_is_replaced_according_to_the_replacement_policy(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    for policy, replaced in (("TerminatingOrFailed", 1), ("Failed", 0)):
        await cluster.client.create(a_job(policy.lower(), podReplacementPolicy=policy))
        await harness.settle(1)
        (pod,) = await harness.kubelet.pods(f"job-name={policy.lower()}")
        # A finalizer of the test's own and the node keep it in sight.
        await cluster.client.patch(
            PODS,
            pod["metadata"]["name"],
            {"metadata": {"finalizers": ["a/b", *pod["metadata"]["finalizers"]]}},
            "default",
        )
        await harness.kubelet.run(pod)
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default")
        await harness.settle(40)
        status = await harness.status(policy.lower())
        assert len(await harness.kubelet.pods(f"job-name={policy.lower()}")) == replaced
        assert (status.get("failed", 0), status["terminating"]) == (replaced, 1)


@bare
async def test_a_job_managed_by_another_controller_is_ignored(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(managedBy="example.com/other")
    await harness.settle(30)
    assert await harness.running() == []
    assert await harness.status() == {}


@bare
async def test_pods_deleted_by_scaling_down_are_not_counted(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(parallelism=3, completions=3)
    await cluster.client.patch(JOBS, "work", {"spec": {"parallelism": 1}}, "default")
    await harness.settle()
    assert len(await harness.running()) == 1
    status = await harness.status()
    assert (status["active"], status.get("failed", 0), status["uncountedTerminatedPods"]) == (1, 0, {})


@bare
async def test_deleting_a_job_releases_its_pods(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(parallelism=2, completions=2)
    pods = await harness.running()
    await harness.kubelet.run(*pods)
    await cluster.client.delete(JOBS, "work", "default", propagation="Background")
    await harness.settle()
    assert all("finalizers" not in pod["metadata"] for pod in await cluster.all(PODS))
    await harness.create()
    (pod,) = await harness.running()
    await cluster.client.delete(JOBS, "work", "default", propagation="Orphan")
    await harness.settle()
    pod = await cluster.client.get(PODS, pod["metadata"]["name"], "default")
    assert "finalizers" not in pod["metadata"] and "ownerReferences" not in pod["metadata"]


@bare
async def test_pods_are_adopted_with_a_finalizer_and_released_without(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "orphan", "namespace": "default", "labels": {"task": "x"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    await cluster.client.create(pod)
    job = a_job(manualSelector=True, selector={"matchLabels": {"task": "x"}})
    job["spec"]["template"]["metadata"] = {"labels": {"task": "x"}}
    await cluster.client.create(job)
    await harness.settle()
    (found,) = await cluster.all(PODS)
    assert found["metadata"]["ownerReferences"][0]["name"] == "work"
    assert found["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    await cluster.client.patch(PODS, "orphan", {"metadata": {"labels": {"task": "y"}}}, "default")
    await harness.settle()
    found = await cluster.client.get(PODS, "orphan", "default")
    assert "ownerReferences" not in found["metadata"] and "finalizers" not in found["metadata"]
    assert len(await cluster.all(PODS)) == 2


@bare
async def test_pods_that_end_while_the_controller_is_down_are_counted_once(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await harness.create(parallelism=6, completions=6, backoffLimit=10)
    pods = await harness.running()
    await cluster.kill("controllers")
    await harness.kubelet.succeed(*pods[:4])
    await harness.kubelet.fail(*pods[4:])
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
    await harness.settle(30)
    status = await harness.status()
    assert (status["succeeded"], status["failed"], status["active"]) == (4, 2, 2)
    assert status["uncountedTerminatedPods"] == {}
    await harness.kubelet.succeed(*await harness.running())
    await harness.settle()
    assert (await harness.status())["succeeded"] == 6
