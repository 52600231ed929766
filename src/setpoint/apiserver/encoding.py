"""Stored bytes to wire bytes, for one resource in one served version. No decoding where none is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import orjson

from setpoint.apiserver.listing import Listing
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.protobuf_numbers import protobuf_fields
from setpoint.meta.decode import decode
from setpoint.meta.protobuf.writing import write_envelope, write_message
from setpoint.meta.schema import Type

Texts = list[str]
_AS_PROTOBUF = "#protobuf"
_KEYS = b'{"kind":"%b","apiVersion":"%b",'


Converted = dict[tuple[str, bytes], Obj]
"""What is known of objects in other versions, by apiVersion and by the object as JSON."""
Converter = Callable[[Obj, str], tuple[Type, Obj] | None]
"""See `Encoding.in_version`."""


class NotConverted(Exception):
    """An object is needed in a version that only a webhook can show; `Encoding.learn` asks it."""

    def __init__(self, obj: Obj, api_version: str) -> None:
        super().__init__(api_version)
        self.obj = obj
        self.api_version = api_version


class Encoding:
    """Objects are stored without kind and apiVersion, as they stand in lists; single objects get both put in front."""

    stored = True
    """Whether list items are the stored bytes themselves."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        kind, api_version = resource.kind.encode(), resource.api_version.encode()
        self._head = _KEYS % (kind, api_version)
        self._list_head = _KEYS % (resource.list_kind.encode(), api_version)
        self.form = resource.api_version

    def item(self, entry: Entry) -> bytes:
        """As it stands in a list."""
        return entry.value

    def items(self, entries: Iterable[Entry]) -> list[bytes]:
        return [entry.value for entry in entries]

    def single(self, entry: Entry) -> bytes:
        return self._head + self.item(entry)[1:]

    def obj(self, entry: Entry) -> Obj:
        """Decoded in this version, without kind and apiVersion. Shared: not to be changed."""
        return entry.obj

    def shared(self, entry: Entry) -> Obj:
        """Decoded, with kind and apiVersion: what everyone within the process gets. Shared: not to be changed."""
        whole = entry.whole
        if whole is None or whole["apiVersion"] != self.form:
            whole = entry.whole = {"kind": self.resource.kind, "apiVersion": self.form, **self.obj(entry)}
        return whole

    def protobuf(self, entry: Entry) -> bytes:
        """Return the object in this version as a protobuf message, encoded once. Only for kinds that have such a
        form."""
        message: bytes = entry.remembered(
            self.form + _AS_PROTOBUF, lambda e: write_message(self.resource.type, self.obj(e), protobuf_fields)
        )
        return message

    def protobuf_single(self, entry: Entry) -> bytes:
        """Return the object as a whole protobuf body."""
        return write_envelope(self.form, self.resource.kind, self.protobuf(entry))

    def knows_protobuf(self, entry: Entry) -> bool:
        """Return whether `protobuf` has been asked of this entry before, and costs nothing."""
        return entry.knows(self.form + _AS_PROTOBUF)

    def list(self, items: Sequence[bytes], meta: Obj) -> Listing:
        return Listing(b'%b"metadata":%b,"items":[' % (self._list_head, orjson.dumps(meta)), items, b"]}\n")

    remote = False
    """Whether some objects must be converted elsewhere: then `ready` comes before all that works on entries."""

    async def ready(self, entries: Iterable[Entry]) -> None:
        """Makes sure that these entries are known in this version."""

    def is_ready(self, entry: Entry) -> bool:
        return True

    def live(self, entry: Entry) -> Obj:
        """The object in the form in which it is prepared and validated. Shared: not to be changed."""
        return entry.obj

    def entry(self, key: str, obj: Obj, revision: int) -> Entry:
        """One that is not stored: the answer to a dry run, a bookmark."""
        return Entry(key, orjson.dumps(obj), revision)

    def in_version(self, obj: Obj, api_version: str) -> tuple[Type, Obj] | None:
        """An object of this kind in another version, with its type: what others own is known by their version. The
        object is in the version that it names, or else in this one. None: there is no such version."""
        target, source = self._versions.get(api_version), self._versions.get(obj.get("apiVersion", self.form))
        if target is None or source is None:
            return None
        if target is source:
            return target.resource.type, obj
        bare = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
        converted = target.versioned(source.to_storage(bare))
        if "apiVersion" in obj:
            converted = {"kind": target.resource.kind, "apiVersion": api_version, **converted}
        return target.resource.type, converted

    def converter(self, known: Converted) -> Converter | None:
        """`in_version`, or None where there are no other versions. Where a webhook converts, it knows what is in
        `known` and raises NotConverted for anything else."""
        return self.in_version if self.resource.has_versions else None

    async def learn(self, missing: NotConverted, known: Converted) -> None:
        """Add to `known` what was missing. Raises ApiError."""
        raise AssertionError("this server can convert it")

    @cached_property
    def _versions(self) -> dict[str, Encoding]:
        """Map apiVersion to the encoding of that version of the kind, this one included."""
        resource = self.resource
        others = [one for one in RESOURCES if (one.storage, one.kind) == (resource.storage, resource.kind)]
        return {one.api_version: self if one is resource else encoding_of(one) for one in others}

    final_as = ""
    """Under which name an entry remembers the bytes of `dump` as those that are sent; empty: it does not."""

    def same(self, obj: Obj, live: Obj) -> bool:
        """Whether there is nothing to write."""
        return obj == live

    strategic = True
    """Whether strategic merge patches apply; custom resources have no merge keys."""

    def settle(self, obj: Obj) -> Obj:
        """A defaulted object of this version as a reader of this version would get it back."""
        return obj

    def versioned(self, stored: Obj) -> Obj:
        """From the stored version to this one. The result may share parts with `stored`."""
        return stored

    def to_storage(self, obj: Obj) -> Obj:
        """From this version to the stored one."""
        return obj

    async def seen_as(self, obj: Obj, other: Encoding) -> Obj:
        """An object in the form in which it is prepared, whole, in the version of another encoding of the same kind.
        The result may share parts with `obj`."""
        return {"apiVersion": other.form, "kind": other.resource.kind, **other.versioned(obj)}

    async def taken_from(self, whole: Obj, other: Encoding, unknown: Texts | None = None) -> Obj:
        """The way back, with types checked and defaults filled in. `unknown` gets the fields that are none, where
        objects cannot have those. Raises DecodeError."""
        typed: Obj = decode(other.resource.type, whole, strict=unknown)
        typed = {name: value for name, value in typed.items() if name not in ("kind", "apiVersion")}
        other.resource.strategy.default(typed)
        return other.to_storage(typed)

    def dump(self, obj: Obj) -> bytes:
        """An object as it was prepared, as it is kept; the revision is put in when it is known."""
        return orjson.dumps(obj)

    async def dump_remote(self, obj: Obj) -> bytes:
        """The same for `remote` encodings."""
        return self.dump(obj)


class ConvertedEncoding(Encoding):
    """A version other than the one that is stored: converted on the way in and out, once per revision."""

    stored = False

    def __init__(
        self,
        resource: Resource,
        stored_as: Resource,
        from_storage: Callable[[Obj], Obj],
        to_storage: Callable[[Obj], Obj],
    ) -> None:
        super().__init__(resource)
        self._stored_as = stored_as
        self._from_storage = from_storage
        self._to_storage = to_storage

    def item(self, entry: Entry) -> bytes:
        value: bytes = entry.remembered(self.form + "#bytes", lambda e: orjson.dumps(self.obj(e)))
        return value

    def items(self, entries: Iterable[Entry]) -> list[bytes]:
        return [self.item(entry) for entry in entries]

    def obj(self, entry: Entry) -> Obj:
        converted: Obj = entry.remembered(self.form, lambda e: self._from_storage(orjson.loads(e.value)))
        return converted

    def shared(self, entry: Entry) -> Obj:
        whole: Obj = entry.remembered(
            self.form + "#whole", lambda e: {"kind": self.resource.kind, "apiVersion": self.form, **self.obj(e)}
        )
        return whole

    def settle(self, obj: Obj) -> Obj:
        stored = self._to_storage(obj)
        self._stored_as.strategy.default(stored)
        return self._from_storage(stored)

    def versioned(self, stored: Obj) -> Obj:
        return self._from_storage(orjson.loads(orjson.dumps(stored)))

    def to_storage(self, obj: Obj) -> Obj:
        return self._to_storage(obj)


_UID = b'"uid":"'


def stamp_offset(value: bytes) -> tuple[bytes, int]:
    """Where in an encoded object the revision goes: right after the uid, as upstream orders the fields.

    No name or namespace can hold the text `"uid":"` unescaped, and labels come later, so the first hit is the uid."""
    at = value.index(_UID)
    end = value.index(b'"', at + len(_UID)) + 1
    return value[:end] + b',"resourceVersion":""' + value[end:], end + len(b',"resourceVersion":"')


# Where the conversions from and to the stored version live, imported with the first object that needs them.
_CONVERSIONS = {
    ("events.k8s.io", "v1"): ("setpoint.kinds.events.event", "from_core", "to_core"),
    ("autoscaling", "v1"): ("setpoint.kinds.autoscaling.horizontalpodautoscaler", "to_v1", "from_v1"),
}


def encoding_of(resource: Resource) -> Encoding:
    if resource.storage == (resource.group, resource.version):
        return Encoding(resource)
    module, from_storage, to_storage = _CONVERSIONS[(resource.group, resource.version)]

    def conversion(name: str) -> Callable[[Any], Any]:
        return lambda obj: getattr(import_module(module), name)(obj)

    stored_as = next(r for r in RESOURCES if (r.group, r.version, r.kind) == (*resource.storage, resource.kind))
    return ConvertedEncoding(resource, stored_as, conversion(from_storage), conversion(to_storage))
