from __future__ import annotations

import asyncio
from typing import Any

import pytest
from admission_attributes import ManualClock, ObjectReader, pod, resource, write

from setpoint.apiserver.admission.resource_quota import ResourceQuota
from setpoint.meta.errors import Conflict, Forbidden
from setpoint.meta.objects import Obj


class Ledger:
    """Writes usage by compare-and-swap in the next iteration of the event loop, as a store does."""

    def __init__(self, reader: ObjectReader) -> None:
        self.reader = reader
        self.writes = 0
        self.rivals: list[dict[str, str]] = []
        """The usage that another writer sets just before our write."""
        self.clock: ManualClock | None = None
        """If set, each write takes a second."""

    async def __call__(self, quota: Obj, used: dict[str, str]) -> None:
        await asyncio.sleep(0)
        if self.clock is not None:
            await self.clock.sleep(1)
        name = quota["metadata"]["name"]
        key = ("", "resourcequotas", "ns", name)
        if self.rivals:
            self._store(key, self.rivals.pop())
        if self.reader.objects[key]["metadata"]["resourceVersion"] != quota["metadata"]["resourceVersion"]:
            raise Conflict.modified("", "resourcequotas", name)
        self._store(key, used)
        self.writes += 1

    def _store(self, key: tuple[str, str, str, str], used: dict[str, str]) -> None:
        old = self.reader.objects[key]
        version = str(int(old["metadata"]["resourceVersion"]) + 1)
        self.reader.objects[key] = {
            **old,
            "metadata": {**old["metadata"], "resourceVersion": version},
            "status": {**old["status"], "used": used},
        }


@pytest.fixture
def ledger(reader: ObjectReader) -> Ledger:
    return Ledger(reader)


@pytest.fixture
def plugin(reader: ObjectReader, clock: ManualClock, ledger: Ledger) -> ResourceQuota:
    return ResourceQuota(reader, clock, ledger)


def quota(reader: ObjectReader, hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> None:
    status: Obj = {"hard": hard, "used": dict.fromkeys(hard, "0") if used is None else used}
    reader.put("", "resourcequotas", "ns", "q", spec={"hard": hard, **spec}, status=status)


def used(reader: ObjectReader) -> dict[str, str]:
    found: dict[str, str] = reader.objects[("", "resourcequotas", "ns", "q")]["status"]["used"]
    return found


def sized(cpu: str, **more: Any) -> Obj:
    return pod(container={"resources": {"requests": {"cpu": cpu}}}, **more)


async def test_without_quotas_nothing_is_charged(plugin: ResourceQuota, ledger: Ledger) -> None:
    await plugin.validate(write("pods", pod()))
    assert ledger.writes == 0


async def test_a_pod_is_charged(reader: ObjectReader, plugin: ResourceQuota) -> None:
    quota(reader, {"pods": "2", "requests.cpu": "1", "configmaps": "5"})
    await plugin.validate(write("pods", sized("300m")))
    assert used(reader) == {"pods": "1", "requests.cpu": "300m", "configmaps": "0"}


async def test_exceeding_a_quota_is_denied_and_not_charged(
    reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger
) -> None:
    quota(reader, {"pods": "1", "requests.cpu": "1"}, {"pods": "1", "requests.cpu": "900m"})
    with pytest.raises(Forbidden) as caught:
        await plugin.validate(write("pods", sized("200m")))
    assert caught.value.message == (
        'pods "x" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=200m, '
        "used: pods=1,requests.cpu=900m, limited: pods=1,requests.cpu=1"
    )
    assert ledger.writes == 0


async def test_limited_resources_must_be_specified(reader: ObjectReader, plugin: ResourceQuota) -> None:
    quota(reader, {"requests.cpu": "1", "limits.memory": "1Gi"})
    side = {"name": "side", "image": "a", "resources": {"requests": {"cpu": "1m"}}}
    obj = pod({"initContainers": [side]})
    with pytest.raises(Forbidden) as caught:
        await plugin.validate(write("pods", obj))
    assert caught.value.message.endswith("failed quota: q: must specify limits.memory for: c,side; requests.cpu for: c")


async def test_a_quota_without_observed_usage(reader: ObjectReader, plugin: ResourceQuota) -> None:
    quota(reader, {"pods": "1", "count/pods": "3"}, {"pods": "0"})
    with pytest.raises(Forbidden, match="status unknown for quota: q, resources: count/pods,pods"):
        await plugin.validate(write("pods", pod()))


async def test_a_dry_run_is_checked_and_not_charged(
    reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger
) -> None:
    quota(reader, {"pods": "1"})
    await plugin.validate(write("pods", pod(), dry_run=True))
    assert ledger.writes == 0
    quota(reader, {"pods": "0"})
    with pytest.raises(Forbidden, match="exceeded quota"):
        await plugin.validate(write("pods", pod(), dry_run=True))


@pytest.mark.parametrize(
    ("plural", "group", "name"),
    [
        ("configmaps", "", "configmaps"),
        ("secrets", "", "count/secrets"),
        ("deployments", "apps", "count/deployments.apps"),
    ],
)
async def test_other_objects_are_counted(
    reader: ObjectReader, plugin: ResourceQuota, plural: str, group: str, name: str
) -> None:
    quota(reader, {name: "1"})
    obj = {"metadata": {"name": "x"}, "spec": {}}
    await plugin.validate(write(plural, obj, group=group))
    with pytest.raises(Forbidden, match=f"requested: {name}=1, used: {name}=1, limited: {name}=1"):
        await plugin.validate(write(plural, obj, group=group))


async def test_only_what_is_in_scope_counts(reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger) -> None:
    quota(reader, {"pods": "0"}, scopes=["NotBestEffort"])
    await plugin.validate(write("pods", pod()))
    with pytest.raises(Forbidden):
        await plugin.validate(write("pods", sized("1m")))
    quota(
        reader,
        {"pods": "0"},
        scopeSelector={
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
            ]
        },
    )
    await plugin.validate(write("pods", pod({"priorityClassName": "low"})))
    with pytest.raises(Forbidden):
        await plugin.validate(write("pods", pod({"priorityClassName": "high"})))


async def test_an_update_is_charged_for_its_growth(reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger) -> None:
    quota(reader, {"requests.cpu": "1"}, {"requests.cpu": "500m"})
    await plugin.validate(write("pods", sized("700m"), sized("500m"), subresource="resize"))
    assert used(reader) == {"requests.cpu": "700m"}
    await plugin.validate(write("pods", sized("100m"), sized("700m"), subresource="resize"))
    assert used(reader) == {"requests.cpu": "700m"}
    with pytest.raises(Forbidden, match=r"requested: requests\.cpu=400m"):
        await plugin.validate(write("pods", sized("500m"), sized("100m"), subresource="resize"))


async def test_a_conflict_is_retried(reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger) -> None:
    quota(reader, {"pods": "9"})
    ledger.rivals = [{"pods": "4"}]
    await plugin.validate(write("pods", pod()))
    assert used(reader) == {"pods": "5"}


async def test_a_conflict_may_exhaust_the_quota(reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger) -> None:
    quota(reader, {"pods": "4"})
    ledger.rivals = [{"pods": "4"}]
    with pytest.raises(Forbidden, match="used: pods=4"):
        await plugin.validate(write("pods", pod()))


async def test_a_charge_is_tried_for_some_time_however_often_others_are_faster(
    reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger, clock: ManualClock
) -> None:
    quota(reader, {"pods": "100"})
    ledger.rivals = [{"pods": str(n)} for n in range(50)]
    await plugin.validate(write("pods", pod()))
    assert (used(reader), ledger.writes) == ({"pods": "1"}, 1)
    ledger.rivals = [{"pods": str(n)} for n in range(50)]
    ledger.clock = clock
    with pytest.raises(Conflict):
        await plugin.validate(write("pods", pod()))
    assert ledger.rivals, "the time is limited"


async def test_concurrent_writes_are_batched_within_the_quota(
    reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger
) -> None:
    quota(reader, {"pods": "30"})
    results = await asyncio.gather(*(plugin.validate(write("pods", pod())) for _ in range(50)), return_exceptions=True)
    assert sum(result is None for result in results) == 30
    assert all(isinstance(result, Forbidden) for result in results if result is not None)
    assert used(reader) == {"pods": "30"}
    assert ledger.writes < 5


async def test_a_cancelled_leader_requeues_its_batch(
    reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger
) -> None:
    quota(reader, {"pods": "30"})
    tasks = [asyncio.ensure_future(plugin.validate(write("pods", pod()))) for _ in range(6)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    await plugin.validate(write("pods", pod()))
    assert used(reader) == {"pods": "5"}


async def test_a_cancelled_successor_wakes_the_next_one(
    reader: ObjectReader, plugin: ResourceQuota, ledger: Ledger
) -> None:
    quota(reader, {"pods": "30"})
    tasks = [asyncio.ensure_future(plugin.validate(write("pods", pod()))) for _ in range(4)]
    for _ in range(3):
        await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for i, result in enumerate(results) if i != 1] == [None, None, None]


def test_events_are_never_charged(plugin: ResourceQuota) -> None:
    assert not plugin.handles("CREATE", resource("", "events"), "")
    assert not plugin.handles("CREATE", resource("", "nodes"), "")
    assert not plugin.handles("UPDATE", resource("", "configmaps"), "")
    assert plugin.handles("UPDATE", resource("", "services"), "")
    assert not plugin.handles("UPDATE", resource("", "pods"), "status")
