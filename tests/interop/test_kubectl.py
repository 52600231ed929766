"""Everyday kubectl, every version on the machine, against a real server process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kubectl_environment import kubectl_environment
from kubectl_runner import Kubectl, Versions, kubectls
from server_process import ServerProcess

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: c
        image: nginx:1
        ports: [{containerPort: 80}]
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {a: b}}\ndata: {x: '1', z: '2'}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: p}}\nspec: {containers: [{name: c, image: i}]}\n"


@pytest.fixture(scope="module")
def versions(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    found = []
    for binary in BINARIES:
        home = tmp_path_factory.mktemp("home")
        namespace = "with-" + binary.name.replace(".", "-")
        kubectl = Kubectl(binary, server.kubeconfig, home, namespace)
        kubectl("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n")
        found.append(kubectl)
    return Versions(found)


def test_version_and_discovery(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        server = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
        assert (server["major"], server["minor"]) == ("1", "37")
        assert "apps/v1" in kubectl("api-versions").split()
        table = kubectl("api-resources", "-o", "wide")
        rows = {line.split()[0]: line.split() for line in table.splitlines()[1:]}
        assert rows["pods"][1:5] == ["po", "v1", "true", "Pod"]
        assert rows["pods"][5] == "create,delete,deletecollection,get,list,patch,update,watch"
        assert rows["deployments"][-1] == "all"
        assert "nodes" in kubectl("api-resources", "--namespaced=false", "-o", "name").split()
        assert "is running at" in kubectl("cluster-info")

    versions.each(story)


def test_apply_and_every_form_of_get(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web created\n"
        assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web unchanged\n"
        header, row = (line.split() for line in kubectl("get", "deploy").splitlines())
        assert header == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
        assert row[:4] == ["web", "0/2", "0", "0"]
        wide = [line.split() for line in kubectl("get", "deploy", "-o", "wide").splitlines()]
        assert (wide[0][5:], wide[1][5:]) == (["CONTAINERS", "IMAGES", "SELECTOR"], ["c", "nginx:1", "app=web"])
        assert kubectl.get("deploy", "web")["spec"]["strategy"]["type"] == "RollingUpdate"
        listed = json.loads(kubectl("get", "deploy", "-o", "json"))
        assert (listed["kind"], listed["items"][0]["kind"]) == ("List", "Deployment")
        assert kubectl("get", "deploy", "-o", "name") == "deployment.apps/web\n"
        assert kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.replicas} {.metadata.name}") == "2 web"
        columns = kubectl("get", "deploy", "-o", "custom-columns=N:.metadata.name,R:.spec.replicas")
        assert [line.split() for line in columns.splitlines()] == [["N", "R"], ["web", "2"]]
        template = "{{range .items}}{{.metadata.name}} {{.spec.replicas}}{{end}}"
        assert kubectl("get", "deploy", "-o", f"go-template={template}") == "web 2"
        managed = kubectl("get", "deploy", "web", "-o", "yaml", "--show-managed-fields")
        assert "kubectl-client-side-apply" in managed
        assert "Replicas:" in kubectl("describe", "deploy", "web")
        assert "deployment.apps/web" in kubectl("get", "all")
        changed = DEPLOYMENT.replace("nginx:1", "nginx:2").replace("replicas: 2", "replicas: 3")
        diff = kubectl.run("diff", "-f", "-", stdin=changed)
        assert diff.code == 1
        assert "image: nginx:2" in diff.out
        dry = kubectl("apply", "-f", "-", "--dry-run=server", stdin=changed)
        assert dry == "deployment.apps/web configured (server dry run)\n"
        assert kubectl.get("deploy", "web")["spec"]["replicas"] == 2
        assert kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/web configured\n"
        assert kubectl.get("deploy", "web")["spec"]["replicas"] == 3
        assert "nginx:2" in kubectl("apply", "view-last-applied", "deploy/web")

    versions.each(story)


def test_workload_commands(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        named = DEPLOYMENT.replace("name: web", "name: work")
        kubectl("create", "-f", "-", stdin=named)
        assert kubectl("scale", "deploy/work", "--replicas=5") == "deployment.apps/work scaled\n"
        wrong = kubectl.refused("scale", "deploy/work", "--current-replicas=4", "--replicas=6")
        assert "xpected replicas to be 4, was 5" in wrong
        assert kubectl.get("deploy", "work")["spec"]["replicas"] == 5
        assert "No rollout history found" in kubectl("rollout", "history", "deploy/work")
        assert kubectl("rollout", "restart", "deploy/work") == "deployment.apps/work restarted\n"
        assert kubectl("set", "image", "deploy/work", "c=nginx:3") == "deployment.apps/work image updated\n"
        assert kubectl("set", "env", "deploy/work", "A=B") == "deployment.apps/work env updated\n"
        container = kubectl.get("deploy", "work")["spec"]["template"]["spec"]["containers"][0]
        assert (container["image"], container["env"]) == ("nginx:3", [{"name": "A", "value": "B"}])
        assert kubectl("expose", "deploy", "work", "--port=80") == "service/work exposed\n"
        assert kubectl.get("svc", "work")["spec"]["clusterIP"].startswith("10.")
        timed_out = kubectl.refused("rollout", "status", "deploy/work", "--timeout=1s")
        assert "timed out" in timed_out

    versions.each(story)


def test_commands_of_typed_clients(versions: Versions) -> None:
    versions.each(_typed_clients, most=31)


def test_commands_of_typed_clients_in_protobuf(versions: Versions) -> None:
    versions.each(_typed_clients, least=32)


def _typed_clients(kubectl: Kubectl) -> None:
    namespace = f"more-{kubectl.namespace}"
    assert kubectl("create", "namespace", namespace) == f"namespace/{namespace} created\n"
    assert kubectl("create", "configmap", "c", "--from-literal=a=b") == "configmap/c created\n"
    assert kubectl.get("cm", "c")["data"] == {"a": "b"}
    assert kubectl("create", "secret", "generic", "s", "--from-literal=a=b") == "secret/s created\n"
    assert kubectl.get("secret", "s")["data"] == {"a": "Yg=="}
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2", "--port=80")
    spec = kubectl.get("deploy", "d")["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["containers"][0]["ports"]) == (
        2,
        [{"containerPort": 80, "protocol": "TCP"}],
    )
    kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    kubectl("create", "serviceaccount", "bot")
    kubectl("create", "rolebinding", "rb", "--role=r", f"--serviceaccount={kubectl.namespace}:bot")
    kubectl("create", "quota", "q", "--hard=pods=7,requests.cpu=1500m")
    assert kubectl.get("quota", "q")["spec"]["hard"] == {"pods": "7", "requests.cpu": "1500m"}
    kubectl("create", "pdb", "b", "--selector=app=d", "--min-available=50%")
    assert kubectl.get("pdb", "b")["spec"]["minAvailable"] == "50%"
    kubectl("create", "ingress", "i", "--rule=h/p=svc:80")
    kubectl("create", "job", "j", "--image=i")
    kubectl("create", "cronjob", "cj", "--image=i", "--schedule=* * * * *")
    kubectl("autoscale", "deploy", "d", "--min=1", "--max=3")
    assert kubectl.get("hpa", "d")["spec"]["maxReplicas"] == 3
    kubectl("run", "p", "--image=i", "--env=A=B")
    assert kubectl("auth", "can-i", "get", "pods") == "yes\n"
    bot = f"system:serviceaccount:{kubectl.namespace}:bot"
    assert kubectl("auth", "can-i", "get", "pods", "--as", bot) == "yes\n"
    assert kubectl.run("auth", "can-i", "delete", "pods", "--as", bot).out == "no\n"
    if kubectl.minor >= 28:
        assert "kubernetes-admin" in kubectl("auth", "whoami")
    assert kubectl("create", "token", "bot").count(".") == 2


def test_create_edit_patch_replace(versions: Versions, tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i \'s/x: "1"/x: edited/\' "$1"\n')
    editor.chmod(0o755)

    def story(kubectl: Kubectl) -> None:
        source = CONFIG_MAP % "cm"
        assert kubectl("create", "-f", "-", stdin=source) == "configmap/cm created\n"
        assert "(AlreadyExists)" in kubectl.refused("create", "-f", "-", stdin=source)
        assert kubectl("edit", "cm", "cm", EDITOR=str(editor)) == "configmap/cm edited\n"
        assert kubectl.get("cm", "cm")["data"] == {"x": "edited", "z": "2"}
        kubectl("patch", "cm", "cm", "-p", '{"data":{"w":"3"}}')
        kubectl("patch", "cm", "cm", "--type=merge", "-p", '{"data":{"z":null}}')
        kubectl("patch", "cm", "cm", "--type=json", "-p", '[{"op":"add","path":"/data/v","value":"4"}]')
        assert kubectl.get("cm", "cm")["data"] == {"x": "edited", "w": "3", "v": "4"}
        failed = '[{"op":"test","path":"/data/v","value":"5"}]'
        assert "the server rejected our request" in kubectl.refused("patch", "cm", "cm", "--type=json", "-p", failed)
        assert kubectl("replace", "-f", "-", stdin=source) == "configmap/cm replaced\n"
        assert kubectl.get("cm", "cm")["data"] == {"x": "1", "z": "2"}
        forced = kubectl("replace", "--force", "-f", "-", stdin=source)
        assert forced.endswith("configmap/cm replaced\n")
        unknown = CONFIG_MAP % "odd" + "foo: bar\n"
        assert 'unknown field "foo"' in kubectl.refused("create", "-f", "-", stdin=unknown)
        invalid = (POD % "bad").replace("name: c,", "name: X_,")
        assert 'spec.containers[0].name: Invalid value: "X_"' in kubectl.refused("create", "-f", "-", stdin=invalid)
        assert (
            kubectl("create", "-f", "-", "--dry-run=server", "-o", "name", stdin=CONFIG_MAP % "dry")
            == "configmap/dry\n"
        )
        assert "(NotFound)" in kubectl.refused("get", "cm", "dry")

    versions.each(story)


def test_server_side_apply(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        source, other = CONFIG_MAP % "ssa", (CONFIG_MAP % "ssa").replace("'1'", "'9'")
        applied = "configmap/ssa serverside-applied\n"
        assert kubectl("apply", "--server-side", "-f", "-", stdin=source) == applied
        conflict = kubectl.refused("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other)
        assert 'Apply failed with 1 conflict: conflict with "kubectl": .data.x' in conflict
        taken = kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=other)
        assert taken == applied
        managers = json.loads(kubectl("get", "cm", "ssa", "-o", "json", "--show-managed-fields"))["metadata"][
            "managedFields"
        ]
        assert sorted((entry["manager"], entry["operation"]) for entry in managers) == [
            ("kubectl", "Apply"),
            ("other", "Apply"),
        ]

    versions.each(story)


def test_labels_annotations_and_selectors(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=CONFIG_MAP % "marked")
        assert kubectl("label", "cm", "marked", "k=v") == "configmap/marked labeled\n"
        assert "'k' already has a value (v)" in kubectl.refused("label", "cm", "marked", "k=w")
        kubectl("label", "cm", "marked", "k=w", "--overwrite")
        assert kubectl("get", "cm", "-l", "k=w", "-o", "name") == "configmap/marked\n"
        assert kubectl("get", "cm", "-l", "k in (v,u)", "-o", "name") == ""
        assert kubectl("get", "cm", "--field-selector", "metadata.name=marked", "-o", "name") == "configmap/marked\n"
        assert "a=b,k=w" in kubectl("get", "cm", "marked", "--show-labels")
        assert kubectl("label", "cm", "marked", "k-") == "configmap/marked unlabeled\n"
        assert kubectl("annotate", "cm", "marked", "note=hi").startswith("configmap/marked annotate")
        assert kubectl.get("cm", "marked")["metadata"]["annotations"] == {"note": "hi"}
        assert kubectl.namespace in kubectl("get", "cm", "-A", "-l", "a=b", "--no-headers")
        sorted_names = kubectl("get", "cm", "--sort-by=.metadata.name", "-o", "name").split()
        assert sorted_names == sorted(sorted_names)

    versions.each(story)


def test_watch(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=CONFIG_MAP % "seen")
        command = [
            str(kubectl.binary),
            "--kubeconfig",
            str(kubectl.kubeconfig),
            "-n",
            kubectl.namespace,
            "get",
            "cm",
            "seen",
            "--watch",
            "--output-watch-events",
            "--request-timeout=20s",
        ]
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"HOME": str(kubectl.home)})
        try:
            assert watching.stdout is not None
            lines = [watching.stdout.readline().split()[:2], watching.stdout.readline().split()[:2]]
            kubectl("patch", "cm", "seen", "-p", '{"data":{"y":"3"}}')
            lines.append(watching.stdout.readline().split()[:2])
            kubectl("delete", "cm", "seen")
            lines.append(watching.stdout.readline().split()[:2])
        finally:
            watching.kill()
            watching.communicate()
        assert lines == [["EVENT", "NAME"], ["ADDED", "seen"], ["MODIFIED", "seen"], ["DELETED", "seen"]]

    versions.each(story)


def test_pods_wait_and_events(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=POD % "p1")
        header, row = (line.split() for line in kubectl("get", "pod", "p1", "-o", "wide").splitlines())
        assert header[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert row[:4] == ["p1", "0/1", "Pending", "0"]
        assert "Status:" in kubectl("describe", "pod", "p1")
        assert "timed out" in kubectl.refused("wait", "--for=condition=Ready", "pod/p1", "--timeout=1s")
        assert "condition met" in kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pod/p1", "--timeout=5s")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        kubectl("patch", "pod", "p1", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/p1", "--timeout=5s")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e1"},
            "reason": "Tested",
            "message": "it was",
            "type": "Normal",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p1", "namespace": kubectl.namespace},
        }
        kubectl("create", "-f", "-", stdin=json.dumps(event))
        assert "it was" in kubectl("get", "events")
        assert "it was" in kubectl("events", "--for", "pod/p1")
        kubectl("delete", "pod", "p1", "--grace-period=0", "--force")
        assert "(NotFound)" in kubectl.refused("get", "pod", "p1")

    versions.each(story)


def test_every_kind_of_delete(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        for name in ("one", "two", "three", "four"):
            kubectl("create", "-f", "-", stdin=CONFIG_MAP % f"del-{name}")
        assert kubectl("delete", "cm", "del-one") == 'configmap "del-one" deleted\n'
        kubectl("delete", "cm", "del-two", "--cascade=background")
        # Nobody collects here: what waits for its dependents stays, and says what for.
        kubectl("delete", "cm", "del-three", "--cascade=foreground", "--wait=false")
        kubectl("delete", "cm", "del-four", "--cascade=orphan", "--wait=false")
        assert kubectl.get("cm", "del-three")["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert kubectl.get("cm", "del-four")["metadata"]["finalizers"] == ["orphan"]
        for name in ("three", "four"):
            kubectl("patch", "cm", f"del-{name}", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "(NotFound)" in kubectl.refused("delete", "cm", "del-three")
        assert kubectl("delete", "cm", "del-three", "--ignore-not-found") == ""
        kubectl("create", "-f", "-", stdin=CONFIG_MAP % "del-five")
        kubectl("label", "cm", "del-five", "del=yes")
        assert kubectl("delete", "cm", "-l", "del=yes") == 'configmap "del-five" deleted\n'
        kubectl("create", "-f", "-", stdin=CONFIG_MAP % "del-six")
        assert kubectl("delete", "-f", "-", "--dry-run=server", stdin=CONFIG_MAP % "del-six").endswith(
            "(server dry run)\n"
        )
        assert kubectl("delete", "-f", "-", stdin=CONFIG_MAP % "del-six") == 'configmap "del-six" deleted\n'

    versions.each(story)


def test_nodes(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        node = f"node-{kubectl.namespace}"
        kubectl("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n")
        assert kubectl("cordon", node) == f"node/{node} cordoned\n"
        assert "SchedulingDisabled" in kubectl("get", "node", node)
        assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
        assert kubectl("taint", "node", node, "a=b:NoSchedule") == f"node/{node} tainted\n"
        pod = (POD % "evicted").replace("spec: {", f"spec: {{nodeName: {node}, terminationGracePeriodSeconds: 0, ")
        kubectl("create", "-f", "-", stdin=pod)
        drained = kubectl.run("drain", node, "--force", "--timeout=20s")
        assert drained.code == 0, drained.err
        assert "evicted" in drained.out
        assert "(NotFound)" in kubectl.refused("get", "pod", "evicted")
        assert "Taints:" in kubectl("describe", "node", node)
        assert f'"{node}" deleted' in kubectl("delete", "node", node)

    versions.each(story)


def test_explain(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        assert "imagePullPolicy" in kubectl("explain", "pod.spec.containers")

    versions.each(story)


def test_errors_of_the_server(versions: Versions, server: ServerProcess) -> None:
    def story(kubectl: Kubectl) -> None:
        assert "the server doesn't have a resource type" in kubectl.refused("get", "nothing")
        assert kubectl.refused("get", "pods", "nothere") == 'Error from server (NotFound): pods "nothere" not found\n'
        forbidden = kubectl.refused("get", "pods", "--as=jane")
        assert forbidden.startswith(
            'Error from server (Forbidden): pods is forbidden: User "jane" cannot list resource "pods"'
        )
        assert kubectl("get", "--raw", "/readyz") == "ok"

    versions.each(story)


def test_kubectl_why(versions: Versions, tmp_path: Path) -> None:
    """The plugin `kubectl-why` of this package, which kubectl finds on the path."""
    script = tmp_path / "kubectl-why"
    code = "from setpoint.cli.why import kubectl_plugin; kubectl_plugin()"
    path = os.pathsep.join(sys.path)
    script.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' -c '{code}' \"$@\"\n")
    script.chmod(0o755)

    def story(kubectl: Kubectl) -> None:
        kubectl("apply", "-f", "-", stdin=CONFIG_MAP % "explained")
        kubectl("patch", "configmap", "explained", "-p", '{"data": {"x": "2"}}')
        environment = {"KUBECONFIG": str(kubectl.kubeconfig), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [kubectl.binary, "why", "-n", kubectl.namespace, "configmap/explained", "data.x"],
            env=kubectl_environment(kubectl.home) | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.match(
            rf"data\.x of ConfigMap explained became 2 \(before: 1\) \d+s ago by kubernetes-admin \({kubectl.binary.name}\)\.\n",
            done.stdout,
        ), done.stdout

    versions.each(story)
