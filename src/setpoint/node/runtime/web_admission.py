"""The admission webhook of the test suite's image: what each of its paths thinks of a write."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

Obj = dict[str, Any]
NEVER = float("inf")
_MARK, _UNWANTED, _KEPT = "webhook-e2e-test", "webhook-disallow", "webhook-nondeletable"
_LABEL = "added-label"


class Opinion(NamedTuple):
    response: Obj
    delay: float = 0.0
    """Seconds until it is told."""


def review(path: str, body: bytes, flags: Mapping[str, str]) -> tuple[str, float] | None:
    """An AdmissionReview for an AdmissionReview, and after how many seconds; None: there is no such path."""
    think = _PATHS.get(path)
    if think is None:
        return None
    asked = orjson.loads(body or b"{}")
    request = asked.get("request") or {}
    opinion = think(request, flags)
    response = {"uid": request.get("uid", ""), **opinion.response}
    answer = {"kind": asked.get("kind"), "apiVersion": asked.get("apiVersion"), "response": response}
    return orjson.dumps(answer).decode(), opinion.delay


def _allow(*operations: Obj) -> Opinion:
    if not operations:
        return Opinion({"allowed": True})
    patch = b64encode(orjson.dumps(list(operations))).decode()
    return Opinion({"allowed": True, "patch": patch, "patchType": "JSONPatch"})


def _deny(**status: Any) -> Opinion:
    return Opinion({"allowed": False, "status": {"metadata": {}, **status}})


def _add(path: str, value: Any, op: str = "add") -> Obj:
    return {"op": op, "path": path, "value": value}


def _labels(obj: Obj) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _late(request: Obj, flags: Mapping[str, str]) -> Opinion:
    return Opinion({"allowed": True, "status": {"metadata": {}, "message": "this webhook allows all requests"}}, 5.0)


def _never(request: Obj, flags: Mapping[str, str]) -> Opinion:
    return _deny(message="this webhook denies all requests")


def _add_label(request: Obj, flags: Mapping[str, str]) -> Opinion:
    labels = _labels(request.get("object") or {})
    if not labels:
        return _allow(_add("/metadata/labels", {_LABEL: "yes"}))
    if _LABEL not in labels:
        return _allow(_add(f"/metadata/labels/{_LABEL}", "yes"))
    return _allow() if labels[_LABEL] == "yes" else _allow(_add(f"/metadata/labels/{_LABEL}", "yes", "replace"))


def _pods(request: Obj, flags: Mapping[str, str]) -> Opinion:
    pod = request.get("object") or {}
    mark, problems = _labels(pod).get(_MARK), []
    if mark == "wait-forever":
        return Opinion({"allowed": False}, NEVER)
    if mark == _UNWANTED:
        problems.append("the pod contains unwanted label;")
    for container in (pod.get("spec") or {}).get("containers") or ():
        if _UNWANTED in container["name"]:
            problems.append("the pod contains unwanted container name;")
    return _deny(message=" ".join(problems)) if problems else _allow()


def _attaching(request: Obj, flags: Mapping[str, str]) -> Opinion:
    options = request.get("object") or {}
    wanted = options.get("stdin") and options.get("container") == "container1"
    if request.get("name") != "to-be-attached-pod" or not wanted:
        return _allow()
    return _deny(message="attaching to pod 'to-be-attached-pod' is not allowed")


def _mutating_pods(request: Obj, flags: Mapping[str, str]) -> Opinion:
    pod, name = request.get("object") or {}, "webhook-added-init-container"
    has = any(one["name"] == name for one in (pod.get("spec") or {}).get("initContainers") or ())
    if (pod.get("metadata") or {}).get("name") != "webhook-to-be-mutated" or has:
        return _allow()
    return _allow(_add("/spec/initContainers", [{"image": "webhook-added-image", "name": name, "resources": {}}]))


def _sidecar(request: Obj, flags: Mapping[str, str]) -> Opinion:
    image, name = flags.get("sidecar-image"), "webhook-added-sidecar"
    if not image:
        text = "No image specified by the sidecar-image parameter"
        return _deny(status="Failure", message=text, code=500)
    containers = ((request.get("object") or {}).get("spec") or {}).get("containers") or ()
    if any(one["name"] == name for one in containers):
        return _allow()
    return _allow(_add("/spec/containers/-", {"image": image, "name": name, "resources": {}}))


def _judging(written: str, deleted: str) -> Callable[[Obj, Mapping[str, str]], Opinion]:
    def judge(request: Obj, flags: Mapping[str, str]) -> Opinion:
        is_deletion = request.get("operation") == "DELETE"
        mark = ((request.get("oldObject" if is_deletion else "object") or {}).get("data") or {}).get(_MARK)
        if not is_deletion and mark == _UNWANTED and request.get("operation") in ("CREATE", "UPDATE"):
            return _deny(reason=written)
        return _deny(reason=deleted) if is_deletion and mark == _KEPT else _allow()

    return judge


def _mutating_data(request: Obj, flags: Mapping[str, str]) -> Opinion:
    data = (request.get("object") or {}).get("data") or {}
    for before, after in (("mutation-stage-1", "mutation-stage-2"), ("mutation-start", "mutation-stage-1")):
        if data.get(before) == "yes":
            return _allow(_add(f"/data/{after}", "yes"))
    return _allow()


def _definitions(request: Obj, flags: Mapping[str, str]) -> Opinion:
    if _labels(request.get("object") or {}).get(_MARK) == _UNWANTED:
        return _deny(message="the crd contains unwanted label")
    return _allow()


_PATHS: dict[str, Callable[[Obj, Mapping[str, str]], Opinion]] = {
    "/always-allow-delay-5s": _late,
    "/always-deny": _never,
    "/add-label": _add_label,
    "/pods": _pods,
    "/pods/attach": _attaching,
    "/mutating-pods": _mutating_pods,
    "/mutating-pods-sidecar": _sidecar,
    "/configmaps": _judging(
        "the configmap contains unwanted key and value",
        "the configmap cannot be deleted because it contains unwanted key and value",
    ),
    "/mutating-configmaps": _mutating_data,
    "/custom-resource": _judging(
        "the custom resource contains unwanted data",
        "the custom resource cannot be deleted because it contains unwanted key and value",
    ),
    "/mutating-custom-resource": _mutating_data,
    "/crd": _definitions,
}
