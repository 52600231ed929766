"""Reads states and recordings from YAML: manifests, and what `kwokctl snapshot export`, `record` and `kectl` write.

A recording of KWOK is a stream of documents: first the objects of the state, without their resourceVersions; then, in
about the order in which they happened, one `ResourcePatch` of `action.kwok.x-k8s.io/v1alpha1` for each change, with the
nanoseconds since the beginning, a method (create, patch, delete), and as template the object or a strategic merge
patch. Times in all texts are relative to the beginning: `$(time-offset-nanosecond 1000000000)`. The file may be
compressed with gzip. Manifests are such a stream without changes.

Neither has revisions and authors. Objects and changes get consecutive revisions here, and what a stored object must
have and a manifest need not: a uid, the time of its creation, a namespace, defaults.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from setpoint.client.resources import BY_KIND, BY_PLURAL
from setpoint.cluster.cluster_copy import stored_bytes, stored_key
from setpoint.cluster.snapshot_file import (
    INCLUDED,
    LEFT_OUT,
    InvalidSnapshot,
    SnapshotHeader,
    SnapshotReader,
    StateReader,
    StoredChange,
    StoredObject,
)
from setpoint.kinds.catalog import Resource
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.manifests import ManifestProblem, opened
from setpoint.meta.objects import Obj
from setpoint.meta.patch.errors import PatchError
from setpoint.meta.patch.merge_patch import apply_merge_patch
from setpoint.meta.patch.strategic import apply_strategic
from setpoint.meta.times import format_micro, format_time, parse_time, unix_milliseconds

PATCH_VERSION, PATCH_KIND = "action.kwok.x-k8s.io/v1alpha1", "ResourcePatch"
CREATE, PATCH, DELETE = "create", "patch", "delete"
_DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_NAMESPACE = ("v1", "Namespace")
_SECRETS, _KUBE_SYSTEM = "core/secrets/", "core/namespaces/kube-system"
_GZIP = b"\x1f\x8b"
_SEPARATOR = b"---"
_MAX_DOCUMENT, _MAX_DOCUMENTS, _MAX_TOTAL = 16 << 20, 1_000_000, 2 << 30
"""Bytes of a document, number of documents, and bytes of all of them after decompression."""
_MAX_NANOSECONDS = 10 * 365 * 86_400 * 10**9
_RELATIVE = re.compile(r"\$\(time-offset-nanosecond (-?\d{1,18})\)")
_GIVEN_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
"""Namespaces that every server creates."""


def opened_state(path: Path, now: datetime) -> StateReader:
    """Return the reader of a snapshot, a recording, manifests or a recording of KWOK. `now` is the beginning for files
    with relative times. Raises InvalidSnapshot, OSError."""
    with open(path, "rb") as file:
        begin = file.read(2)
    if begin == _GZIP:
        try:
            with gzip.open(path) as file:
                begin = file.read(9)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            begin = b'{"format"'  # the other reader says what is wrong
        if begin == b'{"format"':
            return SnapshotReader(path)
    return ManifestReader(path, now)


class _Document(NamedTuple):
    number: int
    line: int
    """The line of the file in which it begins."""
    value: Obj


class ManifestReader:
    """Reads objects and changes from YAML, like `SnapshotReader` from a snapshot. Raises InvalidSnapshot, OSError."""

    def __init__(self, path: Path, now: datetime) -> None:
        self.path = path
        self.complete = False
        self.ended_at = 0
        self.final: dict[str, bytes] = {}
        self._now = parse_time(format_time(now))
        self._revision = 0
        self._custom: dict[tuple[str, str], Resource] = {}
        """The custom resources whose definitions were read, by group and kind."""
        self._unknown: dict[str, int] = {}
        """The number of objects of kinds that are neither built in nor defined in the file, by kind."""
        self._current: dict[str, bytes] = {}
        """The objects by key, as they are in the file."""
        objects, self._changes = self._read()
        self._objects = self._stored_objects(objects)
        left_out = [
            f"{count} objects or changes of {kind} were left out: the file has no definition of this kind."
            for kind, count in sorted(self._unknown.items())
        ]
        left_out += self._add_namespaces()
        keys = {item.key: item for item in self._objects}
        system = orjson.loads(keys[_KUBE_SYSTEM].value)["metadata"]["uid"] if _KUBE_SYSTEM in keys else ""
        self.header = SnapshotHeader(
            max(self._revision, 1),
            format_time(self._now),
            system,
            made=format_time(now),
            secrets=INCLUDED if any(key.startswith(_SECRETS) for key in keys) else LEFT_OUT,
            left_out=tuple(left_out),
            recording=bool(self._changes),
        )

    def objects(self) -> Iterator[StoredObject]:
        """Yield the objects."""
        yield from self._objects

    def changes(self) -> Iterator[StoredChange]:
        """Yield the recorded changes, oldest first."""
        start = unix_milliseconds(self._now)
        for nanoseconds, document in self._changes:
            write = self._write(document)
            if write is not None:
                self._revision += 1
                key, obj = write
                value = None if obj is None else self._stored(document, *obj).value
                yield StoredChange(self._revision, start + nanoseconds // 10**6, [], ((key, value),))
        self.complete = True
        self.ended_at = start + (self._changes[-1][0] // 10**6 if self._changes else 0)

    # -- documents -----------------------------------------------------------------------------------------------------

    def _wrong(self, document: _Document, why: str) -> InvalidSnapshot:
        return InvalidSnapshot(f"{self.path}: document {document.number} (line {document.line}): {why}")

    def _numbered_documents(self) -> Iterator[_Document]:
        """Yield the objects of the file, those of lists one by one."""
        for number, (line, text) in enumerate(self._texts(), 1):
            place = _Document(number, line, {})
            if number > _MAX_DOCUMENTS:
                raise self._wrong(place, f"there are more than {_MAX_DOCUMENTS:,} documents")
            try:
                found, _ = parse_yaml(text)
                values = [*opened(found)] if found is not None else []
            except (BodyError, ManifestProblem) as error:
                raise self._wrong(place, str(error)) from None
            except RecursionError:
                raise self._wrong(place, "it is nested too deeply") from None
            for value in values:
                yield place._replace(value=self._with_times(value) if b"$(time-offset" in text else value)

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield the documents, each with its first line."""
        lines: list[bytes] = []
        size, total, start = 0, 0, 1
        with open(self.path, "rb") as plain:
            compressed = plain.read(2) == _GZIP
        try:
            with gzip.open(self.path) if compressed else open(self.path, "rb") as file:
                number = 0
                while line := file.readline(_MAX_DOCUMENT):
                    number += 1
                    total += len(line)
                    if total > _MAX_TOTAL:
                        raise InvalidSnapshot(f"{self.path} has more than {_MAX_TOTAL >> 30} GiB")
                    if line[:3] == _SEPARATOR and not line[3:].strip():
                        if lines:
                            yield start, b"".join(lines)
                        lines, size, start = [], 0, number + 1
                        continue
                    lines.append(line)
                    size += len(line)
                    if size >= _MAX_DOCUMENT:
                        too_long = f"it is longer than {_MAX_DOCUMENT >> 20} MiB"
                        raise InvalidSnapshot(f"{self.path}: the document in line {start}: {too_long}")
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise InvalidSnapshot(f"{self.path} is damaged: it cannot be decompressed") from None
        if lines:
            yield start, b"".join(lines)

    def _with_times(self, value: Any, form: Callable[[datetime], str] = format_micro) -> Any:
        """Return a value with the times that are relative in the file. They have fractions, as KWOK has them, which the
        types of fields remove; in annotations, nothing else would."""
        if isinstance(value, dict):
            return {
                name: self._with_times(each, _shortest if name == "annotations" else form)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self._with_times(each, form) for each in value]
        if not isinstance(value, str):
            return value
        return _RELATIVE.sub(lambda found: form(self._now + timedelta(microseconds=int(found[1]) // 1000)), value)

    # -- objects -------------------------------------------------------------------------------------------------------

    def _read(self) -> tuple[list[_Document], list[tuple[int, _Document]]]:
        """Read the file: the objects, and the changes with their times, in the order of time. Definitions count for all
        objects, wherever they are."""
        objects: list[_Document] = []
        changes: list[tuple[int, _Document]] = []
        for document in self._numbered_documents():
            value = document.value
            if (value.get("apiVersion"), value.get("kind")) == (PATCH_VERSION, PATCH_KIND):
                changes.append((self._time_of(document), document))
                template = value.get("template")
                if isinstance(template, dict):
                    self._note_definition(template)
            elif changes:
                raise self._wrong(document, f"an object of kind {value.get('kind')} follows the changes")
            else:
                self._note_definition(value)
                objects.append(document)
        known = []
        for nanoseconds, document in changes:
            which = document.value.get("resource")
            if not isinstance(which, dict):
                raise self._wrong(document, "it has no resource")
            if self._resource_named(which) is not None:
                known.append((nanoseconds, document))
            else:
                name = ".".join(str(which[each]) for each in ("resource", "group") if which.get(each))
                self._unknown[name] = self._unknown.get(name, 0) + 1
        known.sort(key=lambda each: each[0])  # KWOK writes them in about this order
        return objects, known

    def _stored_objects(self, documents: Iterable[_Document]) -> list[StoredObject]:
        found: dict[str, StoredObject] = {}
        for document in documents:
            resource = self._resource_of(document)
            if resource is not None:
                self._revision += 1
                item = self._stored(document, resource, document.value)
                found[item.key] = item
                self._current[item.key] = orjson.dumps(document.value)
        return [*found.values()]

    def _note_definition(self, obj: Obj) -> None:
        if (obj.get("apiVersion"), obj.get("kind")) != _DEFINITION:
            return
        spec = obj.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(names, dict):
            return
        group, kind, plural = (str(each or "") for each in (spec.get("group"), names.get("kind"), names.get("plural")))
        for version in spec.get("versions") or ():
            if isinstance(version, dict) and version.get("storage"):
                name, namespaced = str(version.get("name")), spec.get("scope") != "Cluster"
                self._custom[group, kind] = Resource(group, name, kind, plural, namespaced=namespaced)

    def _resource_of(self, document: _Document) -> Resource | None:
        """Return the resource of an object; None, and count it, if its kind is unknown."""
        obj = document.value
        api_version, kind = obj.get("apiVersion"), obj.get("kind")
        if not isinstance(api_version, str) or not isinstance(kind, str) or not kind:
            raise self._wrong(document, "it has no apiVersion and kind")
        resource = BY_KIND.get((api_version, kind)) or self._custom.get((api_version.rpartition("/")[0], kind))
        if resource is None or not resource.is_stored:
            name = f"{api_version} {kind}"
            self._unknown[name] = self._unknown.get(name, 0) + 1
            return None
        return resource

    def _stored(self, document: _Document, resource: Resource, obj: Obj) -> StoredObject:
        """Return an object of the file as it is stored, with what it must have."""
        meta = obj.get("metadata")
        if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
            raise self._wrong(document, "it has no metadata.name")
        meta = {**meta, "resourceVersion": str(self._revision)}
        if resource.namespaced:
            meta["namespace"] = meta.get("namespace") or "default"
        else:
            meta.pop("namespace", None)
        key = stored_key(resource, {"metadata": meta})
        meta.setdefault("uid", _uid(key))
        if not meta.get("creationTimestamp"):
            meta["creationTimestamp"] = format_time(self._now)
        bare = {name: each for name, each in obj.items() if name not in ("apiVersion", "kind")} | {"metadata": meta}
        try:
            if _is_builtin(resource):
                if resource.strategy.has_generation:
                    meta.setdefault("generation", 1)
                typed: Obj = decode(resource.type, bare)
                resource.strategy.default(typed)
                bare = decode(resource.type, typed)  # in the order of the fields
        except DecodeError as error:
            raise self._wrong(document, f"{resource.kind} {meta['name']} is not valid: {error}") from None
        whole = {"apiVersion": obj.get("apiVersion"), "kind": resource.kind, **bare}
        value = stored_bytes(resource, whole)
        if value is None:
            raise self._wrong(document, f"{resource.kind} {meta['name']} cannot be decoded")
        return StoredObject(key, self._revision, value)

    def _add_namespaces(self) -> list[str]:
        """Add the namespaces that objects are in and the file does not have; return sentences about them."""
        present = {item.key.split("/")[2] for item in self._objects if item.key.startswith("core/namespaces/")}
        used = {item.key.split("/")[2] for item in self._objects if item.key.count("/") == 3}
        missing = sorted(used - present - {*_GIVEN_NAMESPACES})
        for name in missing:
            self._revision += 1
            obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._objects.append(self._stored(_Document(0, 0, obj), BY_KIND[_NAMESPACE], obj))
        return [f"Namespace {name} was added: objects of the file are in it." for name in missing]

    # -- changes -------------------------------------------------------------------------------------------------------

    def _time_of(self, document: _Document) -> int:
        nanoseconds = document.value.get("durationNanosecond")
        if type(nanoseconds) is not int or not 0 <= nanoseconds <= _MAX_NANOSECONDS:
            raise self._wrong(document, "durationNanosecond is not a number of nanoseconds since the beginning")
        return nanoseconds

    def _write(self, document: _Document) -> tuple[str, tuple[Resource, Obj] | None] | None:
        """Return the key and the object that a change writes, which is None if it deletes it; None if it has no
        effect."""
        change, resource = document.value, self._resource_named(document.value["resource"])
        assert resource is not None
        method, template, target = (change.get(name) for name in ("method", "template", "target"))
        if not isinstance(target, dict) or not isinstance(target.get("name"), str):
            raise self._wrong(document, "it has no target")
        place = {"name": target["name"], "namespace": target.get("namespace") or "default"}
        key = stored_key(resource, {"metadata": place})
        if method == DELETE:
            return (key, None) if self._current.pop(key, None) is not None else None
        if method not in (CREATE, PATCH):
            raise self._wrong(document, f"the method is {method!r}, not create, patch or delete")
        if not isinstance(template, dict):
            raise self._wrong(document, "its template is not an object")
        if method == PATCH:
            template = self._patched(document, resource, key, template)
        if (template.get("metadata") or {}).get("name") != target["name"]:
            raise self._wrong(document, "its object has another name than its target")
        obj = {"apiVersion": resource.api_version, **template}
        self._current[key] = orjson.dumps(obj)
        return key, (resource, obj)

    def _patched(self, document: _Document, resource: Resource, key: str, patch: Obj) -> Obj:
        if key not in self._current:
            raise self._wrong(document, f"it changes {key}, which does not exist then")
        obj: Obj = orjson.loads(self._current[key])
        try:
            if _is_builtin(resource):
                return apply_strategic(resource.type, obj, patch)
            merged: Obj = apply_merge_patch(obj, patch)  # custom kinds have no merge keys
            return merged
        except PatchError as error:
            raise self._wrong(document, f"its patch cannot be applied: {error.message}") from None

    def _resource_named(self, which: Obj) -> Resource | None:
        group, version, plural = (which.get(name) or "" for name in ("group", "version", "resource"))
        known = BY_PLURAL.get((group, version, plural))
        if known is not None:
            return known
        return next((each for each in self._custom.values() if (each.group, each.plural) == (group, plural)), None)


def _shortest(when: datetime) -> str:
    return format_micro(when) if when.microsecond else format_time(when)


def _is_builtin(resource: Resource) -> bool:
    return BY_KIND.get((resource.api_version, resource.kind)) is resource


def _uid(key: str) -> str:
    """Return a uid that depends on the key alone, in the form of a random one."""
    text = sha256(key.encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"
