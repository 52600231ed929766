"""`explore`: a correct operator passes, and each kind of bug is found, with a plan that reproduces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.testing import Diverged, Exploration, VirtualCluster, explore, prepared

BARE: dict[str, Any] = {"controllers": (), "scheduler": False}


@dataclass
class ParcelSpec:
    text: str


Parcel = Kind("example.com/v1", "Parcel", spec=ParcelSpec)
ConfigMap = Kind("v1", "ConfigMap")
Outside = dict[str, int]


def parcel(text: str) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Parcel", "metadata": meta, "spec": {"text": text}}


def box(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name, **meta}}


def operator_of(reconcile: Any) -> Operator:
    return Operator("post", Controller(Parcel, reconcile, owns=(ConfigMap,)))


async def sent_and_changed(cluster: VirtualCluster, *outside: Outside) -> None:
    await cluster.client.create(parcel("a"))
    await cluster.settle()
    await cluster.client.patch(Parcel.ref, "p", {"spec": {"text": "b"}}, "default")


# -- a correct operator --------------------------------------------------------------------------------------------------


def careful(outside: Outside) -> Operator:
    async def reconcile(ctx: Context[Any, Any], obj: Object[ParcelSpec, Any]) -> Result | None:
        await ctx.apply(box(f"{obj.name}-{obj.spec.text}"))
        outside[obj.name] = 1  # idempotent
        ctx.condition("Ready", True, "Sent")
        return None

    return operator_of(reconcile)


def test_a_careful_operator_passes() -> None:
    found = explore(careful, sent_and_changed, outside=dict, limit=24, **BARE)
    assert found.tried == 24
    assert found.cases == 9 * found.writes + 6 * found.events
    assert str(found) == f"{found.writes} writes, {found.events} events: 24 of {found.cases} cases tried"


# -- a stale read -----------------------------------------------------------------------------------------------------


async def trusts_its_cache(ctx: Context[Any, Any], obj: Object[ParcelSpec, Any]) -> Result | None:
    if not ctx.children(ConfigMap):
        child = ctx._adopted(box("", generateName=f"{obj.name}-"))
        del child["metadata"]["name"]
        await ctx.client.create(child)
        return Result(requeue_after=4)
    ctx.condition("Ready", True, "Sent")
    return None


def test_a_stale_read_is_found() -> None:
    with pytest.raises(Diverged) as caught:
        explore(operator_of(trusts_its_cache), sent_and_changed, **BARE)
    assert caught.value.seed == "stale:1"
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("stale:1 changes the end state (case ")
    assert lines[1] == "stale:1: from write 1 on it sees no changes for 10s, while it can write."
    assert "    0.000 s  write 1  post: create ConfigMap default/p-  <- stale" in lines
    assert "    4.000 s  write 2  post: create ConfigMap default/p-" in lines
    assert "  too many: ConfigMap default/p-*" in lines
    assert lines[-1] == 'Reproduce it with: explore(..., only="stale:1")'


# -- a missed event ---------------------------------------------------------------------------------------------------


def remembers() -> Operator:
    """Remember observed objects in order to undo them later."""
    last: dict[str, str] = {}

    async def reconcile(ctx: Context[Any, Any], obj: Object[ParcelSpec, Any]) -> Result | None:
        before, text = last.get(obj.name), obj.spec.text
        await ctx.apply(box(f"{obj.name}-{text}"), prune=False)
        if before is not None and before != text:
            await ctx.client.delete(ConfigMap.ref, f"{obj.name}-{before}", "default")
        last[obj.name] = text
        return None

    return operator_of(reconcile)


def test_a_missed_event_is_found() -> None:
    with pytest.raises(Diverged) as caught:
        explore(remembers, sent_and_changed, **BARE)
    assert caught.value.seed == "down:3"
    text = str(caught.value)
    assert "down:3: it crashes just before event 3 and restarts 1s later." in text
    assert "event 3  post: MODIFIED Parcel default/p  <- down" in text
    assert "  too many: ConfigMap default/p-a" in text.splitlines()


# -- a crash between two writes ---------------------------------------------------------------------------------------


def records_before_charging(outside: Outside) -> Operator:
    async def reconcile(ctx: Context[Any, Any], obj: Object[ParcelSpec, Any]) -> Result | None:
        if not (obj.raw.get("status") or {}).get("charged"):
            await ctx.client.patch(Parcel.ref, obj.name, {"status": {"charged": True}}, "default", subresource="status")
            outside[obj.name] = outside.get(obj.name, 0) + 1
            ctx.set_status(charged=True)
        return None

    return operator_of(reconcile)


def test_a_crash_between_two_writes_is_found() -> None:
    with pytest.raises(Diverged) as caught:
        explore(records_before_charging, sent_and_changed, outside=dict, **BARE)
    assert caught.value.seed == "crash-after:1"
    text = str(caught.value)
    assert "write 1  post: patch Parcel default/p status  <- crash-after" in text
    assert ".state.p: 1 -> nothing" in text


# -- reports and options --------------------------------------------------------------------------------------------------------


def test_a_replayed_case_has_the_same_report() -> None:
    exploration = Exploration(operator_of(trusts_its_cache), sent_and_changed, **BARE)
    texts = []
    for _ in range(2):
        with pytest.raises(Diverged) as caught:
            exploration.explore(only="stale:1")
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert exploration.explore(only="error:1").tried == 1
    with pytest.raises(AssertionError, match="error:77 was never injected: without faults there are 3 writes and"):
        exploration.explore(only="error:77")


def test_the_report_shows_the_relevant_fault_of_two() -> None:
    with pytest.raises(Diverged) as caught:
        explore(operator_of(trusts_its_cache), sent_and_changed, faults=("stale+error",), **BARE)
    assert caught.value.seed == "stale:1"


def test_fields_can_be_ignored() -> None:
    explore(operator_of(trusts_its_cache), sent_and_changed, only="stale:1", leave_out=("configmaps",), **BARE)


def test_limited_cases_are_spread_evenly_and_earlier_points_are_tried() -> None:
    with pytest.raises(Diverged) as caught:
        explore(remembers, sent_and_changed, faults=("down/1m",), limit=1, **BARE)
    assert caught.value.seed == "down:2/1m"
    assert "(case 3 of 5)" in str(caught.value)


def test_a_limit_on_cases_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.testing.exploring.LIMIT", 1)
    exploration = Exploration(operator_of(trusts_its_cache), sent_and_changed, **BARE)
    with pytest.warns(UserWarning, match="explore: 1 of 3 cases are tried; more with limit="):
        exploration.explore(faults=("error",))


def test_a_snapshot_is_the_start_of_every_case() -> None:
    @prepared(nodes=0, **BARE)
    async def with_a_box(cluster: VirtualCluster) -> None:
        await cluster.client.create(box("other"))

    async def check(cluster: VirtualCluster, outside: Outside) -> None:
        assert await cluster.find(ConfigMap.ref, "other")

    found = explore(careful, sent_and_changed, outside=dict, check=check, start=with_a_box, faults=("crash-after",))
    assert found.tried == found.writes > 1


def test_a_scenario_that_does_not_wait_is_reported() -> None:
    async def hasty(cluster: VirtualCluster, outside: Outside) -> None:
        await cluster.client.create(parcel("a"))
        await cluster.settle()
        await cluster.client.delete(ConfigMap.ref, "p-a", "default")

    with pytest.raises(Diverged, match=r'the scenario failed: configmaps "p-a" not found. Faults cause delays'):
        explore(careful, hasty, outside=dict, only="down:1/1m", **BARE)


def test_a_child_whose_creation_and_deletion_were_missed_is_created_again() -> None:
    """The creation was lost with an expired watch, and the new list no longer has the object: there is no event."""

    async def removed(cluster: VirtualCluster, outside: Outside) -> None:
        await cluster.client.create(parcel("a"))
        await cluster.until(lambda: cluster.find(ConfigMap.ref, "p-a"))
        await cluster.client.delete(ConfigMap.ref, "p-a", "default")

    explore(careful, removed, outside=dict, only="expire-watch:2", **BARE)


def test_an_operator_that_fails_to_restart_is_reported() -> None:
    starts = 0

    def once() -> Operator:
        nonlocal starts
        starts += 1
        if starts > 3:  # one to read its kinds, one without faults, one with the fault
            raise RuntimeError("once and never again")
        return operator_of(trusts_its_cache)

    with pytest.raises(Diverged, match="the scenario failed: RuntimeError: once and never again"):
        explore(once, sent_and_changed, only="crash-after:1", **BARE)


def test_an_operator_that_is_not_ready_after_a_restart_is_reported() -> None:
    async def undefined(cluster: VirtualCluster) -> None:
        await cluster.client.create(parcel("a"))
        await cluster.instant()
        await cluster.client.delete(("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "parcels.example.com")
        await cluster.settle()

    with pytest.raises(Diverged, match="the cluster does not settle: post is not ready 600 s after its restart"):
        explore(operator_of(trusts_its_cache), undefined, only="crash-after:1", **BARE)


def test_a_scenario_that_fails_without_faults_raises_its_own_error() -> None:
    async def wrong(cluster: VirtualCluster) -> None:
        raise AssertionError("mine")

    with pytest.raises(AssertionError, match=r"^mine$"):
        explore(operator_of(trusts_its_cache), wrong, **BARE)


def test_endless_writes_are_found() -> None:
    async def never_quiescent(ctx: Context[Any, Any], obj: Object[ParcelSpec, Any]) -> Result | None:
        await ctx.apply(box(f"{obj.name}-{ctx.clock.monotonic():.0f}"))
        return Result(requeue_after=4)

    with pytest.raises(AssertionError, match="did not settle within"):
        explore(operator_of(never_quiescent), sent_and_changed, **BARE)
