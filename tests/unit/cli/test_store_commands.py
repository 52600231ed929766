"""`setpoint store check` and `setpoint store copy` on the command line."""

from __future__ import annotations

import asyncio
from io import BytesIO
from pathlib import Path

import pytest
from command_line import typed_offline

from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run
from setpoint.store.interface import Put
from setpoint.store.sqlite import SqliteStore

MAP = (
    b'{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"","creationTimestamp":'
    b'"2030-01-01T00:00:00Z"}}'
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one object whose namespace is missing, and one that is not JSON."""

    async def fill() -> None:
        store = SqliteStore.open(tmp_path / "data" / "state.db")
        stamp = MAP.index(b'"resourceVersion":"') + len(b'"resourceVersion":"')
        await store.txn([Put("core/configmaps/default/a", MAP, stamp=stamp), Put("core/configmaps/default/b", b"?")])
        await store.close()

    (tmp_path / "data").mkdir()
    asyncio.run(fill())
    return tmp_path / "data"


def test_problems_are_a_table_and_the_exit_code(data: Path, tmp_path: Path) -> None:
    for line in (f"store check {data}", f"store check {data}/state.db", f"store check --data-dir {data}"):
        done = typed_offline(line, tmp_path)
        assert (done.code, done.err) == (1, "")
        lines = done.out.splitlines()
        assert lines[:5] == [
            "RESOURCE    OBJECTS",
            "configmaps  2",
            "",
            "KEY                        PROBLEM",
            "core/configmaps/default/a  its namespace default does not exist",
        ]
        assert lines[5].startswith("core/configmaps/default/b  it is not JSON")
        assert lines[6:] == ["", "2 objects at revision 1: 2 problems."]


def test_a_copy_shows_its_progress_on_a_terminal(data: Path, tmp_path: Path) -> None:
    class Terminal(BytesIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    io = CommandIO(stdin=BytesIO(), stdout=out, stderr=BytesIO(), environment={}, home=tmp_path)
    assert run(["store", "copy", str(data), str(tmp_path / "other")], io) == 0
    shown = out.getvalue().decode()
    assert "\r\x1b[KCopied 2 of 2 keys\r\x1b[K2 keys of" in shown
    assert shown.endswith("were copied to " + f"{tmp_path}/other/state.db and verified. It continues at revision 1.\n")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("store check none", "there is no database at none/state.db"),
        ("store check a b", "name one store at most"),
        ("store copy a", "name two stores: setpoint store copy FROM TO"),
        ("store copy none other", "there is no database at none/state.db"),
        ("store copy ftp://a b", "--etcd-servers must be URLs that all begin with https://, or all with http://"),
        ("backup x --etcd-servers http://127.0.0.1:1 --data-dir d", "name two different stores"),
        ("restore none", "the backup none cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    line: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed_offline(line, tmp_path)
    assert done.code == 1
    assert reason in done.err
    assert len(done.err.splitlines()) == 1
