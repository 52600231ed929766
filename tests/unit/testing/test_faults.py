"""Faults of a plan: the effect of each on an operator, and that it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.testing import VirtualCluster, virtual

bare = virtual(nodes=0, controllers=(), scheduler=False)


@dataclass
class NoteSpec:
    text: str


Note = Kind("example.com/v1", "Note", spec=NoteSpec)
ConfigMap = Kind("v1", "ConfigMap")


class Scribe:
    """An operator that copies notes and records which text it read when; one instance for each start."""

    def __init__(self, seen: list[tuple[float, str]]) -> None:
        self.seen = seen
        self.starts = 0

    def operator(self) -> Operator:
        self.starts += 1
        return Operator("scribe", Controller(Note, self._copy, owns=(ConfigMap,)))

    async def _copy(self, ctx: Context[Any, Any], note: Object[NoteSpec, Any]) -> Result | None:
        self.seen.append((round(ctx.clock.monotonic() - self.began, 3), note.spec.text))
        copy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy"}, "data": {"text": note.spec.text}}
        await ctx.apply(copy)
        return None

    began = 0.0


def note(text: str) -> dict[str, Any]:
    meta = {"name": "n", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Note", "metadata": meta, "spec": {"text": text}}


async def under(cluster: VirtualCluster, plan: str) -> Scribe:
    """Create a note and change it two seconds later, while the plan is active."""
    scribe = Scribe([])
    async with cluster.running(scribe.operator):
        scribe.began = cluster.clock.monotonic()
        async with cluster.faults(plan):
            await cluster.client.create(note("a"))
            await cluster.sleep(2)
            await cluster.client.patch(Note.ref, "n", {"spec": {"text": "b"}}, "default")
            await cluster.sleep(0.5)
        assert not cluster.links["scribe"].severed
        await cluster.sleep(1)
        copy = await cluster.client.get(ConfigMap.ref, "copy", "default")
        assert copy["data"] == {"text": "b"}
    assert "scribe" not in cluster.links
    return scribe


@pytest.mark.parametrize(
    ("plan", "seen", "starts"),
    [
        # Without faults it reconciles again when its own copy arrives.
        ("none", [(0, "a"), (0, "a"), (2, "b"), (2, "b")], 1),
        ("error:1", [(0, "a"), (0.005, "a"), (0.005, "a"), (2, "b"), (2, "b")], 1),
        ("too-many:1", [(0, "a"), (0.005, "a"), (0.005, "a"), (2, "b"), (2, "b")], 1),
        ("timeout:1/1s", [(0, "a"), (1.005, "a"), (1.005, "a"), (2, "b"), (2, "b")], 1),
        ("lost-answer:1", [(0, "a"), (0, "a"), (0.005, "a"), (2, "b"), (2, "b")], 1),
        ("crash-before:1", [(0, "a"), (1, "a"), (1, "a"), (2, "b"), (2, "b")], 2),
        ("crash-after:1", [(0, "a"), (1, "a"), (2, "b"), (2, "b")], 2),
        ("crash-after:3", [(0, "a"), (0, "a"), (2, "b"), (3, "b")], 2),
        ("stale:3/4s", [(0, "a"), (0, "a"), (2, "b"), (6, "b")], 1),
        ("duplicate:3", [(0, "a"), (0, "a"), (2, "b"), (2, "b")], 1),
        ("drop-watch:3", [(0, "a"), (0, "a"), (2.2, "b"), (2.2, "b")], 1),
        ("expire-watch:3", [(0, "a"), (0, "a"), (2.2, "b"), (2.2, "b")], 1),
        ("delay-watch:3/3s", [(0, "a"), (0, "a"), (5, "b"), (5, "b")], 1),
        ("delay-watch:1/3s", [(3, "b"), (3, "b")], 1),
        ("down:3", [(0, "a"), (0, "a"), (3, "b"), (3, "b")], 2),
        ("down:1/3s", [(3, "b"), (3, "b")], 2),
        ("down:1+crash-after:1/5s", [(1, "a"), (6, "b"), (6, "b")], 3),
    ],
)
def test_effect_of_each_fault(plan: str, seen: list[tuple[float, str]], starts: int) -> None:
    @bare
    async def run(cluster: VirtualCluster) -> None:
        scribe = await under(cluster, plan)
        assert scribe.seen == seen
        assert scribe.starts == starts

    run()


@bare
async def test_a_conflict_is_caused_by_a_write(cluster: VirtualCluster) -> None:
    async with cluster.running(Scribe([]).operator):
        await cluster.client.create(note("a"))
        await cluster.settle()
        before = await cluster.client.get(ConfigMap.ref, "copy", "default")
        async with cluster.faults("conflict:1", of="scribe") as faults:
            await cluster.client.patch(Note.ref, "n", {"spec": {"text": "b"}}, "default")
            await cluster.settle()
        assert "Conflict" in faults.steps[1].answer
        after = await cluster.client.get(ConfigMap.ref, "copy", "default")
        assert after["data"] == {"text": "b"}
        assert after["metadata"]["annotations"] == {"testing.setpoint.dev/touched": "1"}
        assert "annotations" not in before["metadata"]


@bare
async def test_a_rewind_replays_past_events(cluster: VirtualCluster) -> None:
    scribe = Scribe([])
    async with cluster.running(scribe.operator):
        await cluster.client.create(note("a"))
        await cluster.settle()
        scribe.seen.clear()
        async with cluster.faults("rewind:1"):
            await cluster.client.patch(Note.ref, "n", {"spec": {"text": "b"}}, "default")
            await cluster.sleep(9)
    assert [text for _, text in scribe.seen][:3] == ["b", "a", "b"]


@bare
async def test_a_stale_cache_is_stale_after_a_restart_too(cluster: VirtualCluster) -> None:
    scribe = Scribe([])
    async with cluster.running(scribe.operator):
        await cluster.client.create(note("a"))
        await cluster.settle()
        scribe.seen.clear()
        scribe.began = cluster.clock.monotonic()
        async with cluster.faults("stale:1/5s+crash-after:2"):
            # The cache is frozen after the first write.
            await cluster.client.patch(ConfigMap.ref, "copy", {"data": {"text": "x"}}, "default")
            await cluster.sleep(0.5)
            await cluster.client.patch(Note.ref, "n", {"spec": {"text": "b"}}, "default")
            await cluster.sleep(7)
    assert scribe.seen[0] == (0, "a")
    assert all(when >= 5 for when, text in scribe.seen if text == "b")


@virtual(nodes=2, controllers=("node-lifecycle-controller",), scheduler=False)
async def test_a_node_is_partitioned_temporarily(cluster: VirtualCluster) -> None:
    async def readiness() -> str:
        node = await cluster.client.get(("v1", "Node"), "node-2")
        return str(next(each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"))

    async with cluster.running(Scribe([]).operator), cluster.faults("partition:1@node-2/2m"):
        await cluster.client.create(note("a"))
        await cluster.sleep(90)
        assert await readiness() == "Unknown"
    await cluster.sleep(15)
    assert await readiness() == "True"


@bare
async def test_an_operator_survives_random_faults(cluster: VirtualCluster) -> None:
    scribe = Scribe([])
    async with cluster.running(scribe.operator):
        async with cluster.faults("noise:3/1m"):
            await cluster.client.create(note("0"))
            for number in range(1, 20):
                await cluster.sleep(2)
                await cluster.client.patch(Note.ref, "n", {"spec": {"text": str(number)}}, "default")
        await cluster.settle()
        copy = await cluster.client.get(ConfigMap.ref, "copy", "default")
        assert copy["data"] == {"text": "19"}


@bare
async def test_a_fault_that_is_never_injected_is_an_error(cluster: VirtualCluster) -> None:
    async with cluster.running(Scribe([]).operator):
        with pytest.raises(AssertionError, match="error:9 was never injected: there were 3 writes and 2 events"):
            async with cluster.faults("error:1+error:9"):
                await cluster.client.create(note("a"))
                await cluster.settle()
        with pytest.raises(ZeroDivisionError):
            async with cluster.faults("error:1"):
                raise ZeroDivisionError  # neither an exception group nor the error about the missing fault
        async with cluster.faults("none"):
            with pytest.raises(RuntimeError, match="only one at a time"):
                async with cluster.faults("none"):
                    pass


@bare
async def test_an_operator_is_stopped_and_started_by_its_name(cluster: VirtualCluster) -> None:
    scribe = Scribe([])
    async with cluster.running(scribe.operator):
        await cluster.kill("scribe")
        await cluster.client.create(note("a"))
        await cluster.sleep(60)
        assert not scribe.seen
        await cluster.start("scribe")
        await cluster.settle()
        assert scribe.seen and scribe.starts == 2
        with pytest.raises(ValueError, match="scribe is already running"):
            async with cluster.running(scribe.operator):
                pass


@bare
async def test_an_unknown_component_is_rejected(cluster: VirtualCluster) -> None:
    with pytest.raises(ValueError, match="no component ghost is running; available are: controllers, scheduler"):
        cluster.faults("error:1", of="ghost")
    with pytest.raises(ValueError, match="no operator is running"):
        cluster.faults("error:1")


@bare
async def test_faults_in_built_in_components(cluster: VirtualCluster) -> None:
    with pytest.raises(AssertionError, match="was never injected"):
        async with cluster.faults("error:1", of=("controllers", "scheduler")):
            await cluster.sleep(1)
