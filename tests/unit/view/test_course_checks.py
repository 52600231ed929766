"""Checks of lessons: CEL over objects, history with causes, files, typed lines and answers; bounded and never raising."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.view.course.checks import COST_LIMIT, Check, Reference, Verdict, compile_expression, evaluate
from setpoint.view.course.facts import LESSON_AGENT, MAX_HISTORY, Facts, History
from setpoint.view.course.lesson import read_lesson
from setpoint.view.course.problems import ProblemList

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HEAD = "---\ntitle: x\n---\n"


def pod(name: str, ready: str = "True", namespace: str = "default", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": True}],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull"}}}],
        },
    }


def check(text: str) -> Check:
    (found,) = read_lesson("mine", "mine.md", f"{HEAD}:::check a\n{text}\n:::\n".encode()).checks
    return found


def verdict(text: str, **facts: Any) -> Verdict:
    return evaluate(check(text), Facts(NOW, **facts))


def is_met(expression: str, **facts: Any) -> bool:
    problems = ProblemList("mine.md")
    found = compile_expression(expression, 1, problems)
    assert found is not None and not problems.found, problems.found
    return evaluate(Check("a", 1, "x", {}, found), Facts(NOW, **facts)).ok


PODS = {"Pod": [pod("a", app="web"), pod("b", "False", app="web"), pod("c", namespace="shop")]}


@pytest.mark.parametrize(
    "expression",
    [
        'objects("Pod").size() == 3',
        'objects("Pod", "default").size() == 2',
        'objects("Node").size() == 0',
        'object("Pod/a").metadata.name == "a"',
        'object("Pod/shop/c").metadata.namespace == "shop"',
        'present("Pod/a") && !present("Pod/c") && present("Pod/shop/c")',
        'objects("Pod").filter(p, ready(p) && label(p, "app") == "web").size() == 1',
        'label(object("Pod/a"), "none") == "" && owner(object("Pod/a")) == "ReplicaSet/web-1"',
        'condition(object("Pod/b"), "Ready") == "False" && condition(object("Pod/b"), "Other") == ""',
        'restarts(object("Pod/a")) == 2 && reason(object("Pod/a")) == "ErrImagePull"',
        'file("a.yaml").contains("kind") && file("none") == ""',
        'typed.exists(t, t.startsWith("kubectl"))',
        '"q" in answers && answers["q"] && !("r" in answers)',
        'now == timestamp("2026-01-01T12:00:00Z")',
        'owner(object("Pod/none")) == "" && restarts(object("Pod/none")) == 0 && reason(object("Pod/none")) == ""',
    ],
)
def test_functions_and_variables(expression: str) -> None:
    facts: dict[str, Any] = {"objects": PODS, "files": {"a.yaml": "kind: Pod"}, "typed": ["kubectl get pods"]}
    assert is_met(expression, **facts, answers={"q": True})


@pytest.mark.parametrize(
    "expression",
    [
        'object("Pod/none").spec.replicas == 3',
        'objects("Pod").exists(p, p.spec.nodeName == "x")',
        'answers["none"]',
        'typed[5] == ""',
        'object("Pod/a").metadata == 5',
    ],
)
def test_an_error_is_not_met_yet(expression: str) -> None:
    assert not is_met(expression, objects=PODS)


def test_messages_have_the_present_values_and_name_the_mistake() -> None:
    text = """say: "Three are ready (now: {count}), {names}, {odd}"
let:
  names: objects("Pod").map(p, p.metadata.name)
  count: objects("Pod").filter(p, ready(p)).size()
  odd: object("Pod/none").spec
when: count == 3
else:
- when: object("Pod/none").x == 1
  say: never
- when: count < 3
  say: "{count} is too few"
- when: 'true'
  say: too late"""
    found = verdict(text, objects=PODS)
    assert found[:3] == (False, "Three are ready (now: 2), a, b, c, ...", "2 is too few")
    assert verdict("say: none\nwhen: present('Pod/x')").error == ""
    assert check(text).title == "Three are ready, ..., ..."


def test_evaluation_is_bounded() -> None:
    many = [pod(f"p{number}") for number in range(2_000)]
    began = time.process_time()
    found = verdict(
        'say: x\nwhen: objects("Pod").all(a, objects("Pod").all(b, objects("Pod").all(c, a != b || b != c || true)))',
        objects={"Pod": many},
    )
    assert not found.ok and "cost limit exceeded" in found.error
    found = verdict('say: x\nlet: {a: \'"x".replace("", "yyyyyyyy".replace("", "zzzz"))\'}\nwhen: file("x") == a')
    assert not found.ok
    found = verdict("say: x\nwhen: file('a').matches('(a*)*b')", files={"a": "a" * 100_000})
    assert not found.ok
    assert time.process_time() - began < 2
    assert COST_LIMIT <= 1_000_000


def test_references() -> None:
    assert Reference.of("Deployment/web") == ("Deployment", "default", "web")
    assert Reference.of("Deployment.apps/shop/web") == ("Deployment.apps", "shop", "web")


# -- history -----------------------------------------------------------------------------------------------------------


def write(
    revision: int,
    user: str,
    kind: str,
    name: str,
    *,
    part: str = "spec",
    verb: str = "update",
    agent: str = "",
    **claim: Any,
) -> dict[str, Any]:
    return {
        "revision": revision,
        "cause": {"at": 1, "verb": verb, "user": user, "agent": agent, **claim},
        "objects": [
            {
                "group": "",
                "resource": f"{kind.lower()}s",
                "kind": kind,
                "namespace": "default",
                "name": name,
                "part": part,
                "changes": ["x 1 -> 2"],
            }
        ],
    }


def controller(name: str) -> str:
    return f"system:serviceaccount:kube-system:{name}"


def test_history_says_who_did_what_because_of_what() -> None:
    history = History()
    assert history.add(write(5, "admin", "Pod", "a", part="deleted", verb="delete", agent="kubectl")) == {"Pod"}
    history.add(write(6, controller("rs"), "ReplicaSet", "web", reconcile="replicaset-controller/a.1", triggers=[5]))
    history.add(
        write(
            7,
            controller("rs"),
            "Pod",
            "b",
            part="created",
            verb="create",
            reconcile="replicaset-controller/a.2",
            triggers=[6],
        )
    )
    history.add(write(8, "system:node:n1", "Pod", "b", verb="patch/status", reconcile="pods/a", triggers=[7, 99]))
    history.add(write(9, "admin", "Node", "n1", agent=LESSON_AGENT))
    history.add(write(10, "admin", "Service", "s", agent="op", reconcile="postgres-operator/x.1", triggers=[10]))
    deleted, _, made, reported, faulted, operated = history.writes
    assert (deleted["by"], deleted["actor"], deleted["verb"], deleted["part"]) == ("you", "admin", "delete", "deleted")
    assert (made["by"], made["actor"]) == ("system", "replicaset-controller")
    assert [each["revision"] for each in made["because"]] == [6, 5]
    assert "because" not in made["because"][0]
    assert (reported["actor"], reported["verb"]) == ("kubelet n1", "patch")
    assert [each["revision"] for each in reported["because"]] == [7, 6, 5]
    assert (faulted["by"], operated["by"], operated["actor"]) == ("lesson", "system", "postgres-operator")
    assert is_met(
        'history.exists(w, w.kind == "Pod" && w.part == "created" && w.because.exists(b, b.by == "you" && b.verb == "delete"))',
        history=history.writes,
    )


def test_heartbeats_are_no_history_and_history_is_bounded() -> None:
    history = History()
    lease = write(1, "system:node:a", "Lease", "a")
    lease["objects"][0] |= {"group": "coordination.k8s.io", "resource": "leases"}
    assert history.add(lease) == set()
    assert history.add(write(2, "system:node:a", "Node", "a", part="heartbeat")) == set()
    for revision in range(3, MAX_HISTORY + 50):
        history.add(write(revision, "admin", "Pod", "a", triggers=[revision - 1]))
    assert len(history.writes) == MAX_HISTORY
    assert len(history.writes[-1]["because"]) == 40
    with pytest.raises((LookupError, TypeError, ValueError)):
        history.add({"revision": 1, "objects": [{}]})
