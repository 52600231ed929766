"""The conversion webhook of the test suite's image: one field that becomes two, and back."""

from __future__ import annotations

from typing import Any

import orjson

Obj = dict[str, Any]


class _Impossible(ValueError):
    pass


def convert(body: bytes) -> str:
    """A ConversionReview for a ConversionReview."""
    review = orjson.loads(body or b"{}")
    request = review.get("request") or {}
    wanted = request.get("desiredAPIVersion", "")
    result: Obj = {"status": "Success"}
    converted: list[Obj] = []
    try:
        converted = [_converted(obj, wanted) for obj in request.get("objects") or ()]
    except _Impossible as error:
        result = {"status": "Failure", "message": str(error)}
    response = {"uid": request.get("uid", ""), "convertedObjects": converted, "result": result}
    answer = {"kind": review.get("kind"), "apiVersion": review.get("apiVersion"), "response": response}
    return orjson.dumps(answer).decode()


def _converted(obj: Obj, wanted: str) -> Obj:
    made, given = dict(obj), obj.get("apiVersion", "")
    made["apiVersion"] = wanted
    versions = given.rpartition("/")[2], wanted.rpartition("/")[2]
    if versions == ("v1", "v2"):
        if "hostPort" in made:
            parts = made.pop("hostPort").split(":")
            if len(parts) != 2:
                raise _Impossible(f"invalid hostPort value `{obj['hostPort']}`")
            made["host"], made["port"] = parts
    elif versions == ("v2", "v1"):
        if "host" in made or "port" in made:
            made["hostPort"] = f"{made.pop('host', '')}:{made.pop('port', '')}"
    else:
        raise _Impossible(f'unexpected conversion version "{wanted}"')
    return made
