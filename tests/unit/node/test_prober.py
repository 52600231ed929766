"""What the results of probes lead to."""

from __future__ import annotations

from scripted_pod import ScriptedPod
from scripted_runtime import PROBE_WARNING

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
