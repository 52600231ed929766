"""The stories of `tests/scenarios` again, in real time, as somebody would type them: with the real kubectl, and with
`setpoint` in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from kubectl_runner import Kubectl, Setpoint, kubectls, until
from up_process import up_process

BINARIES = kubectls()
pytestmark = [pytest.mark.slow]
POD = "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"


@pytest.fixture(scope="module", params=["kubectl", "setpoint"])
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    if request.param == "kubectl" and not BINARIES:
        pytest.skip("no kubectl on the path, nor in SETPOINT_TEST_KUBECTL")
    directory = tmp_path_factory.mktemp("stories")
    with up_process(directory, "--nodes", "3") as kubeconfig:
        kubectl = Kubectl(BINARIES[-1], kubeconfig, directory, "default")
        if request.param == "setpoint":
            kubectl = Setpoint(_setpoint(directory), kubeconfig, directory, "default")
        _begin_autoscaling(kubectl)
        yield kubectl


def _setpoint(directory: Path) -> Path:
    """Our own command line as a program that can be called like the other."""
    script = directory / "setpoint"
    path = os.pathsep.join(sys.path)
    script.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' -m setpoint \"$@\"\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def kubectl(cluster: Kubectl, request: pytest.FixtureRequest) -> Kubectl:
    """In a namespace of its own."""
    name = request.node.originalname.removeprefix("test_").replace("_", "-")
    cluster("create", "namespace", name)
    return replace(cluster, namespace=name)


def pods(kubectl: Kubectl, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.get("pods", *args)["items"]
    return found


def ready(kubectl: Kubectl, what: str) -> None:
    kubectl("wait", what, "--for=condition=Ready", "--timeout=30s")


def test_a1_a_pod_gets_defaults_and_a_status(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD.format(name="simple-pod", image="nginx"))
    ready(kubectl, "pod/simple-pod")
    pod = kubectl.get("pod", "simple-pod")
    assert {"uid", "resourceVersion", "creationTimestamp"} <= pod["metadata"].keys()
    assert pod["spec"]["dnsPolicy"] == "ClusterFirst"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    kinds = {each["type"] for each in pod["status"]["conditions"] if each["status"] == "True"}
    assert {"PodScheduled", "Initialized", "ContainersReady", "Ready"} <= kinds
    (status,) = pod["status"]["containerStatuses"]
    assert status["imageID"]
    assert "running" in status["state"]


def test_a2_a_watch_shows_each_step(kubectl: Kubectl) -> None:
    command = [str(kubectl.binary), "--kubeconfig", str(kubectl.kubeconfig), "-n", kubectl.namespace]
    kubectl("run", "before", "--image=nginx")
    with subprocess.Popen([*command, "get", "pods", "--watch"], stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline().split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
            assert watching.stdout.readline().split()[0] == "before", "it watches"
            manifest = POD.format(name="stepping", image="registry.example/not-yet-pulled:1").replace(
                "{name: stepping}", '{name: stepping, annotations: {simulate.setpoint.dev/pull-seconds: "0.3"}}'
            )
            kubectl("apply", "-f", "-", stdin=manifest)
            ready(kubectl, "pod/stepping")
            kubectl("delete", "pod", "stepping", "--timeout=30s")
            kubectl("run", "after", "--image=nginx")
            lines: list[list[str]] = []
            while not lines or lines[-1][0] != "after":
                lines.append(watching.stdout.readline().split())
        finally:
            watching.terminate()
    steps = [step for step, _ in groupby((line[1], line[2]) for line in lines if line[0] == "stepping")]
    begin = [("0/1", "Pending"), ("0/1", "ContainerCreating"), ("1/1", "Running"), ("1/1", "Terminating")]
    assert steps[:4] == begin
    assert {status for _, status in steps[4:]} <= {"Terminating", "Completed"}


def test_a3_a_missing_image(kubectl: Kubectl) -> None:
    kubectl("run", "lost", "--image=registry.example/does-not-exist:1")

    def waiting() -> Any:
        (pod,) = pods(kubectl)
        (status,) = pod["status"].get("containerStatuses") or [{}]
        return status.get("state", {}).get("waiting") if pod["status"]["phase"] == "Pending" else None

    until(lambda: (waiting() or {}).get("reason") in ("ErrImagePull", "ImagePullBackOff"))
    until(lambda: (waiting() or {}).get("reason") == "ImagePullBackOff")
    assert "does-not-exist" in waiting()["message"]
    assert "Failed to pull image" in kubectl("describe", "pod", "lost")


def test_a4_an_exiting_container_is_restarted(kubectl: Kubectl) -> None:
    kubectl("run", "crash", "--image=busybox", "--", "sh", "-c", "echo hello; exit 3")
    until(lambda: "CrashLoopBackOff" in kubectl("get", "pods"))
    (status,) = pods(kubectl)[0]["status"]["containerStatuses"]
    assert (status.get("lastState") or status["state"])["terminated"]["exitCode"] == 3
    assert kubectl("logs", "crash").strip() == "hello"


def test_a5_users_write_spec_and_loops_write_status(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    before = kubectl.get("deployment", "web")
    kubectl("patch", "deployment", "web", "-p", '{"status": {"replicas": 99}}')
    assert kubectl.get("deployment", "web")["status"]["replicas"] == 1
    stale = {**before, "metadata": {**before["metadata"], "resourceVersion": "1"}}
    assert "the object has been modified" in kubectl.refused("replace", "-f", "-", stdin=json.dumps(stale))
    kubectl("scale", "deployment/web", "--replicas=2")
    until(lambda: caught_up(kubectl))


def caught_up(kubectl: Kubectl) -> bool:
    web = kubectl.get("deployment", "web")
    return bool(web["metadata"]["generation"] == web["status"]["observedGeneration"] == 2)


def test_b1_from_a_deployment_to_its_endpoints(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
    kubectl("expose", "deployment", "web", "--port=80")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    addresses = {pod["status"]["podIP"] for pod in pods(kubectl)}

    def behind() -> set[str]:
        slices = kubectl.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
        return {each for one in slices for end in one.get("endpoints") or () for each in end["addresses"]}

    until(lambda: behind() == addresses)
    assert all(f"{address}:80" in kubectl("get", "endpoints", "web") for address in addresses)


def test_b2_a_deleted_pod_is_replaced(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    before = {pod["metadata"]["name"] for pod in pods(kubectl)}
    kubectl("delete", "pod", sorted(before)[0], "--wait=false")
    (new,) = until(lambda: {pod["metadata"]["name"] for pod in pods(kubectl)} - before)
    assert f"Created pod: {new}" in until(lambda: new in kubectl("describe", "rs") and kubectl("describe", "rs"))


def test_b4_leases_name_the_leaders(kubectl: Kubectl) -> None:
    table = kubectl("-n", "kube-system", "get", "lease")
    rows = {line.split()[0]: line.split()[1] for line in table.splitlines()[1:]}
    assert rows["kube-controller-manager"] == rows["kube-scheduler"] != ""


def test_b6_an_unschedulable_pod_reports_why(kubectl: Kubectl) -> None:
    spec = POD.format(name="huge", image="nginx").replace(
        "image: nginx", 'image: nginx, resources: {requests: {cpu: "9999"}}'
    )
    kubectl("apply", "-f", "-", stdin=spec)
    until(lambda: "0/3 nodes are available: 3 Insufficient cpu." in kubectl("describe", "pod", "huge"))
    assert "Pending" in kubectl("get", "pod", "huge")


def test_b7_logs_of_the_control_plane(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "told", "--image=nginx")
    asked = ("-n", "kube-system", "logs", "-l", "component=kube-controller-manager", "--tail=50")
    until(lambda: "ScalingReplicaSet" in kubectl(*asked))


def test_c2_a_relabelled_pod_is_released(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    out = pods(kubectl)[0]["metadata"]["name"]
    kubectl("label", "pod", out, "app=other", "--overwrite")
    until(lambda: len(pods(kubectl, "-l", "app=web")) == 2)
    until(lambda: "ownerReferences" not in kubectl.get("pod", out)["metadata"])


def test_c3_a_stateful_set_keeps_names_and_claims(kubectl: Kubectl) -> None:
    manifest = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: postgres}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("rollout", "status", "statefulset/db", "--timeout=40s")
    volume = kubectl.get("pvc", "data-db-1")["spec"]["volumeName"]
    kubectl("scale", "statefulset/db", "--replicas=1")
    kubectl("wait", "pod/db-1", "--for=delete", "--timeout=30s")
    kubectl("scale", "statefulset/db", "--replicas=2")
    until(lambda: "db-1" in kubectl("get", "pods"))
    ready(kubectl, "pod/db-1")
    assert kubectl.get("pvc", "data-db-1")["spec"]["volumeName"] == volume


def test_c4_jobs_and_cron_jobs(kubectl: Kubectl) -> None:
    kubectl("create", "job", "pi", "--image=perl", "--", "sh", "-c", "echo 3.14159")
    kubectl("wait", "job/pi", "--for=condition=Complete", "--timeout=30s")
    assert kubectl("logs", "job/pi").strip() == "3.14159"
    kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=0 0 1 1 *", "--", "true")
    kubectl("create", "job", "now", "--from=cronjob/tick")
    kubectl("wait", "job/now", "--for=condition=Complete", "--timeout=30s")


def test_c4_a_daemon_pod_on_every_node_including_new_nodes(kubectl: Kubectl) -> None:
    manifest = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: nginx}]}
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("rollout", "status", "daemonset/agent", "--timeout=30s")
    assert {pod["spec"]["nodeName"] for pod in pods(kubectl)} == {"node-1", "node-2", "node-3"}
    late = "apiVersion: v1\nkind: Node\nmetadata: {name: late, labels: {simulate.setpoint.dev/node: 'true'}}\n"
    kubectl("create", "-f", "-", stdin=late)
    try:
        until(lambda: "late" in {pod["spec"].get("nodeName") for pod in pods(kubectl)})
        kubectl("rollout", "status", "daemonset/agent", "--timeout=30s")
        assert kubectl("get", "daemonset", "agent").splitlines()[1].split()[1:4] == ["4", "4", "4"]
    finally:
        kubectl("delete", "node", "late")


def test_c5_an_unready_pod_is_removed_from_its_service(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx", "--port=80", "--expose")
    ready(kubectl, "pod/web")
    probe = (
        POD.format(name="probed", image="nginx")
        .replace(
            "image: nginx", "image: nginx, readinessProbe: {httpGet: {port: 80}, periodSeconds: 1, failureThreshold: 1}"
        )
        .replace("name: probed}", "name: probed, labels: {run: web}}")
    )
    kubectl("apply", "-f", "-", stdin=probe)
    ready(kubectl, "pod/probed")
    address = kubectl.get("pod", "probed")["status"]["podIP"]
    until(lambda: address in kubectl("get", "endpoints", "web"))
    kubectl("annotate", "pod", "probed", "simulate.setpoint.dev/readiness=false")
    until(lambda: address not in kubectl("get", "endpoints", "web"))
    kubectl("annotate", "pod", "probed", "simulate.setpoint.dev/readiness-")
    until(lambda: address in kubectl("get", "endpoints", "web"))


def test_c6_a_drain_respects_the_budget(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=2")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    until(lambda: kubectl.get("pdb", "web")["status"]["disruptionsAllowed"] == 1)
    node = pods(kubectl)[0]["spec"]["nodeName"]
    try:
        told = kubectl("drain", node, "--force", "--ignore-daemonsets", "--grace-period=0", "--pod-selector=app=web")
        assert "evicted" in told
        until(lambda: all(pod["spec"].get("nodeName") != node for pod in pods(kubectl)))
    finally:
        kubectl("uncordon", node)


def test_c6_a_pod_of_high_priority_preempts_others(kubectl: Kubectl) -> None:
    kubectl("create", "priorityclass", "low", "--value=10")
    kubectl("create", "priorityclass", "high", "--value=1000")
    kubectl("label", "node", "node-3", "pool=scarce")
    try:
        for name, priority in (("cheap", "low"), ("dear", "high")):
            manifest = POD.format(name=name, image="nginx").replace(
                "spec: {",
                f"spec: {{priorityClassName: {priority}, nodeSelector: {{pool: scarce}}, "
                "terminationGracePeriodSeconds: 1, ",
            )
            manifest = manifest.replace("image: nginx", 'image: nginx, resources: {requests: {cpu: "5"}}')
            kubectl("apply", "-f", "-", stdin=manifest)
            if name == "cheap":
                ready(kubectl, "pod/cheap")
        ready(kubectl, "pod/dear")
        assert [pod["metadata"]["name"] for pod in pods(kubectl)] == ["dear"]
        told = until(lambda: "Preempted" in kubectl("get", "events") and kubectl("get", "events"))
        assert "Preempted by pod" in told and "on node node-3" in told
    finally:
        kubectl("label", "node", "node-3", "pool-")


def test_c6_a_quota_reports_usage_and_rejects_excess(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "few", "--hard=pods=1")
    until(lambda: kubectl.get("quota", "few").get("status", {}).get("hard") == {"pods": "1"})
    kubectl("run", "one", "--image=nginx")
    refused = kubectl.refused("run", "two", "--image=nginx")
    assert 'pods "two" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1' in refused
    assert "pods: 1/1" in kubectl("get", "quota", "few")
    kubectl("delete", "pod", "one", "--grace-period=0", "--force")
    until(lambda: "pods: 0/1" in kubectl("get", "quota", "few"))
    kubectl("run", "two", "--image=nginx")


def test_c6_a_namespace_is_deleted_with_its_content(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "password", "--from-literal=a=b")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=60s")
    assert "NotFound" in kubectl.refused("get", "namespace", kubectl.namespace)
    assert pods(kubectl) == []


def test_d1_finalizers_and_grace_periods(kubectl: Kubectl) -> None:
    held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n"
    kubectl("create", "-f", "-", stdin=held)
    kubectl("delete", "configmap", "held", "--wait=false")
    assert "deletionTimestamp" in kubectl.get("configmap", "held")["metadata"]
    kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    kubectl("wait", "configmap/held", "--for=delete", "--timeout=10s")
    kubectl("run", "deaf", "--image=busybox", "--grace-period=1", "--", "sleep", "1000")
    ready(kubectl, "pod/deaf")
    began = time.monotonic()
    kubectl("delete", "pod", "deaf", "--grace-period=2", "--timeout=30s")
    assert time.monotonic() - began >= 2, "it does not hear, and is killed when its time is up"


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_d1_cascading_deletion(cluster: Kubectl, cascade: str) -> None:
    cluster("create", "namespace", f"d1-{cascade}")
    kubectl = replace(cluster, namespace=f"d1-{cascade}")
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "deployment", "web", f"--cascade={cascade}")
    if cascade == "orphan":
        (left,) = kubectl.get("rs")["items"]
        until(lambda: "ownerReferences" not in kubectl.get("rs", left["metadata"]["name"])["metadata"])
        assert len(pods(kubectl)) == 2
    else:
        until(lambda: not pods(kubectl) and not kubectl.get("rs")["items"])


def test_e1_selectors_of_both_kinds(kubectl: Kubectl) -> None:
    for name, labels in (("one", "app=a,tier=x"), ("two", "app=b,tier=x"), ("three", "app=c")):
        kubectl("run", name, "--image=nginx", f"--labels={labels}")

    def selected(selector: str) -> set[str]:
        return {pod["metadata"]["name"] for pod in pods(kubectl, "-l", selector)}

    assert selected("app in (a,c)") == {"one", "three"}
    assert selected("tier,app!=a") == {"two"}
    assert selected("!tier") == {"three"}
    assert selected("app notin (a,b)") == {"three"}


def test_e2_namespaced_and_cluster_scoped_kinds(kubectl: Kubectl) -> None:
    inside = kubectl("api-resources", "--namespaced=true", "-o", "name").split()
    outside = kubectl("api-resources", "--namespaced=false", "-o", "name").split()
    assert {"pods", "deployments.apps", "leases.coordination.k8s.io"} <= set(inside)
    assert {"nodes", "namespaces", "persistentvolumes", "clusterroles.rbac.authorization.k8s.io"} <= set(outside)


# -- autoscaling ------------------------------------------------------------------------------------------------------


def _begin_autoscaling(cluster: Kubectl) -> None:
    """Usage is measured only after a while, and the autoscaler looks every 15 seconds: it begins before all other
    stories, and is looked at when they are told."""
    cluster("create", "namespace", "autoscaled")
    kubectl = replace(cluster, namespace="autoscaled")
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("set", "resources", "deployment/web", "--requests=cpu=100m")
    busy = {"spec": {"template": {"metadata": {"annotations": {"simulate.setpoint.dev/cpu": "200m"}}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(busy))
    kubectl("autoscale", "deployment", "web", "--min=1", "--max=4", "--cpu-percent=50")


def test_c6_a_deployment_under_load_is_scaled(cluster: Kubectl) -> None:
    kubectl = replace(cluster, namespace="autoscaled")
    until(lambda: kubectl.get("deployment", "web")["spec"]["replicas"] == 4, seconds=60)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    told = kubectl("describe", "hpa", "web")
    assert "New size: 4; reason: cpu resource utilization (percentage of request) above target" in told
    assert "cpu: 200%/50%" in until(lambda: "cpu: " in kubectl("get", "hpa") and kubectl("get", "hpa"))
