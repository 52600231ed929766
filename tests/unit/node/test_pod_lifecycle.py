"""The lifecycle of Pods on simulated nodes, through the API, in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
PODS, NODES = builtin("pods"), builtin("nodes")
FEW = ["serviceaccount-controller", "taint-eviction-controller"]


def busybox(name: str, script: str = "", **more: Any) -> Obj:
    return {"name": name, "image": "busybox", **({"command": ["sh", "-c", script]} if script else {}), **more}


def a_pod(name: str, *containers: Obj, annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    meta = {"name": name, "namespace": "default", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [*containers], **spec}}


async def get(cluster: VirtualCluster, name: str) -> Obj:
    return await cluster.client.get(PODS, name, "default")


async def container_states(cluster: VirtualCluster, name: str) -> dict[str, str]:
    """Return one word for the state of each container."""
    status = (await get(cluster, name))["status"]
    found = {}
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(field) or ():
            ((kind, detail),) = each["state"].items()
            found[each["name"]] = detail.get("reason") or kind
    return found


async def phase(cluster: VirtualCluster, name: str) -> str:
    return str((await get(cluster, name))["status"]["phase"])


def condition(pod: Obj, kind: str) -> tuple[str, str, str]:
    (found,) = [each for each in pod["status"]["conditions"] if each["type"] == kind]
    return found["status"], found.get("reason", ""), found.get("message", "")


@virtual(nodes=1)
async def test_init_containers_run_in_order_and_sidecars_keep_running(cluster: VirtualCluster) -> None:
    startup = {"exec": {"command": ["test", "-f", "/up"]}, "periodSeconds": 1, "failureThreshold": 9}
    await cluster.client.create(
        a_pod(
            "p",
            busybox("main", "sleep 10"),
            restartPolicy="Never",
            initContainers=[
                busybox("first", "sleep 3"),
                busybox("side", "sleep 4; touch /up; sleep 999", restartPolicy="Always", startupProbe=startup),
                busybox("last", "sleep 2"),
            ],
        )
    )
    await cluster.sleep(2)
    assert await container_states(cluster, "p") == {
        "first": "running",
        "side": "PodInitializing",
        "last": "PodInitializing",
        "main": "PodInitializing",
    }
    pod = await get(cluster, "p")
    assert condition(pod, "Initialized") == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [first side last]",
    )
    await cluster.sleep(3)
    assert await container_states(cluster, "p") == {
        "first": "Completed",
        "side": "running",
        "last": "PodInitializing",
        "main": "PodInitializing",
    }
    await cluster.sleep(3.5)
    assert (await container_states(cluster, "p"))["last"] == "running"
    assert await phase(cluster, "p") == "Pending"
    await cluster.sleep(2.5)
    assert (await container_states(cluster, "p"))["main"] == "running"
    assert condition(await get(cluster, "p"), "Ready")[0] == "True"
    await cluster.sleep(10)
    # The main container has completed: the sidecar ignores SIGTERM and is killed after the grace period.
    assert await container_states(cluster, "p") == {
        "first": "Completed",
        "side": "running",
        "last": "Completed",
        "main": "Completed",
    }
    await cluster.sleep(31)
    assert (await container_states(cluster, "p"))["side"] == "Error"
    pod = await get(cluster, "p")
    assert pod["status"]["phase"] == "Succeeded", "how a sidecar ends does not count"
    assert condition(pod, "Initialized") == ("True", "PodCompleted", "")
    assert condition(pod, "ContainersReady") == ("False", "PodCompleted", "")
    assert condition(pod, "PodReadyToStartContainers")[0] == "False"


@virtual(nodes=1)
async def test_unknown_programs_complete_in_jobs_and_init_containers(cluster: VirtualCluster) -> None:
    unknown = {"name": "tool", "image": "example.com/tool", "args": ["--once"]}
    pi = {"name": "pi", "image": "perl", "command": ["perl", "-Mbignum=bpi", "-wle", "print bpi(2000)"]}
    side = {"name": "side", "image": "example.com/proxy", "restartPolicy": "Always"}
    server = {"name": "server", "image": "nginx"}
    both = {**busybox("both", "migrate up && echo done"), "image": "example.com/migrations"}
    for name, *containers in (
        ("pi", pi),
        ("tool", unknown),
        ("both", both, unknown),
        ("serves", server),
    ):
        template = {"spec": {"containers": containers, "initContainers": [side], "restartPolicy": "Never"}}
        meta = {"name": name, "namespace": "default"}
        await cluster.client.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
        )
    await cluster.client.create(a_pod("p", unknown, initContainers=[{**unknown, "name": "init"}, side]))
    await cluster.sleep(30)
    assert await container_states(cluster, "p") == {"init": "Completed", "side": "running", "tool": "running"}
    jobs = await cluster.client.list(builtin("jobs", "batch"))
    assert {job["metadata"]["name"]: job["status"].get("succeeded", 0) for job in jobs.items} == {
        "pi": 1,
        "tool": 1,
        "both": 1,
        "serves": 0,
    }


@virtual(nodes=1)
async def test_pods_of_custom_controllers_run_to_completion(cluster: VirtualCluster) -> None:
    """Pods that are not restarted and have a controller complete like those of Jobs, for example a step of a
    TaskRun."""
    step = {"name": "step", "image": "busybox", "command": ["/tekton/bin/entrypoint"], "args": ["-entrypoint", "sh"]}
    owner = await cluster.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "run", "namespace": "default"}}
    )
    uid = owner["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "run", "uid": uid, "controller": True}
    for name, policy, owners in (
        ("never", "Never", [reference]),
        ("always", "Always", [reference]),
        ("bare", "Never", []),
    ):
        pod = a_pod(name, step, restartPolicy=policy)
        pod["metadata"]["ownerReferences"] = owners
        await cluster.client.create(pod)
    await cluster.sleep(5)
    phases = [await phase(cluster, name) for name in ("never", "always", "bare")]
    assert phases == ["Succeeded", "Running", "Running"]


@virtual(nodes=1)
async def test_a_failing_init_container(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        a_pod("never", busybox("c"), initContainers=[busybox("i", "exit 4")], restartPolicy="Never")
    )
    await cluster.client.create(a_pod("always", busybox("c", "sleep 99"), initContainers=[busybox("i", "exit 4")]))
    await cluster.sleep(3)
    assert (await phase(cluster, "never"), await phase(cluster, "always")) == ("Failed", "Pending")
    assert await container_states(cluster, "always") == {"i": "CrashLoopBackOff", "c": "PodInitializing"}


@pytest.mark.parametrize(
    ("policy", "script", "expected"),
    [
        ("Never", "exit 0", ("Succeeded", 0)),
        ("Never", "exit 2", ("Failed", 0)),
        ("OnFailure", "exit 0", ("Succeeded", 0)),
        ("OnFailure", "exit 2", ("Running", 2)),
        ("Always", "exit 0", ("Running", 2)),
    ],
)
def test_restart_policies(policy: str, script: str, expected: tuple[str, int]) -> None:
    @virtual(nodes=1)
    async def run(cluster: VirtualCluster) -> None:
        await cluster.client.create(a_pod("p", busybox("c", f"sleep 1; {script}"), restartPolicy=policy))
        await cluster.sleep(15)
        status = (await get(cluster, "p"))["status"]
        assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == expected

    run()


@virtual(nodes=1)
async def test_restart_rules_of_a_container_override_the_pods_policy(cluster: VirtualCluster) -> None:
    def ruled(name: str, script: str, action: str) -> Obj:
        rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
        return busybox(name, script, restartPolicy="Never", restartPolicyRules=[rule])

    await cluster.client.create(a_pod("one", ruled("c", "sleep 1; exit 42", "Restart"), restartPolicy="Never"))
    await cluster.client.create(a_pod("other", ruled("c", "sleep 1; exit 41", "Restart"), restartPolicy="Never"))
    await cluster.client.create(
        a_pod(
            "all",
            ruled(
                "c",
                "if [ -f /shared/once ]; then sleep 99; fi; touch /shared/once; sleep 5; exit 42",
                "RestartAllContainers",
            )
            | {"volumeMounts": [{"name": "v", "mountPath": "/shared"}]},
            busybox("d", "sleep 999"),
            initContainers=[busybox("i", "sleep 1")],
            volumes=[{"name": "v", "emptyDir": {}}],
            restartPolicy="Never",
        )
    )
    await cluster.sleep(4)
    assert (await get(cluster, "one"))["status"]["containerStatuses"][0]["restartCount"] >= 1
    assert await phase(cluster, "other") == "Failed"
    await cluster.sleep(10)
    status = (await get(cluster, "all"))["status"]
    assert status["phase"] == "Running"
    assert [each["restartCount"] for each in status["containerStatuses"]] == [1, 1]
    assert status["initContainerStatuses"][0]["restartCount"] == 1
    assert status["containerStatuses"][1]["lastState"]["terminated"]["reason"] == "RestartingAllContainers"


@virtual(nodes=1)
async def test_a_terminal_phase_set_by_a_client_ends_the_pod(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p", {"name": "c", "image": "nginx"}))
    await cluster.sleep(1)
    await cluster.client.patch(PODS, "p", {"status": {"phase": "Failed"}}, "default", subresource="status")
    await cluster.sleep(1)
    pod = await get(cluster, "p")
    assert (pod["status"]["phase"], await container_states(cluster, "p")) == ("Failed", {"c": "Completed"})
    assert condition(pod, "Ready") == ("False", "PodFailed", "")


@virtual(nodes=1)
async def test_active_deadline(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p", {"name": "c", "image": "nginx"}, activeDeadlineSeconds=20))
    await cluster.sleep(19)
    assert await phase(cluster, "p") == "Running"
    await cluster.sleep(2)
    status = (await get(cluster, "p"))["status"]
    text = "Pod was active on the node longer than the specified deadline"
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", text)
    assert ("Normal", "DeadlineExceeded", text) in await cluster.events("p")


@virtual(nodes=1)
async def test_missing_references_of_a_pod(cluster: VirtualCluster) -> None:
    volume = {"name": "v", "configMap": {"name": "later"}}
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "later", "key": "x"}}}]
    mounted = busybox("c", "cat /v/key; sleep 99", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    await cluster.client.create(a_pod("volume", mounted, volumes=[volume]))
    await cluster.client.create(a_pod("env", busybox("c", "echo $X; sleep 99", env=env)))
    await cluster.client.create(a_pod("name", {"name": "c", "image": "Not An Image"}))
    await cluster.client.create(a_pod("never", {"name": "c", "image": "redis:7", "imagePullPolicy": "Never"}))
    await cluster.sleep(3)
    assert await container_states(cluster, "volume") == {"c": "ContainerCreating"}
    assert await container_states(cluster, "env") == {"c": "CreateContainerConfigError"}
    assert await container_states(cluster, "name") == {"c": "InvalidImageName"}
    assert await container_states(cluster, "never") == {"c": "ErrImageNeverPull"}
    missing = 'MountVolume.SetUp failed for volume "v" : configmap "later" not found'
    assert ("Warning", "FailedMount", missing) in await cluster.events("volume")
    assert ("Warning", "Failed", 'Error: secret "later" not found') in await cluster.events("env")
    assert condition(await get(cluster, "volume"), "PodReadyToStartContainers")[:2] == ("False", "PodSandboxNotReady")
    meta = {"name": "later", "namespace": "default"}
    await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": "hello\n"}})
    await cluster.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"x": "hidden"}})
    await cluster.sleep(15)
    assert (await phase(cluster, "volume"), await phase(cluster, "env")) == ("Running", "Running")
    assert await log_of(cluster, "volume") == "hello\n"
    assert await log_of(cluster, "env") == "hidden\n"


async def log_of(cluster: VirtualCluster, name: str) -> str:
    """Return the log of the Pod's container."""
    pod = await get(cluster, name)
    answer = await cluster.client.sender.request("GET", f"/api/v1/namespaces/default/pods/{name}/log")
    assert pod["metadata"]["name"] == name
    return answer.body.decode()


@virtual(nodes=1)
async def test_environment_of_a_container(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "my-db", "namespace": "default"},
            "spec": {"clusterIP": "10.96.0.77", "ports": [{"name": "sql", "port": 5432}]},
        }
    )

    def field(path: str) -> Obj:
        return {"fieldRef": {"fieldPath": path}}

    env = [
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "IP", "valueFrom": field("status.podIP")},
        {"name": "LABEL", "valueFrom": field("metadata.annotations['note']")},
        {"name": "BOTH", "value": "$(NODE)-$(MISSING)"},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
    ]
    script = "echo $NODE $LABEL $BOTH $CPU $MY_DB_SERVICE_HOST $MY_DB_PORT_5432_TCP; hostname; echo $IP"
    container = busybox("c", script, env=env, resources={"requests": {"cpu": "250m"}})
    await cluster.sleep(1)
    await cluster.client.create(a_pod("p", container, annotations={"note": "x"}, restartPolicy="Never"))
    await cluster.sleep(1)
    status = (await get(cluster, "p"))["status"]
    assert await log_of(cluster, "p") == (
        f"node-1 x node-1-$(MISSING) 250 10.96.0.77 tcp://10.96.0.77:5432\np\n{status['podIP']}\n"
    )


@virtual(nodes=1, controllers=FEW, scheduler=False)
async def test_a_node_rejects_pods_that_do_not_fit(cluster: VirtualCluster) -> None:
    big = {"resources": {"requests": {"cpu": "5"}}}
    tolerations = [{"operator": "Exists"}]
    for name in ("first", "second"):
        await cluster.client.create(
            a_pod(name, busybox("c", "sleep 9999", **big), nodeName="node-1", tolerations=tolerations)
        )
        await cluster.sleep(1)
    await cluster.client.create(
        a_pod("choosy", busybox("c"), nodeName="node-1", nodeSelector={"disk": "ssd"}, tolerations=tolerations)
    )
    await cluster.sleep(1)
    status = (await get(cluster, "second"))["status"]
    text = "Node didn't have enough resource: cpu, requested: 5000, used: 5000, capacity: 8000"
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == f"Pod was rejected: {text}"
    assert ("Warning", "OutOfcpu", text) in await cluster.events("second")
    status = (await get(cluster, "choosy"))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "NodeAffinity")
    for name, labels, spec, reason in (
        ("foreign", {}, {"os": {"name": "windows"}}, "PodOSNotSupported"),
        ("labeled", {"kubernetes.io/os": "windows"}, {}, "PodOSSelectorNodeLabelDoesNotMatch"),
    ):
        made = a_pod(name, busybox("c"), nodeName="node-1", tolerations=tolerations, **spec)
        made["metadata"]["labels"] = labels
        await cluster.client.create(made)
        await cluster.sleep(1)
        status = (await get(cluster, name))["status"]
        assert (status["phase"], status["reason"]) == ("Failed", reason)
    await cluster.client.delete(PODS, "first", "default", grace_period=0)
    await cluster.client.create(
        a_pod("third", busybox("c", "sleep 9999", **big), nodeName="node-1", tolerations=tolerations)
    )
    await cluster.sleep(1)
    assert await phase(cluster, "third") == "Running"


@virtual(nodes=1)
async def test_memory_limit_and_simulation_annotations(cluster: VirtualCluster) -> None:
    limited = busybox("c", "sleep 9999", resources={"limits": {"memory": "64Mi"}})
    await cluster.client.create(a_pod("p", limited, restartPolicy="Never"))
    await cluster.client.create(a_pod("q", busybox("c", "sleep 9999"), restartPolicy="Never"))
    await cluster.sleep(1)
    for name, wish in (("p", {"memory": "65Mi"}), ("q", {"exit-code": "7"})):
        wishes = {f"simulate.setpoint.dev/{key}": value for key, value in wish.items()}
        await cluster.client.patch(PODS, name, {"metadata": {"annotations": wishes}}, "default")
    await cluster.sleep(1)
    (ended,) = [each["state"]["terminated"] for each in (await get(cluster, "p"))["status"]["containerStatuses"]]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    (ended,) = [each["state"]["terminated"] for each in (await get(cluster, "q"))["status"]["containerStatuses"]]
    assert (ended["reason"], ended["exitCode"]) == ("Error", 7)


@virtual(nodes=1)
async def test_a_restarted_fleet_restores_its_containers(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p", busybox("c", "echo begun; sleep 100; exit 3"), restartPolicy="Never"))
    await cluster.client.create(a_pod("q", {"name": "c", "image": "nginx"}))
    await cluster.sleep(40)
    before = await get(cluster, "q")
    await cluster.kill("fleet")
    await cluster.sleep(20)
    await cluster.start("fleet")
    await cluster.sleep(30)
    assert await get(cluster, "q") == before, "nothing was written"
    assert await phase(cluster, "p") == "Running"
    assert await log_of(cluster, "p") == "begun\n"
    await cluster.sleep(20)
    ended = (await get(cluster, "p"))["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 3
    assert (ended["startedAt"][-6:], ended["finishedAt"][-6:]) == ("00:00Z", "01:40Z"), (
        "a hundred seconds, as it was told"
    )


@virtual(nodes=1)
async def test_in_place_resize(cluster: VirtualCluster) -> None:
    def sized(cpu: str, policy: str = "NotRequired") -> Obj:
        resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
        return {
            "name": "c",
            "image": "nginx",
            "resources": resources,
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}],
        }

    async def resize(name: str, cpu: str) -> None:
        change = {"spec": {"containers": [{"name": "c", "resources": sized(cpu)["resources"]}]}}
        await cluster.client.patch(PODS, name, change, "default", kind="strategic", subresource="resize")
        await cluster.sleep(1)

    await cluster.client.create(a_pod("p", sized("1")))
    await cluster.client.create(a_pod("q", sized("1", "RestartContainer")))
    await cluster.sleep(1)
    await resize("p", "2")
    await resize("q", "2")
    for name, restarts in (("p", 0), ("q", 1)):
        pod = await get(cluster, name)
        (container,) = pod["status"]["containerStatuses"]
        assert container["allocatedResources"] == {"cpu": "2"}
        assert container["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
        assert container["restartCount"] == restarts
        assert not [each for each in pod["status"]["conditions"] if "Resize" in each["type"]]
        reasons = [reason for _, reason, _ in await cluster.events(name)]
        assert "ResizeStarted" in reasons and "ResizeCompleted" in reasons
    await resize("p", "7")
    assert condition(await get(cluster, "p"), "PodResizePending")[1] == "Deferred"
    assert condition(await get(cluster, "p"), "PodResizePending")[2] == (
        "Node didn't have enough resource: cpu, requested: 7000, used: 2000, capacity: 8000"
    )
    await resize("p", "3")
    assert (await get(cluster, "p"))["status"]["containerStatuses"][0]["allocatedResources"] == {"cpu": "3"}
    assert not [each for each in (await get(cluster, "p"))["status"]["conditions"] if "Resize" in each["type"]]


@virtual(nodes=1)
async def test_an_ephemeral_container_is_never_restarted(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p", {"name": "c", "image": "nginx"}))
    await cluster.sleep(1)
    debug = {"name": "debug", "image": "busybox", "command": ["sh", "-c", "echo hi; exit 1"]}
    await cluster.client.patch(
        PODS,
        "p",
        {"spec": {"ephemeralContainers": [debug]}},
        "default",
        kind="strategic",
        subresource="ephemeralcontainers",
    )
    await cluster.sleep(60)
    assert await container_states(cluster, "p") == {"c": "running", "debug": "Error"}
    pod = await get(cluster, "p")
    assert pod["status"]["phase"] == "Running" and condition(pod, "Ready")[0] == "True"


@virtual(nodes=1)
async def test_a_pod_becomes_running_in_one_write(cluster: VirtualCluster) -> None:
    start = (await cluster.client.list(PODS, "default")).resource_version
    await cluster.client.create(a_pod("p", {"name": "c", "image": "nginx"}, initContainers=[busybox("i", "true")]))
    await cluster.sleep(30)
    seen = []
    async with cluster.client.watch(
        PODS, "default", resource_version=start, bookmarks=False, timeout_seconds=1
    ) as watch:
        async for _, pod in watch:
            seen.append(json.dumps(pod["status"].get("phase")))
    assert len(seen) == 3, "made, bound, running"


@virtual(nodes=1)
async def test_a_new_image_replaces_the_container_without_a_gap(cluster: VirtualCluster) -> None:
    container = {"name": "c", "image": "nginx:1"}
    meta = {"name": "p", "namespace": "default"}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    )
    await cluster.sleep(5)
    before = await cluster.client.get(PODS, "p", "default")
    seen = []
    async with cluster.client.watch(PODS, "default", resource_version=before["metadata"]["resourceVersion"]) as watch:
        change = {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}
        await cluster.client.patch(PODS, "p", change, "default", kind="strategic")
        async for kind, pod in watch:
            if kind != "MODIFIED":
                continue
            (status,) = pod["status"]["containerStatuses"]
            seen.append((status["ready"], next(iter(status["state"])), status["restartCount"]))
            if status["restartCount"]:
                break
    assert seen == [(True, "running", 0), (True, "running", 1)]
    assert "terminated" in status["lastState"] and status["image"].endswith("nginx:2")
