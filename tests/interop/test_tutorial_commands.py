"""Commands and manifests as tutorials on the reconciliation loop print them, typed into a shell: once with the real
kubectl, once with `setpoint` under its name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubectl_environment import kubectl_environment
from kubectl_runner import kubectls
from up_process import up_process

BINARIES = kubectls()
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow]

SIMPLE_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: simple-pod
spec:
  containers:
    - name: web
      image: nginx:1.28
"""
DESIRED_STATE = """
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: my-app
spec:
  replicas: 3
  selector:
    matchLabels:
      app: my-app
  template:
    metadata:
      labels:
        app: my-app
    spec:
      containers:
      - name: nginx
        image: nginx:1.25
"""
ORDER_API = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: order-api
  labels:
    app: order-processing
spec:
  replicas: 3
  selector:
    matchLabels:
      app: order-processing
  template:
    metadata:
      labels:
        app: order-processing
    spec:
      containers:
      - name: api-container
        image: registry.example.com/order-api:v2.1.0
        ports:
        - containerPort: 8080
        readinessProbe:
          httpGet:
            path: /healthz
            port: 8080
          initialDelaySeconds: 5
          periodSeconds: 10
"""
PRODUCTION_DB = """
apiVersion: database.example.com/v1alpha1
kind: PostgresCluster
metadata:
  name: production-db
spec:
  engineVersion: "15.3"
  storageSize: 100Gi
  replication:
    enabled: true
    replicaCount: 2
  backupSchedule: "0 2 * * *"
"""


@dataclass
class Shell:
    """A shell in a directory of its own, in which `kubectl` is the program under test."""

    directory: Path
    kubeconfig: Path
    programs: Path

    def file(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def run(self, line: str, code: int = 0) -> str:
        """Return what the line prints, errors included; it must end with this exit code."""
        env = kubectl_environment(self.directory, KUBECONFIG=str(self.kubeconfig))
        env["PATH"] = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", "-o", "pipefail", "-c", line]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=env,
            text=True,
            timeout=120,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == code, f"{line}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def until(self, line: str, pattern: str, seconds: int = 60) -> str:
        """Run the line until its output has the pattern, and return that."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.run(f"{line} 2>&1 || true")
            if re.search(pattern, found, re.MULTILINE):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


@pytest.fixture(scope="module", params=["kubectl", "setpoint"])
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Path]]:
    """The kubeconfig of a cluster, and the directory with the program that is called kubectl."""
    if request.param == "kubectl" and not BINARIES:
        pytest.skip("no kubectl on the path, nor in SETPOINT_TEST_KUBECTL")
    directory = tmp_path_factory.mktemp("tutorial")
    program = directory / "kubectl"
    if request.param == "kubectl":
        program.symlink_to(BINARIES[-1])
    else:
        path = os.pathsep.join(sys.path)
        program.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' -m setpoint \"$@\"\n")
        program.chmod(0o755)
    with up_process(directory, "--nodes", "3") as kubeconfig:
        yield kubeconfig, directory


@pytest.fixture
def shell(cluster: tuple[Path, Path], tmp_path: Path) -> Shell:
    return Shell(tmp_path, *cluster)


def test_a_pod_and_its_status(shell: Shell) -> None:
    shell.file("simple-pod.yaml", SIMPLE_POD)
    assert shell.run("kubectl apply -f simple-pod.yaml") == "pod/simple-pod created\n"
    whole = shell.until("kubectl get pod simple-pod -o yaml", "^  phase: Running$")
    for part in (
        "uid: ",
        "resourceVersion: ",
        "creationTimestamp: ",
        "dnsPolicy: ClusterFirst",
        "restartPolicy: Always",
        "terminationGracePeriodSeconds: 30",
        "type: PodScheduled",
        "type: Initialized",
        "type: ContainersReady",
        "imageID: ",
        "restartCount: 0",
        "running:",
    ):
        assert part in whole
    # Ctrl-C ends the watch.
    watched = shell.run("timeout --signal=INT 3 kubectl get pod simple-pod --watch", code=124)
    assert re.search(r"^simple-pod +1/1 +Running +0 ", watched, re.MULTILINE)
    assert shell.run("kubectl delete pod simple-pod").startswith('pod "simple-pod" deleted')
    assert "NotFound" in shell.run("kubectl get pod simple-pod", code=1)


def test_an_image_that_cannot_be_pulled(shell: Shell) -> None:
    shell.file("pod.yaml", SIMPLE_POD.replace("simple-pod", "misspelt").replace("nginx:1.28", "nignx:1.28"))
    shell.run("kubectl apply -f pod.yaml")
    waiting = "{.status.phase} {.status.containerStatuses[0].state.waiting.reason}"
    shell.until(f"kubectl get pod misspelt -o jsonpath='{waiting}'", "^Pending (ErrImagePull|ImagePullBackOff)$")
    shell.until(f"kubectl get pod misspelt -o jsonpath='{waiting}'", "^Pending ImagePullBackOff$")
    said = shell.run("kubectl get pod misspelt -o jsonpath='{.status.containerStatuses[0].state.waiting.message}'")
    assert "nignx:1.28" in said
    shell.run("kubectl delete pod misspelt --now")


def test_drift_is_repaired(shell: Shell) -> None:
    made = shell.run("kubectl create deployment demo --image=nginx:1.25 --replicas=3")
    assert made == "deployment.apps/demo created\n"
    shell.until("kubectl get deployment demo", r"^demo +3/3 +3 +3 ")
    listed = shell.run("kubectl get pods -l app=demo").splitlines()
    assert listed[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"] and len(listed) == 4
    victim = listed[1].split()[0]
    shell.run(f"kubectl delete pod {victim}")
    shell.until("kubectl get deployment demo", r"^demo +3/3 +3 +3 ")
    after = shell.run("kubectl get pods -l app=demo")
    assert victim not in after
    events = shell.run('kubectl describe replicaset -l app=demo | grep -A 10 "Events:"')
    assert len(re.findall(r"Normal +SuccessfulCreate .* replicaset-controller +Created pod: demo-", events)) == 4

    status = shell.run('kubectl get deployment demo -o yaml | grep -A 12 "^status:"')
    assert "availableReplicas: 3" in status and "Deployment has minimum availability." in status
    generations = r"""'{.metadata.generation} {.status.observedGeneration}{"\n"}'"""
    assert shell.run(f"kubectl get deployment demo -o jsonpath={generations}") == "1 1\n"
    conditions = (
        r"""kubectl get deployment demo -o jsonpath='{range .status.conditions[*]}{.type}{"\t"}{.status}{"\t"}"""
        r"""{.message}{"\n"}{end}'"""
    )
    told = shell.run(conditions)
    assert "Available\tTrue\tDeployment has minimum availability.\n" in told
    assert re.search('^Progressing\tTrue\tReplicaSet "demo-.*" has successfully progressed.$', told, re.MULTILINE)
    shell.run("kubectl rollout pause deployment/demo")
    shell.run("kubectl set image deployment/demo nginx=nginx:1.26")
    assert shell.run("kubectl get deployment demo -o jsonpath='{.spec.paused}'") == "true"
    assert "nginx:1.25" in shell.run("kubectl get pods -l app=demo -o jsonpath='{.items[*].spec.containers[*].image}'")
    shell.run("kubectl delete deployment demo")


def test_the_control_plane_shows_its_leases_and_logs(shell: Shell) -> None:
    leases = shell.run("kubectl -n kube-system get lease")
    assert leases.splitlines()[0].split() == ["NAME", "HOLDER", "AGE"]
    for name in ("kube-controller-manager", "kube-scheduler"):
        assert re.search(rf"^{name} +\S+ +\S+$", leases, re.MULTILINE)
    line = "timeout --signal=INT 3 kubectl -n kube-system logs -l component=kube-controller-manager --tail=50 -f"
    assert shell.run(f"{line} || true").strip()


def test_a_replica_set_maintains_its_replicas(shell: Shell) -> None:
    shell.file("desired-state.yaml", DESIRED_STATE)
    assert shell.run("kubectl apply -f desired-state.yaml") == "replicaset.apps/my-app created\n"
    shell.until("kubectl get replicaset my-app", r"^my-app +3 +3 +3 ")
    shell.run("kubectl delete $(kubectl get pods -l app=my-app -o name | head -1)")
    shell.until("kubectl get replicaset my-app", r"^my-app +3 +3 +3 ")
    # More than the nodes have: one Pod waits, and says why.
    shell.run("kubectl delete replicaset my-app")
    shell.until("kubectl get pods -l app=my-app", "No resources found")
    large = "        image: nginx:1.25\n        resources: {requests: {cpu: '5'}}\n"
    changed = DESIRED_STATE.replace("        image: nginx:1.25\n", large)
    shell.file("large.yaml", changed.replace("replicas: 3", "replicas: 9"))
    shell.run("kubectl apply -f large.yaml")
    shell.until("kubectl get pods -l app=my-app", r"^my-app-\S+ +0/1 +Pending ")
    shell.until("kubectl get events --field-selector reason=FailedScheduling", "Insufficient cpu")
    shell.run("kubectl delete replicaset my-app --cascade=orphan")
    assert len(shell.run("kubectl get pods -l app=my-app -o name").splitlines()) == 9
    shell.run("kubectl delete pods -l app=my-app --now")


def test_declarations_conflicts_and_finalizers(shell: Shell) -> None:
    shell.file("order-api.yaml", ORDER_API)
    assert shell.run("kubectl apply --dry-run=server -f order-api.yaml") == (
        "deployment.apps/order-api created (server dry run)\n"
    )
    assert "NotFound" in shell.run("kubectl get deployment order-api", code=1)
    assert shell.run("kubectl apply -f order-api.yaml") == "deployment.apps/order-api created\n"
    assert shell.run("kubectl apply -f order-api.yaml") == "deployment.apps/order-api unchanged\n"
    assert "AlreadyExists" in shell.run("kubectl create -f order-api.yaml", code=1)
    shell.until("kubectl get deployment order-api", r"^order-api +3/3 ")
    # A write from an outdated copy is refused.
    shell.run("kubectl get deployment order-api -o yaml > old.yaml")
    shell.run("kubectl scale deployment order-api --replicas=4")
    assert "the object has been modified" in shell.run("kubectl replace -f old.yaml", code=1)
    held = '{"metadata":{"finalizers":["example.com/wait"]}}'
    shell.run(f"kubectl patch deployment order-api --type=merge -p '{held}'")
    shell.run("kubectl delete deployment order-api --wait=false")
    assert shell.run("kubectl get deployment order-api -o jsonpath='{.metadata.deletionTimestamp}'")
    shell.run("""kubectl patch deployment order-api --type=merge -p '{"metadata":{"finalizers":null}}'""")
    shell.until("kubectl get deployment order-api", "NotFound")
    scoped = shell.run("kubectl api-resources --namespaced=false -o name").split()
    assert {"nodes", "persistentvolumes", "namespaces", "clusterroles.rbac.authorization.k8s.io"} <= {*scoped}


def test_changes_of_a_live_pod_and_of_its_restart_policy(shell: Shell) -> None:
    shell.run("kubectl create deployment edited --image=nginx:1.25")
    shell.until("kubectl get deployment edited", r"^edited +1/1 ")
    pod = shell.run("kubectl get pods -l app=edited -o name").strip()
    # A variable cannot be added to a running Pod. An image can be changed, until the Pod is replaced.
    add = '"s/^    imagePullPolicy:/    env: [{name: A, value: b}]\\\\n&/"'
    assert "is invalid" in shell.run(f"KUBE_EDITOR='sed -i {add}' kubectl edit {pod}", code=1)
    assert "edited" in shell.run(f"KUBE_EDITOR='sed -i s/nginx:1.25/nginx:1.26/' kubectl edit {pod}")
    shell.until(f"kubectl get {pod}", r"^edited-\S+ +1/1 +Running +1 ")
    shell.run(f"kubectl delete {pod}")
    shell.until("kubectl get deployment edited", r"^edited +1/1 ")
    images = "kubectl get pods -l app=edited -o jsonpath='{.items[*].spec.containers[*].image}'"
    assert shell.run(images) == "nginx:1.25"
    never = """'{"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}'"""
    refused = shell.run(f"kubectl patch deployment edited -p {never}", code=1)
    assert 'restartPolicy: Unsupported value: "Never": supported values: "Always"' in refused
    shell.run("kubectl delete deployment edited")


def test_the_old_option_to_orphan_dependents(shell: Shell) -> None:
    shell.file("desired-state.yaml", DESIRED_STATE.replace("my-app", "orphaned"))
    shell.run("kubectl apply -f desired-state.yaml")
    shell.until("kubectl get replicaset orphaned", r"^orphaned +3 +3 +3 ")
    path = "/apis/apps/v1/namespaces/default/replicasets/orphaned"
    shell.run(f"kubectl delete --raw '{path}?orphanDependents=true'")
    shell.until("kubectl get replicaset orphaned", "NotFound")
    owners = "kubectl get pods -l app=orphaned -o jsonpath='{range .items[*]}{.metadata.ownerReferences}|{end}'"
    assert shell.run(owners) == "|||"
    shell.run("kubectl delete pods -l app=orphaned --now")


def test_an_operator_creates_a_database_cluster(shell: Shell) -> None:
    shell.file("production-db.yaml", PRODUCTION_DB)
    command = [sys.executable, "-m", "examples.postgres_operator", "--kubeconfig", str(shell.kubeconfig)]
    operator = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        shell.until("kubectl get crd postgresclusters.database.example.com", "^postgresclusters")
        shell.until("kubectl apply -f production-db.yaml", "production-db (created|unchanged)")
        shown = shell.until(
            "kubectl get postgresclusters", r"^production-db +Running +2/2 +production-db-0 +15\.3 +100Gi "
        )
        assert shown.splitlines()[0].split()[:6] == ["NAME", "PHASE", "READY", "PRIMARY", "VERSION", "SIZE"]
        kinds = "statefulset,service,configmap,secret,cronjob,persistentvolumeclaim"
        made = shell.run(f"kubectl get {kinds} -o name")
        for name in ("statefulset.apps/production-db", "service/production-db", "cronjob.batch/production-db-backup"):
            assert f"{name}\n" in made
    finally:
        operator.terminate()
        operator.wait(20)
