"""Objects of all kinds, described by the real kubectl and by `describe`: the same bytes. Then some of them as others
see them: in another zone, without events, in small pages, and by somebody who may not see everything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from describing import NAMESPACE, Comparison, Described, Named, Seeds, View, documents, title
from kubectl_runner import Kubectl, kubectls
from server_process import ServerProcess

from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.system import SystemClock

LEAST = 33
BINARIES = [path for path in kubectls() if Kubectl(path, Path(), Path(), "").minor >= LEAST]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason=f"no kubectl 1.{LEAST} or newer on the path, nor in SETPOINT_TEST_KUBECTL"),
]


SINCE = {title(one): one.get("since", LEAST) for one in documents() if one["kind"] != "Event"}
WITH_TIMES = (
    "Pod/full",
    "NetworkPolicy/some",
    "Node/worker-1",
    "Node/bare",
    "Deployment/web",
    "StatefulSet/db",
    "Job/done",
    "CronJob/nightly",
    "ServiceCIDR/more",
    "PersistentVolumeClaim/bound",
    "CSINode/worker-1",
    "HorizontalPodAutoscaler/all",
    "CertificateSigningRequest/full",
)
WITH_MORE = (
    "Pod/full",
    "Node/worker-1",
    "Deployment/web",
    "ReplicaSet/web-new",
    "PersistentVolumeClaim/bound",
    "Service/web",
    "Ingress/routes",
    "ConfigMap/settings",
    "ServiceAccount/runner",
    "Namespace/limited",
    "ControllerRevision/odd",
)
VIEWS = {
    "as it is": View(tuple(SINCE)),
    "from New York": View(
        WITH_TIMES, environment={"TZ": "America/New_York"}, options={"zone": ZoneInfo("America/New_York")}
    ),
    "from Kolkata": View(WITH_TIMES, environment={"TZ": "Asia/Kolkata"}, options={"zone": ZoneInfo("Asia/Kolkata")}),
    "without events": View(WITH_MORE, ("--show-events=false",), options={"show_events": False}),
    "two by two": View(WITH_MORE, ("--chunk-size=2",), options={"chunk_size": 2}),
    "all at once": View(WITH_MORE, ("--chunk-size=0",), options={"chunk_size": 0}),
    "by somebody who only gets": View((*WITH_MORE, "DaemonSet/agent", "StatefulSet/db", "Job/done"), limited=True),
}
CASES = [(name, view) for view, what in VIEWS.items() for name in what.titles]
# What may be got but not listed: Pods, events, ReplicaSets, endpoints, quotas, Secrets. Leases may not even be got.
ONLY_GETS: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "only-gets"},
        "rules": [
            {"apiGroups": ["", "apps", "batch", "networking.k8s.io"], "resources": ["*"], "verbs": ["get"]},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "only-gets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "only-gets"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}],
    },
)


AT_ONCE = 8
Texts = dict[tuple[str, str, str], Described]


async def all_described(server: ServerProcess, home: Path) -> Texts:
    clock = SystemClock()
    limited = server.kubeconfig_with_token("limited-token")
    client, other = (connect(find_access(str(path)), clock) for path in (server.kubeconfig, limited))
    seeds = Seeds(client, clock)
    await seeds.sow()
    for one in ONLY_GETS:
        await client.create(one)
    made = {
        title(one): Named(one["metadata"]["name"], one["metadata"].get("namespace", ""), resource)
        for one, resource in seeds.made
    }
    few = asyncio.Semaphore(2)
    found: Texts = {}

    async def compare(binary: Path, titles: list[str], view: str) -> None:
        kubectl = Kubectl(binary, limited if VIEWS[view].limited else server.kubeconfig, home, NAMESPACE)
        comparison = Comparison(other if VIEWS[view].limited else client, kubectl)
        async with few:
            described = await comparison.all([made[title] for title in titles], VIEWS[view])
        found.update(((binary.name, title, view), each) for title, each in zip(titles, described, strict=True))

    async with asyncio.TaskGroup() as tasks:
        for binary in BINARIES:
            minor = Kubectl(binary, Path(), Path(), "").minor
            for view, what in VIEWS.items():
                # Those that this kubectl says otherwise would spoil the comparison of the others.
                titles = [title for title in what.titles if SINCE[title] <= minor]
                for namespace in {made[title].namespace for title in titles}:
                    there = [title for title in titles if made[title].namespace == namespace]
                    for begin in range(0, len(there), AT_ONCE):
                        tasks.create_task(compare(binary, there[begin : begin + AT_ONCE], view))
    await client.close()
    await other.close()
    return found


@pytest.fixture(scope="module")
def texts(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return asyncio.run(all_described(server, tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize(("name", "view"), CASES)
@pytest.mark.parametrize("binary", [path.name for path in BINARIES])
def test_descriptions_are_equal(texts: Texts, binary: str, name: str, view: str) -> None:
    if Kubectl(Path(binary), Path(), Path(), "").minor < SINCE[name]:
        pytest.skip(f"before kubectl 1.{SINCE[name]} it fails, or says things in an order that changes")
    assert not texts[binary, name, view].difference()
