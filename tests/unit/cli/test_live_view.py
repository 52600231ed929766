"""The model and the screen of `setpoint watch`."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from command_line import Typed
from local_server import LocalServer
from rich.console import Console

from setpoint.cli.watching.model import Authors, Model, Workload, author
from setpoint.cli.watching.screen import View, draw, keys_of
from setpoint.client import Client
from setpoint.view.loop import Related, look
from setpoint.view.states import pod_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(ready: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "default", "generation": 1, **more},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": ready},
    }


def pod(name: str = "a", phase: str = "Pending", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **more}, "spec": {}, "status": {"phase": phase}}


def entry(manager: str, time: str = "2026-01-01T00:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "time": time, **fields}


def text(model: Model, view: View | None = None, width: int = 120, height: int = 24) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(draw(model, view or View(), "here", NOW, height), height=height)
    return out.getvalue()


def test_desired_and_observed_state() -> None:
    model = Model()
    model.begin([("Deployment", deployment(1, resourceVersion="7"))], NOW)
    assert model.workloads(NOW) == [Workload("deployment/web", 3, 1, "2 Pods are not ready")]
    model.see("Deployment", "MODIFIED", deployment(3), NOW)
    assert model.workloads(NOW) == [Workload("deployment/web", 3, 3, "")]
    assert [change.how for change in model.changes] == ["changed", "status"]
    model.see("Deployment", "DELETED", deployment(3), NOW)
    assert model.workloads(NOW) == []


async def test_watch_status_and_page_use_the_same_words(typed: Typed, local_server: LocalServer) -> None:
    """The page shows `look(...).to_json()`; a row of the screen and the lines of `status` are made of the same value."""
    client = local_server.client
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]},
            },
        },
    }
    made = await client.create(web)
    made["status"] = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}
    made = await client.update(made, subresource="status")
    loop = look("apps", "Deployment", made, Related(NOW, []))
    model = Model()
    model.begin([("Deployment", made)], NOW)
    assert [row.note for row in model.workloads(NOW)] == [loop.note] == ["1 Pod is missing; 1 Pod is not ready"]
    printed = await typed("status deployment/web")
    assert printed.splitlines() == [
        f"Deployment web is {loop.phase}.",
        f"  desired   {', '.join(loop.desired)}",
        f"  observed  {', '.join(loop.observed)}",
        f"  drift     {loop.note}",
        f"  action    {loop.action}",
    ]


def test_the_view_starts_with_existing_objects() -> None:
    """The last change of every object, the Events that there are, in the order of their times."""
    model = Model()
    begun = "2025-12-31T23:59:00Z"
    web = deployment(
        3,
        resourceVersion="9",
        creationTimestamp=begun,
        managedFields=[entry("kubectl", begun), entry("kcm", "2025-12-31T23:59:30Z", subresource="status")],
    )
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "a"},
        "reason": "Pulled",
        "message": "Image is there",
        "lastTimestamp": "2025-12-31T23:58:00Z",
    }
    there = [("Deployment", web), ("Pod", pod(resourceVersion="5", creationTimestamp=begun)), ("Event", event)]
    model.begin(there, NOW)
    assert [(one.what, one.how, one.revision) for one in model.changes] == [
        ("pod/a", "changed", 5),
        ("deployment/web", "changed", 9),
    ]
    shown = text(model)
    for seen in ("30s", "deployment/web", "2m", "Pulled", "Image is there", "pod/a"):
        assert seen in shown
    # What the watch delivers once more is no change.
    model.see("Pod", "ADDED", pod(resourceVersion="5"), NOW)
    assert len(model.changes) == 2


def test_pods_without_a_workload_are_shown() -> None:
    def owned(kind: str) -> dict[str, Any]:
        return {"ownerReferences": [{"kind": kind, "controller": True}]}

    model = Model()
    for name, more in (("bare", {}), ("of-set", owned("ReplicaSet")), ("of-operator", owned("PostgresCluster"))):
        model.see("Pod", "ADDED", pod(name, **more), NOW)
    model.see("ReplicaSet", "ADDED", deployment(3, **owned("Deployment")), NOW)
    model.see("Pod", "ADDED", pod("done", "Succeeded"), NOW)
    assert model.workloads(NOW) == [
        Workload("pod/bare", 1, 0, "it has no node"),
        Workload("pod/of-operator", 1, 0, "it has no node"),
        Workload("pod/done", 1, 1, "Succeeded"),
    ]
    model.see("ReplicaSet", "ADDED", deployment(3, **owned("Rollout")), NOW)
    assert Workload("replicaset/web", 3, 3, "") in model.workloads(NOW)


def test_authors_are_read_from_the_recorded_causes() -> None:
    model = Model()
    model.see("Pod", "ADDED", pod(resourceVersion="3", managedFields=[entry("kcm")]), NOW)
    model.see("Pod", "MODIFIED", {**pod(resourceVersion="4", managedFields=[entry("kcm")])}, NOW)
    assert model.unattributed(10) == [4, 3]
    model.attribute({3: "replicaset-controller", 4: "kube-scheduler"}, [3, 4])
    assert [change.who for change in model.changes] == ["replicaset-controller", "kube-scheduler"]
    assert model.unattributed(10) == []


def test_authors_are_guessed_from_objects_without_causes() -> None:
    """For servers that keep no causes."""
    model = Model()
    first = [entry("kubectl"), entry("kcm")]
    model.see("Pod", "ADDED", pod(resourceVersion="1", managedFields=first), NOW)
    bound = {**pod(resourceVersion="2", managedFields=first), "spec": {"nodeName": "node-1"}}
    model.see("Pod", "MODIFIED", bound, NOW)
    third = [entry("kubectl"), entry("kcm", x={})]
    model.see("Pod", "MODIFIED", {**bound, "metadata": {**bound["metadata"], "managedFields": third}}, NOW)
    model.see("Pod", "MODIFIED", {**bound, "metadata": {**bound["metadata"], "managedFields": third}}, NOW)
    model.attribute({}, [1, 2])
    assert [change.who for change in model.changes] == ["kubectl", "kube-scheduler", "kcm", "?"]


@pytest.mark.parametrize(
    ("user", "agent", "shown"),
    [
        ("system:serviceaccount:kube-system:deployment-controller", "setpoint/v1", "deployment-controller"),
        ("system:kube-scheduler", "kube-scheduler/v1", "kube-scheduler"),
        ("system:node:node-1", "kubelet/v1", "kubelet node-1"),
        ("kubernetes-admin", "kubectl/v1.37 (linux/amd64)", "kubernetes-admin (kubectl)"),
        ("jane", "", "jane"),
    ],
)
def test_names_of_authors(user: str, agent: str, shown: str) -> None:
    assert author({"user": user, "agent": agent, "verb": "update"}) == shown


@pytest.mark.parametrize(
    ("user", "reconcile", "shown"),
    [
        (
            "system:serviceaccount:kube-system:node-controller",
            "node-lifecycle-controller/1f.2",
            "node-lifecycle-controller",
        ),
        ("system:node:node-1", "node/1f.2", "kubelet node-1"),
        ("jane", "teapots/1f.2", "teapots (jane)"),
    ],
)
def test_the_author_is_the_controller_that_claims_the_write(user: str, reconcile: str, shown: str) -> None:
    assert author({"user": user, "agent": "setpoint", "verb": "update", "reconcile": reconcile}) == shown


async def test_the_author_of_a_scale_write(local_server: LocalServer, client: Client, typed: Typed) -> None:
    """Through the API: the causes of writes are served to those who may read them."""
    await typed("create deployment web --image=nginx")
    await typed("scale deployment/web --replicas=3")
    revision = int(await typed("get deployment web -o jsonpath={.metadata.resourceVersion}"))
    authors = await Authors(client).of([revision, revision + 1000])
    assert authors is not None and list(authors) == [revision]
    assert authors[revision].endswith("(cli)")
    shown = await typed("watch --once")
    assert "deployment/web" in shown and "(cli)" in shown
    for query in (
        "",
        "revisions=",
        "revisions=a",
        "revisions=0",
        "revisions=" + "1," * 600,
        "revisions=" + "9" * 20000,
    ):
        with pytest.raises(Exception, match="revisions must be"):
            await client.sender.request("GET", "/setpoint/v1/causes", query)


def test_states_of_pods() -> None:
    found: dict[str, Any] = {"metadata": {"name": "a"}, "status": {"phase": "Running"}}
    assert pod_state(found) == "NotReady"
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pod_state(found) == "Running"
    found["status"]["containerStatuses"] = [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    assert pod_state(found) == "CrashLoopBackOff"
    found["metadata"]["deletionTimestamp"] = "x"
    assert pod_state(found) == "Terminating"


def test_control_characters_are_escaped_on_the_screen() -> None:
    model = Model()
    about = {"kind": "Pod", "name": "[red]x"}
    event = {"involvedObject": about, "reason": "Bad\x1b[1A", "message": "a\x1b[2Jb\n c", "type": "Warning"}
    model.see("Event", "ADDED", event, NOW)
    shown = text(model)
    assert "\x1b" not in shown
    assert "pod/[red]x" in shown
    assert "a�[2Jb c" in shown


def test_the_width_of_the_terminal_is_used() -> None:
    model = Model()
    name = "a-deployment-with-a-name-that-is-as-long-as-names-of-generated-things-are"
    model.see("Deployment", "ADDED", deployment(1) | {"metadata": {"name": name}}, NOW)
    assert f"deployment/{name} " in text(model, width=220)
    assert all(len(line) == 60 for line in text(model, width=60).splitlines())


def test_names_are_not_cut_on_a_narrow_terminal() -> None:
    model = Model()
    model.see("Deployment", "ADDED", deployment(1), NOW)
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    crashing = pod("crash", "Running") | {"status": {"phase": "Running", "containerStatuses": [waiting]}}
    model.see("Pod", "ADDED", crashing, NOW)
    shown = text(model, width=80)
    assert re.search("deployment/web +[█░]+.* 1/3", shown) and re.search("pod/crash +[█░]+.* 0/1", shown)


def test_long_panels_scroll() -> None:
    model, view = Model(), View()
    for number in range(300):
        job = {"metadata": {"name": f"j{number:03}"}, "spec": {}}
        model.see("Job", "ADDED", job, NOW + timedelta(seconds=number))
    shown = text(model, view)
    assert len(shown.splitlines()) == 24
    assert len(model.changes) == 200
    assert "job/j000" in shown and "(1-11 of 300)" in shown
    for key in ("down", "down", "page down"):
        view.press(key)
    assert "(13-23 of 300)" in text(model, view)
    view.press("end")
    assert "job/j299" in text(model, view)
    view.press("down")
    view.press("next")
    view.press("page down")
    shown = text(model, view)
    assert "(290-300 of 300)" in shown and "(11-21 of 200)" in shown
    view.press("home")
    view.press("up")
    assert "(1-11 of 200)" in text(model, view)


def test_keys() -> None:
    assert keys_of(b"\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~") == ["up", "down", "up", "page up", "page down"]
    assert keys_of(b"\x1b") == [], "an escape character alone may be the beginning of something"
    assert keys_of(b"\x1b[1;5A\x1bx\xff\x1b[") == []
    assert keys_of(b"jq\x03") == ["down", "quit", "quit"]


async def test_one_screen_as_text(typed: Typed) -> None:
    shown = await typed("watch --once")
    assert "desired against observed" in shown
    assert "a live view needs a terminal" in await typed.refused("watch")
