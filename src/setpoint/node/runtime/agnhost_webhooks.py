"""The admission and conversion webhooks of the agnhost image, which Kubernetes' end-to-end tests use."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from setpoint.meta.objects import Obj

NEVER_RESPONDS = float("inf")
_TEST_KEY, _DISALLOW, _NONDELETABLE = "webhook-e2e-test", "webhook-disallow", "webhook-nondeletable"
_LABEL = "added-label"


class AdmissionDecision(NamedTuple):
    """The response of an admission webhook."""

    response: Obj
    delay: float = 0.0
    """Seconds until the response is sent."""


def review_admission(path: str, body: bytes, flags: Mapping[str, str]) -> tuple[str, float] | None:
    """Return the AdmissionReview that responds to one, and its delay in seconds; None if the path does not exist."""
    handler = _PATHS.get(path)
    if handler is None:
        return None
    admission_review = orjson.loads(body or b"{}")
    request = admission_review.get("request") or {}
    decision = handler(request, flags)
    response = {"uid": request.get("uid", ""), **decision.response}
    answer = {
        "kind": admission_review.get("kind"),
        "apiVersion": admission_review.get("apiVersion"),
        "response": response,
    }
    return orjson.dumps(answer).decode(), decision.delay


def _allow(*operations: Obj) -> AdmissionDecision:
    if not operations:
        return AdmissionDecision({"allowed": True})
    patch = b64encode(orjson.dumps(list(operations))).decode()
    return AdmissionDecision({"allowed": True, "patch": patch, "patchType": "JSONPatch"})


def _deny(**status: Any) -> AdmissionDecision:
    return AdmissionDecision({"allowed": False, "status": {"metadata": {}, **status}})


def _add(path: str, value: Any, op: str = "add") -> Obj:
    return {"op": op, "path": path, "value": value}


def _labels(obj: Obj) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _allow_after_delay(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    return AdmissionDecision(
        {"allowed": True, "status": {"metadata": {}, "message": "this webhook allows all requests"}}, 5.0
    )


def _always_deny(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    return _deny(message="this webhook denies all requests")


def _add_label(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    labels = _labels(request.get("object") or {})
    if not labels:
        return _allow(_add("/metadata/labels", {_LABEL: "yes"}))
    if _LABEL not in labels:
        return _allow(_add(f"/metadata/labels/{_LABEL}", "yes"))
    return _allow() if labels[_LABEL] == "yes" else _allow(_add(f"/metadata/labels/{_LABEL}", "yes", "replace"))


def _validate_pods(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    pod = request.get("object") or {}
    value, problems = _labels(pod).get(_TEST_KEY), []
    if value == "wait-forever":
        return AdmissionDecision({"allowed": False}, NEVER_RESPONDS)
    if value == _DISALLOW:
        problems.append("the pod contains unwanted label;")
    for container in (pod.get("spec") or {}).get("containers") or ():
        if _DISALLOW in container["name"]:
            problems.append("the pod contains unwanted container name;")
    return _deny(message=" ".join(problems)) if problems else _allow()


def _validate_attach(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    options = request.get("object") or {}
    wanted = options.get("stdin") and options.get("container") == "container1"
    if request.get("name") != "to-be-attached-pod" or not wanted:
        return _allow()
    return _deny(message="attaching to pod 'to-be-attached-pod' is not allowed")


def _mutate_pods(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    pod, name = request.get("object") or {}, "webhook-added-init-container"
    present = any(one["name"] == name for one in (pod.get("spec") or {}).get("initContainers") or ())
    if (pod.get("metadata") or {}).get("name") != "webhook-to-be-mutated" or present:
        return _allow()
    return _allow(_add("/spec/initContainers", [{"image": "webhook-added-image", "name": name, "resources": {}}]))


def _add_sidecar(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    image, name = flags.get("sidecar-image"), "webhook-added-sidecar"
    if not image:
        text = "No image specified by the sidecar-image parameter"
        return _deny(status="Failure", message=text, code=500)
    containers = ((request.get("object") or {}).get("spec") or {}).get("containers") or ()
    if any(one["name"] == name for one in containers):
        return _allow()
    return _allow(_add("/spec/containers/-", {"image": image, "name": name, "resources": {}}))


def _check_data(written: str, deleted: str) -> Callable[[Obj, Mapping[str, str]], AdmissionDecision]:
    def check(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
        is_deletion = request.get("operation") == "DELETE"
        value = ((request.get("oldObject" if is_deletion else "object") or {}).get("data") or {}).get(_TEST_KEY)
        if not is_deletion and value == _DISALLOW and request.get("operation") in ("CREATE", "UPDATE"):
            return _deny(reason=written)
        return _deny(reason=deleted) if is_deletion and value == _NONDELETABLE else _allow()

    return check


def _mutate_data(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    data = (request.get("object") or {}).get("data") or {}
    for before, after in (("mutation-stage-1", "mutation-stage-2"), ("mutation-start", "mutation-stage-1")):
        if data.get(before) == "yes":
            return _allow(_add(f"/data/{after}", "yes"))
    return _allow()


def _validate_definitions(request: Obj, flags: Mapping[str, str]) -> AdmissionDecision:
    if _labels(request.get("object") or {}).get(_TEST_KEY) == _DISALLOW:
        return _deny(message="the crd contains unwanted label")
    return _allow()


_PATHS: dict[str, Callable[[Obj, Mapping[str, str]], AdmissionDecision]] = {
    "/always-allow-delay-5s": _allow_after_delay,
    "/always-deny": _always_deny,
    "/add-label": _add_label,
    "/pods": _validate_pods,
    "/pods/attach": _validate_attach,
    "/mutating-pods": _mutate_pods,
    "/mutating-pods-sidecar": _add_sidecar,
    "/configmaps": _check_data(
        "the configmap contains unwanted key and value",
        "the configmap cannot be deleted because it contains unwanted key and value",
    ),
    "/mutating-configmaps": _mutate_data,
    "/custom-resource": _check_data(
        "the custom resource contains unwanted data",
        "the custom resource cannot be deleted because it contains unwanted key and value",
    ),
    "/mutating-custom-resource": _mutate_data,
    "/crd": _validate_definitions,
}


class _ConversionError(ValueError):
    pass


def convert_review(body: bytes) -> str:
    """Return the ConversionReview that responds to one."""
    review = orjson.loads(body or b"{}")
    request = review.get("request") or {}
    wanted = request.get("desiredAPIVersion", "")
    result: Obj = {"status": "Success"}
    converted: list[Obj] = []
    try:
        converted = [_converted(obj, wanted) for obj in request.get("objects") or ()]
    except _ConversionError as error:
        result = {"status": "Failure", "message": str(error)}
    response = {"uid": request.get("uid", ""), "convertedObjects": converted, "result": result}
    answer = {"kind": review.get("kind"), "apiVersion": review.get("apiVersion"), "response": response}
    return orjson.dumps(answer).decode()


def _converted(obj: Obj, wanted: str) -> Obj:
    converted_object, source_version = dict(obj), obj.get("apiVersion", "")
    converted_object["apiVersion"] = wanted
    versions = source_version.rpartition("/")[2], wanted.rpartition("/")[2]
    if versions == ("v1", "v2"):
        if "hostPort" in converted_object:
            parts = converted_object.pop("hostPort").split(":")
            if len(parts) != 2:
                raise _ConversionError(f"invalid hostPort value `{obj['hostPort']}`")
            converted_object["host"], converted_object["port"] = parts
    elif versions == ("v2", "v1"):
        if "host" in converted_object or "port" in converted_object:
            converted_object["hostPort"] = f"{converted_object.pop('host', '')}:{converted_object.pop('port', '')}"
    else:
        raise _ConversionError(f'unexpected conversion version "{wanted}"')
    return converted_object
