"""Files with the state of a cluster: what is written is read again, and what is damaged or hostile is refused."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from setpoint.cluster import snapshot_file
from setpoint.cluster.snapshot_file import (
    Input,
    InvalidSnapshot,
    SnapshotHeader,
    SnapshotReader,
    SnapshotWriter,
    StoredChange,
    StoredObject,
)

HEADER = {"format": 1, "revision": 7, "at": "2026-01-01T00:00:00Z"}
END = {"end": {"objects": 1, "changes": 0, "at": 0}}


def obj(name: str, version: int = 5, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u", "resourceVersion": str(version)}, **more}


def line(name: str, version: int = 5) -> dict[str, Any]:
    return {"k": f"core/namespaces/{name}", "v": obj(name, version)}


def written(path: Path, *lines: Any) -> Path:
    path.write_bytes(gzip.compress(b"".join(json.dumps(each).encode() + b"\n" for each in lines)))
    return path


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path, value = tmp_path / "a.setpoint", json.dumps(obj("a"), separators=(",", ":")).encode()
    header = SnapshotHeader(
        7, "2026-01-01T00:00:00Z", "uid", "v1.37.0", left_out=("Secrets are left out.",), recording=True
    )
    change = StoredChange(9, 1000, [1, 1000, "patch", "alice"], (("core/namespaces/a", None),))
    repeated = StoredChange(
        11, 2000, [], (), (Input("patch", "core/namespaces/b", {"metadata": {"labels": {"a": "b"}}}),)
    )
    writer = SnapshotWriter(path, header)
    writer.add(StoredObject("core/namespaces/a", 5, value))
    writer.change(change)
    writer.change(repeated)
    interrupted = SnapshotReader(path)
    assert interrupted.check() == (1, 2) and not interrupted.complete, "what was recorded before a crash can be read"
    writer.final("core/namespaces/a", value)
    writer.finish(3000)
    writer.abandon()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    reader = SnapshotReader(path)
    assert reader.header == header
    assert [*reader.objects()] == [StoredObject("core/namespaces/a", 5, value)]
    assert [*reader.changes()] == [change, repeated]
    assert (reader.complete, reader.ended_at, reader.final) == (True, 3000, {"core/namespaces/a": value})
    with pytest.raises(FileExistsError):
        SnapshotWriter(path, header)


def test_a_snapshot_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.setpoint"
    writer = SnapshotWriter(path, SnapshotHeader(7, "2026-01-01T00:00:00Z"))
    assert not path.exists()
    writer.abandon()
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(FileNotFoundError, match=r"/none/a\.setpoint'$"):
        SnapshotWriter(tmp_path / "none" / "a.setpoint", SnapshotHeader(7, "2026-01-01T00:00:00Z"))


WRONG: dict[str, list[Any]] = {
    "the first line does not name its format": [{"hello": 1}],
    "has the format 2": [{**HEADER, "format": 2}],
    "has no revision and time": [{"format": 1, "revision": -1, "at": "x"}],
    "at has the wrong type": [{**HEADER, "at": 5}],
    "secrets has an unknown value": [{**HEADER, "secrets": "?"}],
    "line 2: it is not a JSON object": [HEADER, []],
    "line 2: it has no valid key": [HEADER, {"k": "core/namespaces/../a", "v": obj("a")}],
    "line 2: it has no object with metadata": [HEADER, {"k": "core/namespaces/a", "v": {}}],
    "line 2: the object has another name than its key": [HEADER, {"k": "core/namespaces/a", "v": obj("b")}],
    "line 2: the object has no resourceVersion": [
        HEADER,
        {"k": "core/namespaces/a", "v": {"metadata": {"name": "a", "uid": "u", "resourceVersion": "-1"}}},
    ],
    "it is incomplete: it ends in the middle": [HEADER, line("a")],
    "line 2: it has no writes": [HEADER, {"r": 8, "at": 1, "c": []}, END],
    "line 2: a write is not a key with an object": [HEADER, {"r": 8, "at": 1, "c": [], "w": ["x"]}, END],
    "line 2: revision 6 does not come after 7": [HEADER, {"r": 6, "at": 1, "c": [], "w": []}, END],
    "line 2: an input is not a known request with a key": [
        HEADER,
        {"r": 8, "at": 1, "c": [], "i": [{"do": "exec", "key": "core/pods/a/b", "body": {}}]},
    ],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, message: str) -> None:
    path = written(tmp_path / "a.setpoint", *WRONG[message])
    with pytest.raises(InvalidSnapshot) as found:
        SnapshotReader(path).check()
    assert message.removeprefix("it ") in str(found.value)


def test_what_is_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file can be decompressed to any size: lines, their length and the total are bounded."""
    monkeypatch.setattr(snapshot_file, "_MAX_LINE", 1 << 20)
    path = tmp_path / "a.setpoint"
    path.write_bytes(gzip.compress(json.dumps(HEADER).encode() + b"\n" + b" " * (4 << 20)))
    with pytest.raises(InvalidSnapshot, match="line 2: it is longer than 1 MiB"):
        SnapshotReader(path).check()
    monkeypatch.setattr(snapshot_file, "_MAX_LINES", 3)
    with pytest.raises(InvalidSnapshot, match="line 4: there are more than 3 lines"):
        SnapshotReader(written(path, HEADER, line("a"), line("b"), line("c"), END)).check()
    monkeypatch.setattr(snapshot_file, "_MAX_TOTAL", 100)
    with pytest.raises(InvalidSnapshot, match="of data"):
        SnapshotReader(written(path, HEADER, line("a"), END)).check()


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "a.setpoint", HEADER, *(line(f"n{number}") for number in range(200)), END)
    whole = path.read_bytes()
    assert SnapshotReader(path).check() == (200, 0)
    for damaged in (whole[: len(whole) // 2], whole[:50] + b"\xff" * 20 + whole[70:], b"", b"PK" + whole):
        path.write_bytes(damaged)
        with pytest.raises(InvalidSnapshot):
            SnapshotReader(path).check()
