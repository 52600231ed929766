"""Manifests: texts with several objects in YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.objects import Obj

_SEPARATOR = re.compile(rb"^---(?=[ \t\r\n#]|$)[^\n]*\n?", re.MULTILINE)


class ManifestProblem(ValueError):
    """The text contains something other than objects; the message says what and, for YAML, in which line."""


def manifests(data: bytes) -> list[Obj]:
    """Return all objects of a text in order, with lists expanded. Each has an apiVersion, a kind and a name.

    Raises ManifestProblem."""
    try:
        found = [obj for value in values(data) for obj in opened(value)]
    except BodyError as error:
        raise ManifestProblem(str(error)) from None
    except RecursionError:
        raise ManifestProblem("lists of lists of lists") from None
    for obj in found:
        _check(obj)
    return found


def values(data: bytes) -> Iterator[Any]:
    """Yield the documents of a text; empty ones are passed over. Raises BodyError."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] == b"{" and not _SEPARATOR.search(data):
        yield from _json_values(data)
        return
    start = 0
    for match in (*_SEPARATOR.finditer(data), None):
        end = match.start() if match else len(data)
        if data[start:end].strip():
            # Prepend empty lines, so that an error has the line number in the file.
            found, _ = parse_yaml(b"\n" * data.count(b"\n", 0, start) + data[start:end])
            if found is not None:
                yield found
        start = match.end() if match else end


def _json_values(data: bytes) -> Iterator[Any]:
    """Yield the concatenated JSON values of a text, with optional white space between them."""
    text = data.decode("utf-8", "replace")
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        try:
            found, at = decoder.raw_decode(text, at)
        except ValueError as error:
            try:  # A flow mapping of YAML starts like JSON.
                yield parse_yaml(data)[0]
                return
            except BodyError:
                raise BodyError(str(error)) from None
        except RecursionError:
            raise BodyError("it is nested too deeply") from None
        if found is not None:
            yield found


def opened(value: Any) -> Iterator[Obj]:
    """Yield the objects of a document: itself, or those of a list. Raises ManifestProblem."""
    if not isinstance(value, dict):
        raise ManifestProblem(f"an object is a mapping, not {type(value).__name__}")
    kind = value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list)):
        yield value
        return
    for item in value["items"]:
        if isinstance(item, dict) and kind != "List" and not item.get("kind"):
            item = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
        yield from opened(item)


def _check(obj: Obj) -> None:
    meta = obj.get("metadata")
    identity = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")}
    identity["metadata.name"] = meta.get("name") if isinstance(meta, dict) else None
    for path, value in identity.items():
        if not (isinstance(value, str) and value):
            what = f"{identity['kind']}: " if isinstance(identity["kind"], str) and identity["kind"] else ""
            raise ManifestProblem(f"{what}{path} not set")
