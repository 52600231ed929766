"""The records of a run: calls of clients, frames of watches, commits in etcd's log, faults; and their file.

Times are seconds of one monotonic clock, that of the process that runs the clients. A revision is a resourceVersion as
a number; 0 means that there is none. An absent object has the value None.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeVar

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
"""Outcomes of a call: it succeeded; it certainly had no effect; it may have had its effect."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request and its answer."""

    client: str
    server: str
    verb: str
    key: str
    """The key of the object in etcd without the prefix; for a list, the prefix of the keys."""
    invoked: float
    answered: float
    outcome: str
    code: int = 0
    """The HTTP status; 0 if there was no answer."""
    expected: int = 0
    """The revision that an update or a delete names."""
    value: str | None = None
    """The value that was written, or that a get returned."""
    revision: int = 0
    items: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Revision and value of the objects of a list, by key."""
    stale_allowed: bool = False
    """Whether any state was acceptable as the answer: a read with resourceVersion=0."""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Return whether the server failed, so that the client must try another one."""
        return self.outcome == UNKNOWN or self.code >= 500


@dataclass(frozen=True, slots=True)
class WatchStart:
    """A watch connects; each connection has its own number."""

    watch: str
    connection: int
    server: str
    prefix: str
    at: float
    revision: int
    """The watch delivers what comes after this revision."""
    relisted: bool = False
    """Whether the revision comes from a list because the last one was compacted; otherwise the watch resumes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a watch; the type BOOKMARK has no key."""

    watch: str
    connection: int
    at: float
    type: str
    revision: int
    key: str = ""
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of one key in etcd's log."""

    revision: int
    key: str
    value: str | None
    """A summary of the object (`etcd_log.summary`); None means that it was deleted."""
    term: str = ""
    """The term of the Lease under which it was written: NAMESPACE/NAME/TRANSITIONS/HOLDER."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    name: str
    target: str
    injected: float
    healed: float
    recovered: float
    """When all members and servers were ready again."""
    no_quorum: bool = False
    """Whether etcd had no quorum from `injected` to `healed`."""


@dataclass(frozen=True, slots=True)
class Leading:
    """A client that acted as the holder of a Lease."""

    client: str
    lease: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Converged:
    """A Deployment at the end of the run."""

    name: str
    wanted: int
    pods: int
    available: int


@dataclass(frozen=True, slots=True)
class LastWrite:
    """A write after the last fault, which every watch must deliver."""

    prefix: str
    revision: int


Record = Call | WatchStart | Frame | Commit | FaultRecord | Leading | Converged | LastWrite
_TYPES: dict[str, type[Any]] = {
    each.__name__: each for each in (Call, WatchStart, Frame, Commit, FaultRecord, Leading, Converged, LastWrite)
}


@dataclass(frozen=True, slots=True)
class Violation:
    check: str
    message: str
    records: tuple[Record, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.check}: {self.message}", *(f"    {record}" for record in self.records)])


T = TypeVar("T")


class History:
    """All records of a run, in the order in which they were added; also written to a file if there is one."""

    def __init__(self, records: Iterable[Record] = (), file: TextIO | None = None) -> None:
        self._by_type: dict[type[Any], list[Any]] = {each: [] for each in _TYPES.values()}
        self._file = file
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        self._by_type[type(record)].append(record)
        if self._file is not None:
            self._file.write(encoded(record) + "\n")

    def of(self, kind: type[T]) -> list[T]:
        return self._by_type[kind]

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()


def encoded(record: Record) -> str:
    values = {
        each.name: getattr(record, each.name)
        for each in dataclasses.fields(record)
        if each.default is dataclasses.MISSING or getattr(record, each.name) != each.default
    }
    return json.dumps({"is": type(record).__name__, **values}, separators=(",", ":"))


def decoded(line: str) -> Record:
    values = json.loads(line)
    kind = _TYPES[values.pop("is")]
    if "items" in values:
        values["items"] = {key: (revision, value) for key, (revision, value) in values["items"].items()}
    record: Record = kind(**values)
    return record


def read(path: Path) -> History:
    def records() -> Iterator[Record]:
        with path.open() as file:
            for line in file:
                yield decoded(line)

    return History(records())
