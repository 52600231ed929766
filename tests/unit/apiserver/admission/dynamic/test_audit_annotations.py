"""The audit annotations of policies, webhooks and plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from admission_policies import CORE, REGISTRATION, config, enforce, policy, rule
from audit_harness import audit
from custom_resource_harness import CustomResourceHarness
from server_harness import EPOCH
from webhook_server import WebhookServer, patch

from setpoint.cluster.certificates import CertificateFiles, ensure_certificates

_MAPS = f"{CORE}/configmaps"
_DECISION = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"), EPOCH)


@pytest.fixture
async def server(files: CertificateFiles) -> AsyncIterator[WebhookServer]:
    served = WebhookServer(files)
    await served.start()
    yield served
    served.stop()


def _annotations(events: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = events[-1]["annotations"]
    return {key: value for key, value in found.items() if key not in _DECISION}


async def test_policies(harness: CustomResourceHarness) -> None:
    notes = [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}]
    await enforce(harness, policy("p", "true", "false", auditAnnotations=notes), "Warn", "Audit")
    sink = audit(harness, {"level": "Metadata"})
    assert (await harness.post(_MAPS, config())).status == 201
    failures = [
        {
            "message": "failed expression: false",
            "policy": "p",
            "binding": "p-b",
            "expressionIndex": 1,
            "validationActions": ["Warn", "Audit"],
        }
    ]
    assert _annotations(sink.drain()) == {
        "p/who": "by admin",
        "validation.policy.admission.k8s.io/validation_failure": orjson.dumps(failures).decode(),
    }


async def test_webhooks(harness: CustomResourceHarness, server: WebhookServer) -> None:
    changing = patch({"value": "w", "op": "add", "path": "/data/x"})
    server.answers["/m"] = lambda review: {**changing(review), "auditAnnotations": {"seen": "yes"}}
    gone = {"url": "https://127.0.0.1:1/"}
    hooks = [
        {
            "name": f"{name}.example.com",
            "clientConfig": client,
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "admissionReviewVersions": ["v1"],
            "rules": [rule("configmaps")],
        }
        for name, client in (("m", server.client("/m")), ("gone", gone))
    ]
    await harness.make(f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": "c"}, "webhooks": hooks})
    expected = {
        "m.example.com/seen": "yes",
        "mutation.webhook.admission.k8s.io/round_0_index_0": (
            '{"configuration":"c","webhook":"m.example.com","mutated":true}'
        ),
        "mutation.webhook.admission.k8s.io/round_0_index_1": (
            '{"configuration":"c","webhook":"gone.example.com","mutated":false}'
        ),
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "gone.example.com",
    }
    sink = audit(harness, {"level": "Metadata"})
    assert (await harness.post(_MAPS, config("one"))).json["data"]["x"] == "w"
    assert _annotations(sink.drain()) == expected
    sink = audit(harness, {"level": "Request"})
    await harness.post(_MAPS, config("two"))
    # The patch contains parts of the object: it is logged only at levels that include objects.
    expected["patch.webhook.admission.k8s.io/round_0_index_0"] = (
        '{"configuration":"c","webhook":"m.example.com",'
        '"patch":[{"op":"add","path":"/data/x","value":"w"}],"patchType":"JSONPatch"}'
    )
    assert _annotations(sink.drain()) == expected


async def test_pod_security_and_deprecation(harness: CustomResourceHarness) -> None:
    sink = audit(harness, {"level": "Metadata"})
    labels = {"pod-security.kubernetes.io/audit": "baseline"}
    await harness.patch("/api/v1/namespaces/other", {"metadata": {"labels": labels}})
    pod = {"metadata": {"name": "p"}, "spec": {"hostPID": True, "containers": [{"name": "c", "image": "i"}]}}
    sink.drain()
    await harness.post("/api/v1/namespaces/default/pods", pod)
    assert _annotations(sink.drain()) == {"pod-security.kubernetes.io/enforce-policy": "privileged:latest"}
    await harness.post("/api/v1/namespaces/other/pods", pod)
    assert _annotations(sink.drain()) == {
        "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        "pod-security.kubernetes.io/audit-violations": (
            'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
        ),
    }
    await harness.get("/api/v1/namespaces/other/endpoints")
    assert _annotations(sink.drain()) == {"k8s.io/deprecated": "true"}
