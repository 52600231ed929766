"""The file of an archive: compacted changes in a SQLite database, each key's as differences to the version before.

The file belongs to the history only: it is written without waiting for the disk (`synchronous=OFF`), so the death of
the process loses nothing and a power failure may lose the file. Every change of it is one SQLite transaction: whenever
the process dies, the file is as it was after one of them.

A value is compressed with the previous value of its key as dictionary, and with texts that most objects contain. Every
32nd version of a key, and its first one, is independent of others. Before the first change of a key, the version that
it replaced is stored too. So a key without any row has not changed since `oldest`, and its value is the one that the
store still has.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from setpoint.meta.cause import decode
from setpoint.store.archive_dictionary import CAUSES, OBJECTS
from setpoint.store.interface import Cause, Event, KeyValue, PastTransaction, Version
from setpoint.store.key_order import prefix_end
from setpoint.store.sqlite_file import create_file

_APPLICATION, _FORMAT = 0x73706873, 1
_PAGE_SIZE = 8192
_LOG_LIMIT = 8 << 20
_CHAIN = 32
"""Every so many versions of a key, one is stored independently of the others."""
_RAW, _COMPRESSED, _DELTA, _GONE = range(4)
_FORMS = 4
_LEVEL = 6
_MAX_PREVIOUS = 32 * 1024 - len(OBJECTS)
"""Bytes of a previous value that zlib can refer to, besides the dictionary: the last ones."""
_CACHED_KEYS = 50_000
_TRIM_KEYS = 500
"""Number of keys whose old versions are deleted in one transaction."""
_SCHEMA = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE key (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE change (
  key INTEGER NOT NULL, revision INTEGER NOT NULL, created INTEGER NOT NULL, form INTEGER NOT NULL, value BLOB,
  PRIMARY KEY (key, revision)) WITHOUT ROWID;
CREATE INDEX change_by_revision ON change (revision);
CREATE TABLE txn (revision INTEGER PRIMARY KEY, at INTEGER NOT NULL, cause BLOB NOT NULL);
CREATE INDEX txn_by_time ON txn (at, revision);
CREATE TABLE gap (after INTEGER PRIMARY KEY, until INTEGER NOT NULL);
INSERT INTO fact VALUES ('oldest', 0), ('newest', 0), ('trimmed', 0), ('excluded', '');
"""
_MARKS_SCHEMA = """
CREATE TABLE IF NOT EXISTS mark (revision INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS marked (
  mark INTEGER NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, created INTEGER NOT NULL, form INTEGER NOT NULL,
  value BLOB NOT NULL, PRIMARY KEY (mark, key)) WITHOUT ROWID;
DELETE FROM marked WHERE mark NOT IN (SELECT revision FROM mark);
"""
"""The copies of states at marked revisions. One that was not completed is removed."""
_INSERT = "INSERT OR REPLACE INTO change (key, revision, created, form, value) VALUES (?, ?, ?, ?, ?)"

_Row = tuple[int, int, int, bytes | None]
"""Revision, revision of the creation, form and value of a change."""


class _LastVersion(NamedTuple):
    """The last version of a key in the file, on which the form of the next one depends."""

    number: int
    revision: int
    """Revision of the last version in the file; 0 if there is none."""
    chain: int
    """Number of versions since the last one that is independent of others."""
    exists: bool
    """Whether the last version has a value."""


class DamagedArchive(Exception):
    """The file is not an archive that this version can read; the message says why."""


class ArchiveFile:
    """The writing side; `ArchiveReader` reads. Each is used by one thread at a time, and the two do not wait for each
    other."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._keys: dict[str, _LastVersion] = {}
        facts = dict(connection.execute("SELECT name, value FROM fact").fetchall())
        self.oldest: int = facts["oldest"]
        self.newest: int = facts["newest"]
        self.trimmed: int = facts["trimmed"]
        """Revision before which nothing is left but the versions that `oldest` needs."""
        self.excluded: str = facts["excluded"]
        (last,) = connection.execute("SELECT max(at) FROM txn").fetchone()
        self._last_time: int = last or 0
        self.marks: dict[int, int] = dict(connection.execute("SELECT revision, at FROM mark").fetchall())
        """The marked revisions of which the file has a copy of the whole state, with their times."""

    @classmethod
    def open(cls, path: Path) -> ArchiveFile:
        """Open or create the file. Raises DamagedArchive, StoreError, sqlite3.Error."""
        create_file(path)
        connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            run = connection.execute
            if run("PRAGMA page_count").fetchone() == (0,):
                run(f"PRAGMA page_size = {_PAGE_SIZE}")
                run("PRAGMA auto_vacuum = INCREMENTAL")
            run("PRAGMA journal_mode = WAL").fetchone()
            run("PRAGMA synchronous = OFF")
            run(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
            run("PRAGMA secure_delete = ON")  # a deleted version may have been a Secret
            if run("PRAGMA application_id").fetchone() == (0,):
                connection.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; "
                    f"PRAGMA user_version = {_FORMAT}; COMMIT;"
                )
            found = (*run("PRAGMA application_id").fetchone(), *run("PRAGMA user_version").fetchone())
            if found != (_APPLICATION, _FORMAT):
                raise DamagedArchive(f"{path} is not an archive in format {_FORMAT}")
            connection.executescript(f"BEGIN IMMEDIATE; {_MARKS_SCHEMA} COMMIT;")
            return cls(path, connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._keys.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, after: int, events: Iterable[Event], causes: Sequence[Cause], through: int) -> None:
        """Keep changes; see `Archive.append`. Raises sqlite3.Error."""
        if through <= self.newest:
            return
        begins = after > self.newest or not self.newest
        oldest, last_time = (after + 1 if begins else self.oldest), self._last_time
        with self._transaction():
            run = self._connection.execute
            if begins:
                self.oldest = oldest
                if self.newest:
                    run("INSERT OR REPLACE INTO gap VALUES (?, ?)", (self.newest, after))
                run("UPDATE fact SET value = ? WHERE name = 'oldest'", (oldest,))
            written = set()
            for event in events:
                if event.revision > self.newest:
                    self._append_change(event)
                    written.add(event.revision)
            for revision, cause in causes:
                if revision in written:
                    last_time = max(last_time, decode(cause).at)
                    run(
                        "INSERT OR REPLACE INTO txn VALUES (?, ?, ?)", (revision, last_time, _compressed(cause, CAUSES))
                    )
                    written.remove(revision)
            for revision in sorted(written):  # their writer has recorded no cause
                run("INSERT OR REPLACE INTO txn VALUES (?, ?, ?)", (revision, last_time, b""))
            run("UPDATE fact SET value = ? WHERE name = 'newest'", (through,))
        self.newest, self.oldest, self._last_time = through, oldest, last_time

    def _append_change(self, event: Event) -> None:
        key, before, now = event.key, event.before, event.now
        number, revision, chain, exists = self._last_version(key)
        if before is None and exists:  # it was deleted in a gap
            self._connection.execute(_INSERT, (number, self.oldest - 1, 0, _GONE, None))
        if before is not None and revision != before.mod_revision:
            self._insert(number, before, None, 0)
            chain = 0
        if now is None:
            self._connection.execute(_INSERT, (number, event.revision, 0, _GONE, None))
            chain = 0
        elif before is None or chain + 1 >= _CHAIN:
            chain = 0
            self._insert(number, now, None, 0)
        else:
            chain += 1
            self._insert(number, now, before.value, chain)
        self._keys[key] = _LastVersion(number, event.revision, chain, now is not None)

    def _last_version(self, key: str) -> _LastVersion:
        known = self._keys.get(key)
        if known is not None:
            return known
        if len(self._keys) >= _CACHED_KEYS:
            self._keys.clear()
        run = self._connection.execute
        found = run("SELECT id FROM key WHERE name = ?", (key,)).fetchone()
        if found is None:
            number = run("INSERT INTO key (name) VALUES (?)", (key,)).lastrowid
            assert number is not None
            return _LastVersion(number, 0, 0, False)
        last = run(
            "SELECT revision, form FROM change WHERE key = ? ORDER BY revision DESC LIMIT 1", (found[0],)
        ).fetchone()
        if last is None:
            return _LastVersion(found[0], 0, 0, False)
        return _LastVersion(found[0], last[0], last[1] // _FORMS, last[1] % _FORMS != _GONE)

    def _insert(self, number: int, entry: KeyValue, previous: bytes | None, chain: int) -> None:
        form, stored = _encoded(entry.value, previous)
        row = (number, entry.mod_revision, entry.create_revision, form + _FORMS * chain, stored)
        self._connection.execute(_INSERT, row)

    def set_excluded(self, excluded: str) -> None:
        """Record which resources are not kept from now on. Raises sqlite3.Error."""
        with self._transaction():
            self._connection.execute("UPDATE fact SET value = ? WHERE name = 'excluded'", (excluded,))
        self.excluded = excluded

    def begin_at(self, revision: int) -> None:
        """Let the range of known states begin no earlier than `revision`. Raises sqlite3.Error."""
        if revision > self.oldest:
            with self._transaction():
                self._connection.execute("UPDATE fact SET value = ? WHERE name = 'oldest'", (revision,))
            self.oldest = revision

    # -- marks --------------------------------------------------------------------------------------------------------

    def copy(self, mark: int, versions: Iterable[Version]) -> int:
        """Add objects to the copy of a marked state; return the bytes of all copies. Raises sqlite3.Error."""
        with self._transaction():
            for key, revision, created, value in versions:
                if value is not None:
                    row = (mark, key, revision, created, *_encoded(value, None))
                    self._connection.execute("INSERT OR REPLACE INTO marked VALUES (?, ?, ?, ?, ?, ?)", row)
        (size,) = self._connection.execute("SELECT sum(length(value)) FROM marked").fetchone()
        return size or 0

    def complete_copy(self, mark: int, at: int) -> None:
        """Record that the copy of a marked state has all objects. Raises sqlite3.Error."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO mark VALUES (?, ?)", (mark, at))
        self.marks[mark] = at

    def drop_copy(self, mark: int) -> None:
        """Remove the copy of a marked state, complete or not. Raises sqlite3.Error."""
        self.marks.pop(mark, None)
        with self._transaction():
            self._connection.execute("DELETE FROM mark WHERE revision = ?", (mark,))
            self._connection.execute("DELETE FROM marked WHERE mark = ?", (mark,))
        self._connection.executescript("PRAGMA incremental_vacuum")

    # -- retention ----------------------------------------------------------------------------------------------------

    def last_written_before(self, at: int) -> int:
        """Return the last revision that was written before a time; 0 if there is none."""
        query = "SELECT max(revision) FROM txn WHERE at > 0 AND at < ?"  # 0 is not known
        (found,) = self._connection.execute(query, (at,)).fetchone()
        return found or 0

    def middle_of_oldest(self, part: int) -> int:
        """Return a revision up to which about one of `part` parts of the transactions were written."""
        run = self._connection.execute
        (count,) = run("SELECT count(*) FROM txn").fetchone()
        found = run("SELECT revision FROM txn ORDER BY revision LIMIT 1 OFFSET ?", (count // part,)).fetchone()
        return int(found[0]) if found is not None else self.newest

    def trim(self, oldest: int) -> None:
        """Drop what only states before `oldest` need, in steps. Raises sqlite3.Error.

        If it is interrupted, the next call completes it."""
        oldest = min(oldest, self.newest)
        self.begin_at(oldest)
        run = self._connection.execute
        keys = run("SELECT DISTINCT key FROM change WHERE revision BETWEEN ? AND ?", (self.trimmed, oldest)).fetchall()
        for start in range(0, len(keys), _TRIM_KEYS):
            with self._transaction():
                for (number,) in keys[start : start + _TRIM_KEYS]:
                    self._trim_key(number, oldest)
            self._keys.clear()
        with self._transaction():
            run("DELETE FROM txn WHERE revision < ?", (oldest,))
            run("DELETE FROM gap WHERE until < ?", (oldest,))
            run("UPDATE fact SET value = ? WHERE name = 'trimmed'", (oldest,))
        self.trimmed = oldest
        self._connection.executescript("PRAGMA incremental_vacuum")

    def _trim_key(self, number: int, oldest: int) -> None:
        """Keep the version that was valid at `oldest`, unless the store still has it, and the later ones."""
        run = self._connection.execute
        rows = _rows_until(self._connection, number, oldest)
        if not rows:
            return
        revision, created, form, _ = rows[-1]
        if revision < oldest:
            (later,) = run("SELECT count(*) FROM change WHERE key = ? AND revision > ?", (number, oldest)).fetchone()
            if not later:
                run("DELETE FROM change WHERE key = ?", (number,))
                run("DELETE FROM key WHERE id = ?", (number,))
                return
            if form % _FORMS == _GONE:
                revision += 1  # nothing says the same
        if form % _FORMS == _DELTA:
            value = _decoded(rows)[-1]
            assert value is not None
            kind, stored = _encoded(value, None)
            run(_INSERT, (number, revision, created, kind, stored))
        run("DELETE FROM change WHERE key = ? AND revision < ?", (number, revision))

    def size(self) -> int:
        """Return the bytes in use. Raises sqlite3.Error."""
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


class ArchiveReader:
    """The reading side. Every method may raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA query_only = ON")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state of the file, while the writer goes on."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    def get(self, key: str, revision: int) -> Version | None:
        with self._snapshot():
            return self._get(key, revision)

    def _get(self, key: str, revision: int) -> Version | None:
        found = self._connection.execute("SELECT id FROM key WHERE name = ?", (key,)).fetchone()
        return self._version(found[0], key, revision, self._last_gap()) if found is not None else None

    def list(self, prefix: str, revision: int) -> dict[str, Version]:
        with self._snapshot():
            return self._list(prefix, revision)

    def _list(self, prefix: str, revision: int) -> dict[str, Version]:
        gap = self._last_gap()
        found = self._connection.execute(
            "SELECT id, name FROM key WHERE name >= ? AND (? IS NULL OR name < ?) ORDER BY name",
            (prefix, end := prefix_end(prefix), end),
        ).fetchall()
        versions = ((name, self._version(number, name, revision, gap)) for number, name in found)
        return {name: version for name, version in versions if version is not None}

    def _last_gap(self) -> int:
        """Return the revision after which changes are missing for the last time; 0 if none are."""
        (after,) = self._connection.execute("SELECT max(after) FROM gap").fetchone()
        return after or 0

    def _version(self, number: int, key: str, revision: int, gap: int) -> Version | None:
        rows = _rows_until(self._connection, number, revision)
        if rows and rows[-1][0] > gap:
            return Version(key, rows[-1][0], rows[-1][1], _decoded(rows)[-1])
        # What a key had before the gap is still true only if the next change confirms it.
        since = (number, gap)
        if self._connection.execute("SELECT 1 FROM change WHERE key = ? AND revision > ? LIMIT 1", since).fetchone():
            return Version(key, rows[-1][0], rows[-1][1], _decoded(rows)[-1]) if rows else Version(key, 0, 0, None)
        return None

    def versions(self, key: str, before: int, limit: int) -> Sequence[Version]:
        found = self._connection.execute("SELECT id FROM key WHERE name = ?", (key,)).fetchone()
        if found is None:
            return []
        rows: list[_Row] = []
        for row in self._connection.execute(
            "SELECT revision, created, form, value FROM change WHERE key = ? AND revision < ? ORDER BY revision DESC",
            (found[0], before),
        ):
            rows.append(row)
            if limit and len(rows) >= limit and row[2] % _FORMS in (_RAW, _COMPRESSED):
                break
        rows.reverse()
        values = _decoded(rows)
        versions = [Version(key, row[0], row[1], value) for row, value in zip(rows, values, strict=True)][::-1]
        return versions[:limit] if limit else versions

    def marked(self, prefix: str, revision: int) -> Sequence[Version]:
        found = self._connection.execute(
            "SELECT key, revision, created, form, value FROM marked "
            "WHERE mark = ? AND key >= ? AND (? IS NULL OR key < ?) ORDER BY key",
            (revision, prefix, end := prefix_end(prefix), end),
        )
        return [Version(key, changed, created, _decoded([(0, 0, *rest)])[0]) for key, changed, created, *rest in found]

    def transactions(self, after: int, limit: int) -> Sequence[PastTransaction]:
        run = self._connection.execute
        found = run(
            "SELECT revision, cause FROM txn WHERE revision > ? ORDER BY revision LIMIT ?", (after, limit)
        ).fetchall()
        if not found:
            return []
        keys: dict[int, list[str]] = {revision: [] for revision, _ in found}
        for revision, name in run(
            "SELECT revision, name FROM change JOIN key ON key.id = change.key WHERE revision BETWEEN ? AND ?",
            (found[0][0], found[-1][0]),
        ):
            if revision in keys:
                keys[revision].append(name)
        return [
            PastTransaction(revision, _decompressed(cause, CAUSES) if cause else b"", tuple(sorted(keys[revision])))
            for revision, cause in found
        ]

    def revision_at(self, at: int) -> int:
        found = self._connection.execute(
            "SELECT revision FROM txn WHERE at <= ? ORDER BY at DESC, revision DESC LIMIT 1", (at,)
        ).fetchone()
        return found[0] if found is not None else 0

    def time_of(self, revision: int) -> int:
        found = self._connection.execute(
            "SELECT at FROM txn WHERE revision <= ? ORDER BY revision DESC LIMIT 1", (revision,)
        ).fetchone()
        return found[0] if found is not None else 0


def _rows_until(connection: sqlite3.Connection, number: int, revision: int) -> list[_Row]:
    """Return the rows of a key that are needed to decode its version at a revision, the oldest first."""
    rows: list[_Row] = []
    for row in connection.execute(
        "SELECT revision, created, form, value FROM change WHERE key = ? AND revision <= ? ORDER BY revision DESC",
        (number, revision),
    ):
        rows.append(row)
        if row[2] % _FORMS != _DELTA:
            break
    return rows[::-1]


def _encoded(value: bytes, previous: bytes | None) -> tuple[int, bytes]:
    """Return the form and the bytes of a value, as a difference to the previous one if there is one."""
    stored = _compressed(value, _dictionary(previous))
    if len(stored) >= len(value):
        return _RAW, value
    return (_COMPRESSED if previous is None else _DELTA), stored


def _dictionary(previous: bytes | None) -> bytes:
    return OBJECTS + previous[-_MAX_PREVIOUS:] if previous is not None else OBJECTS


def _compressed(value: bytes, dictionary: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, wbits=-15, zdict=dictionary)
    return compressor.compress(value) + compressor.flush()


def _decompressed(stored: bytes, dictionary: bytes) -> bytes:
    decompressor = zlib.decompressobj(wbits=-15, zdict=dictionary)
    return decompressor.decompress(stored) + decompressor.flush()


def _decoded(rows: Sequence[_Row]) -> list[bytes | None]:
    """Return the values of consecutive versions of a key, of which the first is independent of others."""
    values: list[bytes | None] = []
    value: bytes | None = None
    for _, _, form, stored in rows:
        kind = form % _FORMS
        if kind == _GONE or stored is None:
            value = None
        elif kind == _RAW:
            value = stored
        else:
            value = _decompressed(stored, _dictionary(value if kind == _DELTA else None))
        values.append(value)
    return values
