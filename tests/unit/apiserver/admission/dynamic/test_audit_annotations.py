"""What policies, webhooks and plugins leave in the audit log."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from custom_door import CustomDoor
from front_door import EPOCH
from policies import CORE, REGISTRATION, config, enforce, policy, rule
from webhook_server import WebhookServer, patch

from setpoint.apiserver.http.certificates import CertificateFiles, ensure_certificates

sys.path.insert(0, str(Path(__file__).parents[2] / "audit"))

from audited_door import audit

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


async def test_policies(door: CustomDoor) -> None:
    notes = [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}]
    await enforce(door, policy("p", "true", "false", auditAnnotations=notes), "Warn", "Audit")
    kept = audit(door, {"level": "Metadata"})
    assert (await door.post(_MAPS, config())).status == 201
    failures = [
        {
            "message": "failed expression: false", "policy": "p", "binding": "p-b", "expressionIndex": 1,
            "validationActions": ["Warn", "Audit"],
        }
    ]  # fmt: skip
    assert _annotations(kept.taken()) == {
        "p/who": "by admin",
        "validation.policy.admission.k8s.io/validation_failure": orjson.dumps(failures).decode(),
    }


async def test_webhooks(door: CustomDoor, server: WebhookServer) -> None:
    changing = patch({"value": "w", "op": "add", "path": "/data/x"})
    server.answers["/m"] = lambda review: {**changing(review), "auditAnnotations": {"seen": "yes"}}
    gone = {"url": "https://127.0.0.1:1/"}
    hooks = [
        {
            "name": f"{name}.example.com", "clientConfig": client, "sideEffects": "None", "failurePolicy": "Ignore",
            "admissionReviewVersions": ["v1"], "rules": [rule("configmaps")],
        }
        for name, client in (("m", server.client("/m")), ("gone", gone))
    ]  # fmt: skip
    await door.make(f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": "c"}, "webhooks": hooks})
    told = {
        "m.example.com/seen": "yes",
        "mutation.webhook.admission.k8s.io/round_0_index_0": (
            '{"configuration":"c","webhook":"m.example.com","mutated":true}'
        ),
        "mutation.webhook.admission.k8s.io/round_0_index_1": (
            '{"configuration":"c","webhook":"gone.example.com","mutated":false}'
        ),
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "gone.example.com",
    }
    kept = audit(door, {"level": "Metadata"})
    assert (await door.post(_MAPS, config("one"))).json["data"]["x"] == "w"
    assert _annotations(kept.taken()) == told
    kept = audit(door, {"level": "Request"})
    await door.post(_MAPS, config("two"))
    # The patch holds parts of the object: it is told only where those may be.
    told["patch.webhook.admission.k8s.io/round_0_index_0"] = (
        '{"configuration":"c","webhook":"m.example.com",'
        '"patch":[{"op":"add","path":"/data/x","value":"w"}],"patchType":"JSONPatch"}'
    )
    assert _annotations(kept.taken()) == told


async def test_pod_security_and_deprecation(door: CustomDoor) -> None:
    kept = audit(door, {"level": "Metadata"})
    labels = {"pod-security.kubernetes.io/audit": "baseline"}
    await door.patch("/api/v1/namespaces/other", {"metadata": {"labels": labels}})
    pod = {"metadata": {"name": "p"}, "spec": {"hostPID": True, "containers": [{"name": "c", "image": "i"}]}}
    kept.taken()
    await door.post("/api/v1/namespaces/default/pods", pod)
    assert _annotations(kept.taken()) == {"pod-security.kubernetes.io/enforce-policy": "privileged:latest"}
    await door.post("/api/v1/namespaces/other/pods", pod)
    assert _annotations(kept.taken()) == {
        "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        "pod-security.kubernetes.io/audit-violations": (
            'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
        ),
    }
    await door.get("/api/v1/namespaces/other/endpoints")
    assert _annotations(kept.taken()) == {"k8s.io/deprecated": "true"}
