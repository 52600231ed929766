"""The worker of a Pod on a runtime in which anything can happen at any moment. The invariants are those of `ScriptedPod`
and `ScriptedRuntime`, which assert them at each step."""

from __future__ import annotations

from typing import Any

import pytest
from effort import tries
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted_pod import ScriptedPod
from scripted_runtime import CANNOT_START, LOST_ANSWER, PROBE_ERROR

from setpoint.meta.objects import Obj

Action = tuple[str, Any]
IMAGE = "example.com/image:1"
HOOKS = {"postStart": {"exec": {"command": ["true"]}}, "preStop": {"exec": {"command": ["true"]}}}
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 5, "failureThreshold": 1}
EXITS = st.sampled_from((0, 0, 1, 137, 42))
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]


@st.composite
def containers(draw: st.DrawFn, name: str, *, probed: bool) -> Obj:
    found: Obj = {"name": name, "image": IMAGE}
    for field in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probed and draw(st.booleans()):
            found[field] = {**PROBE}
    if probed and draw(st.booleans()):
        found["lifecycle"] = {which: HOOKS[which] for which in draw(st.sets(st.sampled_from(sorted(HOOKS))))}
    return found


@st.composite
def specs(draw: st.DrawFn) -> Obj:
    kinds = draw(st.lists(st.sampled_from(("init", "sidecar")), max_size=3))
    init = [draw(containers(f"{kind}-{number}", probed=kind == "sidecar")) for number, kind in enumerate(kinds)]
    for each in init:
        if each["name"].startswith("sidecar"):
            each["restartPolicy"] = "Always"
    main = [draw(containers(f"main-{number}", probed=True)) for number in range(draw(st.integers(1, 2)))]
    policy = draw(st.sampled_from(("Always", "OnFailure", "Never")))
    spec: Obj = {"containers": main, "restartPolicy": policy, "terminationGracePeriodSeconds": 30}
    if init:
        spec["initContainers"] = init
    if draw(st.integers(0, 5)) == 5:
        spec["activeDeadlineSeconds"] = 100
    if draw(st.integers(0, 5)) == 5:
        spec["volumes"] = [
            {"name": "files", "image": {"reference": "example.com/files:1", "pullPolicy": "IfNotPresent"}}
        ]
        main[0]["volumeMounts"] = [{"name": "files", "mountPath": "/files"}]
    if draw(st.integers(0, 3)) == 3:
        main[0] |= {"restartPolicy": policy, "restartPolicyRules": RULES}
    return spec


PROBLEMS = st.sampled_from(("", "", "", "it failed", CANNOT_START, LOST_ANSWER, PROBE_ERROR))
INDEX = st.integers(0, 5)
EVENTS = st.one_of(
    st.tuples(st.just("complete"), st.tuples(INDEX, PROBLEMS)),
    st.tuples(st.just("complete"), st.tuples(INDEX, st.just(""))),
    st.tuples(st.just("complete all"), st.integers(1, 12)),
    st.tuples(st.just("exit"), st.tuples(INDEX, EXITS)),
    st.tuples(st.just("advance"), st.sampled_from((0.1, 1.0, 5.0, 11.0, 40.0, 700.0))),
    st.tuples(st.just("sync"), st.just(None)),
    st.tuples(st.just("break sandbox"), st.booleans()),
    st.tuples(st.just("crash"), st.tuples(st.booleans(), st.booleans(), st.sampled_from((0.0, 3.0, 60.0)))),
    st.tuples(st.just("change image"), INDEX),
    st.tuples(st.just("add ephemeral"), st.just(None)),
    st.tuples(st.just("api"), st.booleans()),
)
ENDS = st.one_of(
    st.tuples(st.just("delete"), st.sampled_from((0, 1, 30))),
    st.tuples(st.just("set phase"), st.sampled_from(("Failed", "Succeeded"))),
    st.tuples(st.just("evict"), st.sampled_from((0.0, 30.0))),
)


def perform(pod: ScriptedPod, action: Action) -> None:
    kind, detail = action
    runtime = pod.runtime
    if kind == "complete" and runtime.completable:
        index, problem = detail
        pod.complete(runtime.completable[index % len(runtime.completable)], problem)
    elif kind == "complete all":
        for _ in range(detail):
            pod.sync()
            if runtime.completable:
                pod.complete(runtime.completable[0])
    elif kind == "exit" and runtime.running:
        index, code = detail
        pod.exit(runtime.running[index % len(runtime.running)], code)
    elif kind == "advance":
        pod.advance(detail)
    elif kind == "break sandbox":
        runtime.break_sandbox(detail)
    elif kind == "crash":
        with_effect, stops_go_on, away = detail
        pod.crash(with_effect=with_effect, stops_go_on=stops_go_on, away=away)
    elif kind == "delete":
        pod.delete(detail)
    elif kind == "change image":
        pod.change_image(detail)
    elif kind == "add ephemeral":
        pod.add_ephemeral()
    elif kind == "set phase":
        pod.set_phase(detail)
    elif kind == "evict":
        pod.evict(detail)
    elif kind == "api":
        pod.api_works = detail
    elif kind == "sync":
        pod.sync()


def play(pod: ScriptedPod, script: list[tuple[Action, bool]]) -> ScriptedPod:
    """Perform the actions, each with or without a step of the agent afterwards."""
    for action, followed in script:
        if pod.removed:
            break
        perform(pod, action)
        if followed and pod.changed:
            pod.sync()
    return pod


SCRIPTS = st.lists(st.tuples(EVENTS, st.booleans()), max_size=40)


def _pod(policy: str, container: Obj, **spec: Any) -> Obj:
    main = {"name": "main-0", "image": "example.com/image:1", **container}
    return {"containers": [main], "restartPolicy": policy, "terminationGracePeriodSeconds": 30, **spec}


_COMMAND = {"exec": {"command": ["true"]}}
_HOOKS = {"lifecycle": {"preStop": _COMMAND, "postStart": _COMMAND}}
_INIT = [{"name": f"init-{number}", "image": "example.com/image:1"} for number in range(2)]


@settings(max_examples=tries(100, 3000))
@given(specs(), SCRIPTS)
@example(  # the post-start hook fails while the container is stopped because its image has changed
    _pod("Always", _HOOKS),
    [(("complete all", 5), False), (("change image", 0), True), (("complete", (0, "it failed")), True)],
)
@example(  # the answer to a start is lost, and the image changes before the next attempt
    _pod("Always", {}),
    [
        (("add ephemeral", None), False),
        (("add ephemeral", None), False),
        (("complete all", 10), False),
        (("complete", (0, LOST_ANSWER)), False),
        (("change image", 0), False),
    ],
)
def test_a_pod_reaches_its_state_after_any_events(spec: Obj, script: list[tuple[Action, bool]]) -> None:
    play(ScriptedPod(spec), script).settle()


@settings(max_examples=tries(100, 3000))
@given(specs(), SCRIPTS, ENDS, SCRIPTS, st.sampled_from((0, 5, 30)))
@example(  # the sandbox is lost after init containers have succeeded: they would run again
    _pod("OnFailure", {}, initContainers=_INIT[:1]),
    [(("complete all", 5), False), (("exit", (0, 0)), True), (("break sandbox", False), True)],
    ("delete", 0),
    [],
    0,
)
@example(  # the same, and the first of two runs again when the Pod is deleted
    _pod("OnFailure", {}, initContainers=_INIT),
    [
        (("complete all", 5), True),
        (("exit", (0, 0)), True),
        (("complete all", 5), True),
        (("exit", (0, 0)), True),
        (("break sandbox", True), True),
        (("complete all", 20), True),
    ],
    ("delete", 5),
    [],
    5,
)
def test_a_deleted_pod_goes_away(
    spec: Obj, before: list[tuple[Action, bool]], end: Action, after: list[tuple[Action, bool]], grace: int
) -> None:
    pod = play(ScriptedPod(spec), before)
    perform(pod, end)
    play(pod, after)
    pod.delete(grace)
    pod.settle()
    assert pod.removed


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_init_containers_keep_their_status_until_they_run_again(policy: str) -> None:
    """As a kubelet reports them after the sandbox was lost: the API does not accept that one waits which succeeded."""
    pod = ScriptedPod(_pod(policy, {}, initContainers=_INIT))
    pod.settle()
    ended = pod.stored["status"]["initContainerStatuses"]
    assert [each["state"]["terminated"]["exitCode"] for each in ended] == [0, 0]
    pod.runtime.break_sandbox(True)
    pod.sync()
    assert pod.stored["status"]["initContainerStatuses"] == ended
    while not any(each.record.name == "init-0" for each in pod.runtime.running):
        pod.complete(pod.runtime.completable[0])
        pod.sync()
    again, following = pod.stored["status"]["initContainerStatuses"]
    assert following == ended[1]
    if policy == "Always":
        assert "running" in again["state"] and again["restartCount"] == 1
    else:
        assert again == ended[0]  # nothing is reported until it has ended
    pod.settle()
    now = pod.stored["status"]
    assert [(each["restartCount"], "terminated" in each["state"]) for each in now["initContainerStatuses"]] == [
        (1, True),
        (1, True),
    ]
    assert now["phase"] == "Running"
