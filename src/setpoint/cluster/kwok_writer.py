"""Writes states and recordings in KWOK's format, for `kwokctl snapshot replay` (`cluster/manifest_reader.py` reads it).

Revisions and causes have no place in that format and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import orjson

from setpoint.client.resources import BY_PLURAL
from setpoint.cluster.manifest_reader import CREATE, DELETE, PATCH, PATCH_KIND, PATCH_VERSION
from setpoint.cluster.snapshot_file import StateReader
from setpoint.cluster.snapshot_restore import object_ref
from setpoint.meta.body import dump_yaml
from setpoint.meta.objects import Obj
from setpoint.meta.patch.strategic_diff import two_way_strategic
from setpoint.meta.times import parse_time, unix_milliseconds
from setpoint.view.undo_plan import ObjectRef

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_MICROSECOND = timedelta(microseconds=1)
_FIRST = ("core/namespaces/", "apiextensions.k8s.io/customresourcedefinitions/")
"""Prefixes of objects without which others cannot be created."""


def kwok_documents(reader: StateReader) -> Iterator[bytes]:
    """Yield the documents of a file with the separators between them, with relative times. Raises InvalidSnapshot."""
    begin, start = parse_time(reader.header.at), unix_milliseconds(parse_time(reader.header.at))
    separator, current = b"", dict[str, bytes]()
    for item in sorted(reader.objects(), key=lambda each: (not each.key.startswith(_FIRST), each.key)):
        current[item.key] = item.value
        yield separator + _document(begin, _shown(object_ref(item.key, orjson.loads(item.value)), item.value))
        separator = b"---\n"
    for change in reader.changes():
        for key, value in change.writes:
            before = current.pop(key, None)
            if value is not None:
                current[key] = value
            patch = _patch(key, before, value)
            if patch is not None:
                nanoseconds = max(change.at - start, 0) * 10**6
                yield separator + _document(begin, {**patch, "durationNanosecond": nanoseconds})
                separator = b"---\n"


def _patch(key: str, before: bytes | None, now: bytes | None) -> dict[str, Any] | None:
    """Return the ResourcePatch of a write; None if nothing would change."""
    known = now if now is not None else before
    if known is None:
        return None
    ref = object_ref(key, orjson.loads(known))
    resource = {"group": ref.group, "version": ref.version, "resource": ref.plural}
    target = {"name": ref.name, "namespace": ref.namespace}
    patch: dict[str, Any] = {
        "apiVersion": PATCH_VERSION,
        "kind": PATCH_KIND,
        "resource": {name: value for name, value in resource.items() if value},
        "target": {name: value for name, value in target.items() if value},
    }
    if now is None:
        return {**patch, "method": DELETE}
    after = _shown(ref, now)
    if before is None:
        return {**patch, "method": CREATE, "template": after}
    builtin = BY_PLURAL.get((ref.group, ref.version, ref.plural))
    change = two_way_strategic(builtin.type if builtin is not None else None, _shown(ref, before), after)
    return {**patch, "method": PATCH, "template": change} if change else None


def _shown(ref: ObjectRef, value: bytes) -> Obj:
    """Return a stored object as manifests have it, without its version."""
    obj: Obj = orjson.loads(value)
    meta = {name: each for name, each in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "apiVersion": ref.api_version, "kind": ref.kind, "metadata": meta}


def _document(begin: datetime, value: Obj) -> bytes:
    def relative(found: re.Match[bytes]) -> bytes:
        try:
            since = (parse_time(found[0].decode()) - begin) // _MICROSECOND
        except ValueError:
            return found[0]
        return b"$(time-offset-nanosecond %d)" % (since * 1000)

    return _TIME.sub(relative, dump_yaml(value))
