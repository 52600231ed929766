"""The admission webhook of the agnhost image."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import orjson
import pytest

from setpoint.node.runtime.agnhost_webhooks import NEVER_RESPONDS, review_admission

MARK = "webhook-e2e-test"


def review(path: str, **request: Any) -> tuple[dict[str, Any], float]:
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", **request}}
    found = review_admission(path, orjson.dumps(body), {"sidecar-image": "side:1"})
    assert found is not None
    answer = orjson.loads(found[0])
    assert (answer["kind"], answer["response"].pop("uid")) == ("AdmissionReview", "u")
    return answer["response"], found[1]


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


@pytest.mark.parametrize(
    ("path", "request_", "status"),
    [
        ("/always-deny", {}, {"message": "this webhook denies all requests"}),
        ("/pods", {"object": labelled(**{MARK: "webhook-disallow"})}, {"message": "the pod contains unwanted label;"}),
        (
            "/pods",
            {"object": {"spec": {"containers": [{"name": "webhook-disallow-1"}]}}},
            {"message": "the pod contains unwanted container name;"},
        ),
        ("/pods", {"object": labelled()}, None),
        (
            "/pods/attach",
            {"name": "to-be-attached-pod", "object": {"stdin": True, "container": "container1"}},
            {"message": "attaching to pod 'to-be-attached-pod' is not allowed"},
        ),
        ("/pods/attach", {"name": "to-be-attached-pod", "object": {"container": "container1"}}, None),
        (
            "/configmaps",
            {"operation": "CREATE", "object": {"data": {MARK: "webhook-disallow"}}},
            {"reason": "the configmap contains unwanted key and value"},
        ),
        ("/configmaps", {"operation": "DELETE", "oldObject": {"data": {MARK: "webhook-disallow"}}}, None),
        (
            "/custom-resource",
            {"operation": "DELETE", "oldObject": {"data": {MARK: "webhook-nondeletable"}}},
            {"reason": "the custom resource cannot be deleted because it contains unwanted key and value"},
        ),
        ("/crd", {"object": labelled(**{MARK: "webhook-disallow"})}, {"message": "the crd contains unwanted label"}),
    ],
)
def test_denied_requests(path: str, request_: dict[str, Any], status: dict[str, Any] | None) -> None:
    response, delay = review(path, **request_)
    expected = {"allowed": True} if status is None else {"allowed": False, "status": {"metadata": {}, **status}}
    assert (response, delay) == (expected, 0)


@pytest.mark.parametrize(
    ("path", "obj", "operation"),
    [
        ("/add-label", {}, ("add", "/metadata/labels")),
        ("/add-label", labelled(a="b"), ("add", "/metadata/labels/added-label")),
        ("/add-label", labelled(**{"added-label": "no"}), ("replace", "/metadata/labels/added-label")),
        ("/add-label", labelled(**{"added-label": "yes"}), None),
        ("/mutating-configmaps", {"data": {"mutation-start": "yes"}}, ("add", "/data/mutation-stage-1")),
        (
            "/mutating-configmaps",
            {"data": {"mutation-start": "yes", "mutation-stage-1": "yes"}},
            ("add", "/data/mutation-stage-2"),
        ),
        ("/mutating-pods", {"metadata": {"name": "webhook-to-be-mutated"}}, ("add", "/spec/initContainers")),
        ("/mutating-pods", {"metadata": {"name": "other"}}, None),
        ("/mutating-pods-sidecar", {"spec": {"containers": [{"name": "c"}]}}, ("add", "/spec/containers/-")),
    ],
)
def test_mutations(path: str, obj: dict[str, Any], operation: tuple[str, str] | None) -> None:
    response, _ = review(path, object=obj)
    assert response["allowed"] is True
    if operation is None:
        assert "patch" not in response
        return
    (sent,) = orjson.loads(b64decode(response["patch"]))
    assert (sent["op"], sent["path"], response["patchType"]) == (*operation, "JSONPatch")


def test_delayed_responses() -> None:
    assert review("/always-allow-delay-5s")[1] == 5.0
    assert review("/pods", object=labelled(**{MARK: "wait-forever"}))[1] == NEVER_RESPONDS
    assert review_admission("/nothing", b"", {}) is None
