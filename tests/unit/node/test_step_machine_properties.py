"""The worker of a Pod on a runtime in which anything can happen at any moment. The invariants are those of `ScriptedPod`
and `ScriptedRuntime`, which assert them at each step."""

from __future__ import annotations

from typing import Any

from effort import tries
from hypothesis import given, settings
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


@settings(max_examples=tries(100, 3000))
@given(specs(), SCRIPTS)
def test_a_pod_reaches_its_state_after_any_events(spec: Obj, script: list[tuple[Action, bool]]) -> None:
    play(ScriptedPod(spec), script).settle()


@settings(max_examples=tries(100, 3000))
@given(specs(), SCRIPTS, ENDS, SCRIPTS, st.sampled_from((0, 5, 30)))
def test_a_deleted_pod_goes_away(
    spec: Obj, before: list[tuple[Action, bool]], end: Action, after: list[tuple[Action, bool]], grace: int
) -> None:
    pod = play(ScriptedPod(spec), before)
    perform(pod, end)
    play(pod, after)
    pod.delete(grace)
    pod.settle()
    assert pod.removed
