"""Why something does not happen: rules on states that are written down in the test, without a server."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import Any

import pytest

from setpoint.meta.cause import WriteCause
from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import ContainerLog, Finding
from setpoint.view.why.facts import (
    Hold,
    InformerState,
    LogBounds,
    LogEnd,
    LoopKey,
    ObjectVersion,
    Ref,
    Refusal,
    SchedulingAttempt,
    Watcher,
    Written,
)
from setpoint.view.why.rules_loops import loop_findings
from setpoint.view.why.rules_objects import no_reason, object_findings
from setpoint.view.why.rules_pods import pod_findings

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z
QUOTA = 'pods "x" is forbidden: exceeded quota: few'
WEBHOOK = 'admission webhook "w" denied the request'
RIGHTS = 'pods is forbidden: User "x" cannot create resource "pods"'


class State:
    """The present state, without a history."""

    now, oldest = NOW, 1

    def __init__(
        self,
        *objects: tuple[str, dict[str, Any]],
        running: Collection[str] | None = None,
        loops: Sequence[LoopKey] = (),
        refusals: Sequence[Refusal] = (),
        watchers: Sequence[Watcher] = (Watcher("system:kube-controller-manager", "kube-controller-manager", 0),),
        others: int | None = 0,
        unreadable: Collection[str] = (),
        held: Hold | None = None,
        tried: SchedulingAttempt | None = None,
        log_ends: Sequence[bytes | LogEnd] = (),
        informers: Sequence[InformerState] = (),
        written: Sequence[Written] = (),
        sees_loops: bool = True,
    ) -> None:
        self._sees_loops = sees_loops
        self._informers, self._written = informers, written
        self.newest = max((each.revision for each in written), default=1)
        self._log_ends = log_ends
        self._objects = [(plural, obj) for plural, obj in objects]
        self._running, self._loops, self._refusals, self._watchers = running, loops, refusals, watchers
        self._others, self._unreadable = others, unreadable
        self._held, self._tried = held, tried

    def ref(self, key: str) -> Ref:
        group, _, plural = key.rstrip("/").partition("/")
        return Ref(group, plural, plural.removesuffix("s"), "", "")

    async def may_read(self, key: str) -> bool:
        return not any(f"/{plural}/" in key for plural in self._unreadable)

    async def write(self, revision: int) -> Written | None:
        return None

    async def versions(self, key: str, before: int, limit: int) -> list[ObjectVersion]:
        return []

    async def at(self, key: str, revision: int) -> ObjView | None:
        return None

    async def recent(self, before: int, since: int, limit: int) -> list[Written]:
        return [*self._written]

    def watched(self, cause: WriteCause) -> Collection[str]:
        return ()

    async def get(self, group: str, plural: str, namespace: str, name: str) -> ObjView | None:
        found = [obj for of, obj in self._objects if of == plural and obj["metadata"]["name"] == name]
        return found[0] if found else None

    async def list(self, group: str, plural: str, namespace: str = "", owner: str = "") -> Sequence[ObjView]:
        return [obj for of, obj in self._objects if of == plural]

    def refusals(self, ref: Ref) -> Sequence[Refusal]:
        return self._refusals

    def informers(self, ref: Ref) -> Sequence[InformerState]:
        return self._informers

    def hold(self, ref: Ref) -> Hold | None:
        return self._held

    def attempt(self, ref: Ref) -> SchedulingAttempt | None:
        return self._tried

    def controllers(self) -> Collection[str] | None:
        return self._running

    async def may_read_loops(self) -> bool:
        return self._sees_loops

    def loops(self, ref: Ref, controller: str = "") -> Sequence[LoopKey]:
        return self._loops

    async def logs(self, logs: Sequence[ContainerLog], bounds: LogBounds) -> Sequence[bytes | LogEnd]:
        return self._log_ends[: len(logs)]

    def other_servers(self) -> int | None:
        return self._others

    def watchers(self, ref: Ref) -> Sequence[Watcher]:
        return self._watchers


def done(found: Coroutine[Any, Any, list[Finding]]) -> list[str]:
    """Return the sentences of findings, each with its rule; the coroutine never suspends."""
    return [f"{each.rule}: {each.sentence}" for each in wait(found)]


def wait(found: Coroutine[Any, Any, list[Finding]]) -> list[Finding]:
    """Return the result of a coroutine that never suspends."""
    with pytest.raises(StopIteration) as stopped:
        found.send(None)
    result: list[Finding] = stopped.value.value
    return result


def kind(name: str, group: str = "apps") -> Ref:
    return Ref(group, f"{name.lower()}s", name, "default", "web")


def named(name: str = "web", **content: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **content.pop("metadata", {})}, **content}


def refusal(message: str, reason: str = "Forbidden", ago: int = 1, by: str = "deployment-controller") -> Refusal:
    user = f"system:serviceaccount:kube-system:{by}"
    return Refusal(NOW - 1000 * ago, user, "x", "create", "pods", "default", "", "default/web", 403, reason, message)


def writes(*ago: float, place: str = "apps/deployments/default/web", first: int = 11) -> list[Written]:
    """Return writes of an object, which were made these seconds ago, as `recent` does: the newest first."""
    found = [
        Written(first + number, WriteCause(NOW - int(1000 * seconds), "update", "alice"), [place])
        for number, seconds in enumerate(ago)
    ]
    return found[::-1]


def informer(resource: str, revision: int = 10, error: str = "", **more: Any) -> InformerState:
    since, retry = (NOW - 7_000, NOW + 5_000) if error else (0, 0)
    state = InformerState("kube-controller-manager", resource, False, True, revision, error, since, retry)
    return state._replace(**more)


WEB = named(spec={}, status={})
DEPLOYMENTS, NODE_7 = informer("deployments.apps"), "core/nodes/node-7"
LAGS = "informer-lag: kube-controller-manager has not received"


@pytest.mark.parametrize(
    ("informers", "written", "expected"),
    [
        ([DEPLOYMENTS], [], []),
        # What was written just now is under way.
        ([DEPLOYMENTS], writes(0.9), []),
        ([DEPLOYMENTS], writes(3), [f"{LAGS} the last change of deployments.apps, made 3s ago."]),
        (
            [DEPLOYMENTS],
            writes(9, 3, 0),
            [f"{LAGS} the last 3 changes of deployments.apps, the first of them made 9s ago."],
        ),
        ([informer("deployments.apps", 12)], writes(9, 3, 0), []),
        ([DEPLOYMENTS], writes(3, place="core/pods/default/x"), []),
        (
            [DEPLOYMENTS, informer("pods")],
            writes(3, place="core/pods/default/x"),
            [f"{LAGS} the last change of pods, made 3s ago."],
        ),
        # The controller of Deployments does not read nodes.
        ([DEPLOYMENTS, informer("nodes", error="x")], writes(3, place=NODE_7), []),
        # One with a selector need not receive the changes of other objects.
        ([informer("deployments.apps", selective=True)], writes(3, place="apps/deployments/default/web-2"), []),
        (
            [informer("deployments.apps", selective=True)],
            writes(3),
            [f"{LAGS} the last change of deployments.apps, made 3s ago."],
        ),
        ([informer("pods", selective=True)], writes(3, place="core/pods/default/x"), []),
        (
            [informer("deployments.apps", error="connection refused.")],
            [],
            ["informer-error: kube-controller-manager has not been able to watch deployments.apps for 7s."],
        ),
        (
            [
                informer("pods", 0, "forbidden", synced=False),
                informer("deployments.apps", 0, "forbidden", synced=False),
            ],
            [],
            [
                "not-synced: The loops of kube-controller-manager do not run yet: they wait for the first list of "
                "deployments.apps and pods."
            ],
        ),
        (
            [informer(each, 0, synced=False) for each in ("nodes", "pods", "jobs.batch")],
            [],
            [
                "not-synced: The loops of kube-controller-manager do not run yet: they wait for the first list of pods "
                "and 2 more resources."
            ],
        ),
    ],
)
def test_what_informers_have_not_received(
    informers: list[InformerState], written: list[Written], expected: list[str]
) -> None:
    state = State(running=["deployment-controller"], informers=informers, written=written)
    assert done(loop_findings(state, kind("Deployment"), WEB)) == expected


def test_the_error_of_a_loop_is_shown_to_users_who_may_read_the_loops() -> None:
    fails = LoopKey("deployment-controller", 0, False, NOW + 4_000, 6, 'pod "x" is odd', 0, 0, (), NOW - 90_000)

    def answered(sees_loops: bool) -> list[Finding]:
        state = State(running=[fails.controller], loops=[fails], sees_loops=sees_loops)
        return wait(loop_findings(state, kind("Deployment"), WEB))

    until = "it tries again at 00:00:04 UTC"
    text = "deployment-controller has failed 6 times with Deployment web, first 90s ago"
    assert answered(True) == [Finding("back-off", f'{text}: pod "x" is odd.', until=until)]
    missing = ["the right to get /setpoint/v1/loops, to see its error"]
    assert answered(False) == [Finding("back-off", f"{text}.", until=until, help=missing)]


def test_the_evidence_of_a_queue() -> None:
    waiting = LoopKey("deployment-controller", 3, False, 0, 0, "", 0, NOW - 5_000, ["default/a", "default/b"])
    (found,) = wait(loop_findings(State(running=[waiting.controller], loops=[waiting]), kind("Deployment"), WEB))
    assert found.evidence == [
        "it has waited for 5s",
        "deployment-controller is reconciling default/a, default/b",
    ]


@pytest.mark.parametrize(
    ("message", "until"),
    [
        ("back-off 10s restarting failed container=c", "it is started again at about 00:00:05 UTC"),
        ("back-off 1m20s restarting failed container=c", "it is started again at about 00:01:15 UTC"),
        ("back-off 5s restarting failed container=c", ""),  # it is due
        ("back-off .s restarting", ""),
        ("something else", ""),
    ],
)
def test_when_a_container_is_started_again(message: str, until: str) -> None:
    ended = {"exitCode": 1, "finishedAt": "2025-12-31T23:59:55Z"}
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    container = {"name": "c", "state": state, "lastState": {"terminated": ended}, "restartCount": 3}
    spec = {"nodeName": "n", "containers": [{"name": "c"}]}
    node = named("n", status={"conditions": [{"type": "Ready", "status": "True"}]})
    pod = named(spec=spec, status={"containerStatuses": [container]})
    (found,) = wait(pod_findings(State(("nodes", node)), Ref("", "pods", "Pod", "default", "web"), pod))
    assert (found.rule, found.until) == ("crash", until)


def test_the_evidence_of_informers() -> None:
    state = State(
        running=["deployment-controller"],
        informers=[informer("deployments.apps", error="connection refused.")],
        written=writes(9, 3),
    )
    (found,) = wait(loop_findings(state, kind("Deployment"), WEB))
    assert found.evidence == [
        "its informer is at revision 10, the last change has revision 12",
        "its requests have failed for 7s: connection refused",
    ]
    assert found.until == "it tries again at 00:00:05 UTC"


LEASE = named("kube-controller-manager", spec={"holderIdentity": "a", "leaseDurationSeconds": 15})
LEASE["spec"]["renewTime"] = "2025-12-31T23:59:31.000000Z"
LED = named("kube-controller-manager", spec={**LEASE["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"})
SILENT = named("kube-controller-manager", spec={**LEASE["spec"], "renewTime": "2025-12-31T23:59:48.000000Z"})
LONG = named("kube-controller-manager", spec={**SILENT["spec"], "leaseDurationSeconds": 60})
GIVEN_UP = named("kube-controller-manager", spec={**LED["spec"], "holderIdentity": "", "leaseDurationSeconds": 1})
GIVEN_UP["spec"]["renewTime"] = "2025-12-31T23:59:59.500000Z"
WATCHED = State(running=["deployment-controller"])


def test_when_another_leader_may_take_over() -> None:
    (found,) = wait(loop_findings(State(("leases", SILENT), running=[]), kind("Deployment"), WEB))
    assert found.until == "another one may become the leader at 00:00:03 UTC"


@pytest.mark.parametrize(
    ("state", "ref", "obj", "expected"),
    [
        (WATCHED, kind("Deployment"), WEB, []),
        (
            State(running=[], watchers=()),
            kind("Deployment"),
            WEB,
            ["no-controller: deployment-controller does not run."],
        ),
        # Another API server may have the controller among its clients: then there is a Lease.
        (State(("leases", LED), running=[], watchers=(), others=1), kind("Deployment"), WEB, []),
        (
            State(running=[], watchers=(), others=1),
            kind("Deployment"),
            WEB,
            [
                "no-leader: No kube-controller-manager holds its Lease: deployment-controller does not run, unless it "
                "does so without leader election."
            ],
        ),
        (
            State(running=[], watchers=(), others=None),
            kind("Pod", ""),
            WEB,
            [
                "no-leader: No kube-scheduler holds its Lease: kube-scheduler does not run, unless it does so without "
                "leader election."
            ],
        ),
        (State(running=[], watchers=(), others=1, unreadable=["leases"]), kind("Deployment"), WEB, []),
        (
            State(watchers=(), others=1),
            kind("Teapot", "example.com"),
            WEB,
            [
                "not-watched-here: No client of this API server watches teapots; those of the other API server are not "
                "known here."
            ],
        ),
        (
            State(watchers=(), others=2),
            kind("Teapot", "example.com"),
            WEB,
            [
                "not-watched-here: No client of this API server watches teapots; those of 2 other API servers are not "
                "known here."
            ],
        ),
        (State(watchers=[Watcher("kettle", "kettle", 0)], others=1), kind("Teapot", "example.com"), WEB, []),
        (State(watchers=(), others=1), kind("ConfigMap", ""), WEB, []),
        (State(running=[]), kind("Deployment"), WEB, []),
        (
            State(("leases", LEASE), running=[]),
            kind("Deployment"),
            WEB,
            ["no-leader: kube-controller-manager has had no leader for 14s: its Lease has expired."],
        ),
        # One whose Lease lasts longer need not renew it so often.
        (State(("leases", LONG), running=[]), kind("Deployment"), WEB, []),
        (
            State(("leases", GIVEN_UP), running=[]),
            kind("Deployment"),
            WEB,
            ["no-leader: kube-controller-manager has had no leader for 0s: the last one gave up its Lease."],
        ),
        (
            State(("leases", SILENT), running=[]),
            kind("Deployment"),
            WEB,
            ["no-leader: The leader of kube-controller-manager, a, has not renewed its Lease for 12s."],
        ),
        (
            State(),
            kind("Teapot", "example.com"),
            WEB,
            ["no-controller: No client watches teapots: probably no controller for them runs."],
        ),
        (State(watchers=[Watcher("kettle", "kettle", 0)]), kind("Teapot", "example.com"), WEB, []),
        (
            State(watchers=[Watcher("kettle", "kettle", NOW - 120_000)]),
            kind("Teapot", "example.com"),
            WEB,
            ["no-controller: No client watches teapots. The last one, kettle, stopped 2m ago."],
        ),
        (
            State(watchers=[Watcher("alice", "kubectl", 0)]),
            kind("Teapot", "example.com"),
            WEB,
            ["no-controller: No client watches teapots: probably no controller for them runs."],
        ),
        (State(watchers=()), kind("ConfigMap", ""), WEB, []),
        (
            WATCHED,
            kind("Deployment"),
            named(metadata={"generation": 7}, spec={}, status={"observedGeneration": 6}),
            ["not-observed: deployment-controller has not observed generation 7 of Deployment web; it has observed 6."],
        ),
        (
            State(running=["deployment-controller"], loops=[LoopKey("deployment-controller", 12, False, 0, 0, "", 0)]),
            kind("Deployment"),
            WEB,
            ["queued: Deployment web is number 12 in the queue of deployment-controller."],
        ),
        # The first in the queue is no news, unless it waits.
        (
            State(
                running=["deployment-controller"],
                loops=[LoopKey("deployment-controller", 1, False, 0, 0, "", 0, NOW - 900)],
            ),
            kind("Deployment"),
            WEB,
            [],
        ),
        (
            State(
                running=["deployment-controller"],
                loops=[LoopKey("deployment-controller", 1, False, 0, 0, "", 0, NOW - 9_000)],
            ),
            kind("Deployment"),
            WEB,
            ["queued: Deployment web is number 1 in the queue of deployment-controller."],
        ),
        (
            State(
                running=["deployment-controller"],
                loops=[LoopKey("deployment-controller", 0, True, 0, 0, "", 0, NOW - 900)],
            ),
            kind("Deployment"),
            WEB,
            [],
        ),
        (
            State(
                running=["deployment-controller"],
                loops=[LoopKey("deployment-controller", 0, True, 0, 0, "", 0, NOW - 12_000)],
            ),
            kind("Deployment"),
            WEB,
            ["reconciling: deployment-controller has been reconciling Deployment web for 12s."],
        ),
        (
            State(
                running=["deployment-controller"],
                loops=[LoopKey("deployment-controller", 0, False, NOW + 4_000, 6, "exceeded quota", 0)],
            ),
            kind("Deployment"),
            WEB,
            ["back-off: deployment-controller has failed 6 times with Deployment web: exceeded quota."],
        ),
        (
            State(running=["deployment-controller"], refusals=[refusal(QUOTA), refusal(QUOTA, ago=3)]),
            kind("Deployment"),
            WEB,
            [
                "quota: The server refused requests of deployment-controller to create pods: 2 times, last 1s ago (Forbidden)."
            ],
        ),
        (
            State(running=["deployment-controller"], refusals=[refusal(WEBHOOK, "Invalid")]),
            kind("Deployment"),
            WEB,
            [
                "webhook: The server refused requests of deployment-controller to create pods: once, last 1s ago (Invalid)."
            ],
        ),
        (
            State(running=["deployment-controller"], refusals=[refusal(RIGHTS)]),
            kind("Deployment"),
            WEB,
            ["rights: No RBAC rule allows deployment-controller to create pods; refused once, last 1s ago."],
        ),
        (State(running=["deployment-controller"], refusals=[refusal(QUOTA, ago=999)]), kind("Deployment"), WEB, []),
        (State(running=["deployment-controller"], refusals=[refusal(QUOTA, by="x")]), kind("Deployment"), WEB, []),
        (
            State(running=["deployment-controller"], refusals=[refusal("changed", "Conflict")] * 5),
            kind("Deployment"),
            WEB,
            [
                "conflict-loop: deployment-controller was refused 5 times in the last 2 minutes because others wrote the "
                "object meanwhile."
            ],
        ),
        (
            State(running=["deployment-controller"], refusals=[refusal("x", "Conflict")] * 4),
            kind("Deployment"),
            WEB,
            [],
        ),
        (
            State(running=["deployment-controller"], held=Hold("deployment-controller", "paused", "alice", NOW)),
            kind("Deployment"),
            WEB,
            ["held: deployment-controller is paused by alice."],
        ),
        (
            State(running=["deployment-controller"], held=Hold("deployment-controller", "slow", "", 0)),
            kind("Deployment"),
            WEB,
            ["slowed: deployment-controller was slowed down."],
        ),
        (State(refusals=[refusal(QUOTA)]), kind("ConfigMap", ""), WEB, []),
    ],
)
def test_loops(state: State, ref: Ref, obj: dict[str, Any], expected: list[str]) -> None:
    assert done(loop_findings(state, ref, obj)) == expected


@pytest.mark.parametrize(("unreadable", "evidence"), [([], [QUOTA]), (["pods"], [])])
def test_the_message_of_a_refusal_is_for_readers_of_the_object(unreadable: list[str], evidence: list[str]) -> None:
    """It names objects that the controller of the readable object writes."""
    state = State(running=["deployment-controller"], refusals=[refusal(QUOTA)], unreadable=unreadable)
    (found,) = wait(loop_findings(state, kind("Deployment"), WEB))
    assert (found.rule, found.evidence) == ("quota", evidence)


@pytest.mark.parametrize(
    ("ref", "obj", "expected"),
    [
        (
            kind("Deployment"),
            named(spec={"replicas": 0}, status={"observedGeneration": 0}),
            ["no-replicas: Deployment web wants no Pods: its spec.replicas is 0."],
        ),
        (
            kind("StatefulSet"),
            named(spec={"replicas": 0}, status={}),
            ["no-replicas: StatefulSet web wants no Pods: its spec.replicas is 0."],
        ),
        (kind("Job", "batch"), named(spec={}, status={"conditions": [{"type": "Complete", "status": "True"}]}), []),
        (
            kind("CronJob", "batch"),
            named(spec={"schedule": "61 * * * *"}),
            ["schedule: The schedule of CronJob web is not valid: end of range (61) above maximum (59): 61."],
        ),
        (
            kind("CronJob", "batch"),
            named(spec={"schedule": "0 13 * * *", "timeZone": "Europe/Berlin"}),
            ["schedule: CronJob web starts its next Job at 12:00:00 UTC (0 13 * * *)."],
        ),
        (
            kind("Service", ""),
            named(spec={"type": "LoadBalancer"}),
            ["load-balancer: Service web has no address: no load balancer has assigned one."],
        ),
        (kind("Service", ""), named(spec={"type": "ExternalName", "selector": {"a": "b"}}), []),
        (
            kind("PodDisruptionBudget", "policy"),
            named(status={}),
            ["no-disruption: PodDisruptionBudget web allows no evictions: its selector matches no Pods."],
        ),
        (
            kind("Teapot", "example.com"),
            named(status={"conditions": [{"type": "Degraded", "status": "True", "message": "cold."}]}),
            ["condition: Condition Degraded of Teapot web is True: cold."],
        ),
        (
            kind("Teapot", "example.com"),
            named(metadata={"deletionTimestamp": "2025-12-31T23:59:00Z", "finalizers": ["foregroundDeletion"]}),
            ["dependents: Teapot web waits until its dependents are deleted (foreground deletion), for 60s."],
        ),
        (
            kind("Teapot", "example.com"),
            named(metadata={"deletionTimestamp": "2025-12-31T23:59:00Z"}),
            ["terminating: Teapot web has been in deletion for 60s."],
        ),
        (
            kind("Deployment"),
            named(spec={"replicas": 2}, status={"replicas": 1}),
            [],
        ),
    ],
)
def test_objects(ref: Ref, obj: dict[str, Any], expected: list[str]) -> None:
    assert done(object_findings(State(), "key", ref, obj)) == expected


def container(**state: Any) -> dict[str, Any]:
    return {"name": "app", "image": "nginx", "ready": False, "restartCount": 5, **state}


def running(**status: Any) -> dict[str, Any]:
    return named(spec={"nodeName": "node-1", "containers": [{"name": "app"}]}, status={"phase": "Pending", **status})


READY_NODE = ("nodes", named("node-1", status={"conditions": [{"type": "Ready", "status": "True"}]}))
WAITS = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 80s restarting failed container"}}
LAST = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2025-12-31T23:59:20Z"}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (running(phase="Succeeded"), []),
        (running(conditions=[{"type": "Ready", "status": "True"}]), []),
        (
            running(phase="Failed", reason="Evicted", message="The node was low on memory."),
            ["failed: Pod web has failed: Evicted: The node was low on memory."],
        ),
        (running(), ["not-started: Pod web is bound to node node-1, which has not started it yet."]),
        (
            running(containerStatuses=[container(state=WAITS, lastState=LAST)]),
            ["crash: Pod web is not ready: container app keeps exiting; it was restarted 5 times."],
        ),
        (
            running(containerStatuses=[container(state={"waiting": {"reason": "ContainerCreating"}})]),
            ["starting: Pod web waits for container app, which is being started."],
        ),
        (
            running(containerStatuses=[container(state={"running": {}}, started=True)]),
            ["not-ready: Pod web is not ready: container app is running and not ready."],
        ),
        (
            named(
                metadata={"deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 30},
                spec={"nodeName": "node-1"},
            ),
            ["terminating: Pod web is being deleted: its grace period of 30 s ends at 00:00:20 UTC."],
        ),
        (
            named(spec={"nodeName": "gone"}),
            [
                "no-node: Pod web is bound to node gone, which does not exist.",
                "not-started: Pod web is bound to node gone, which has not started it yet.",
            ],
        ),
    ],
)
def test_pods(pod: dict[str, Any], expected: list[str]) -> None:
    assert done(pod_findings(State(READY_NODE), kind("Pod", ""), pod)) == expected


def claim(name: str = "web", phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    more = {"metadata": spec.pop("metadata")} if "metadata" in spec else {}
    spec = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast", **spec}
    return named(name, spec=spec, status={"phase": phase}, **more)


def storage(provisioner: str, mode: str = "Immediate") -> tuple[str, dict[str, Any]]:
    return "storageclasses", named("fast", provisioner=provisioner, volumeBindingMode=mode)


def using(name: str, **volume: Any) -> tuple[str, dict[str, Any]]:
    return "pods", named(name, spec={"volumes": [{"name": "data", **volume}, {"name": "token", "projected": {}}]})


LATE = storage("example.com/disk", "WaitForFirstConsumer")
USES_WEB = {"persistentVolumeClaim": {"claimName": "web"}}
SELECTED = {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}
UNBOUND = "unbound: PersistentVolumeClaim web is not bound"
WAITS_FOR_POD = "first-consumer: PersistentVolumeClaim web is bound when"


@pytest.mark.parametrize(
    ("objects", "unreadable", "obj", "expected"),
    [
        ([], [], claim(phase="Bound"), []),
        (
            [],
            [],
            claim(phase="Lost", volumeName="disk"),
            ["lost: PersistentVolumeClaim web is lost: the volume disk that it was bound to is not its own any more."],
        ),
        (
            [],
            [],
            claim(storageClassName=""),
            [f"{UNBOUND}: no free volume without a class offers 1Gi with its access modes."],
        ),
        ([], [], claim(), ["no-class: PersistentVolumeClaim web is not bound: its storage class fast does not exist."]),
        # Without the right to read the class, it is not known whether a volume is missing or a provisioner is late.
        ([], ["storageclasses"], claim(), [f"{UNBOUND}. You may not read its storage class fast."]),
        ([storage("example.com/disk")], [], claim(), [f"{UNBOUND}: it waits for the provisioner example.com/disk."]),
        (
            [storage("kubernetes.io/no-provisioner")],
            [],
            claim(),
            [f"{UNBOUND}: no free volume of class fast offers 1Gi with its access modes."],
        ),
        ([LATE], [], claim(), [f"{WAITS_FOR_POD} the first Pod uses it; none does."]),
        ([LATE], ["pods"], claim(), [f"{WAITS_FOR_POD} a Pod that uses it is scheduled."]),
        ([LATE, using("a", **USES_WEB)], [], claim(), [f"{WAITS_FOR_POD} a Pod that uses it is scheduled: pod/a."]),
        (
            [LATE, using("a", ephemeral={"volumeClaimTemplate": {}})],
            [],
            claim("a-data"),
            ["first-consumer: PersistentVolumeClaim a-data is bound when a Pod that uses it is scheduled: pod/a."],
        ),
        (
            [LATE, *(using(each, **USES_WEB) for each in "abcde")],
            [],
            claim(),
            [f"{WAITS_FOR_POD} a Pod that uses it is scheduled: pod/a, pod/b, pod/c and 2 more."],
        ),
        (
            [LATE, using("a", **USES_WEB)],
            [],
            claim(metadata=SELECTED),
            [f"{UNBOUND}: it waits for the provisioner example.com/disk."],
        ),
        ([], [], claim(volumeName="disk"), [f"{UNBOUND}: it names the volume disk, which does not exist."]),
        (
            [],
            ["persistentvolumes"],
            claim(volumeName="disk"),
            [f"{UNBOUND}: it names the volume disk, which you may not read."],
        ),
        (
            [("persistentvolumes", named("disk", spec={"claimRef": {"namespace": "shop", "name": "data"}}))],
            [],
            claim(volumeName="disk"),
            [f"{UNBOUND}: it names the volume disk, which is reserved for shop/data."],
        ),
        (
            [("persistentvolumes", named("disk", spec={}, status={"phase": "Failed"}))],
            [],
            claim(volumeName="disk"),
            [f"{UNBOUND}: it names the volume disk, whose phase is Failed."],
        ),
    ],
)
def test_claims(
    objects: list[tuple[str, dict[str, Any]]], unreadable: list[str], obj: dict[str, Any], expected: list[str]
) -> None:
    state = State(*objects, unreadable=unreadable)
    ref = Ref("", "persistentvolumeclaims", "PersistentVolumeClaim", "default", obj["metadata"]["name"])
    assert done(object_findings(state, "key", ref, obj)) == expected


@pytest.mark.parametrize(
    ("ref", "obj", "sentence", "look"),
    [
        (
            kind("Deployment"),
            named(spec={"replicas": 2}, status={"readyReplicas": 2}),
            "Deployment web is as desired, as far as can be seen: 2 of 2 replicas are ready.",
            [],
        ),
        (
            kind("Deployment"),
            named(spec={"replicas": 4}, status={"readyReplicas": 2}),
            "Deployment web is not as desired, and no reason is known: 2 of 4 replicas are ready.",
            ["`setpoint describe deployment/web` shows its Events."],
        ),
        (
            kind("Teapot", "example.com"),
            named(spec={"cups": 2}, status={"brewed": 1}),
            "No problem of Teapot web is known, but objects of its kind are not examined.",
            ["`setpoint describe teapot/web` shows its Events."],
        ),
    ],
)
def test_no_reason_is_known(ref: Ref, obj: dict[str, Any], sentence: str, look: list[str]) -> None:
    assert no_reason(ref, obj) == (sentence, look)


REMAINING = (
    "Some resources are remaining: configmaps. has 2 resource instances, deployments.apps has 1 resource instances"
)


def test_what_is_left_in_a_namespace() -> None:
    condition = {"type": "NamespaceContentRemaining", "status": "True", "message": REMAINING}
    leaving = {"deletionTimestamp": "2025-12-31T23:59:00Z"}
    held = {"finalizers": ["example.com/backup"]}
    state = State(("configmaps", named("one", metadata=held)), ("configmaps", named("two")))
    obj = named("shop", metadata=leaving, status={"conditions": [condition]})
    found = wait(object_findings(state, "key", Ref("", "namespaces", "Namespace", "", "shop"), obj))
    assert [each.sentence for each in found] == ["Namespace shop is being deleted, and 3 objects are left in it."]
    assert found[0].evidence == [
        "configmap/one waits for the finalizer example.com/backup",
        "configmap/two",
        "1 of deployments.apps",
    ]


def test_a_node_that_does_not_take_a_pod_for_a_reason_of_the_scheduler() -> None:
    tried = SchedulingAttempt(3, NOW - 5_000, "", [("node-1", "node(s) didn't match pod topology spread constraints")])
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available."}
    pod = named(spec={"containers": []}, status={"conditions": [condition]})
    found = wait(pod_findings(State(READY_NODE, tried=tried), kind("Pod", ""), pod))
    assert found[0].evidence == [
        "node-1  node(s) didn't match pod topology spread constraints",
        "kube-scheduler has tried 3 times, last 5s ago",
    ]
