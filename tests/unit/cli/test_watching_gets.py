"""`get --watch`: line by line for programs, in place for people."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from command_line import Typed
from local_server import LocalServer

from setpoint.cli.live_table import LiveTable
from setpoint.cli.printing import Obj, OutputFlags, make_get_printer

COLUMNS = [{"name": "Name", "type": "string", "format": "name"}, {"name": "State", "type": "string"}]


def table(*rows: tuple[str, str], columns: bool = True) -> Obj:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": COLUMNS if columns else [],
        "rows": [{"cells": list(row), "object": {"metadata": {"name": row[0], "uid": row[0]}}} for row in rows],
    }


def live(height: int = 24) -> LiveTable:
    return LiveTable(lambda: make_get_printer(OutputFlags(), lambda: datetime(2026, 1, 1, tzinfo=UTC)), height)


async def turns() -> None:
    """Everybody in this process has had the chance to do what they can."""
    for _ in range(200):
        await asyncio.sleep(0)


def test_rows_change_where_they_stand() -> None:
    shown = live()
    assert shown.see(table(("a", "Pending"), ("b", "Running"))) == "NAME   STATE\na      Pending\nb      Running\n"
    changed = shown.see(table(("a", "Running"), columns=False))
    assert changed == "\x1b[3F\x1b[JNAME   STATE\na      Running\nb      Running\n"
    assert shown.see(table(("b", "Running")), gone=True) == "\x1b[3F\x1b[JNAME   STATE\na      Running\n"
    assert shown.see(table(("c", "New"))).startswith("\x1b[2F\x1b[J")


def test_more_than_a_screen_is_told_line_by_line() -> None:
    shown = live(height=4)
    shown.see(table(("a", "1"), ("b", "1")))
    more = shown.see(table(("c", "1")))
    assert "\x1b" not in more
    assert "c" in more
    assert shown.see(table(("c", "2"), columns=False)).split() == ["c", "2"]


async def test_every_change_is_a_line(typed: Typed, local_server: LocalServer) -> None:
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
