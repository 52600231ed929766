"""`setpoint record` and `replay`: inputs that are repeated lead to the same state, and recordings are played."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from virtual_commands import run_command, run_successfully

from setpoint.client.https import connect
from setpoint.client.kubeconfig import Kubeconfig
from setpoint.cluster.cluster_copy import ClusterCopy, last_copy, loaded_copy
from setpoint.cluster.manifest_reader import opened_state
from setpoint.cluster.playback import playback
from setpoint.cluster.snapshot_file import SnapshotReader, SnapshotWriter, StoredChange
from setpoint.meta.errors import MethodNotAllowed
from setpoint.meta.times import parse_time
from setpoint.system import SystemClock
from setpoint.testing import VirtualCluster, virtual

INPUTS = (
    "create deployment api --image redis:7 --replicas 2",
    "scale deployment web --replicas 5",
    "set image deployment/web *=nginx:1.28",
    "expose deployment web --port 80",
    "create configmap settings --from-literal a=b",
    "label configmap settings tier=front",
    "cordon node-2",
    "delete pod -l app=api --wait=false",
    "delete configmap settings",
    "run alone --image busybox -- sleep 1d",
    "delete deployment api",
)


def recorded_changes(path: Path) -> list[StoredChange]:
    reader = SnapshotReader(path)
    for _ in reader.objects():
        pass
    return [*reader.changes()]


@virtual(nodes=3)
async def test_inputs_are_repeated(cluster: VirtualCluster, tmp_path: Path) -> None:
    await run_successfully(cluster, "create deployment web --image nginx:1.27 --replicas 3", tmp_path)
    await cluster.settle()
    bug, everything = tmp_path / "bug.setpoint", tmp_path / "all.setpoint"
    async with asyncio.TaskGroup() as tasks:
        recordings = [
            tasks.create_task(run_successfully(cluster, f"record {line} --duration 3m", tmp_path))
            for line in (f"{bug} --inputs", str(everything))
        ]
        await cluster.sleep(3)
        for line in INPUTS:
            await run_successfully(cluster, line, tmp_path)
            await cluster.sleep(10)
    outputs = [each.result() for each in recordings]
    assert re.search(r"objects and 12 inputs, ", outputs[0]), outputs[0]
    assert "came too late" not in outputs[1]

    first = await run_command(cluster, f"replay {bug}", tmp_path)
    assert first.code == 0, first.out
    assert "Repeated 12 inputs on" in first.out and "The state at the end is the recorded one.\n" in first.out
    again = await run_command(cluster, f"replay {bug} --inputs", tmp_path)
    assert again.out == first.out, "the same file gives the same writes"
    revision = [each.revision for each in recorded_changes(bug)][5]
    part = await run_command(cluster, f"replay {bug} --until {revision}", tmp_path)
    assert part.code == 0 and "Repeated 6 inputs on" in part.out
    assert f"The state at the end is not compared, because the replay ended at revision {revision}.\n" in part.out

    # A recording whose last inputs are lost leads to another state, and the difference is shown.
    reader, shorter = SnapshotReader(bug), tmp_path / "shorter.setpoint"
    writer = SnapshotWriter(shorter, reader.header)
    for item in reader.objects():
        writer.add(item)
    for change in [*reader.changes()][:-1]:
        writer.change(change)
    for key, value in reader.final.items():
        writer.final(key, value)
    writer.finish(reader.ended_at)
    other = await run_command(cluster, f"replay {shorter}", tmp_path)
    assert other.code == 1
    assert "The state at the end differs from the recorded one:\n" in other.out
    assert "too many: Deployment default/api" in other.out

    # The complete recording ends in the state of the cluster, and can be played.
    ended = last_copy(SnapshotReader(everything))
    current = cluster.embedded.store.copy_of_history().state
    same = {key: item.value == current[key].value for key, item in ended.objects.items() if "/leases/" not in key}
    assert [key for key, equal in same.items() if not equal] == []
    played = await run_successfully(cluster, f"replay {everything} --speed 100000", tmp_path)
    assert "kubernetes-admin (setpoint) changed deployment/web: spec.replicas 3 -> 5\n" in played
    assert "deployment-controller created replicaset/web-" in played
    assert (await run_command(cluster, f"replay {everything} --inputs", tmp_path)).code == 1
    await run_successfully(cluster, f"snapshot save {tmp_path / 'now.setpoint'}", tmp_path)
    refused = await run_command(cluster, f"replay {tmp_path / 'now.setpoint'}", tmp_path)
    assert "is a snapshot, in which nothing happens" in refused.err
    await _exchange_with_kwok(cluster, everything, tmp_path)
    await asyncio.to_thread(asyncio.run, _serve(everything, tmp_path / "played"))


async def _exchange_with_kwok(cluster: VirtualCluster, recording: Path, tmp_path: Path) -> None:
    """Export a recording in KWOK's format, and import it again: the end is the same, except for revisions."""
    exported = tmp_path / "kwok.yaml"
    exported.write_text(await run_successfully(cluster, f"snapshot show {recording} -o kwok", tmp_path))
    assert "kind: ResourcePatch\n" in exported.read_text()
    shown = await run_successfully(cluster, f"snapshot show {exported}", tmp_path)
    assert re.search(r"Recorded: +\d{2,} revisions, up to revision \d+\n", shown), shown
    played = await run_successfully(cluster, f"replay {exported} --speed 1000000", tmp_path)
    assert "changed deployment/web: spec.replicas 3 -> 5\n" in played
    begin = parse_time(SnapshotReader(recording).header.at)
    ended, again = last_copy(SnapshotReader(recording)), last_copy(opened_state(exported, begin))
    assert again.objects.keys() == ended.objects.keys()
    differing = [key for key in ended.objects if _content(again, key) != _content(ended, key)]
    assert differing == [], [(_content(again, key), _content(ended, key)) for key in differing]
    await run_successfully(cluster, f"snapshot load {exported} --data-dir {tmp_path / 'loaded'}", tmp_path)
    planned = await run_command(cluster, f"plan --snapshot {exported} --scale deployment/web=6", tmp_path)
    assert planned.code == 2 and "replicas" in planned.out, planned.err
    bug = tmp_path / "bug.setpoint"
    refused = await run_command(cluster, f"snapshot show {bug} -o kwok", tmp_path)
    assert refused.code == 1 and "holds inputs only" in refused.err


def _content(copy: ClusterCopy, key: str) -> dict[str, Any]:
    obj: dict[str, Any] = orjson.loads(copy.objects[key].value)
    del obj["metadata"]["resourceVersion"]
    return obj


async def _serve(recording: Path, directory: Path) -> None:
    """Serve a recording: clients see its revisions, and cannot change anything."""
    reader, clock = SnapshotReader(recording), SystemClock()
    copy = loaded_copy(reader)
    changes = [*reader.changes()]
    async with playback(copy, directory, 0, clock) as running:
        access = Kubeconfig.load([running.kubeconfig]).access()
        client = connect(access, clock, user_agent="test")
        web = ("apps/v1", "Deployment")
        before = await client.get(web, "web", "default")
        assert before["spec"]["replicas"] == 3
        listed = await client.list(web, "default")
        async with client.watch(web, "default", resource_version=listed.resource_version) as watch:
            scaled = next(
                each for each in changes if any(b'"replicas":5' in (value or b"") for _, value in each.writes)
            )
            for change in changes:
                running.store.play(change)
            seen = []
            async for kind, obj in watch:
                seen.append((kind, obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])))
                if obj["spec"].get("replicas") == 5:
                    break
        assert ("MODIFIED", "web", scaled.revision) in seen
        assert running.store.revision == changes[-1].revision
        try:
            await client.delete(web, "web", "default")
        except MethodNotAllowed as error:
            assert error.message == "a recording cannot be changed"
        else:
            raise AssertionError("a recording was changed")
        await client.close()


@virtual(nodes=1)
async def test_the_last_minutes_are_saved(cluster: VirtualCluster, tmp_path: Path) -> None:
    """A snapshot of the past, and one with the history since then."""
    await run_successfully(cluster, "create configmap a --from-literal n=1", tmp_path)
    await cluster.sleep(60)
    await run_successfully(cluster, "delete configmap a", tmp_path)
    await cluster.sleep(10)
    past, history = tmp_path / "past.setpoint", tmp_path / "history.setpoint"
    await run_successfully(cluster, f"snapshot save {past} --at=-30s", tmp_path)
    reader = SnapshotReader(past)
    saved = {item.key: orjson.loads(item.value) for item in reader.objects()}
    assert saved["core/configmaps/default/a"]["data"] == {"n": "1"}
    assert "core/configmaps/default/a" not in cluster.embedded.store.copy_of_history().state
    out = await run_successfully(cluster, f"snapshot save {history} --history", tmp_path)
    assert "revisions since 2026-01-01T00:00:0" in out
    played = await run_successfully(cluster, f"replay {history} --speed 1000000", tmp_path)
    assert "kubernetes-admin (setpoint) deleted configmap/a\n" in played
    shown = await run_successfully(cluster, f"snapshot load {past} --into --plan", tmp_path)
    assert "  + configmap/a (default)  created anew, with a new uid\n" in shown
    assert await cluster.find(("v1", "ConfigMap"), "a") is None
    await run_successfully(cluster, f"snapshot load {past} --into --yes", tmp_path)
    restored = await cluster.find(("v1", "ConfigMap"), "a")
    assert restored is not None and restored["data"] == {"n": "1"}


@virtual(nodes=1)
async def test_the_documented_commands(
    cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of docs/snapshots.md; those of forks are tried with kubectl."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "snapshots.md").read_text()
    lines = [line for line in re.findall(r"^setpoint (.*)$", page, re.MULTILINE) if not line.startswith("fork")]
    assert len(lines) == 15
    await cluster.advance("2m")

    async def change(name: str) -> None:
        await cluster.clock.sleep(2)
        meta = {"name": name, "namespace": "default"}
        await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})

    for number, line in enumerate(lines):
        command, _, output = line.replace("/tmp/copy", "copy").partition(" > ")
        async with asyncio.TaskGroup() as tasks:
            if command.startswith("record"):  # something has to happen meanwhile
                tasks.create_task(change(f"change-{number}"))
            printed = await run_successfully(cluster, command, tmp_path)
        if output:
            (tmp_path / output).write_text(printed)
        await cluster.settle()
    assert (await cluster.find(("apps/v1", "Deployment"), "web") or {})["status"]["readyReplicas"] == 3


@virtual(nodes=3)
async def test_a_cluster_that_is_not_at_rest(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Containers that cannot run and rollouts without progress go on after the end of a recording."""
    await run_successfully(cluster, "create deployment crash --image busybox -- sh -c 'exit 3'", tmp_path)
    await run_successfully(cluster, "create deployment typo --image nginx:no-such-tag", tmp_path)
    await cluster.sleep(30)
    bug = tmp_path / "bug.setpoint"
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_successfully(cluster, f"record {bug} --inputs --duration 5s", tmp_path))
        await cluster.sleep(3)
        await run_successfully(cluster, "create deployment web --image nginx:1.27", tmp_path)
    done = await run_command(cluster, f"replay {bug}", tmp_path)
    assert done.code == 0, done.out
