"""`setpoint plan`: what it predicts is what then happens, and it writes nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from virtual_commands import run_command, run_successfully

from setpoint.cluster.cluster_copy import copied
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedOptions, embedded_cluster
from setpoint.cluster.snapshot_file import SnapshotReader, SnapshotWriter
from setpoint.cluster.virtual.conditions import unfinished
from setpoint.cluster.virtual.plan import differences, events_of
from setpoint.cluster.virtual.simulation import HEARTBEATS, SimulatedWrite
from setpoint.meta.cause import decode
from setpoint.meta.objects import Obj
from setpoint.node.options import FleetOptions, NodeTemplate
from setpoint.store.interface import Event
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, prepared, run_virtual, virtual
from setpoint.testing.snapshot import settled_state
from setpoint.testing.virtual_time import VirtualClock

WORKLOADS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1.27"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "postgres:16"}]}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "*/5 * * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: tick, image: busybox, command: ["true"]}]}
"""


SMALL = FleetOptions(template=NodeTemplate({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "12"}))


@prepared(nodes=3, fleet=SMALL)
async def shop(cluster: VirtualCluster) -> None:
    await run_successfully(cluster, "apply -f -", Path("/nonexistent"), WORKLOADS)
    await cluster.settle()
    await cluster.advance("2m")


Step = tuple[str, str, str, str, str]


def normalized(events: Sequence[dict[str, Any]]) -> list[Step]:
    """Actor, action, kind, object and text of each event, without the names of nodes and generated Pods."""
    return [
        (
            re.sub(r"node-\d+", "node", each["actor"].replace("kubernetes-admin (setpoint)", "you")),
            each["action"],
            each["kind"],
            each["owner"] or each["name"],
            re.sub(r"node-\d+", "node", each["text"]),
        )
        for each in events
    ]


def by_object(steps: Sequence[Step]) -> dict[tuple[str, str], list[Step]]:
    """The order of what happens to each object, or to the objects of one owner."""
    found: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        found.setdefault((step[2], step[3]), []).append(step)
    return found


def counted(changes: Sequence[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    return Counter(
        (each["action"], each["kind"], each["owner"] or each["name"], *sorted({one["path"] for one in each["fields"]}))
        for each in changes
        if each["kind"] not in ("Endpoints", "EndpointSlice") and each["action"] != "replaced"
    )


class Live:
    """What really happens in a cluster from now on, described as a plan describes it."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._store, self._clock = cluster.embedded.store, cluster.clock
        self._begin, self._before = cluster.clock.monotonic(), self._state()
        self._writes: list[SimulatedWrite] = []
        self._store.watch("", self._store.revision, self._saw)

    def _state(self) -> dict[str, bytes]:
        items = self._store.copy_of_history().state
        return {key: item.value for key, item in items.items() if not key.startswith(HEARTBEATS)}

    def _saw(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            if not event.key.startswith(HEARTBEATS) and "/tick" not in event.key:
                before, now = (None if each is None else each.value for each in (event.before, event.now))
                cause = decode(self._store.cause_of(event.revision))
                self._writes.append(SimulatedWrite(self._clock.monotonic(), event.key, before, now, cause))

    def events(self) -> list[Step]:
        return normalized([each._asdict() for each in events_of(self._writes, self._begin)])

    def changes(self) -> Counter[tuple[str, ...]]:
        found = differences(self._before, self._state(), lambda key, obj: "/tick" in key)
        fields = [[{"path": ".".join(one.path).replace(".[", "[")} for one in each.fields] for each in found]
        return counted([{**each._asdict(), "fields": paths} for each, paths in zip(found, fields, strict=True)])

    def problems(self) -> list[tuple[str, str, str]]:
        return sorted((each.kind, each.owner or each.name, each.problem) for each in unfinished(self._state()))


PREDICTIONS = {
    "--image deployment/web=nginx:1.28": ("set image deployment/web *=nginx:1.28", 2),
    "--drain node-2": ("drain node-2 --ignore-daemonsets --delete-emptydir-data --timeout=10m", 2),
    "--stop node-2": ("annotate node node-2 simulate.setpoint.dev/state=stopped", None),
}


_DRAIN_ORDER = pytest.mark.memory_store("the order of writes of several Pods, which are listed under their ReplicaSet")
_CHANGES = [pytest.param(each, marks=_DRAIN_ORDER if "drain" in each else ()) for each in PREDICTIONS]


@pytest.mark.parametrize("change", _CHANGES)
@virtual(start=shop)
async def test_a_prediction_comes_true(cluster: VirtualCluster, tmp_path: Path, change: str) -> None:
    """The same end state, the same events in the same order for each object, the same counts."""
    line, code = PREDICTIONS[change]
    await cluster.instant()  # until it has written what it writes at its start
    before = cluster.fingerprint()
    result = await run_command(cluster, f"plan {change} -o json --pace instant", tmp_path)
    assert cluster.fingerprint() == before, "nothing is written to the original"
    predicted = json.loads(result.out)
    assert predicted["firstLook"] == [], "a copy at rest makes no write"
    assert result.code == (1 if predicted["problems"] else 2)
    assert code in (None, result.code), result.out
    live = Live(cluster)
    await run_successfully(cluster, line, tmp_path)
    await cluster.advance("20m")
    foreseen, happened = normalized(predicted["events"]), live.events()
    assert Counter(foreseen) == Counter(happened)
    assert by_object(foreseen) == by_object(happened)
    assert counted(predicted["changes"]) == live.changes()
    problems = [*predicted["problems"], *predicted["expected"], *predicted["earlier"]]
    assert sorted((each["kind"], each["owner"] or each["name"], each["problem"]) for each in problems) == [
        each for each in live.problems() if not each[1].startswith("Job/")
    ]


DOCUMENTED = {
    "setpoint create deployment web --image nginx:1.27 --replicas 3": (1, ""),  # it is there already
    "setpoint plan --image deployment/web=nginx:1.28": (2, "  + 3 Pods of replicaset/web-"),
    "setpoint plan --drain node-2": (2, "you changed node/node-2: spec.unschedulable set to true\n"),
    "setpoint plan --stop node-2": (None, "  node/node-2 is not ready: NodeStatusUnknown\n"),
    "setpoint plan --scale deployment/web=40": (1, "Pods of replicaset/web-"),
    "setpoint plan --delete deployment/web": (1, "  service/web has no ready endpoints\n"),
    "setpoint plan --drain node-2 --scale deployment/web=5": (2, "deployment/web  spec.replicas 3 -> 5\n"),
    "setpoint plan --scale deployment/web=5 --faults controllers=delay-watch:1/30s+crash-after:3": (
        2,
        " It would end as without the faults, which takes ",
    ),
    "setpoint plan --image deployment/web=nginx:1.28 -o markdown": (2, "## Plan\n\nThe cluster would converge"),
    "setpoint plan --image deployment/web=nginx:1.28 -o json": (2, '"converges": true'),
    "setpoint snapshot save night.setpoint": (0, "night.setpoint holds "),
    "setpoint plan --snapshot night.setpoint --scale deployment/web=5": (2, "  + 2 Pods of replicaset/web-"),
    "setpoint twin --report-only": (None, ""),  # it runs a server of its own
}
"""The commands of docs/plan.md, each with its exit code and a part of its output."""
_LINE = re.compile(r"^setpoint .*$", re.MULTILINE)


@virtual(start=shop)
async def test_the_documented_commands(
    cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    assert {*_LINE.findall(page)} == {*DOCUMENTED}
    monkeypatch.chdir(tmp_path)
    await cluster.instant()  # until it has written what it writes at its start
    before, outputs = cluster.fingerprint(), dict[str, str]()
    for line, (code, part) in DOCUMENTED.items():
        if not line.startswith("setpoint twin"):
            result = await run_command(cluster, line.removeprefix("setpoint "), tmp_path)
            assert code in (None, result.code), f"{line}: {result.out}{result.err}"
            assert part in result.out, f"{line}: {result.out}"
            outputs[line] = result.out
    assert cluster.fingerprint() == before, "nothing is written to the original"

    image = outputs["setpoint plan --image deployment/web=nginx:1.28"]
    assert re.match(r"The cluster would converge in 1?\d\.\ds: 4 changed, 4 created, 3 deleted.\n", image), image
    assert "  ~ deployment/web  image nginx:1.27 -> nginx:1.28\n" in image
    assert "      +0.0s  you changed deployment/web: image nginx:1.27 -> nginx:1.28\n" in image
    assert "In between:" not in image, "the Service has endpoints at all times"
    large = outputs["setpoint plan --scale deployment/web=40"]
    assert re.search(r"  deployment/web 3\d of 40 replicas are available\n", large), large
    assert re.search(
        r"  \d+ Pods of replicaset/web-\w+: is not scheduled: 0/3 nodes are available: 3 Too many pods", large
    )


@virtual(start=shop)
async def test_reports(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Nothing changes; a change is refused; a Service is interrupted."""
    same = await run_command(cluster, "plan --image deployment/web=nginx:1.27", tmp_path)
    assert (same.code, same.out.splitlines()[0]) == (0, "Nothing would change.")
    refused = await run_command(cluster, "plan --delete deployment/nothing", tmp_path)
    assert refused.code == 1
    assert 'Error from server (NotFound): deployments.apps "nothing" not found' in refused.out
    gap = await run_command(cluster, "plan --delete pod/db-0", tmp_path)
    assert "  ± pod/db-0  replaced by another one\n" in gap.out
    assert re.search(r"service/db had no ready endpoints for \d\.\ds, from \+0\.0s on", gap.out)


@virtual(start=shop)
async def test_mistakes_in_faults(cluster: VirtualCluster, tmp_path: Path) -> None:
    for flag, complaint in (
        ("controllers", "error: --faults must be COMPONENT=FAULT, such as controllers=drop-watch:1, not 'controllers'"),
        ("kubelet=error:1", "error: --faults: faults are those of controllers, scheduler, nodes, not of 'kubelet'"),
        ("nodes=broken:1", "error: --faults: unknown fault 'broken'; the kinds are error, conflict, crash-before, "),
        ("nodes=partition:1@node-9", "Error from server (BadRequest): partition:1@node-9: there is no node node-9"),
    ):
        result = await run_command(cluster, f"plan --scale deployment/web=5 --faults {flag}", tmp_path)
        assert result.code == 1 and complaint in result.err, result.err
    still = await run_command(cluster, "fork later --virtual --faults nodes=error:1", tmp_path)
    assert "--faults needs --advance or --until" in still.err


@virtual(start=shop)
async def test_containers_that_cannot_run(cluster: VirtualCluster, tmp_path: Path) -> None:
    """They are tried again without end, which is not a consequence of any change, and does not prevent an end. They are
    not mentioned if the change is refused."""
    await run_successfully(cluster, "create deployment typo --image nginx:no-such-tag", tmp_path)
    await run_successfully(cluster, "create deployment crash --image busybox -- sh -c 'exit 3'", tmp_path)
    await cluster.advance("20m")
    refused = await run_command(cluster, "plan --image deployment/nothing=nginx", tmp_path)
    assert refused.out.endswith(
        "The change would be refused.\n\nRefused:\n"
        '  set image deployment/nothing *=nginx: Error from server (NotFound): deployments.apps "nothing" not found\n'
    )
    partly = await run_command(
        cluster, "plan --image deployment/nothing=nginx --scale deployment/web=1 -o markdown", tmp_path
    )
    assert "\nA part of the change would be refused.\n" in partly.out
    assert "### Not as desired before the change either" in partly.out and "<summary>Limits</summary>" in partly.out
    same = await run_command(cluster, "plan --image deployment/web=nginx:1.27", tmp_path)
    assert (same.code, same.out.splitlines()[0]) == (0, "Nothing would change.")
    assert re.search(r"  pod/crash-\S+ container busybox waits: CrashLoopBackOff\n", same.out), same.out
    changed = await run_command(cluster, "plan --image deployment/web=nginx:1.28", tmp_path)
    assert changed.code == 2 and "pod/crash" not in changed.out.partition("What would happen:")[0], changed.out


@virtual(nodes=3, fleet=FleetOptions(reject_misspelled_images=True))
async def test_images_that_cannot_be_pulled(cluster: VirtualCluster, tmp_path: Path) -> None:
    """What the original cannot pull, whatever the reason, the copy cannot pull either."""
    await run_successfully(cluster, "fault image-broken private.example.com/app:v7", tmp_path)
    await run_successfully(cluster, "create deployment web --image nginx:1.27 --replicas 2", tmp_path)
    await run_successfully(cluster, "create deployment bad --image ngnix:1.27", tmp_path)
    await run_successfully(cluster, "create deployment app --image private.example.com/app:v7", tmp_path)
    container = {"name": "app", "image": "nginx:1.27"}
    first = [{"name": "prepare", "image": "busybox:1.36", "command": ["sh", "-c", "exit 4"]}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "initial", "namespace": "default"}}
    await cluster.client.create({**pod, "spec": {"containers": [container], "initContainers": first}})
    await cluster.advance("20m")
    same = await run_command(cluster, "plan --image deployment/web=nginx:1.27", tmp_path)
    assert (same.code, same.out.splitlines()[0]) == (0, "Nothing would change."), same.out
    assert "Changed by the loops before the change" not in same.out, same.out

    line = "--scale deployment/app=2 --scale deployment/bad=2 --image deployment/web=ngnix:1.28"
    result = await run_command(cluster, f"plan {line} -o json --pace instant", tmp_path)
    predicted = json.loads(result.out)
    assert result.code == 1 and predicted["firstLook"] == []
    live = Live(cluster)
    for each in ("scale deployment/app --replicas=2", "scale deployment/bad --replicas=2"):
        await run_successfully(cluster, each, tmp_path)
    await run_successfully(cluster, "set image deployment/web *=ngnix:1.28", tmp_path)
    await cluster.advance("20m")
    problems = [*predicted["problems"], *predicted["earlier"]]
    assert (
        sorted((each["kind"], each["owner"] or each["name"], each["problem"]) for each in problems) == live.problems()
    )
    waiting = [each for each in live.problems() if each[2].endswith(" waits: ImagePullBackOff")]
    assert len(waiting) == 5, waiting


@virtual(nodes=3)
async def test_containers_that_keep_exiting_on_real_nodes(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Why they exit is not known, so they keep exiting in a copy, until they get another image."""
    await run_successfully(cluster, "create deployment web --image nginx:1.27 --replicas 2", tmp_path)
    await run_successfully(cluster, "create deployment app --image busybox -- sh -c 'exit 3'", tmp_path)
    await cluster.advance("20m")
    saved, real = tmp_path / "saved.setpoint", tmp_path / "real.setpoint"
    await run_successfully(cluster, f"snapshot save {saved}", tmp_path)
    reader = SnapshotReader(saved)
    writer = SnapshotWriter(real, reader.header)
    # A program that the simulation does not know, on nodes of which it knows nothing.
    for item in reader.objects():
        value = item.value.replace(b'"simulated://', b'"containerd://')
        fields = {
            b'"command":["sh","-c","exit 3"],': b"",
            b'"image":"busybox"': b'"image":"private.example.com/app:v7"',
        }
        for old, new in fields.items():
            value = value.replace(old, new)
        writer.add(item._replace(value=value))
    writer.finish()

    line = f"plan --snapshot {real} -o json"
    same = json.loads((await run_command(cluster, f"{line} --image deployment/web=nginx:1.27", tmp_path)).out)
    assert (same["firstLook"], same["changes"], same["converges"]) == ([], [], True), same
    assert [each["problem"] for each in same["earlier"] if each["kind"] == "Pod"] == [
        "container busybox waits: CrashLoopBackOff"
    ]
    new = json.loads(
        (await run_command(cluster, f"{line} --image deployment/app=private.example.com/app:v8", tmp_path)).out
    )
    assert new["converges"] and not [each for each in new["earlier"] if each["kind"] == "Pod"], new


@virtual(nodes=6)
async def test_a_node_is_lost_whenever_it_stops(cluster: VirtualCluster, tmp_path: Path) -> None:
    """The prediction does not end before the loss is noticed, which takes 50 to 60 s after the last heartbeat."""
    await cluster.settle()
    for number in range(1, 7):
        node = f"node-{number}"
        result = await run_command(cluster, f"plan --stop {node}", tmp_path)
        assert f"node/{node} is not ready: NodeStatusUnknown" in result.out, result.out


def test_new_pods_have_the_default_tolerations_of_the_server(tmp_path: Path) -> None:
    """They leave a lost node when they would in the original, whose flags are read or, by its own endpoint, known."""
    flags: dict[str, Any] = {
        "default_not_ready_toleration_seconds": 30,
        "default_unreachable_toleration_seconds": 20,
    }
    options = EmbeddedOptions(
        ComponentOptions(nodes=3, identity="virtual", leader_elect=False),
        replace(EmbeddedOptions().config, **flags),
    )

    async def main() -> None:
        clock = VirtualClock()
        async with embedded_cluster(clock, RandomIds(1), options, await settled_state()) as embedded:
            cluster = VirtualCluster(embedded, clock, {}, {})
            await run_successfully(cluster, "create deployment web --image nginx:1.27 --replicas 1", tmp_path)
            await cluster.settle()
            result = await run_command(cluster, "plan --scale deployment/web=6 --stop node-2 -o json", tmp_path)
            leaving = [each["at"] for each in json.loads(result.out)["events"] if each["text"] == "being deleted"]
            assert leaving and max(leaving) < 100, leaving  # 300 s after the loss by default
            await run_successfully(cluster, "scale deployment/web --replicas 6", tmp_path)
            await cluster.settle()
            (live,) = {_tolerated(each) for each in await cluster.all(("v1", "Pod"))}
            assert live == (30, 20)
            copy = await copied(cluster.client, clock.now())
            assert copy.toleration_seconds == live
            viewer = embedded.components.clients.copying_client("viewer", (), agent="kubectl")
            await run_successfully(cluster, "create clusterrolebinding v --clusterrole=view --user=viewer", tmp_path)
            assert (await copied(viewer, clock.now())).toleration_seconds == (300, 300)  # may not read the flags

    run_virtual(main)


def _tolerated(pod: Obj) -> tuple[int, ...]:
    return tuple(each["tolerationSeconds"] for each in pod["spec"]["tolerations"])


@virtual(start=shop)
async def test_who_may_not_list_nodes_gets_no_prediction(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Without nodes, the loops of the copy would delete every Pod."""
    vera = cluster.embedded.components.clients.copying_client("vera", (), agent="setpoint")
    await run_successfully(cluster, "create clusterrolebinding v --clusterrole=view --user=vera", tmp_path)
    refused = await run_command(cluster, "plan --scale deployment/web=1", tmp_path, client=vera)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("error: the copy has no nodes, so that all Pods would be lost in it: a plan needs")
    await run_successfully(cluster, "create clusterrole nodes --verb=list --resource=nodes", tmp_path)
    await run_successfully(cluster, "create clusterrolebinding n --clusterrole=nodes --user=vera", tmp_path)
    allowed = await run_command(cluster, "plan --scale deployment/web=1", tmp_path, client=vera)
    assert "  - 2 Pods of replicaset/web-" in allowed.out, allowed.out + allowed.err


@virtual(start=shop)
async def test_a_plan_from_files(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Manifests are applied as `apply` does it, in the order of the flags; a snapshot needs no cluster."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "5"}}}
    (tmp_path / "quota.json").write_text(json.dumps(quota))
    await run_successfully(cluster, f"snapshot save {tmp_path / 'shop.setpoint'}", tmp_path)
    line = f"plan --snapshot {tmp_path / 'shop.setpoint'} -f {tmp_path / 'quota.json'} --scale deployment/web=9"
    result = await run_command(cluster, line, tmp_path)
    assert result.code == 1
    assert "you created resourcequota/few" in result.out
    assert "exceeded quota: few, requested: pods=1, used: pods=5, limited: pods=5" in result.out
    stdin = await run_command(cluster, "plan -f - -o json", tmp_path, json.dumps(quota))
    assert [(each["action"], each["kind"]) for each in json.loads(stdin.out)["changes"]] == [
        ("created", "ResourceQuota")
    ]
    for wrong in (
        "plan",
        "plan --scale web=3",
        "plan --image deployment/web",
        "plan --stop n -o yaml",
        "plan --stop n --until x",
    ):
        assert (await run_command(cluster, wrong, tmp_path)).code == 1


@virtual(start=shop)
async def test_containers_that_run_for_a_while_and_exit(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Each attempt makes the Pod ready for a few seconds, and the statuses of its owners and endpoints follow. None of
    that is a consequence of the change."""
    loop = "image=busybox -- sh -c 'sleep 5; exit 1'"
    await run_successfully(cluster, f"run crash --{loop}", tmp_path)
    await run_successfully(cluster, f"create deployment loop --{loop}", tmp_path)
    await run_successfully(cluster, "expose deployment loop --port 80", tmp_path)
    for pause in ("3s", "40s", "20m"):  # it has not exited yet; it has just begun; the back-off is at its longest
        await cluster.advance(pause)
        found = await run_command(cluster, "plan --scale deployment/web=5", tmp_path)
        assert re.match(r"The cluster would converge in \d\.\ds: \d changed, 2 created\.\n", found.out), found.out
        happens = found.out.partition("What would happen:\n")[2].partition("\n\n")[0].splitlines()
        assert len(happens) > 5 and all("/web" in line for line in happens), found.out
    faulty = await run_command(cluster, "plan --scale deployment/web=5 --faults nodes=lost-answer:1", tmp_path)
    assert " It would end as without the faults" in faulty.out, faulty.out
