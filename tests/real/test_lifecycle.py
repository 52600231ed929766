"""The life of containers on a real node: restarts, back-off, memory limits, probes, hooks and the order of the start."""

from __future__ import annotations

import json
import re

import pytest
from kubectl_runner import until
from real_kubectl import PodClient, pod
from real_registry import Registry

pytestmark = pytest.mark.real
HTTP = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 2}


def test_crash_loop_with_doubling_back_off(pods: PodClient, registry: Registry) -> None:
    pods.apply(pod("crash", registry.image("crash")))
    pattern = r"back-off (\d+)s restarting failed container=main pod=crash_[a-z-]+\([0-9a-f-]+\)"

    def back_off() -> int:
        waiting = pods.status("crash").get("state", {}).get("waiting", {})
        found = re.fullmatch(pattern, waiting.get("message", ""))
        return int(found[1]) if found and waiting["reason"] == "CrashLoopBackOff" else 0

    # The first restart is immediate, the second one after 10 seconds.
    until(lambda: back_off() == 20, 90.0)
    status = pods.status("crash")
    assert status["restartCount"] == 2
    last = status["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"], last["message"]) == (3, "Error", "the reason is in the message\n")
    pods.has_event("crash", "BackOff", "Back-off restarting failed container main in pod crash_")
    assert "crashing with 3" in pods.kubectl("logs", "crash", "--previous")


def test_restart_policy_never_keeps_the_exit_code(pods: PodClient, registry: Registry) -> None:
    environment = {"env": [{"name": "EXIT_CODE", "value": "42"}]}
    pods.apply(pod("once", registry.image("crash"), container=environment, restartPolicy="Never"))
    found = pods.wait_phase("once", "Failed")
    terminated = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (42, "Error")
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


def test_out_of_memory(pods: PodClient, registry: Registry) -> None:
    limits = {"resources": {"limits": {"memory": "32Mi"}}}
    pods.apply(pod("memory", registry.image("memory"), container=limits, restartPolicy="Never"))
    found = pods.wait_phase("memory", "Failed")
    terminated = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")


def test_program_that_does_not_exist(pods: PodClient, registry: Registry) -> None:
    pods.apply(pod("absent", registry.image("busybox"), "/no/such/program", restartPolicy="Never"))
    found = pods.wait_phase("absent", "Failed")
    terminated = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (128, "StartError")
    assert "no such file or directory" in terminated["message"]
    pods.has_event("absent", "Failed", "no such file or directory")


def test_liveness_probe_restarts(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("web", registry.image("web"), container={"livenessProbe": HTTP}))
    pods.execute("web", "rm /www/healthz")
    until(lambda: pods.status("web").get("restartCount") == 1, 60.0)
    pods.has_event("web", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 404")
    pods.has_event("web", "Killing", "Container main failed liveness probe, will be restarted")
    pods.wait_ready("web")
    assert "stopped" in pods.kubectl("logs", "web", "--previous")


def test_readiness_probe_takes_the_pod_out_of_its_endpoints(pods: PodClient, registry: Registry) -> None:
    ports = [{"containerPort": 8080}]
    pods.kubectl("create", "service", "clusterip", "web", "--tcp=80:8080")
    found = pods.run(pod("web", registry.image("web"), container={"readinessProbe": HTTP, "ports": ports}))
    address = found["status"]["podIP"]

    def endpoints() -> dict[str, bool]:
        slices = pods.kubectl.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
        return {
            each["addresses"][0]: each["conditions"]["ready"] for one in slices for each in one.get("endpoints") or []
        }

    until(lambda: endpoints() == {address: True})
    pods.execute("web", "rm /www/healthz")
    until(lambda: endpoints() == {address: False})
    pods.has_event("web", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404")
    assert pods.status("web")["restartCount"] == 0
    pods.execute("web", "echo ok > /www/healthz")
    until(lambda: endpoints() == {address: True})


@pytest.mark.parametrize(
    ("kind", "probe", "broken", "output"),
    [
        ("exec", {"exec": {"command": ["cat", "/tmp/well"]}}, "rm /tmp/well", "can't open '/tmp/well'"),
        ("tcp", {"tcpSocket": {"port": 9000}}, "kill $(cat /tmp/pid)", "connect: connection refused"),
    ],
)
def test_other_probes(
    pods: PodClient, registry: Registry, kind: str, probe: dict[str, object], broken: str, output: str
) -> None:
    script = "touch /tmp/well; httpd -f -p 9000 & echo $! > /tmp/pid; sleep 1000"
    settings = {"readinessProbe": {**probe, "periodSeconds": 1, "failureThreshold": 1}}
    pods.run(pod(kind, registry.image("busybox"), "sh", "-c", script, container=settings))
    pods.execute(kind, broken)
    until(lambda: pods.status(kind)["ready"] is False)
    pods.has_event(kind, "Unhealthy", output)


def test_startup_probe_delays_the_others(pods: PodClient, registry: Registry) -> None:
    startup = {"exec": {"command": ["test", "-e", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 60}
    liveness = {"exec": {"command": ["test", "-e", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 1}
    probes = {"startupProbe": startup, "livenessProbe": liveness}
    pods.apply(pod("slow", registry.image("busybox"), "sleep", "1000", container=probes))
    pods.has_event("slow", "Unhealthy", "Startup probe failed")
    status = pods.status("slow")
    assert (status["started"], status["ready"], status["restartCount"]) == (False, False, 0)
    pods.execute("slow", "touch /tmp/started")
    pods.wait_ready("slow")
    assert pods.status("slow")["started"] is True


def test_init_containers_sidecars_and_order(pods: PodClient, registry: Registry) -> None:
    image, mount = registry.image("busybox"), {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    sidecar = "echo sidecar >> /shared/order; trap 'echo sidecar-end >> /shared/order; exit 0' TERM; sleep 1000 & wait"
    manifest = pod(
        "ordered",
        image,
        "sh",
        "-c",
        "echo main >> /shared/order; cat /shared/order; sleep 1; echo main-end >> /shared/order",
        container=mount,
        restartPolicy="Never",
        terminationGracePeriodSeconds=5,
        volumes=[{"name": "shared", "emptyDir": {}}],
        initContainers=[
            {"name": "first", "image": image, "command": ["sh", "-c", "echo first > /shared/order"], **mount},
            {"name": "side", "image": image, "command": ["sh", "-c", sidecar], "restartPolicy": "Always", **mount},
            {
                "name": "second",
                "image": image,
                "command": ["sh", "-c", "sleep 1; echo second >> /shared/order"],
                **mount,
            },
        ],
    )
    pods.apply(manifest)
    found = pods.wait_phase("ordered", "Succeeded", 90.0)
    assert pods.kubectl("logs", "ordered", "-c", "main").split() == ["first", "sidecar", "second", "main"]
    states = {
        each["name"]: each["state"]["terminated"]["exitCode"] for each in found["status"]["initContainerStatuses"]
    }
    assert states == {"first": 0, "side": 0, "second": 0}


def test_graceful_termination(pods: PodClient, registry: Registry) -> None:
    script = "trap 'echo asked; sleep 1; echo leaving; exit 0' TERM; echo up; sleep 1000 & wait"
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1"]}}}}
    manifest = pod("polite", registry.image("busybox"), "sh", "-c", script, container=hook)
    pods.run({**manifest, "spec": {**manifest["spec"], "terminationGracePeriodSeconds": 30}})
    with pods.session("logs", "-f", "polite") as follow:
        pods.delete("polite", "--wait=false")
        out, _ = follow.communicate(timeout=30)
    assert out.split() == ["up", "hook", "asked", "leaving"]
    until(lambda: pods.kubectl.run("get", "pod", "polite").code != 0)


def test_kill_after_the_grace_period(pods: PodClient, registry: Registry) -> None:
    manifest = pod("stubborn", registry.image("busybox"), "sh", "-c", "trap '' TERM; while true; do sleep 1; done")
    pods.run({**manifest, "spec": {**manifest["spec"], "terminationGracePeriodSeconds": 2}})
    pods.delete("stubborn", "--timeout=30s")
    pods.has_event("stubborn", "Killing", "Stopping container main")


def test_in_place_resize(pods: PodClient, registry: Registry) -> None:
    before, after = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "200m", "memory": "96Mi"}
    limits = {"resources": {"limits": before}}
    pods.run(pod("grows", registry.image("busybox"), "sleep", "1000", container=limits))
    changed = {"spec": {"containers": [{"name": "main", "resources": {"limits": after, "requests": after}}]}}
    pods.kubectl("patch", "pod", "grows", "--subresource=resize", "--patch", json.dumps(changed))
    until(lambda: pods.status("grows").get("resources", {}).get("limits", {}).get("memory") == "96Mi", 60.0)
    assert pods.status("grows")["restartCount"] == 0
    limit = pods.execute(
        "grows", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true"
    )
    assert str(96 << 20) in limit


def test_deployment_of_twenty_is_rolled_over(pods: PodClient, registry: Registry) -> None:
    pods.kubectl("create", "deployment", "web", f"--image={registry.image('web')}", "--replicas=20")
    pods.kubectl(
        "patch", "deployment", "web", "--patch", '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}'
    )
    assert pods.kubectl.run("rollout", "status", "deployment/web", "--timeout=180s", timeout=200).code == 0
    addresses = {each["status"]["podIP"] for each in pods.kubectl.get("pods", "-l", "app=web")["items"]}
    assert len(addresses) >= 20

    pods.kubectl("set", "image", "deployment/web", f"web={registry.image('web-next')}")
    assert pods.kubectl.run("rollout", "status", "deployment/web", "--timeout=180s", timeout=200).code == 0

    def images() -> set[str]:
        found = pods.kubectl.get("pods", "-l", "app=web")["items"]
        return {each["spec"]["containers"][0]["image"] for each in found}

    until(lambda: images() == {registry.image("web-next")}, 60.0)
