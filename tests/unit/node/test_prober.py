"""What the results of probes lead to."""

from __future__ import annotations

from scripted_pod import ScriptedPod
from scripted_runtime import PROBE_ERROR, PROBE_WARNING

PATH = "spec.containers{main}"


def test_a_probe_may_succeed_with_a_warning() -> None:
    probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5, "failureThreshold": 1}
    main = {"name": "main", "image": "example.com/image:1", "livenessProbe": probe}
    pod = ScriptedPod({"containers": [main], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30})
    pod.settle()
    for problem, event in (("", ""), (PROBE_WARNING, "ProbeWarning"), ("it failed", "Unhealthy")):
        before = len(pod.events.found)
        while not pod.runtime.pending:
            pod.advance(1.0)
        (running,) = pod.runtime.pending
        assert running.name == "liveness probe of main"
        pod.complete(running, problem)
        pod.sync()
        found = [each for each in pod.events.found[before:] if each[0] != "Killing"]
        word = "failed" if event == "Unhealthy" else "warning"
        assert found == ([(event, f"Liveness probe {word}: {problem}", PATH)] if event else [])
    assert pod.events.count("Killing", PATH) == 1


def test_a_probe_that_cannot_be_carried_out_does_not_count() -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 5, "failureThreshold": 1}
    main = {"name": "main", "image": "example.com/image:1", "livenessProbe": probe, "readinessProbe": probe}
    pod = ScriptedPod({"containers": [main], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30})
    for _ in range(12):
        pod.sync()
        for operation in pod.runtime.completable:
            pod.complete(operation, PROBE_ERROR if "probe" in operation.name else "")
    pod.sync()
    assert not pod.runtime.pending and pod.runtime.requests.count("readiness probe of main") == 1
    pod.settle()
    before = len(pod.events.found)
    for _ in range(2):
        while not pod.runtime.pending:
            pod.advance(1.0)
        for running in [*pod.runtime.pending]:
            pod.complete(running, PROBE_ERROR)
        pod.sync()
        assert not pod.runtime.pending, "it is run again after its period"
    texts = {f"{kind} probe errored and resulted in unknown state: {PROBE_ERROR}" for kind in ("Liveness", "Readiness")}
    assert {each[:2] for each in pod.events.found[before:]} == {("Unhealthy", text) for text in texts}
    (status,) = pod.stored["status"]["containerStatuses"]
    assert status["ready"] and not any(each.kill_at for each in pod.runtime.running)
