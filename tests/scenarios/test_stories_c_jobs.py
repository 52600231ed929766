"""Story C4: Jobs and CronJobs with every controller running, in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from kubelet_by_hand import Kubelet

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

JOBS, CRON_JOBS, PODS = builtin("jobs", "batch"), builtin("cronjobs", "batch"), builtin("pods")
whole = virtual(nodes=0, scheduler=False, leader_elect=False)
MIDNIGHT = 29453760
"""The minute at which virtual time begins."""


def pod(**spec: Any) -> Obj:
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}], **spec}}


def a_job(name: str, **spec: Any) -> Obj:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pod(), **spec}}


def a_cron_job(name: str, schedule: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": pod()}}, **spec},
    }


async def conditions(cluster: VirtualCluster, name: str) -> list[str]:
    status = (await cluster.client.get(JOBS, name, "default")).get("status") or {}
    return [each["type"] for each in status.get("conditions") or () if each["status"] == "True"]


@whole
async def test_a_job_respects_its_parallelism(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_job("pi", parallelism=3, completions=7))
    most = 0
    while "Complete" not in await conditions(cluster, "pi"):
        await cluster.sleep(2)
        running = await kubelet.pods("job-name=pi")
        most = max(most, len(running))
        await kubelet.succeed(*running)
    assert most == 3
    status = (await cluster.client.get(JOBS, "pi", "default"))["status"]
    assert (status["succeeded"], status.get("failed"), status.get("active")) == (7, None, None)
    assert status["startTime"] < status["completionTime"]
    reasons = [reason for _, reason, _ in await cluster.events("pi")]
    assert reasons.count("SuccessfulCreate") == 7 and reasons[-1] == "Completed"


@whole
async def test_a_failing_job_backs_off_and_fails(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_job("doomed", backoffLimit=7))
    failed: list[float] = []
    while "Failed" not in await conditions(cluster, "doomed"):
        await cluster.sleep(1)
        for found in await kubelet.pods("job-name=doomed"):
            await kubelet.fail(found)
            failed.append(cluster.clock.monotonic())
    waits = [later - earlier for earlier, later in pairwise(failed)]
    for wait, wanted in zip(waits, (10, 20, 40, 80, 160, 320, 600), strict=True):
        assert wanted - 1 <= wait <= wanted + 3
    (event,) = [text for _, reason, text in await cluster.events("doomed") if reason == "BackoffLimitExceeded"]
    assert event == "Job has reached the specified backoff limit"


@whole
async def test_an_indexed_job_reports_completed_indexes(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_job("parts", completionMode="Indexed", completions=10, parallelism=10))
    await cluster.sleep(1)
    pods = {found["spec"]["hostname"]: found for found in await kubelet.pods("job-name=parts")}
    await kubelet.succeed(*(pods[f"parts-{index}"] for index in (0, 1, 2, 4, 5, 9)))
    await cluster.sleep(2)
    status = (await cluster.client.get(JOBS, "parts", "default"))["status"]
    assert (status["completedIndexes"], status["succeeded"], status["active"]) == ("0-2,4,5,9", 6, 4)
    await kubelet.succeed(*(pods[f"parts-{index}"] for index in (3, 6, 7, 8)))
    await cluster.until(lambda: conditions(cluster, "parts"))
    assert (await cluster.client.get(JOBS, "parts", "default"))["status"]["completedIndexes"] == "0-9"


@whole
async def test_a_finished_job_is_deleted_after_its_ttl(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_job("brief", ttlSecondsAfterFinished=600))
    await cluster.sleep(1)
    await kubelet.succeed(*await kubelet.pods("job-name=brief"))
    await cluster.sleep(590)
    assert await cluster.find(JOBS, "brief") is not None
    await cluster.sleep(20)
    assert await cluster.find(JOBS, "brief") is None
    assert await cluster.all(PODS) == []


@whole
async def test_an_hour_of_a_cron_job(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_cron_job("often", "*/5 * * * *"))
    for turn in range(1, 13):
        await cluster.sleep(turn * 300 + 1 - cluster.clock.monotonic())
        await kubelet.succeed(*await kubelet.pods())
        await cluster.sleep(5)
        jobs = sorted(job["metadata"]["name"] for job in await cluster.all(JOBS))
        assert jobs == [f"often-{MIDNIGHT + 5 * each}" for each in range(max(1, turn - 2), turn + 1)]
    status = (await cluster.client.get(CRON_JOBS, "often", "default"))["status"]
    assert status["lastScheduleTime"] == "2026-01-01T01:00:00Z"
    assert "active" not in status
    assert len(await cluster.all(PODS)) == 3, "the Pods of Jobs that are gone are gone too"


@whole
async def test_concurrency_policies_of_overlapping_runs(cluster: VirtualCluster) -> None:
    for policy in ("Allow", "Forbid", "Replace"):
        await cluster.client.create(a_cron_job(policy.lower(), "*/10 * * * *", concurrencyPolicy=policy))
    await cluster.sleep(30 * 60 + 1)
    names = [job["metadata"]["name"] for job in await cluster.all(JOBS)]
    first, last = MIDNIGHT + 10, MIDNIGHT + 30
    assert sorted(names) == sorted(
        [*(f"allow-{minute}" for minute in (first, first + 10, last)), f"forbid-{first}", f"replace-{last}"]
    )


@whole
async def test_deleting_a_cron_job_deletes_its_jobs_and_their_pods(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_cron_job("tick", "* * * * *"))
    await cluster.sleep(125)
    assert len(await cluster.all(PODS)) == 2
    await cluster.client.delete(CRON_JOBS, "tick", "default", propagation="Background")
    await cluster.sleep(10)
    assert await cluster.all(JOBS) == []
    assert await cluster.all(PODS) == []
