"""Conversion of custom objects between the versions of their kind, by a webhook or without one.

A webhook gets objects as they were stored. It may change everything except the identity of an object; of the metadata,
only labels and annotations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from setpoint.apiserver.webhook_client import WebhookClient, WebhookError
from setpoint.meta.clock import Ids
from setpoint.meta.errors import PlainServerError
from setpoint.meta.field import Errors, aggregate_message
from setpoint.meta.goformat import quote, type_name
from setpoint.meta.objectmeta import validate_annotations, validate_labels
from setpoint.meta.objects import Obj

_TIMEOUT = 30
_REVIEW_VERSIONS = ("v1", "v1beta1")


class Conversion(Protocol):
    """Converts objects, which have kind and apiVersion. Arguments are not changed; results may share parts with
    them."""

    @property
    def remote(self) -> bool:
        """Whether a webhook converts the objects; then only `convert_all` works."""
        ...

    def convert(self, obj: Obj, api_version: str) -> Obj: ...

    async def convert_all(self, objs: Sequence[Obj], api_version: str) -> list[Obj]: ...


class NoConversion:
    """All versions have the same fields; only apiVersion changes."""

    remote = False

    def convert(self, obj: Obj, api_version: str) -> Obj:
        return {**obj, "apiVersion": api_version}

    async def convert_all(self, objs: Sequence[Obj], api_version: str) -> list[Obj]:
        return [self.convert(obj, api_version) for obj in objs]


class _InvalidResponse(ValueError):
    """The response of the webhook cannot be used."""


class WebhookConversion:
    """Converts objects by a webhook."""

    remote = True

    def __init__(self, definition: Obj, webhooks: WebhookClient, ids: Ids) -> None:
        webhook = definition["spec"]["conversion"]["webhook"]
        self._client: Obj = webhook["clientConfig"]
        self._review = next((one for one in webhook["conversionReviewVersions"] if one in _REVIEW_VERSIONS), "")
        self._webhooks = webhooks
        self._ids = ids

    def convert(self, obj: Obj, api_version: str) -> Obj:
        raise AssertionError("a webhook must be awaited")

    async def convert_all(self, objs: Sequence[Obj], api_version: str) -> list[Obj]:
        group, _, version = objs[0]["apiVersion"].rpartition("/")
        shown = f"{group}/{version}, Kind={objs[0]['kind']}"
        uid = self._ids.uid()
        review: Obj = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{self._review}",
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": list(objs)},
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }
        try:
            answer = await self._webhooks.call(self._client, orjson.dumps(review), _TIMEOUT)
            converted = _objects_of(answer, review["apiVersion"], uid)
        except (WebhookError, _InvalidResponse) as problem:
            raise PlainServerError(f"conversion webhook for {shown} failed: {problem}") from None
        if len(converted) != len(objs):
            raise PlainServerError(
                f"conversion webhook for {shown} returned {len(converted)} objects, expected {len(objs)}"
            )
        found = []
        for at, (original, one) in enumerate(zip(objs, converted)):
            try:
                found.append(_checked(original, one, api_version))
            except _InvalidResponse as problem:
                where = "returned invalid converted object at index"
                raise PlainServerError(f"conversion webhook for {shown} {where} {at}: {problem}") from None
        return found


def _objects_of(answer: Obj, api_version: str, uid: str) -> list[Any]:
    strict = api_version.endswith("/v1")
    group, _, version = str(answer.get("apiVersion", "")).rpartition("/")
    given = f"{group}/{version}, Kind={answer.get('kind', '')}"
    wanted = f"{api_version.rpartition('/')[0]}/v1, Kind=ConversionReview"
    if strict and given != wanted:
        raise _InvalidResponse(f"expected webhook response of {wanted}, got {given}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise _InvalidResponse("no response provided")
    if strict and response.get("uid", "") != uid:
        raise _InvalidResponse(f"expected response.uid={quote(uid)}, got {quote(str(response.get('uid', '')))}")
    result = response.get("result") if isinstance(response.get("result"), dict) else {}
    assert isinstance(result, dict)
    if result.get("status", "") != "Success":
        raise _InvalidResponse(
            str(result.get("message") or f"response.result.status was '{result.get('status', '')}', not 'Success'")
        )
    converted = response.get("convertedObjects") or []
    if not isinstance(converted, list):
        raise _InvalidResponse(
            "json: cannot unmarshal into Go struct field ConversionResponse.response.convertedObjects"
        )
    return converted


def _checked(original: Obj, converted: Any, api_version: str) -> Obj:
    if not isinstance(converted, dict) or not converted.get("kind"):
        raise _InvalidResponse(f"Object 'Kind' is missing in '{orjson.dumps(converted).decode()}'")
    if converted.get("apiVersion") != api_version:
        got = converted.get("apiVersion", "")
        raise _InvalidResponse(f"invalid groupVersion (expected {api_version}, received {got})")
    if converted["kind"] != original["kind"]:
        raise _InvalidResponse(f"invalid kind (expected {original['kind']}, received {converted['kind']})")
    given, meta = converted.get("metadata"), original["metadata"]
    if not isinstance(given, dict):
        problem = f"invalid metadata of type {type_name(given)} in converted object"
        raise _InvalidResponse(problem if "metadata" in converted else "missing metadata in converted object")
    for name, label in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if given.get(name, "") != meta.get(name, ""):
            raise _InvalidResponse(f"must have the same {label}: {meta.get(name, '')} != {given.get(name, '')}")
    return {**converted, "metadata": _restored(meta, given)}


def _restored(original: Obj, given: Obj) -> Obj:
    meta = dict(original)
    for name, check in (("labels", validate_labels), ("annotations", validate_annotations)):
        value = given.get(name)
        if value is None:
            meta.pop(name, None)
            continue
        if not isinstance(value, dict):
            raise _InvalidResponse(f"invalid metadata.{name} of type {type_name(value)} in converted object")
        for key, one in value.items():
            if not isinstance(one, str):
                kind = type_name(one)
                raise _InvalidResponse(f"metadata.{name}[{key}] must be a string, but is {kind} in converted object")
        errs: Errors = []
        check(value, f"metadata.{name}", errs)
        if errs and value != original.get(name):
            raise _InvalidResponse(aggregate_message(errs))
        meta[name] = value
    return meta
