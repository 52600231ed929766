"""The flag `--allow-privileged=false`."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import ServerHarness

CORE, APPS, BATCH = (
    "/api/v1/namespaces/default",
    "/apis/apps/v1/namespaces/default",
    "/apis/batch/v1/namespaces/default",
)
POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
PRIVILEGED: dict[str, Any] = POD | {
    "initContainers": [{"name": "d", "image": "i", "securityContext": {"privileged": True}}]
}


def template(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"labels": {"a": "b"}}, "spec": spec}


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    always = spec | {"restartPolicy": "Always"}
    return {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template(always)}}


def cron_job(spec: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template(spec)}}}}


@pytest.mark.parametrize(
    ("path", "made", "field"),
    [
        (f"{CORE}/pods", lambda spec: {"spec": spec}, "spec"),
        (f"{CORE}/podtemplates", lambda spec: {"template": template(spec)}, "template.spec"),
        (f"{APPS}/deployments", deployment, "spec.template.spec"),
        (f"{BATCH}/jobs", lambda spec: {"spec": {"template": template(spec)}}, "spec.template.spec"),
        (f"{BATCH}/cronjobs", cron_job, "spec.jobTemplate.spec.template.spec"),
    ],
)
async def test_privileged_pods_are_rejected(path: str, made: Any, field: str) -> None:
    strict, usual = await ServerHarness.open(allow_privileged=False), await ServerHarness.open()
    try:
        reply = await strict.post(path, {"metadata": {"name": "x"}, **made(PRIVILEGED)})
        assert reply.status == 422
        where = f"{field}.initContainers[0].securityContext.privileged"
        assert reply.message.endswith(f" is invalid: {where}: Forbidden: disallowed by cluster policy")
        await strict.make(path, {"metadata": {"name": "x"}, **made(POD)})
        await usual.make(path, {"metadata": {"name": "x"}, **made(PRIVILEGED)})
    finally:
        await strict.close()
        await usual.close()


async def test_pods_cannot_become_privileged() -> None:
    harness = await ServerHarness.open(allow_privileged=False)
    await harness.make(f"{CORE}/pods", {"metadata": {"name": "x"}, "spec": POD})
    debugger = {"name": "e", "image": "i", "securityContext": {"privileged": True}}
    patch = {"spec": {"ephemeralContainers": [debugger]}}
    assert (await harness.patch(f"{CORE}/pods/x/ephemeralcontainers", patch)).status == 422
    await harness.close()
