"""Handle the reviews that an API server sends: admission and conversion."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import orjson

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Family
from setpoint.meta.patch.json_diff import json_patch_between
from setpoint.sdk.builtin_metrics import WebhookMetrics
from setpoint.sdk.kind import Object
from setpoint.sdk.models import ModelProblem
from setpoint.sdk.webhooks import Admission, Change, Convert, Denied, Mutate, Review

log = logging.getLogger("setpoint.operator.webhooks")

Obj = dict[str, Any]
_CONVERSION_TIMEOUT = 30.0


class InvalidReview(ValueError):
    """The request body is not a valid review."""


class Reviewer:
    """Handles all admission and conversion reviews of one operator; `webhook_server` is the listener."""

    def __init__(
        self, admissions: Sequence[Admission[Any, Any]], conversions: Sequence[Convert], client: Client, clock: Clock
    ) -> None:
        self._admissions = {each.path: each for each in admissions}
        self._conversions = {each.path: each for each in conversions}
        self._client = client
        self._clock = clock
        self._metrics = WebhookMetrics()

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


_IDENTITY = ("name", "namespace", "uid")


def _changed(change: Change, obj: Obj, version: str) -> Obj:
    own = deepcopy(obj)
    own["apiVersion"] = version
    result = change(own)
    if result is None:
        result = own
    meta = {**(result.get("metadata") or {})}
    meta |= {key: obj["metadata"][key] for key in _IDENTITY if key in obj["metadata"]}
    return {**result, "apiVersion": version, "kind": obj["kind"], "metadata": meta}
