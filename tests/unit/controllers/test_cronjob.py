"""CronJobs through the API server, in virtual time."""

from __future__ import annotations

from typing import Any

from kubelet_by_hand import Kubelet

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual
from setpoint.testing.link import Proceed, Write

Obj = dict[str, Any]
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


class World:
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
    world = World(cluster)
    await cluster.client.create(a_cron_job())
    for _ in range(12):
        await cluster.sleep(300)
        await world.finish_all()
    assert await world.jobs() == [f"tick-{BEGIN + 5 * number}" for number in (10, 11, 12)], "three are kept"
    status = await world.status()
    assert status == {"lastScheduleTime": "2026-01-01T01:00:00Z", "lastSuccessfulTime": status["lastSuccessfulTime"]}
    assert status["lastSuccessfulTime"] > "2026-01-01T01:00:00Z"
    (job,) = [job for job in await cluster.all(JOBS) if job["metadata"]["name"] == f"tick-{BEGIN + 60}"]
    assert job["metadata"]["annotations"] == {
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T01:00:00Z", "c": "d",
    }  # fmt: skip
    assert job["metadata"]["labels"]["a"] == "b"
    assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    created = await world.said("SuccessfulCreate")
    assert ("Normal", f"Created job tick-{BEGIN + 5}") in created
    assert ("Normal", f"Saw completed job: tick-{BEGIN + 5}, condition: Complete") in await world.said(
        "SawCompletedJob"
    )
    assert ("Normal", f"Deleted job tick-{BEGIN + 5}") in await world.said("SuccessfulDelete")


@bare
async def test_the_active_list_names_the_jobs_at_work(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job())
    await cluster.sleep(301)
    (job,) = await cluster.all(JOBS)
    (active,) = (await world.status())["active"]
    assert active == {
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"], "resourceVersion": active["resourceVersion"],
    }  # fmt: skip
    await cluster.client.delete(JOBS, job["metadata"]["name"], "default", propagation="Background")
    await cluster.sleep(3)
    assert "active" not in await world.status()
    assert await world.said("MissingJob") == [("Normal", f"Active job went missing: {job['metadata']['name']}")]


@bare
async def test_with_allow_jobs_pile_up(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_cron_job())
    await cluster.sleep(901)
    assert len((await World(cluster).status())["active"]) == 3


@bare
async def test_with_forbid_the_next_waits_for_the_one_before(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job(concurrencyPolicy="Forbid"))
    await cluster.sleep(601)
    assert len(await world.jobs()) == 1
    text = "Not starting job because prior execution is running and concurrency policy is Forbid"
    assert await world.said("JobAlreadyActive") == [("Normal", text)]
    await world.finish_all()
    # The time that was skipped is still the latest unserved one.
    assert await world.jobs() == [f"tick-{BEGIN + 5}", f"tick-{BEGIN + 10}"]


@bare
async def test_with_replace_the_one_before_is_deleted(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job(concurrencyPolicy="Replace"))
    await cluster.sleep(601)
    assert await world.jobs() == [f"tick-{BEGIN + 10}"]
    assert [active["name"] for active in (await world.status())["active"]] == [f"tick-{BEGIN + 10}"]


@bare
async def test_after_a_long_absence_one_job_starts_and_not_all_that_were_missed(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job("* * * * *"))
    await cluster.stop("controllers")
    await cluster.sleep(3 * 3600)
    await cluster.start("controllers")
    await cluster.sleep(1)
    assert await world.jobs() == [f"tick-{BEGIN + 180}"]
    assert [kind for kind, _ in await world.said("TooManyMissedTimes")] == ["Warning"]


@bare
async def test_too_late_is_too_late(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job("0 * * * *", startingDeadlineSeconds=60))
    await cluster.stop("controllers")
    await cluster.sleep(3600 + 120)
    await cluster.start("controllers")
    await cluster.sleep(1)
    assert await world.jobs() == []
    await cluster.sleep(3600)
    assert await world.jobs() == [f"tick-{BEGIN + 120}"]


@bare
async def test_suspended_means_none_and_the_last_missed_when_it_goes_on(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job(suspend=True))
    await cluster.sleep(1000)
    assert await world.jobs() == []
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": {"suspend": False}}, "default")
    await cluster.sleep(1)
    assert await world.jobs() == [f"tick-{BEGIN + 15}"]


@bare
async def test_a_new_schedule_counts_from_now(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job("0 12 * * *"))
    await cluster.sleep(100)
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": {"schedule": "*/10 * * * *"}}, "default")
    await cluster.sleep(520)
    assert await world.jobs() == [f"tick-{BEGIN + 10}"]


@bare
async def test_a_zone_of_its_own(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job("30 1 * * *", timeZone="Europe/Rome"))
    await cluster.sleep(1801)
    (job,) = await cluster.all(JOBS)
    stamp = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2026-01-01T01:30:00+01:00"
    assert (await world.status())["lastScheduleTime"] == "2026-01-01T00:30:00Z"


@bare
async def test_a_day_that_never_comes(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job("59 23 31 2 *"))
    await cluster.sleep(10)
    ((kind, text),) = await world.said("InvalidSchedule")
    assert kind == "Warning"
    assert text == "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"


@bare
async def test_a_job_that_another_made_under_the_same_name_is_left_alone(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job())
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    other = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"tick-{BEGIN + 5}", "namespace": "default"},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }  # fmt: skip
    await cluster.client.create(other)
    await cluster.sleep(301)
    assert (await world.status()).get("active") is None
    await cluster.sleep(300)
    assert await world.jobs() == [f"tick-{BEGIN + 5}", f"tick-{BEGIN + 10}"]


@bare
async def test_failed_jobs_have_a_history_of_their_own(cluster: VirtualCluster) -> None:
    world = World(cluster)
    await cluster.client.create(a_cron_job(successfulJobsHistoryLimit=0, failedJobsHistoryLimit=2))
    await cluster.client.patch(
        CRON_JOBS, "tick", {"spec": {"jobTemplate": {"spec": {"backoffLimit": 0}}}}, "default"
    )  # fmt: skip
    for number in range(5):
        await cluster.sleep(300)
        pods = await world.kubelet.pods()
        await (world.kubelet.succeed(*pods) if number == 4 else world.kubelet.fail(*pods))
        await cluster.sleep(3)
    assert await world.jobs() == [f"tick-{BEGIN + 15}", f"tick-{BEGIN + 20}"]


@bare
async def test_what_the_last_write_left_half_done_is_finished_and_not_repeated(cluster: VirtualCluster) -> None:
    world = World(cluster)
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
    names = await world.jobs()
    assert len(names) == len(set(names)) and len(names) >= 8
    assert sorted(active["name"] for active in (await world.status())["active"]) == names


TTL = ("job-controller", "ttl-after-finished-controller", "serviceaccount-controller", "garbage-collector-controller")


@virtual(nodes=0, scheduler=False, controllers=TTL, leader_elect=False)
async def test_a_finished_job_goes_when_its_time_is_over(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "short", "namespace": "default"},
        "spec": {"ttlSecondsAfterFinished": 60, "template": {"spec": pod}},
    }  # fmt: skip
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
