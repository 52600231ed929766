"""`get --watch`: one line per change for programs, in place on a terminal."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from command_line import Typed
from local_server import LocalServer

from setpoint.cli.printing import OutputFlags, make_get_printer
from setpoint.cli.verbs.get_watch import LiveTable
from setpoint.meta.objects import Obj

COLUMNS = [{"name": "Name", "type": "string", "format": "name"}, {"name": "State", "type": "string"}]


def table(*rows: tuple[str, str], columns: bool = True) -> Obj:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": COLUMNS if columns else [],
        "rows": [{"cells": list(row), "object": {"metadata": {"name": row[0], "uid": row[0]}}} for row in rows],
    }


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def live(height: int = 24, width: int = 80) -> LiveTable:
    return LiveTable(lambda: make_get_printer(OutputFlags(), lambda: NOW), (width, height))


async def turns() -> None:
    """Everybody in this process has had the chance to do what they can."""
    for _ in range(200):
        await asyncio.sleep(0)


def test_rows_are_updated_in_place() -> None:
    shown = live()
    assert shown.see(table(("a", "Pending"), ("b", "Running"))) == "NAME   STATE\na      Pending\nb      Running\n"
    changed = shown.see(table(("a", "Running"), columns=False))
    assert changed == "\x1b[3F\x1b[JNAME   STATE\na      Running\nb      Running\n"
    assert shown.see(table(("b", "Running")), gone=True) == "\x1b[3F\x1b[JNAME   STATE\na      Running\n"
    assert shown.see(table(("c", "New"))).startswith("\x1b[2F\x1b[J")


def test_more_rows_than_lines_are_printed_line_by_line() -> None:
    shown = live(height=4)
    shown.see(table(("a", "1"), ("b", "1")))
    more = shown.see(table(("c", "1")))
    assert "\x1b" not in more
    assert "c" in more
    assert shown.see(table(("c", "2"), columns=False)).split() == ["c", "2"]


def test_ages_are_updated_without_changes() -> None:
    aged = table(("a", "Running"))
    aged["columnDefinitions"] = [*COLUMNS, {"name": "Age", "type": "string"}]
    (row,) = aged["rows"]
    row["cells"].append("2s")
    row["object"]["metadata"]["creationTimestamp"] = "2025-12-31T23:59:58Z"
    shown = live()
    assert shown.see(aged) == "NAME   STATE     AGE\na      Running   2s\n"
    assert shown.grow_older(NOW) == ""
    assert shown.grow_older(NOW + timedelta(seconds=3)) == "\x1b[2F\x1b[JNAME   STATE     AGE\na      Running   5s\n"
    assert shown.grow_older(NOW + timedelta(seconds=3)) == ""
    # Nothing that has scrolled away is drawn again, and what has no age has none.
    scrolled = live(height=1)
    scrolled.see(aged)
    assert scrolled.grow_older(NOW + timedelta(hours=1)) == ""
    assert live().grow_older(NOW) == ""


def test_long_lines_wrap_on_the_terminal() -> None:
    shown = live(width=20)
    shown.see(table(("a-name-that-is-longer-than-the-terminal", "Running")))
    assert shown.see(table(("b", "New"))).startswith("\x1b[6F\x1b[J")


async def test_every_change_is_one_line(typed: Typed, local_server: LocalServer) -> None:
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}
    await local_server.client.create(one)
    watching = asyncio.ensure_future(typed.run("get configmaps --watch -o name"))
    for name in ("two", "three"):
        await turns()
        await local_server.client.create({**one, "metadata": {"name": name, "namespace": "default"}})
    await turns()
    await local_server.api.stop()
    done = await watching
    assert done.out.splitlines() == ["configmap/one", "configmap/two", "configmap/three"], done.err
