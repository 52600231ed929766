"""Commands of kubectl that build objects by themselves: in protobuf from 1.32 on, in JSON before."""

from __future__ import annotations

import pytest
from kubectl_runner import Kubectl, Versions, kubectls
from server_process import ServerProcess

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]


@pytest.fixture(scope="module")
def versions(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    found = []
    for binary in BINARIES:
        namespace = "made-" + binary.name.replace(".", "-")
        kubectl = Kubectl(binary, server.kubeconfig, tmp_path_factory.mktemp("home"), namespace)
        assert kubectl("create", "namespace", namespace) == f"namespace/{namespace} created\n"
        found.append(kubectl)
    return Versions(found)


def test_workloads_and_services(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        kubectl("create", "deployment", "d", "--image=i", "--replicas=0", "--port=80")
        assert kubectl.get("deploy", "d")["spec"]["replicas"] == 0
        kubectl("create", "cronjob", "cj", "--image=i", "--schedule=* * * * *")
        kubectl("create", "job", "j", "--from=cronjob/cj")
        assert kubectl.get("job", "j")["metadata"]["ownerReferences"][0]["name"] == "cj"
        kubectl("create", "service", "nodeport", "np", "--tcp=80:8080")
        port = kubectl.get("svc", "np")["spec"]["ports"][0]
        assert (port["port"], port["targetPort"], port["protocol"]) == (80, 8080, "TCP")
        kubectl("create", "service", "externalname", "en", "--external-name=a.example")
        kubectl("run", "p", "--image=i", "--env=A=B", "--port=80")
        assert kubectl.get("pod", "p")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "B"}]
        assert kubectl("expose", "pod", "p", "--port=80", "--target-port=web") == "service/p exposed\n"
        assert kubectl.get("svc", "p")["spec"]["ports"][0]["targetPort"] == "web"
        kubectl("autoscale", "deploy", "d", "--min=1", "--max=3", "--cpu-percent=70")
        # Lists of another version than the stored one once made kubectl lose the kind.
        assert '"d" deleted' in kubectl("delete", "hpa", "--all")

    versions.each(story)


def test_access_and_policy(versions: Versions) -> None:
    def story(kubectl: Kubectl) -> None:
        name = f"of-{kubectl.namespace}"
        kubectl("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
        assert kubectl.get("clusterrole", name)["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--group=g")
        kubectl("create", "priorityclass", name, "--value=-5")
        assert kubectl.get("priorityclass", name)["value"] == -5
        kubectl("create", "serviceaccount", "bot")
        assert kubectl("create", "token", "bot", "--duration=1h", "--audience=x").count(".") == 2
        kubectl("create", "quota", "q", "--hard=requests.cpu=1500m")
        kubectl("create", "pdb", "b", "--selector=app=d", "--max-unavailable=1")
        assert kubectl.get("pdb", "b")["spec"]["maxUnavailable"] == 1
        assert "already exists" in kubectl.refused("create", "quota", "q")
        assert "metadata.name: Invalid value" in kubectl.refused("create", "configmap", "X_")
        assert kubectl("create", "configmap", "dry", "--dry-run=server", "-o", "name") == "configmap/dry\n"
        assert "(NotFound)" in kubectl.refused("get", "cm", "dry")

    versions.each(story)
