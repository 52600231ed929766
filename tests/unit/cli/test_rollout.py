"""`rollout` without controllers: the messages for given states, and the requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import Typed

from setpoint.cli.failures import Failed
from setpoint.cli.verbs.rollout.status import daemon_set_progress, deployment_progress, stateful_set_progress


def workload(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "generation": 2}, "spec": spec, "status": {"observedGeneration": 2, **status}}


ROLLING = {"updateStrategy": {"type": "RollingUpdate"}}
PARTITION = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}


@pytest.mark.parametrize(
    ("status", "line", "through"),
    [
        ({"observedGeneration": 1}, "Waiting for deployment spec update to be observed...", False),
        ({}, 'Waiting for deployment "x" rollout to finish: 0 out of 2 new replicas have been updated...', False),
        (
            {"updatedReplicas": 2, "replicas": 3},
            'Waiting for deployment "x" rollout to finish: 1 old replicas are pending termination...',
            False,
        ),
        (
            {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 1},
            'Waiting for deployment "x" rollout to finish: 1 of 2 updated replicas are available...',
            False,
        ),
        (
            {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 2},
            'deployment "x" successfully rolled out',
            True,
        ),
    ],
)
def test_progress_of_a_deployment(status: dict[str, Any], line: str, through: bool) -> None:
    assert deployment_progress(workload(status, replicas=2), 0) == (line, through)


def test_a_deployment_that_exceeded_its_deadline() -> None:
    late = {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}
    with pytest.raises(Failed, match='deployment "x" exceeded its progress deadline'):
        deployment_progress(workload(late, replicas=2), 0)
    with pytest.raises(Failed, match=r"desired revision \(3\) is different from the running revision \(0\)"):
        deployment_progress(workload({}, replicas=2), 3)


@pytest.mark.parametrize(
    ("status", "spec", "line", "through"),
    [
        ({"observedGeneration": 0}, ROLLING, "Waiting for statefulset spec update to be observed...", False),
        ({"readyReplicas": 1}, ROLLING, "Waiting for 2 pods to be ready...", False),
        (
            {"readyReplicas": 3, "updatedReplicas": 1},
            PARTITION,
            "Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated...",
            False,
        ),
        (
            {"readyReplicas": 3, "updatedReplicas": 2},
            PARTITION,
            "partitioned roll out complete: 2 new pods have been updated...",
            True,
        ),
        (
            {"readyReplicas": 3, "updatedReplicas": 1, "updateRevision": "b", "currentRevision": "a"},
            ROLLING,
            "waiting for statefulset rolling update to complete 1 pods at revision b...",
            False,
        ),
        (
            {"readyReplicas": 3, "currentReplicas": 3, "updateRevision": "b", "currentRevision": "b"},
            ROLLING,
            "statefulset rolling update complete 3 pods at revision b...",
            True,
        ),
    ],
)
def test_progress_of_a_stateful_set(status: dict[str, Any], spec: dict[str, Any], line: str, through: bool) -> None:
    assert stateful_set_progress(workload(status, replicas=3, **spec), 0) == (line, through)


def test_progress_of_a_daemon_set() -> None:
    def told(**status: int) -> tuple[str, bool]:
        return daemon_set_progress(workload({"desiredNumberScheduled": 2, **status}, **ROLLING), 0)

    waiting = 'Waiting for daemon set "x" rollout to finish: '
    assert told() == (f"{waiting}0 out of 2 new pods have been updated...", False)
    assert told(updatedNumberScheduled=2) == (f"{waiting}0 of 2 updated pods are available...", False)
    assert told(updatedNumberScheduled=2, numberAvailable=2) == ('daemon set "x" successfully rolled out', True)
    with pytest.raises(Failed, match="only available for RollingUpdate strategy type"):
        daemon_set_progress(workload({}, updateStrategy={"type": "OnDelete"}), 0)


async def test_pause_and_resume(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    assert await typed("rollout pause deploy/web") == "deployment.apps/web paused\n"
    assert await typed.refused("rollout pause deploy/web") == 'error: deployments.apps "web" is already paused\n'
    assert "can't restart paused deployment" in await typed.refused("rollout restart deploy/web")
    assert await typed("rollout resume deploy/web") == "deployment.apps/web resumed\n"
    assert await typed.refused("rollout resume deploy/web") == 'error: deployments.apps "web" is not paused\n'


async def test_restart_is_a_change_of_the_template(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    assert await typed("rollout restart deploy/web") == "deployment.apps/web restarted\n"
    assert "please wait before attempting" in await typed.refused("rollout restart deploy/web")
    template = json.loads(await typed("get deploy web -o json"))["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]


async def test_missing_objects_and_missing_arguments(typed: Typed) -> None:
    done = await typed.run("rollout restart deploy -l a=b")
    assert (done.code, done.out, done.err) == (0, "", "No resources found in default namespace.\n")
    assert await typed.refused("rollout status") == "error: required resource not specified\n"
    done = await typed.run("rollout")
    assert done.code == 1 and "rollout undo" in done.err


async def test_status_stops_at_the_timeout(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    done = await typed.while_time_passes("rollout status deploy/web --timeout=100ms", 1)
    assert (done.code, done.err) == (1, "error: timed out waiting for the condition\n")
    assert done.out == "Waiting for deployment spec update to be observed...\n"
