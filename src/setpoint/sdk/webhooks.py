"""Admission and conversion webhooks of an operator: their declaration, and the handling of reviews.

Webhooks are declared as values like controllers:

    async def check(review: Review, teapot: Object) -> None:
        if teapot.spec.cups > 8:
            raise Denied("no teapot holds more than 8 cups")

    async def fill(review: Review, teapot: dict) -> None:
        teapot["spec"].setdefault("teas", ["green"])

    operator = Operator("tea", Controller(Teapot, brew), Validate(Teapot, check), Mutate(Teapot, fill))
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import orjson

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Family, Histogram, counter, histogram
from setpoint.meta.objects import Obj
from setpoint.meta.patch.json_patch import json_patch_between
from setpoint.sdk.kind import Kind, Object, Spec, Status
from setpoint.sdk.metrics import SECONDS
from setpoint.sdk.models import ModelProblem

_MAX_WARNINGS = 32
_MAX_WARNING = 256
log = logging.getLogger("setpoint.operator.webhooks")
_CONVERSION_TIMEOUT = 30.0
_IDENTITY = ("name", "namespace", "uid")


class Denied(ApiError):
    """Raised by a webhook to reject the write; the client receives the message."""

    code = 403
    reason = "Forbidden"


class Review(Generic[Spec, Status]):
    """The write under review."""

    def __init__(self, kind: Kind[Spec, Status], request: Obj, client: Client) -> None:
        self.request = request
        """The complete admission request."""
        self.client = client
        """A client to read other objects. Reads delay the write."""
        self.operation: str = request.get("operation") or ""
        """The operation: CREATE, UPDATE, DELETE or CONNECT."""
        self.user: str = (request.get("userInfo") or {}).get("username") or ""
        self.groups: tuple[str, ...] = tuple((request.get("userInfo") or {}).get("groups") or ())
        self.dry_run = bool(request.get("dryRun"))
        """Whether nothing will be stored: a webhook with side effects must then skip them."""
        self.subresource: str = request.get("subResource") or ""
        old = request.get("oldObject")
        self.old: Object[Spec, Status] | None = Object(kind, old) if old else None
        """The object before an update or a deletion; None for other operations."""
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """Allow the write with a warning that the client receives."""
        if len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(" ".join(text.split())[:_MAX_WARNING])


@dataclass(frozen=True)
class Admission(Generic[Spec, Status]):
    """The options that `Validate` and `Mutate` share: which writes they review."""

    kind: Kind[Spec, Status]
    handle: Callable[[Review[Any, Any], Any], Awaitable[None]]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    subresource: str = ""
    """Review only writes of this subresource, such as `status` or `scale`; `*` means all and the object itself."""
    selector: Mapping[str, Any] | None = None
    """Review only objects that match this label selector, with `matchLabels` and `matchExpressions`; None means all."""
    namespace_selector: Mapping[str, Any] | None = None
    conditions: tuple[Mapping[str, str], ...] = ()
    """CEL match conditions that the API server evaluates first: `({"name": "not-mine", "expression": "..."},)`."""
    required: bool = True
    """Whether the write fails without an answer; if false, it is admitted."""
    timeout: int = 10
    """Timeout in seconds, at most 30."""
    side_effects: bool = False
    """Whether the webhook has side effects; it must skip them when `review.dry_run` is true."""
    name: str = ""
    """The name of the webhook; by default `validate.teapots.example.com`."""

    verb: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not 1 <= self.timeout <= 30:
            raise ValueError("the timeout of a webhook is between 1 and 30 seconds")
        if not self.name:
            name = f"{self.verb}.{self.kind.plural_name}.{self.kind.group or 'core'}"
            object.__setattr__(self, "name", name)

    @property
    def path(self) -> str:
        return f"/{self.verb}/{self.name}"


class Validate(Admission[Spec, Status]):
    """A validating webhook: `handle(review, obj)` gets the new object (for DELETE, the old one) and returns, or raises
    Denied."""

    verb = "validate"


@dataclass(frozen=True)
class Mutate(Admission[Spec, Status]):
    """A mutating webhook: `handle(review, obj)` changes the object, a dict, in place, or raises Denied."""

    reinvoke: bool = False
    """Whether to call the webhook again if another one changed the object after it."""

    verb: ClassVar[str] = "mutate"


Change = Callable[[Obj], Obj | None]
"""Changes a copy of an object in place, or returns another one. The SDK restores the identity (apiVersion, kind, name,
namespace, uid)."""


@dataclass(frozen=True)
class Version:
    """A served version that is not stored, with the conversions to and from the stored version.

    Conversions must be lossless: store fields without a counterpart in an annotation.
    """

    kind: Kind[Any, Any]
    to_stored: Change
    from_stored: Change
    served: bool = True
    deprecated: str = ""
    """The deprecation warning for clients of this version; empty if it is not deprecated."""


@dataclass(frozen=True)
class Convert:
    """A kind in several versions: `Convert(TeapotV2, Version(TeapotV1, upgrade, downgrade))`."""

    stored: Kind[Any, Any]
    others: tuple[Version, ...] = ()

    def __init__(self, stored: Kind[Any, Any], *others: Version) -> None:
        names = {(each.group, each.kind, each.plural_name) for each in (stored, *(other.kind for other in others))}
        if len(names) != 1 or len({each.kind.ref for each in others} | {stored.ref}) != len(others) + 1:
            raise ValueError("versions of a kind have the same group and names, and different versions")
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "others", others)

    @property
    def definition_name(self) -> str:
        return f"{self.stored.plural_name}.{self.stored.group}"

    @property
    def path(self) -> str:
        return f"/convert/{self.definition_name}"

    def definition(self) -> Obj:
        """Return the CustomResourceDefinition with all versions, without the address of the conversion webhook."""
        found = self.stored.definition()
        versions = found["spec"]["versions"]
        for other in self.others:
            (version,) = other.kind.definition()["spec"]["versions"]
            version |= {"storage": False, "served": other.served}
            if other.deprecated:
                version |= {"deprecated": True, "deprecationWarning": other.deprecated}
            versions.append(version)
        return found


class InvalidReview(ValueError):
    """The request body is not a valid review."""


class _WebhookMetrics:
    """Webhook metrics by path, with controller-runtime's names; bounded by the number of webhooks."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def note(self, path: str, code: int, seconds: float) -> None:
        self._answers[path, code] += 1
        self._seconds.setdefault(path, Histogram(SECONDS)).observe(seconds)

    def families(self) -> list[Family]:
        return [
            counter(
                "controller_runtime_webhook_requests_total",
                "Reviews that were answered.",
                [({"webhook": path, "code": str(code)}, each) for (path, code), each in sorted(self._answers.items())],
            ),
            histogram(
                "controller_runtime_webhook_latency_seconds",
                "How long the answer to a review took.",
                [({"webhook": path}, each) for path, each in sorted(self._seconds.items())],
            ),
        ]


class Reviewer:
    """Handles all admission and conversion reviews of one operator; `webhook_server` is the listener."""

    def __init__(
        self, admissions: Sequence[Admission[Any, Any]], conversions: Sequence[Convert], client: Client, clock: Clock
    ) -> None:
        self._admissions = {each.path: each for each in admissions}
        self._conversions = {each.path: each for each in conversions}
        self._client = client
        self._clock = clock
        self._metrics = _WebhookMetrics()

    def families(self) -> list[Family]:
        return self._metrics.families()

    async def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and body of the response. A webhook that raises is answered with 500, and the failure
        policy of its configuration applies."""
        admission, conversion = self._admissions.get(path), self._conversions.get(path)
        if admission is None and conversion is None:
            return 404, b"404 page not found\n"
        began = self._clock.monotonic()
        code, answer = 200, b""
        try:
            limit = float(admission.timeout) if admission is not None else _CONVERSION_TIMEOUT
            async with asyncio.timeout(limit):
                review = _read(body)
                if admission is not None:
                    answer = orjson.dumps(await self._admit(admission, review))
                elif conversion is not None:
                    answer = orjson.dumps(_convert(conversion, review))
        except InvalidReview as problem:
            code, answer = 400, f"{problem}\n".encode()
        except TimeoutError:
            log.error("%s: the webhook timed out", path)
            code, answer = 504, b"the webhook timed out\n"
        except Exception:
            log.exception("%s failed", path)
            code, answer = 500, b"the webhook failed; see the log of the operator\n"
        self._metrics.note(path, code, self._clock.monotonic() - began)
        return code, answer

    async def _admit(self, admission: Admission[Any, Any], review_request: Obj) -> Obj:
        request = review_request.get("request")
        if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
            raise InvalidReview("the AdmissionReview has no request")
        response: Obj = {"uid": request["uid"], "allowed": True}
        raw = request.get("object") or request.get("oldObject") or {}
        raw.setdefault("metadata", {}).setdefault("name", request.get("name") or "")
        try:
            review = Review(admission.kind, request, self._client)
            if isinstance(admission, Mutate):
                changed = deepcopy(raw)
                await admission.handle(review, changed)
                if request.get("object") and (patch := json_patch_between(raw, changed)):
                    response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
            else:
                await admission.handle(review, Object(admission.kind, raw))
        except Denied as denied:
            response |= {"allowed": False, "status": _status(denied)}
        except ModelProblem as problem:
            response |= {"allowed": False, "status": _status(Denied(str(problem), code=422, reason="Invalid"))}
        if review.warnings:
            response["warnings"] = review.warnings
        return {"apiVersion": review_request["apiVersion"], "kind": "AdmissionReview", "response": response}


def _status(denied: ApiError) -> Obj:
    status: Obj = {"code": denied.code, "reason": denied.reason, "message": denied.message}
    return {**status, "details": denied.details} if denied.details else status


def _read(body: bytes) -> Obj:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidReview(f"the body is not valid JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("apiVersion"), str):
        raise InvalidReview("the body is not a review")
    return found


# -- conversion -----------------------------------------------------------------------------------------------------


def _convert(conversion: Convert, review_request: Obj) -> Obj:
    request = review_request.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise InvalidReview("the ConversionReview has no request")
    response: Obj = {"uid": request["uid"], "result": {"status": "Success"}}
    wanted = str(request.get("desiredAPIVersion") or "")
    try:
        response["convertedObjects"] = [converted(conversion, each, wanted) for each in request.get("objects") or ()]
    except Exception as error:
        log.exception("%s: conversion to %s failed", conversion.definition_name, wanted)
        response["result"] = {"status": "Failure", "message": f"conversion to {wanted} failed: {error}"}
        response["convertedObjects"] = []
    return {"apiVersion": review_request["apiVersion"], "kind": "ConversionReview", "response": response}


def converted(conversion: Convert, obj: Obj, wanted: str) -> Obj:
    """Return the object in another version. Raise ValueError for an unknown version."""
    known = {each.kind.api_version: each for each in conversion.others}
    for version in (obj["apiVersion"], wanted):
        if version not in known and version != conversion.stored.api_version:
            raise ValueError(f"{version} is not a version of {conversion.definition_name}")
    if obj["apiVersion"] == wanted:
        return obj
    if obj["apiVersion"] in known:
        obj = _changed(known[obj["apiVersion"]].to_stored, obj, conversion.stored.api_version)
    if wanted in known:
        obj = _changed(known[wanted].from_stored, obj, wanted)
    return obj


def _changed(change: Change, obj: Obj, version: str) -> Obj:
    own = deepcopy(obj)
    own["apiVersion"] = version
    result = change(own)
    if result is None:
        result = own
    meta = {**(result.get("metadata") or {})}
    meta |= {key: obj["metadata"][key] for key in _IDENTITY if key in obj["metadata"]}
    return {**result, "apiVersion": version, "kind": obj["kind"], "metadata": meta}
