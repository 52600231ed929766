"""CronJobs through the API server, in virtual time."""

from __future__ import annotations

from typing import Any

from kubelet_by_hand import Kubelet

from setpoint.client.resources import builtin
from setpoint.cluster.virtual.link import Proceed, Write
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

CRON_JOBS, JOBS = builtin("cronjobs", "batch"), builtin("jobs", "batch")
OWN = ("cronjob-controller", "job-controller", "serviceaccount-controller", "garbage-collector-controller")
bare = virtual(nodes=0, scheduler=False, controllers=OWN, leader_elect=False)
BEGIN = 29453760
"""The minute at which virtual time begins."""


def a_cron_job(schedule: str = "*/5 * * * *", **spec: Any) -> Obj:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"template": {"spec": pod}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick", "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


class Harness:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.kubelet = Kubelet(cluster.client, cluster.clock)

    async def jobs(self) -> list[str]:
        return sorted(job["metadata"]["name"] for job in await self.cluster.all(JOBS))

    async def status(self) -> Obj:
        found: Obj = (await self.cluster.client.get(CRON_JOBS, "tick", "default")).get("status") or {}
        return found

    async def finish_all(self) -> None:
        await self.kubelet.succeed(*await self.kubelet.pods())
        await self.cluster.sleep(3)

    async def said(self, reason: str) -> list[tuple[str, str]]:
        return [(kind, text) for kind, why, text in await self.cluster.events("tick") if why == reason]


@bare
async def test_an_hour_of_jobs(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job())
    for _ in range(12):
        await cluster.sleep(300)
        await harness.finish_all()
    assert await harness.jobs() == [f"tick-{BEGIN + 5 * number}" for number in (10, 11, 12)], "three are kept"
    status = await harness.status()
    assert status == {"lastScheduleTime": "2026-01-01T01:00:00Z", "lastSuccessfulTime": status["lastSuccessfulTime"]}
    assert status["lastSuccessfulTime"] > "2026-01-01T01:00:00Z"
    (job,) = [job for job in await cluster.all(JOBS) if job["metadata"]["name"] == f"tick-{BEGIN + 60}"]
    assert job["metadata"]["annotations"] == {
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T01:00:00Z",
        "c": "d",
    }
    assert job["metadata"]["labels"]["a"] == "b"
    assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    created = await harness.said("SuccessfulCreate")
    assert ("Normal", f"Created job tick-{BEGIN + 5}") in created
    assert ("Normal", f"Saw completed job: tick-{BEGIN + 5}, condition: Complete") in await harness.said(
        "SawCompletedJob"
    )
    assert ("Normal", f"Deleted job tick-{BEGIN + 5}") in await harness.said("SuccessfulDelete")


@bare
async def test_the_active_list_names_running_jobs(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job())
    await cluster.sleep(301)
    (job,) = await cluster.all(JOBS)
    (active,) = (await harness.status())["active"]
    assert active == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "resourceVersion": active["resourceVersion"],
    }
    await cluster.client.delete(JOBS, job["metadata"]["name"], "default", propagation="Background")
    await cluster.sleep(3)
    assert "active" not in await harness.status()
    assert await harness.said("MissingJob") == [("Normal", f"Active job went missing: {job['metadata']['name']}")]


@bare
async def test_allow_runs_jobs_concurrently(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_cron_job())
    await cluster.sleep(901)
    assert len((await Harness(cluster).status())["active"]) == 3


@bare
async def test_forbid_waits_for_the_running_job(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job(concurrencyPolicy="Forbid"))
    await cluster.sleep(601)
    assert len(await harness.jobs()) == 1
    text = "Not starting job because prior execution is running and concurrency policy is Forbid"
    assert await harness.said("JobAlreadyActive") == [("Normal", text)]
    await harness.finish_all()
    # The time that was skipped is still the latest unserved one.
    assert await harness.jobs() == [f"tick-{BEGIN + 5}", f"tick-{BEGIN + 10}"]


@bare
async def test_replace_deletes_the_running_job(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job(concurrencyPolicy="Replace"))
    await cluster.sleep(601)
    assert await harness.jobs() == [f"tick-{BEGIN + 10}"]
    assert [active["name"] for active in (await harness.status())["active"]] == [f"tick-{BEGIN + 10}"]


@bare
async def test_after_downtime_only_the_latest_missed_job_starts(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job("* * * * *"))
    await cluster.stop("controllers")
    await cluster.sleep(3 * 3600)
    await cluster.start("controllers")
    await cluster.sleep(1)
    assert await harness.jobs() == [f"tick-{BEGIN + 180}"]
    assert [kind for kind, _ in await harness.said("TooManyMissedTimes")] == ["Warning"]


@bare
async def test_a_job_past_its_starting_deadline_is_not_started(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job("0 * * * *", startingDeadlineSeconds=60))
    await cluster.stop("controllers")
    await cluster.sleep(3600 + 120)
    await cluster.start("controllers")
    await cluster.sleep(1)
    assert await harness.jobs() == []
    await cluster.sleep(3600)
    assert await harness.jobs() == [f"tick-{BEGIN + 120}"]


@bare
async def test_a_suspended_cron_job_starts_the_last_missed_job_when_resumed(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job(suspend=True))
    await cluster.sleep(1000)
    assert await harness.jobs() == []
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": {"suspend": False}}, "default")
    await cluster.sleep(1)
    assert await harness.jobs() == [f"tick-{BEGIN + 15}"]


@bare
async def test_a_new_schedule_counts_from_now(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job("0 12 * * *"))
    await cluster.sleep(100)
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": {"schedule": "*/10 * * * *"}}, "default")
    await cluster.sleep(520)
    assert await harness.jobs() == [f"tick-{BEGIN + 10}"]


@bare
async def test_a_cron_job_with_a_time_zone(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job("30 1 * * *", timeZone="Europe/Rome"))
    await cluster.sleep(1801)
    (job,) = await cluster.all(JOBS)
    stamp = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2026-01-01T01:30:00+01:00"
    assert (await harness.status())["lastScheduleTime"] == "2026-01-01T00:30:00Z"


@bare
async def test_a_schedule_that_never_occurs(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job("59 23 31 2 *"))
    await cluster.sleep(10)
    ((kind, text),) = await harness.said("InvalidSchedule")
    assert kind == "Warning"
    assert text == "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"


@bare
async def test_a_foreign_job_with_the_same_name_is_ignored(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job())
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    other = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"tick-{BEGIN + 5}", "namespace": "default"},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    await cluster.client.create(other)
    await cluster.sleep(301)
    assert (await harness.status()).get("active") is None
    await cluster.sleep(300)
    assert await harness.jobs() == [f"tick-{BEGIN + 5}", f"tick-{BEGIN + 10}"]


@bare
async def test_failed_jobs_have_a_history_of_their_own(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job(successfulJobsHistoryLimit=0, failedJobsHistoryLimit=2))
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": {"jobTemplate": {"spec": {"backoffLimit": 0}}}}, "default")
    for number in range(5):
        await cluster.sleep(300)
        pods = await harness.kubelet.pods()
        await (harness.kubelet.succeed(*pods) if number == 4 else harness.kubelet.fail(*pods))
        await cluster.sleep(3)
    assert await harness.jobs() == [f"tick-{BEGIN + 15}", f"tick-{BEGIN + 20}"]


@bare
async def test_an_interrupted_start_is_completed_and_not_repeated(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_cron_job("* * * * *"))
    for _ in range(10):
        # Dies right after a write of its own, wherever that is.
        link = cluster.links["controllers"]

        async def die(write: Write, proceed: Proceed) -> Any:
            answer = await proceed()
            cluster.links["controllers"].severed = write.is_counted
            return answer

        link.write_interceptor = die
        await cluster.sleep(30)
        link.write_interceptor = None
        await cluster.kill("controllers")
        await cluster.start("controllers")
        await cluster.sleep(30)
    names = await harness.jobs()
    assert len(names) == len(set(names)) and len(names) >= 8
    assert sorted(active["name"] for active in (await harness.status())["active"]) == names


TTL = ("job-controller", "ttl-after-finished-controller", "serviceaccount-controller", "garbage-collector-controller")


@virtual(nodes=0, scheduler=False, controllers=TTL, leader_elect=False)
async def test_a_finished_job_is_deleted_after_its_ttl(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "short", "namespace": "default"},
        "spec": {"ttlSecondsAfterFinished": 60, "template": {"spec": pod}},
    }
    await cluster.client.create(job)
    await cluster.sleep(100)
    await kubelet.succeed(*await kubelet.pods())
    await cluster.sleep(50)
    assert await cluster.find(JOBS, "short") is not None
    await cluster.client.patch(JOBS, "short", {"spec": {"ttlSecondsAfterFinished": 100}}, "default")
    await cluster.sleep(40)
    assert await cluster.find(JOBS, "short") is not None, "it was given more time"
    await cluster.sleep(20)
    assert await cluster.find(JOBS, "short") is None
    assert await cluster.all(builtin("pods")) == []
