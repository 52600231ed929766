"""What `setpoint watch` makes of what it sees."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

from command_line import Typed
from rich.console import Console

from setpoint.cli.watching.model import Model, Wish, pod_state
from setpoint.cli.watching.screen import draw

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(ready: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "default", "generation": 1, **more},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 1, "readyReplicas": ready},
    }


def entry(manager: str, time: str = "2026-01-01T00:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "time": time, "fieldsV1": fields}


def text(model: Model) -> str:
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(draw(model, "here", NOW, 24), height=24)
    return out.getvalue()


def test_a_wish_and_what_is() -> None:
    model = Model()
    model.see("Deployment", "ADDED", deployment(1), NOW, news=False)
    assert model.wishes() == [Wish("deployment/web", 3, 1, "")]
    assert not model.changes
    model.see("Deployment", "MODIFIED", deployment(3), NOW)
    assert model.wishes() == [Wish("deployment/web", 3, 3, "")]
    assert [change.how for change in model.changes] == ["status"]
    model.see("Deployment", "DELETED", deployment(3), NOW)
    assert model.wishes() == []


def test_who_changed_it() -> None:
    model = Model()
    first = [entry("kubectl"), entry("kube-controller-manager")]
    model.see("Deployment", "ADDED", deployment(1, managedFields=first), NOW)
    second = [entry("kubectl"), entry("kube-controller-manager", x={})]
    model.see("Deployment", "MODIFIED", deployment(2, managedFields=second), NOW)
    assert [change.who for change in model.changes] == ["kubectl", "kube-controller-manager"]


def test_sets_of_deployments_are_shown_by_these() -> None:
    model = Model()
    model.see("ReplicaSet", "ADDED", deployment(1, ownerReferences=[{}]), NOW)
    assert model.wishes() == []


def test_states_of_pods() -> None:
    pod: dict[str, Any] = {"metadata": {"name": "a"}, "status": {"phase": "Running"}}
    assert pod_state(pod) == "NotReady"
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pod_state(pod) == "Running"
    pod["status"]["containerStatuses"] = [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    assert pod_state(pod) == "CrashLoopBackOff"
    pod["metadata"]["deletionTimestamp"] = "x"
    assert pod_state(pod) == "Terminating"


def test_what_is_told_cannot_write_on_the_screen() -> None:
    model = Model()
    about = {"kind": "Pod", "name": "[red]x"}
    event = {"involvedObject": about, "reason": "Bad", "message": "a\x1b[2Jb\n c", "type": "Warning"}
    model.see("Event", "ADDED", event, NOW)
    shown = text(model)
    assert "\x1b" not in shown
    assert "pod/[red]x" in shown
    assert "a�[2Jb c" in shown


def test_much_is_cut() -> None:
    model = Model()
    for number in range(300):
        model.see("Job", "ADDED", {"metadata": {"name": f"j{number}"}, "spec": {}}, NOW)
    shown = text(model)
    assert "more" in shown
    assert len(shown.splitlines()) == 24
    assert len(model.changes) == 200


async def test_once_as_text(typed: Typed) -> None:
    shown = await typed("watch --once")
    assert "desired against observed" in shown
    assert "a live view needs a terminal" in await typed.refused("watch")
