"""Encodes stored objects for responses, for one resource in one served version; without decoding where possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import Any, cast, overload

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.protobuf_numbers import protobuf_fields
from setpoint.meta import chunked_json
from setpoint.meta.chunked_json import equal
from setpoint.meta.decode import decode
from setpoint.meta.objects import Obj
from setpoint.meta.protobuf.writing import write_envelope, write_message
from setpoint.meta.schema import Type
from setpoint.wire.encoding import BLOCK, LARGE
from setpoint.wire.message import SizedBody

_PIECE = (BLOCK + LARGE) // 2
"""Size in bytes of the pieces of a list. Those between BLOCK and LARGE are written without being copied again, so the
sizes of items may vary by a third."""


class _Values(Sequence[bytes]):
    """The bytes of entries, of which some must be decompressed. This is done when an item is used, which a long list
    does in the steps in which it is sent."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        found = self._entries[index]
        return found.value if isinstance(found, Entry) else [entry.value for entry in found]

    @property
    def size(self) -> int:
        """Length of all items in bytes."""
        return sum(entry.size for entry in self._entries)


class ListBody(SizedBody):
    __slots__ = ("_group", "_head", "_items", "_tail")

    def __init__(self, head: bytes, items: Sequence[bytes], tail: bytes) -> None:
        """The body is `head`, the items separated by commas, and `tail`."""
        self._head = head
        self._items = items
        self._tail = tail
        inner = items.size if isinstance(items, _Values) else sum(map(len, items))
        count = len(items)
        self.size = len(head) + inner + max(0, count - 1) + len(tail)
        """Length in bytes."""
        self._group = max(1, _PIECE * count // (inner + count)) if inner else 1
        """Number of items in a piece."""

    def __len__(self) -> int:
        return -(-len(self._items) // self._group) + 2

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        last = len(self) - 1
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(last + 1))]
        if index < 0:
            index += last + 1
        if not 0 <= index <= last:
            raise IndexError(index)
        if index == 0:
            return self._head
        if index == last:
            return self._tail
        start = (index - 1) * self._group
        group = self._items[start : start + self._group]
        return b",".join(group if index == last - 1 else (*group, b""))


class LargeBody(SizedBody):
    """The body of a single large object: `head`, and `item` without its first byte, in blocks."""

    __slots__ = ("_head", "_item")

    def __init__(self, head: bytes, item: bytes) -> None:
        self._head, self._item = head, item
        self.size = len(head) + len(item)  # one byte less, and a newline at the end

    def __len__(self) -> int:
        return -(-len(self._item) // BLOCK) + 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        last = len(self) - 1
        if index < 0:
            index += last + 1
        if not 0 <= index <= last:
            raise IndexError(index)
        if index == last:
            return b"\n"
        block = self._item[index * BLOCK : (index + 1) * BLOCK]
        return block if index else self._head + block[1:]


Texts = list[str]
_AS_PROTOBUF = "#protobuf"
_KEYS = b'{"kind":"%b","apiVersion":"%b",'


Converted = dict[tuple[str, bytes], Obj]
"""Objects in other versions that a webhook has converted, by apiVersion and by the object as JSON."""
Converter = Callable[[Obj, str], tuple[Type, Obj] | None]
"""See `Encoding.in_version`."""


class NotConverted(Exception):
    """An object is needed in a version that only a webhook can produce; `Encoding.fetch_conversion` calls it."""

    def __init__(self, obj: Obj, api_version: str) -> None:
        super().__init__(api_version)
        self.obj = obj
        self.api_version = api_version


class Encoding:
    """The encoding of the stored version. Objects are stored as list items, without kind and apiVersion; both are put
    in front of single objects."""

    stored = True
    """Whether list items are the stored bytes themselves."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        kind, api_version = resource.kind.encode(), resource.api_version.encode()
        self._head = _KEYS % (kind, api_version)
        self._list_head = _KEYS % (resource.list_kind.encode(), api_version)
        self.form = resource.api_version

    def item(self, entry: Entry) -> bytes:
        """Return the object as a list item."""
        return entry.value

    def items(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        """Return the objects as the items of a list."""
        found = [entry.value_in_memory for entry in entries]
        return cast("list[bytes]", found) if all(found) else _Values(entries)

    def single(self, entry: Entry) -> bytes:
        return self._head + self.item(entry)[1:]

    def body(self, entry: Entry) -> bytes | LargeBody:
        """Return `single` with a newline at the end; for a large object without copying it."""
        item = self.item(entry)
        return LargeBody(self._head, item) if len(item) > BLOCK else b"%b%b\n" % (self._head, item[1:])

    def obj(self, entry: Entry) -> Obj:
        """Return the object in this version, without kind and apiVersion. It is shared and must not be changed."""
        return entry.obj

    def shared(self, entry: Entry) -> Obj:
        """Return the object with kind and apiVersion, as clients in the process share it; it must not be changed."""
        whole = entry.whole
        if whole is None or whole["apiVersion"] != self.form:
            whole = entry.whole = {"kind": self.resource.kind, "apiVersion": self.form, **self.obj(entry)}
        return whole

    def protobuf(self, entry: Entry) -> bytes:
        """Return the object in this version as a protobuf message, encoded once. Only for kinds that have such a
        form."""
        message: bytes = entry.derive(
            self.form + _AS_PROTOBUF, lambda e: write_message(self.resource.type, self.obj(e), protobuf_fields)
        )
        return message

    def protobuf_single(self, entry: Entry) -> bytes:
        """Return the object as a whole protobuf body."""
        return write_envelope(self.form, self.resource.kind, self.protobuf(entry))

    def knows_protobuf(self, entry: Entry) -> bool:
        """Return whether `protobuf` of this entry is cached."""
        return entry.has_derived(self.form + _AS_PROTOBUF)

    def list(self, items: Sequence[bytes], meta: Obj) -> ListBody:
        return ListBody(b'%b"metadata":%b,"items":[' % (self._list_head, orjson.dumps(meta)), items, b"]}\n")

    remote = False
    """Whether a webhook converts objects; then `ready` must be awaited before entries are used."""

    async def ready(self, entries: Iterable[Entry]) -> None:
        """Wait until these entries are converted to this version. Raises ApiError."""

    def is_ready(self, entry: Entry) -> bool:
        return True

    def live(self, entry: Entry) -> Obj:
        """Return the object in the form in which it is validated. It is shared and must not be changed."""
        return entry.obj

    def entry(self, key: str, obj: Obj, revision: int) -> Entry:
        """Return an entry that is not stored: the answer to a dry run, or a bookmark."""
        return Entry.unstored(key, orjson.dumps(obj), revision)

    def in_version(self, obj: Obj, api_version: str) -> tuple[Type, Obj] | None:
        """Return an object in another version of the kind, with its type; None if there is no such version.

        Field ownership is recorded in the version of the owner. The object is in the version that it names, or else in
        this one."""
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
        """Return `in_version`, or None if there are no other versions. If a webhook converts, the result knows the
        conversions in `known` and raises NotConverted for others."""
        return self.in_version if self.resource.has_versions else None

    async def fetch_conversion(self, missing: NotConverted, known: Converted) -> None:
        """Add a missing conversion to `known`. Raises ApiError."""
        raise AssertionError("this server can convert it")

    @cached_property
    def _versions(self) -> dict[str, Encoding]:
        """Map apiVersion to the encoding of that version of the kind, this one included."""
        resource = self.resource
        others = [one for one in RESOURCES if (one.storage, one.kind) == (resource.storage, resource.kind)]
        return {one.api_version: self if one is resource else encoding_of(one) for one in others}

    final_as = ""
    """Key under which an entry caches the bytes of `dump` as the bytes of a response; empty if they differ."""

    def same(self, obj: Obj, live: Obj, large: bool = False) -> bool:
        """Return whether there is nothing to write; `large` objects are compared in steps."""
        return equal(obj, live) if large else obj == live

    strategic = True
    """Whether strategic merge patches are supported; custom resources have no merge keys."""

    def round_trip(self, obj: Obj) -> Obj:
        """Return a defaulted object of this version as a client would read it back."""
        return obj

    def versioned(self, stored: Obj) -> Obj:
        """Convert an object from the stored version to this one. The result may share parts with `stored`."""
        return stored

    def to_storage(self, obj: Obj) -> Obj:
        """Convert an object from this version to the stored one."""
        return obj

    async def to_version(self, obj: Obj, other: Encoding) -> Obj:
        """Convert an object from the stored version to that of another encoding of the kind, with kind and apiVersion.
        The result may share parts with `obj`."""
        return {"apiVersion": other.form, "kind": other.resource.kind, **other.versioned(obj)}

    async def from_version(self, whole: Obj, other: Encoding, unknown: Texts | None = None) -> Obj:
        """Reverse `to_version`, check types and set defaults. Unknown fields are added to `unknown` unless the kind
        preserves them. Raises DecodeError."""
        typed: Obj = decode(other.resource.type, whole, strict=unknown)
        typed = {name: value for name, value in typed.items() if name not in ("kind", "apiVersion")}
        other.resource.strategy.default(typed)
        return other.to_storage(typed)

    def dump(self, obj: Obj, large: bool = False) -> bytes:
        """Return a prepared object as it is stored, without its revision; a `large` one is written in steps."""
        return chunked_json.dumps(obj) if large else orjson.dumps(obj)

    async def dump_remote(self, obj: Obj) -> bytes:
        """Encode an object for the store if `remote` is true."""
        return self.dump(obj)


class ConvertedEncoding(Encoding):
    """The encoding of a version that is not the stored one: objects are converted, once per revision."""

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
        value: bytes = entry.derive(self.form + "#bytes", lambda e: orjson.dumps(self.obj(e)))
        return value

    def items(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        return [self.item(entry) for entry in entries]

    def obj(self, entry: Entry) -> Obj:
        converted: Obj = entry.derive(self.form, lambda e: self._from_storage(chunked_json.read(e.value)))
        return converted

    def shared(self, entry: Entry) -> Obj:
        whole: Obj = entry.derive(
            self.form + "#whole", lambda e: {"kind": self.resource.kind, "apiVersion": self.form, **self.obj(e)}
        )
        return whole

    def round_trip(self, obj: Obj) -> Obj:
        stored = self._to_storage(obj)
        self._stored_as.strategy.default(stored)
        return self._from_storage(stored)

    def versioned(self, stored: Obj) -> Obj:
        return self._from_storage(orjson.loads(orjson.dumps(stored)))

    def to_storage(self, obj: Obj) -> Obj:
        return self._to_storage(obj)


_UID = b'"uid":"'
_RESOURCE_VERSION = b'"resourceVersion":"'


def stamp_offset(value: bytes) -> tuple[bytes, int]:
    """Return an encoded object with room for a resourceVersion after the uid, and the offset of that room.

    No name or namespace contains `"uid":"` unescaped, and labels come later, so the first match is the uid."""
    at = value.index(_UID)
    end = value.index(b'"', at + len(_UID)) + 1
    whole = memoryview(value)  # a slice of it copies nothing
    return b"".join((whole[:end], b',"resourceVersion":""', whole[end:])), end + len(b',"resourceVersion":"')


def without_stamp(value: bytes, revision: int) -> tuple[bytes, int | None]:
    """Return a stored value without its resourceVersion, which is `revision`, and the offset where it belongs.

    The offset is None, and the value is unchanged, if it is encrypted or not an object: it has no resourceVersion."""
    start, stamp = value.find(_RESOURCE_VERSION) + len(_RESOURCE_VERSION), b"%d" % revision
    end = start + len(stamp)
    if start < len(_RESOURCE_VERSION) or value[start:end] != stamp or value[end : end + 1] != b'"':
        return value, None
    return value[:start] + value[end:], start


# The conversions from and to the stored version, which are imported with the first object that needs them.
_CONVERSIONS = {
    ("events.k8s.io", "v1"): ("setpoint.kinds.events.event", "from_core", "to_core"),
    ("autoscaling", "v1"): ("setpoint.kinds.autoscaling.horizontalpodautoscaler", "to_v1", "from_v1"),
}


def encoding_of(resource: Resource) -> Encoding:
    if resource.storage == (resource.group, resource.version):
        return Encoding(resource)
    module, from_storage, to_storage = _CONVERSIONS[(resource.group, resource.version)]

    def conversion(name: str) -> Callable[[Any], Any]:
        @cache
        def load() -> Callable[[Any], Any]:
            function: Callable[[Any], Any] = getattr(import_module(module), name)
            return function

        return lambda obj: load()(obj)

    stored_as = next(r for r in RESOURCES if (r.group, r.version, r.kind) == (*resource.storage, resource.kind))
    return ConvertedEncoding(resource, stored_as, conversion(from_storage), conversion(to_storage))
