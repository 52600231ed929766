"""Encoding of custom objects.

They are stored as they are sent, including kind and apiVersion, which name the version in which an object was written.
Objects that were written under the present definition are sent unchanged. Others are decoded by the present schema
once: pruned, defaulted, and converted if they were stored in another version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.custom.conversion import Conversion
from setpoint.apiserver.custom.resource import CustomResource
from setpoint.apiserver.encoding import Converted, Converter, Encoding, LargeBody, ListBody, NotConverted, Texts
from setpoint.meta import chunked_json
from setpoint.meta.chunked_json import equal
from setpoint.meta.decode import decode
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type
from setpoint.wire.encoding import BLOCK

_HEAD = b'{"apiVersion":"'
_TYPE_META = ("apiVersion", "kind")


def _stored_version(entry: Entry) -> str:
    """Return the apiVersion in which the object was stored."""
    value = entry.value
    return value[len(_HEAD) : value.index(b'"', len(_HEAD))].decode()


class CustomEncoding(Encoding):
    """The encoding of a custom resource in one version."""

    stored = False
    strategic = False

    def __init__(
        self, resource: CustomResource, siblings: Mapping[str, CustomResource], conversion: Conversion
    ) -> None:
        """`siblings` are all versions of the kind, by name."""
        super().__init__(resource)
        self._resource = resource
        self._siblings = siblings
        self._conversion = conversion
        self._storage = siblings[resource.stored_version]
        self._sent = f"{self.form}#sent"
        self._whole = f"{self.form}#whole"
        # Objects of another version do not have the defaults of this one yet.
        self.final_as = self._sent if resource is self._storage else ""
        self.remote = conversion.remote

    # -- reading --------------------------------------------------------------------------------------------------

    def item(self, entry: Entry) -> bytes:
        value: bytes = entry.derive(self._sent, self._send)
        return value

    def items(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        name, send = self._sent, self._send
        return [
            known[name] if (known := entry.derived) is not None and name in known else entry.derive(name, send)
            for entry in entries
        ]

    def single(self, entry: Entry) -> bytes:
        return self.item(entry)

    def body(self, entry: Entry) -> bytes | LargeBody:
        item = self.item(entry)
        return LargeBody(b"{", item) if len(item) > BLOCK else item + b"\n"

    def obj(self, entry: Entry) -> Obj:
        read: Obj = entry.derive(self.form, self._read)
        return read

    def live(self, entry: Entry) -> Obj:
        if self.remote and not entry.has_derived(self.form) and _stored_version(entry) != self.form:
            return _without_type_meta(entry.obj)  # it is not converted yet: selectors see the stored version
        return self.obj(entry)

    def shared(self, entry: Entry) -> Obj:
        whole: Obj = entry.derive(self._whole, lambda e: self._with_kind(self.obj(e)))
        return whole

    def _with_kind(self, obj: Obj) -> Obj:
        return {"apiVersion": self.form, "kind": self.resource.kind, **obj}

    def _send(self, entry: Entry) -> bytes:
        if entry.has_derived(self.form):
            return orjson.dumps(self._with_kind(self.obj(entry)))
        # A list needs only bytes: the decoded object is not retained.
        value = entry.value
        stored = chunked_json.read(value)
        whole = self._with_kind(self._read_converted(stored, self._conversion.convert))
        return value if whole == stored else orjson.dumps(whole)

    def _read(self, entry: Entry) -> Obj:
        if entry.has_derived(self._sent):
            sent = self.item(entry)
            return _without_type_meta(entry.obj if sent is entry.value else chunked_json.read(sent))
        return self._read_converted(entry.obj, self._conversion.convert)

    def _read_converted(self, stored: Obj, convert: Callable[[Obj, str], Obj]) -> Obj:
        if stored["apiVersion"] == self.form:
            return _without_type_meta(decode(self._resource.type, stored))
        return _without_type_meta(decode(self._resource.bare_type, convert(self._as_written(stored), self.form)))

    def _as_written(self, stored: Obj) -> Obj:
        """Return the object with the defaults of the version that it was stored in."""
        known = self._siblings.get(stored["apiVersion"].rpartition("/")[2])
        whole: Obj = decode(known.type, stored) if known is not None else stored
        return whole

    def is_ready(self, entry: Entry) -> bool:
        return entry.has_derived(self._sent) or entry.has_derived(self.form) or _stored_version(entry) == self.form

    async def ready(self, entries: Iterable[Entry]) -> None:
        missing = [entry for entry in entries if not self.is_ready(entry)]
        if missing:
            written = [self._as_written(entry.obj) for entry in missing]
            converted = await self._conversion.convert_all(written, self.form)
            for entry, whole in zip(missing, converted):
                typed = _without_type_meta(decode(self._resource.bare_type, whole))
                entry.derive(self.form, partial(_constant, typed))

    def list(self, items: Sequence[bytes], meta: Obj) -> ListBody:
        return super().list(items, {"continue": "", **meta})

    def converter(self, known: Converted) -> Converter | None:
        return partial(self._cached_version, known) if self.remote else self.in_version

    def _cached_version(self, known: Converted, obj: Obj, api_version: str) -> tuple[Type, Obj] | None:
        sibling = self._siblings.get(api_version.rpartition("/")[2])
        if sibling is None or sibling.api_version != api_version:
            return None
        whole = self._with_kind(obj)
        if whole["apiVersion"] == api_version:
            return sibling.type, obj
        converted = known.get((api_version, orjson.dumps(whole)))
        if converted is None:
            raise NotConverted(whole, api_version)
        return sibling.type, converted

    async def fetch_conversion(self, missing: NotConverted, known: Converted) -> None:
        # A part of an object may have no metadata, but webhooks require them.
        sent = {"metadata": {}, **missing.obj}
        converted = (await self._conversion.convert_all([sent], missing.api_version))[0]
        if "metadata" not in missing.obj:
            converted = {name: value for name, value in converted.items() if name != "metadata"}
        known[missing.api_version, orjson.dumps(missing.obj)] = converted

    def in_version(self, obj: Obj, api_version: str) -> tuple[Type, Obj] | None:
        known = self._siblings.get(api_version.rpartition("/")[2])
        if known is None or known.api_version != api_version:
            return None
        if api_version != self.form:
            obj = self._conversion.convert(self._with_kind(obj), api_version)
        return known.type, obj

    async def to_version(self, obj: Obj, other: Encoding) -> Obj:
        return await self._convert(self._with_kind(obj), other.form)

    async def from_version(self, whole: Obj, other: Encoding, unknown: Texts | None = None) -> Obj:
        typed = decode(other.resource.type, whole)
        return _without_type_meta(await self._convert(typed, self.form))

    async def _convert(self, whole: Obj, api_version: str) -> Obj:
        if whole["apiVersion"] == api_version:
            return whole
        if self.remote:
            return (await self._conversion.convert_all([whole], api_version))[0]
        return self._conversion.convert(whole, api_version)

    # -- writing --------------------------------------------------------------------------------------------------

    def entry(self, key: str, obj: Obj, revision: int) -> Entry:
        entry = Entry.unstored(key, orjson.dumps(self._with_kind(obj)), revision)
        entry.derive(self._sent, lambda e: e.value)
        return entry

    def same(self, obj: Obj, live: Obj, large: bool = False) -> bool:
        if large:
            return equal(obj, live, same_json=True)
        # True == 1 in Python.
        option = orjson.OPT_SORT_KEYS
        return obj == live and orjson.dumps(obj, option=option) == orjson.dumps(live, option=option)

    def dump(self, obj: Obj, large: bool = False) -> bytes:
        whole = self._with_kind(obj)
        if self.resource is not self._storage:
            whole = self._to_storage(self._conversion.convert(whole, self._storage.api_version))
        return super().dump(whole, large)

    async def dump_remote(self, obj: Obj) -> bytes:
        whole = self._with_kind(obj)
        if self.resource is not self._storage:
            whole = self._to_storage((await self._conversion.convert_all([whole], self._storage.api_version))[0])
        return orjson.dumps(whole)

    def _to_storage(self, whole: Obj) -> Obj:
        """Return a converted object as the schema of the storage version decodes it, with its metadata first."""
        typed = _without_type_meta(decode(self._storage.bare_type, whole))
        meta = typed.pop("metadata")
        meta.pop("resourceVersion", None)
        return {"apiVersion": self._storage.api_version, "kind": self._storage.kind, "metadata": meta, **typed}


def _constant(typed: Obj, _: Entry) -> Obj:
    return typed


def _without_type_meta(whole: Obj) -> Obj:
    return {name: value for name, value in whole.items() if name not in _TYPE_META}
