"""Files with the state of a cluster (`.setpoint`): one format for snapshots and recordings.

A file is gzip of JSON lines:

- the header: `{"format":1,"kubernetes":VERSION,"made":TIME,"cluster":UID,"revision":R,"at":TIME,...}`;
- a line for each object: `{"k":KEY,"v":{object as it is stored}}`;
- in a recording, a line for each revision after R: `{"r":REVISION,"at":MILLISECONDS,"c":[cause],"w":[[KEY,object]]}`,
  with null for an object that was deleted;
- in a recording of inputs, instead, a line for each write of a user or foreign client, as a request that repeats it:
  `{"r":REVISION,"at":MILLISECONDS,"c":[cause],"i":[{"do":"patch","key":KEY,"body":{...}}]}`, and after them a line for
  each object of the final state: `{"f":KEY,"v":{object}}`;
- the end: `{"end":{"objects":N,"changes":M,"at":MILLISECONDS}}`.

Files come from elsewhere: every length and number is bounded, and errors name the line.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import orjson

FORMAT = 1
LEFT_OUT, REDACTED, INCLUDED = "left out", "redacted", "included"
"""How Secrets are in a file: not at all, without their values, or with them."""
_MAX_LINE = 16 << 20
_MAX_LINES = 4_000_000
_MAX_TOTAL = 16 << 30
"""Bytes after decompression."""
_CHUNK = 1 << 18
_MAX_REVISION = 2**53
_KEY = re.compile(r"[a-z0-9.-]{1,253}/[a-z0-9.-]{1,253}(/(?!\.\.?(/|$))[^/\s\x00]{1,253}){1,2}")
_GZIP = 31


class InvalidSnapshot(ValueError):
    """The file is damaged, incomplete or not a snapshot; the message is a complete sentence."""


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The first line of a file."""

    revision: int
    """The revision of the state."""
    at: str
    """The time of the state, in Kubernetes' format."""
    cluster: str = ""
    """The uid of the namespace kube-system, which identifies a cluster; empty if it is unknown."""
    kubernetes: str = ""
    """The version of the server."""
    made: str = ""
    """The time at which the file was made."""
    secrets: str = LEFT_OUT
    left_out: tuple[str, ...] = ()
    """Descriptions of missing content, one sentence each."""
    recording: bool = False
    """Whether changes follow the state."""
    inputs: bool = False
    """Whether only the writes of users and foreign clients are recorded."""
    options: Mapping[str, Any] = field(default_factory=dict)


class StoredObject(NamedTuple):
    key: str
    revision: int
    """The resourceVersion in the object."""
    value: bytes
    """The object as JSON, as it is stored."""


class Input(NamedTuple):
    """A request that repeats a write of a user or foreign client."""

    do: str
    """`create`, `patch`, `status` (a patch of the status), `bind` or `delete`."""
    key: str
    body: Any
    """The object, the merge patch, the node, or the options of the deletion."""
    owner: str = ""
    """The controlling owner of the object as `Kind/name`; empty if there is none. A generated name is another one when
    the input is repeated: then any object of the same owner is meant."""


INPUTS = ("create", "patch", "status", "bind", "delete")


class StoredChange(NamedTuple):
    """The writes of one revision."""

    revision: int
    at: int
    """Milliseconds since the epoch."""
    cause: list[Any]
    """The recorded cause (`meta/cause.py`); empty if it is unknown."""
    writes: tuple[tuple[str, bytes | None], ...]
    """The keys, each with the object after the write; None if it was deleted. Empty in a recording of inputs."""
    inputs: tuple[Input, ...] = ()
    """In a recording of inputs, the requests that repeat the writes."""


class SnapshotWriter:
    """Writes a file: the header, `add` for every object, `change` for every recorded revision, then `finish`.

    A snapshot appears under its name when it is complete. A recording is written in place and flushed after every
    change, so that what was recorded before a crash can be read. The file is readable by its owner only."""

    def __init__(self, path: Path, header: SnapshotHeader) -> None:
        """Create the file. Raises OSError; FileExistsError if there is a file with this name."""
        if path.exists():
            raise FileExistsError(17, "File exists", str(path))
        self._path = path
        self._target = path if header.recording else Path(f"{path}.partial")
        if not header.recording:
            self._target.unlink(missing_ok=True)  # of an interrupted command
        try:
            descriptor = os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        self._file: BinaryIO | None = os.fdopen(descriptor, "wb")
        self._zip = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        self._objects = self._changes = 0
        self._line({"format": FORMAT, **asdict(header)})

    def add(self, item: StoredObject) -> None:
        self._objects += 1
        self._line({"k": item.key, "v": orjson.Fragment(item.value)})

    def change(self, change: StoredChange) -> None:
        self._changes += 1
        line: dict[str, Any] = {"r": change.revision, "at": change.at, "c": change.cause}
        if change.inputs:
            line["i"] = [each._asdict() for each in change.inputs]
        else:
            line["w"] = [[key, None if value is None else orjson.Fragment(value)] for key, value in change.writes]
        self._line(line)
        self.flush()

    def final(self, key: str, value: bytes) -> None:
        """Add an object of the final state."""
        self._line({"f": key, "v": orjson.Fragment(value)})

    def flush(self) -> None:
        """Make what was written so far readable."""
        assert self._file is not None
        self._file.write(self._zip.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def finish(self, at: int = 0) -> int:
        """Complete the file and return its size in bytes. `at` is the end of a recording in milliseconds since the
        epoch. Raises OSError."""
        assert self._file is not None
        self._line({"end": {"objects": self._objects, "changes": self._changes, "at": at}})
        self._file.write(self._zip.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        self._file = None
        if self._target != self._path:
            os.rename(self._target, self._path)
        return size

    def abandon(self) -> None:
        """Close the file; remove it unless it is complete or a recording."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if self._target != self._path:
            with suppress(OSError):
                self._target.unlink()

    def discard(self) -> None:
        """Remove a file that is not complete."""
        self.abandon()
        with suppress(OSError):
            self._target.unlink()

    def _line(self, value: Any) -> None:
        assert self._file is not None
        self._file.write(self._zip.compress(orjson.dumps(value) + b"\n"))


class StateReader(Protocol):
    """Reads the state of a cluster, and what happened then, from a file of any format."""

    path: Path
    header: SnapshotHeader
    complete: bool
    """Whether the end was reached, after all changes were read."""
    ended_at: int
    """The end of a recording in milliseconds since the epoch, after all changes were read; 0 if it is unknown."""
    final: dict[str, bytes]
    """The objects of the final state, by key, after all changes were read; empty if the file has none."""

    def objects(self) -> Iterator[StoredObject]:
        """Yield the objects. Call it before `changes`."""
        ...

    def changes(self) -> Iterator[StoredChange]:
        """Yield the recorded changes, oldest first, after all objects were read."""
        ...


class SnapshotReader:
    """Reads a file piece by piece. Raises InvalidSnapshot, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = self._numbered_lines()
        self.complete = False
        """Whether the end was reached; a recording that was interrupted has none."""
        self.ended_at = 0
        self.final: dict[str, bytes] = {}
        self.header = self._header()

    def objects(self) -> Iterator[StoredObject]:
        for number, line in self._lines:
            if "k" not in line:
                self._pending = (number, line)
                return
            yield self._object(number, line["k"], line.get("v"))
        self._pending = None

    def changes(self) -> Iterator[StoredChange]:
        before, pending = self.header.revision, self._pending
        while pending is not None:
            number, line = pending
            if "end" in line:
                self.complete = True
                end = line["end"].get("at") if isinstance(line["end"], dict) else None
                self.ended_at = end if isinstance(end, int) and end > 0 else 0
                break
            if "f" in line:
                item = self._object(number, line["f"], line.get("v"))
                self.final[item.key] = item.value
                pending = next(self._lines, None)
                continue
            found = self._change(number, line)
            if found.revision <= before:
                raise self._wrong(number, f"revision {found.revision} does not come after {before}")
            before = found.revision
            yield found
            pending = next(self._lines, None)
        if not self.complete and not self.header.recording:
            raise InvalidSnapshot(f"{self.path} is incomplete: it ends in the middle")

    def check(self) -> tuple[int, int]:
        """Read the rest of the file and return the number of objects and of changes."""
        return sum(1 for _ in self.objects()), sum(1 for _ in self.changes())

    # -- lines ---------------------------------------------------------------------------------------------------------

    _pending: tuple[int, dict[str, Any]] | None = None

    def _wrong(self, number: int, why: str) -> InvalidSnapshot:
        return InvalidSnapshot(f"{self.path} is not a valid snapshot: line {number}: {why}")

    def _numbered_lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, text in enumerate(self._texts(), 1):
            if number > _MAX_LINES:
                raise self._wrong(number, f"there are more than {_MAX_LINES:,} lines")
            try:
                line = orjson.loads(text)
            except orjson.JSONDecodeError:
                raise self._wrong(number, "it is not JSON") from None
            if not isinstance(line, dict):
                raise self._wrong(number, "it is not a JSON object")
            yield number, line

    def _texts(self) -> Iterator[bytes]:
        """Yield the lines without their ends. An incomplete last line is left out."""
        total, number, rest, unzip = 0, 1, b"", zlib.decompressobj(_GZIP)
        with open(self.path, "rb") as file:
            data = file.read(_CHUNK)
            if data[:2] != b"\x1f\x8b":
                raise InvalidSnapshot(f"{self.path} is not a snapshot: it is not compressed with gzip")
            while data:
                try:
                    text = unzip.decompress(data, _CHUNK)
                except zlib.error:
                    raise self._wrong(number, "the compressed data are damaged") from None
                total += len(text)
                if total > _MAX_TOTAL:
                    raise self._wrong(number, f"there are more than {_MAX_TOTAL >> 30} GiB of data")
                lines = (rest + text).split(b"\n")
                rest = lines.pop()
                if len(rest) > _MAX_LINE:
                    raise self._wrong(number + len(lines), f"it is longer than {_MAX_LINE >> 20} MiB")
                number += len(lines)
                yield from lines
                data = unzip.unconsumed_tail or (b"" if unzip.eof else file.read(_CHUNK))

    # -- content -------------------------------------------------------------------------------------------------------

    def _header(self) -> SnapshotHeader:
        number, line = next(self._lines, (1, {}))
        if "format" not in line:
            raise InvalidSnapshot(f"{self.path} is not a snapshot: the first line does not name its format")
        if line["format"] != FORMAT:
            raise InvalidSnapshot(f"{self.path} has the format {line['format']!r}; this version reads {FORMAT}")
        known = {each.name for each in fields(SnapshotHeader)}
        values = {name: value for name, value in line.items() if name in known}
        kinds: dict[str, type] = {"revision": int, "recording": bool, "inputs": bool, "options": dict, "left_out": list}
        for name, value in values.items():
            if not isinstance(value, kinds.get(name, str)):
                raise self._wrong(number, f"{name} has the wrong type")
        if not 0 <= values.get("revision", -1) <= _MAX_REVISION or not values.get("at"):
            raise self._wrong(number, "it has no revision and time")
        if values.get("secrets", LEFT_OUT) not in (LEFT_OUT, REDACTED, INCLUDED):
            raise self._wrong(number, "secrets has an unknown value")
        values["left_out"] = tuple(map(str, values.get("left_out") or ()))
        return SnapshotHeader(**values)

    def _object(self, number: int, key: Any, value: Any) -> StoredObject:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise self._wrong(number, "it has no valid key")
        meta = value.get("metadata") if isinstance(value, dict) else None
        if not isinstance(meta, dict) or not isinstance(meta.get("uid"), str):
            raise self._wrong(number, "it has no object with metadata")
        if meta.get("name") != key.rpartition("/")[2]:
            raise self._wrong(number, "the object has another name than its key")
        version = meta.get("resourceVersion")
        if not isinstance(version, str) or not version.isdecimal() or len(version) > 16:
            raise self._wrong(number, "the object has no resourceVersion")
        return StoredObject(key, int(version), orjson.dumps(value))

    def _change(self, number: int, line: dict[str, Any]) -> StoredChange:
        revision, at, cause, writes = (line.get(name) for name in ("r", "at", "c", "w"))
        if not isinstance(revision, int) or not 0 < revision <= _MAX_REVISION or not isinstance(at, int) or at < 0:
            raise self._wrong(number, "it has no revision and time")
        if not isinstance(cause, list):
            raise self._wrong(number, "it has no cause")
        if "i" in line:
            return StoredChange(revision, at, cause, (), self._inputs(number, line["i"]))
        if not isinstance(writes, list):
            raise self._wrong(number, "it has no writes")
        found = []
        for each in writes:
            if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str):
                raise self._wrong(number, "a write is not a key with an object")
            if each[1] is None and not _KEY.fullmatch(each[0]):
                raise self._wrong(number, "a write has no valid key")
            found.append((each[0], None if each[1] is None else self._object(number, *each).value))
        return StoredChange(revision, at, cause, tuple(found))

    def _inputs(self, number: int, found: Any) -> tuple[Input, ...]:
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._wrong(number, "it has no inputs")
        inputs = [Input(*(each.get(name, "") for name in Input._fields)) for each in found]
        for each in inputs:
            if each.do not in INPUTS or not isinstance(each.key, str) or not _KEY.fullmatch(each.key):
                raise self._wrong(number, "an input is not a known request with a key")
            if not isinstance(each.body, dict) or not isinstance(each.owner, str):
                raise self._wrong(number, "an input has no body")
        return tuple(inputs)
