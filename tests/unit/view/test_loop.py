"""The loop of any object: desired, observed, drift, action."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.view.loop import Gauge, Phase, Related, look, pods_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE = {"spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]}}


def meta(**more: Any) -> dict[str, Any]:
    return {"name": "web", "namespace": "default", "generation": 1, **more}


def replicated(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": meta(),
        "spec": {"replicas": 3, "template": TEMPLATE, **spec},
        "status": {"observedGeneration": 1, **status},
    }


def pod(
    name: str = "a", *, ready: bool = False, waiting: str = "", node: str = "node-1", **more: Any
) -> dict[str, Any]:
    state = {"waiting": {"reason": waiting, "message": "the reason"}} if waiting else {"running": {}}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}, **more},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "nginx:1.29"}]},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [{"name": "web", "ready": ready, "state": state}],
        },
    }


def text(group: str, kind: str, obj: Any, pods: Any = None) -> tuple[str, str, str]:
    """Return phase, drift and action."""
    loop = look(group, kind, obj, Related(NOW, pods))
    return str(loop.phase), loop.note, loop.action


ALL = {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}


@pytest.mark.parametrize(
    ("group", "kind", "obj", "expected"),
    [
        ("apps", "Deployment", replicated(ALL), ("settled", "", "Nothing is to be done.")),
        (
            "apps",
            "Deployment",
            replicated(ALL) | {"metadata": meta(generation=2)},
            ("acting", "generation 2 is not observed yet", "deployment-controller has to observe the change."),
        ),
        (
            "apps",
            "Deployment",
            replicated({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}),
            ("acting", "1 Pod is missing", "replicaset-controller creates 1 Pod."),
        ),
        (
            "apps",
            "Deployment",
            replicated({**ALL, "replicas": 4, "updatedReplicas": 1}),
            (
                "acting",
                "3 Pods of an older template are left",
                "deployment-controller replaces Pods of the older template step by step.",
            ),
        ),
        (
            "apps",
            "Deployment",
            replicated({**ALL, "readyReplicas": 2}, paused=True),
            ("waiting", "1 Pod is not ready", "The rollout is paused (spec.paused)."),
        ),
        (
            "apps",
            "Deployment",
            replicated(
                {
                    **ALL,
                    "readyReplicas": 2,
                    "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
                }
            ),
            ("stuck", "1 Pod is not ready", "The rollout has made no progress for 600 s."),
        ),
        (
            "apps",
            "ReplicaSet",
            replicated(
                {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}]}
            ),
            (
                "waiting",
                "3 Pods are missing; Pods cannot be created: exceeded quota: pods",
                "replicaset-controller tries again, with growing pauses.",
            ),
        ),
        (
            "apps",
            "ReplicaSet",
            replicated({"replicas": 5, "readyReplicas": 5}),
            ("acting", "2 Pods are too many", "replicaset-controller deletes 2 Pods."),
        ),
        (
            "apps",
            "StatefulSet",
            replicated(
                {**ALL, "updatedReplicas": 1, "updateRevision": "b", "currentRevision": "a"},
                updateStrategy={"type": "OnDelete"},
            ),
            ("waiting", "2 Pods are not of the newest template", "Pods are replaced when they are deleted (OnDelete)."),
        ),
        (
            "apps",
            "DaemonSet",
            replicated({"desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberReady": 2}),
            ("acting", "1 Pod is missing; 2 Pods of an older template are left", "daemonset-controller creates 1 Pod."),
        ),
        (
            "batch",
            "Job",
            replicated({"active": 1, "succeeded": 1}, completions=3),
            ("acting", "2 completions are missing", "1 Pod works on it."),
        ),
        (
            "batch",
            "Job",
            replicated({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}),
            ("stuck", "it has failed: BackoffLimitExceeded", "job-controller does not try again."),
        ),
        (
            "batch",
            "CronJob",
            {"metadata": meta(), "spec": {"schedule": "5 * * * *"}},
            ("settled", "", "cronjob-controller starts the next Job at 2026-01-01 12:05:00 UTC."),
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            {
                "metadata": meta(),
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5},
                "status": {"currentReplicas": 2, "desiredReplicas": 4},
            },
            ("acting", "2 of 4 replicas", "horizontal-pod-autoscaler scales deployment/web."),
        ),
        ("", "Pod", pod(ready=True), ("settled", "", "Nothing is to be done.")),
        (
            "",
            "Pod",
            pod(node="") | {"status": {"phase": "Pending"}},
            ("acting", "it has no node", "kube-scheduler looks for a node."),
        ),
        (
            "",
            "Pod",
            pod(node="") | {"status": {"phase": "Pending", "conditions": [UNSCHEDULED]}},
            (
                "waiting",
                "it has no node: 0/3 nodes are available: 3 Insufficient cpu",
                "kube-scheduler tries again when a node or another Pod changes.",
            ),
        ),
        (
            "",
            "Pod",
            pod(waiting="ImagePullBackOff"),
            (
                "waiting",
                "a container waits: ImagePullBackOff: the reason",
                "kubelet node-1 tries again, with growing pauses.",
            ),
        ),
        (
            "",
            "Pod",
            pod(),
            ("acting", "container web is not ready", "kubelet node-1 waits for the probes to succeed."),
        ),
        (
            "",
            "Pod",
            pod(ready=True, deletionTimestamp="2026-01-01T11:59:30Z"),
            ("leaving", "it has been in deletion for 30s", "kubelet node-1 stops its containers, and then removes it."),
        ),
        (
            "",
            "Node",
            {
                "metadata": {"name": "node-1"},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
            },
            (
                "waiting",
                "it does not report: NodeStatusUnknown",
                "node-lifecycle-controller taints it; its Pods are evicted when their tolerations end.",
            ),
        ),
        (
            "",
            "PersistentVolumeClaim",
            {"metadata": meta(), "spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {}},
            (
                "waiting",
                "it is not bound to a volume",
                "persistentvolume-binder binds it when a volume fits, or its class provisions one.",
            ),
        ),
        (
            "",
            "Namespace",
            {
                "metadata": {"name": "old", "deletionTimestamp": "2026-01-01T11:59:00Z"},
                "status": {
                    "conditions": [
                        {"type": "NamespaceContentRemaining", "status": "True", "message": "1 Pod remains."},
                    ]
                },
            },
            (
                "leaving",
                "it has been in deletion for 60s",
                "namespace-controller deletes what is in it: 1 Pod remains.",
            ),
        ),
        (
            "",
            "ConfigMap",
            {"metadata": meta(), "data": {"a": "b"}},
            ("settled", "", "No controller acts on a ConfigMap."),
        ),
        # Kinds of which only the conventions are known.
        (
            "example.com",
            "Teapot",
            {"metadata": meta(generation=3), "spec": {"size": 2}, "status": {"observedGeneration": 2}},
            ("acting", "generation 3 is not observed yet", "Its controller has to observe it."),
        ),
        (
            "example.com",
            "Teapot",
            {
                "metadata": meta(),
                "spec": {},
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "False", "reason": "NoWater"},
                        {"type": "DiskPressure", "status": "False"},
                        {"type": "Stalled", "status": "False"},
                    ]
                },
            },
            ("stuck", "condition Ready is False: NoWater", "Its controller reports a problem: NoWater."),
        ),
        (
            "example.com",
            "Teapot",
            {"metadata": meta(), "spec": {"replicas": 3}, "status": {"readyReplicas": 1}},
            ("acting", "1 of 3 replicas are ready", "Its controller is at work."),
        ),
        (
            "example.com",
            "Teapot",
            {"metadata": meta(finalizers=["example.com/drain"], deletionTimestamp="2026-01-01T11:00:00Z"), "spec": {}},
            ("leaving", "it has been in deletion for 60m", "It waits for the finalizer example.com/drain."),
        ),
    ],
)
def test_phase_drift_and_action(group: str, kind: str, obj: Any, expected: tuple[str, str, str]) -> None:
    assert text(group, kind, obj) == expected


def test_pods_say_more_than_the_status() -> None:
    """The worst of the Pods decides what is said; without Pods there are only counts."""
    obj = replicated({**ALL, "readyReplicas": 1})
    pods = [pod("a", ready=True), pod("b", waiting="CrashLoopBackOff"), pod("c", node="")]
    loop = look("apps", "Deployment", obj, Related(NOW, pods))
    assert loop.observed == ["1 ready, 1 waiting for a node, 1 failing"]
    assert loop.desired == ["3 replicas", "image nginx:1.29"]
    assert loop.gauge == Gauge(1, 3, "Pods ready")
    assert loop.phase is Phase.WAITING
    assert loop.action == "pod/b is in CrashLoopBackOff: its kubelet tries again, with growing pauses."
    assert look("apps", "Deployment", obj, Related(NOW)).observed == ["1 ready, 2 not ready"]


def test_an_autoscaler_without_metrics_does_not_want_zero_replicas() -> None:
    failed = {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric"}
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5}
    status = {"currentReplicas": 3, "desiredReplicas": 0, "conditions": [failed]}
    obj = {"metadata": meta(), "spec": spec, "status": status}
    loop = look("autoscaling", "HorizontalPodAutoscaler", obj, Related(NOW))
    assert loop.observed == ["3 replicas, no number computed from the metrics"]
    assert loop.gauge is None
    assert [each.text for each in loop.drift] == ["it does not scale: FailedGetResourceMetric"]


def test_a_service_counts_the_pods_that_it_selects() -> None:
    obj = {"metadata": meta(), "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], "clusterIP": "10.0.0.1"}}
    pods = pods_of("", "Service", obj, [pod("a", ready=True), pod("b"), pod("c", labels={"app": "other"})])
    assert pods is not None and [each["metadata"]["name"] for each in pods] == ["a", "b"]
    assert text("", "Service", obj, pods)[:2] == ("acting", "1 matching Pod is not ready")
    assert text("", "Service", obj, [])[:2] == ("stuck", "its selector app=web matches no Pod")
    assert text("", "Service", obj)[:2] == ("settled", "")


def test_pods_belong_to_their_controller_and_to_their_node() -> None:
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    owner = {"metadata": meta(uid="1"), "spec": selector}
    owned = pod("a", ownerReferences=[{"uid": "1", "controller": True}])
    other = pod("b", ownerReferences=[{"uid": "2", "controller": True}])
    assert pods_of("apps", "ReplicaSet", owner, [owned, other]) == [owned]
    assert pods_of("apps", "Deployment", owner, [owned, other]) == [owned, other]
    assert pods_of("", "Node", {"metadata": {"name": "node-1"}}, [owned, pod("c", node="node-2")]) == [owned]
    assert pods_of("", "ConfigMap", {"metadata": meta()}, [owned]) is None
