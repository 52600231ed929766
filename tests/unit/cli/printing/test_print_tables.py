"""Tables as kubectl formats them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.cli.printing import OutputFlags, PrintProblem, WatchEvent, make_get_printer
from setpoint.cli.tabwriter import SteadyColumns

NOW = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = [
    {"name": "Name", "type": "string", "format": "name"},
    {"name": "Ready", "type": "string"},
    {"name": "Status", "type": "string"},
    {"name": "Restarts", "type": "integer", "priority": 0},
    {"name": "Node", "type": "string", "priority": 1},
]


def table(*rows: list[Any], columns: list[dict[str, Any]] | None = None, **labels: str) -> dict[str, Any]:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": COLUMNS if columns is None else columns,
        "rows": [
            {"cells": cells, "object": {"metadata": {"name": cells[0], "namespace": "test", "labels": labels}}}
            for cells in rows
        ],
    }


WEB = ["web-1", "1/1", "Running", 0, "node-a"]
DB = ["db", "0/1", "CrashLoopBackOff", 12, "node-b"]


def printed(*objects: Any, flags: OutputFlags | None = None, **options: Any) -> str:
    printer = make_get_printer(flags or OutputFlags(), lambda: NOW, **options)
    return "".join(map(printer.print, objects)) + printer.flush()


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert printed(table(WEB, DB)) == (
        "NAME    READY   STATUS             RESTARTS\n"
        "web-1   1/1     Running            0\n"
        "db      0/1     CrashLoopBackOff   12\n"
    )


@pytest.mark.parametrize(
    ("flags", "options", "header", "row"),
    [
        (
            OutputFlags(output="wide"),
            {},
            "NAME    READY   STATUS    RESTARTS   NODE",
            "web-1   1/1     Running   0          node-a",
        ),
        (OutputFlags(no_headers=True), {}, "", "web-1   1/1   Running   0"),
        (
            OutputFlags(show_labels=True),
            {},
            "NAME    READY   STATUS    RESTARTS   LABELS",
            "web-1   1/1     Running   0          app=web,tier=front",
        ),
        (
            OutputFlags(label_columns=("x/app", "tier")),
            {},
            "NAME    READY   STATUS    RESTARTS   APP   TIER",
            "web-1   1/1     Running   0                front",
        ),
        (
            OutputFlags(show_kind=True),
            {"kind": "Pod"},
            "NAME        READY   STATUS    RESTARTS",
            "pod/web-1   1/1     Running   0",
        ),
        (
            OutputFlags(),
            {"kind": "Deployment", "group": "apps", "with_kind": True},
            "NAME                    READY   STATUS    RESTARTS",
            "deployment.apps/web-1   1/1     Running   0",
        ),
        (
            OutputFlags(),
            {"with_namespace": True},
            "NAMESPACE   NAME    READY   STATUS    RESTARTS",
            "test        web-1   1/1     Running   0",
        ),
    ],
)
def test_columns_added_by_flags(flags: OutputFlags, options: dict[str, Any], header: str, row: str) -> None:
    expected = [*filter(None, [header]), row]
    assert printed(table(WEB, app="web", tier="front"), flags=flags, **options).splitlines() == expected


def test_a_table_without_rows_prints_nothing() -> None:
    assert printed(table()) == ""


def test_control_characters_in_cells_are_escaped() -> None:
    """CVE-2021-25743."""
    rows: list[list[Any]] = [["a\x1b[31m", "two\nlines", "back\rover", None], ["b", 1.5, True, 1000000]]
    assert printed(table(*rows)) == (
        "NAME      READY    STATUS    RESTARTS\na^[[31m   two...   back...   \nb         1.5      true      1000000\n"
    )


def test_tables_of_one_kind_share_their_columns() -> None:
    """`get pod a b` gets two tables."""
    assert printed(table(WEB), table(DB)) == printed(table(WEB, DB))


def test_columns_of_a_watch_never_become_narrower() -> None:
    printer = make_get_printer(OutputFlags(), lambda: NOW)
    printer.print(table(WEB))
    assert printer.flush() == "NAME    READY   STATUS    RESTARTS\nweb-1   1/1     Running   0\n"
    printer.print(table(DB, columns=[]))
    assert printer.flush() == "db      0/1     CrashLoopBackOff   12\n"
    printer.print(table(WEB, columns=[]))
    assert printer.flush() == "web-1   1/1     Running            0\n"


def test_watch_events_have_their_own_column() -> None:
    printer = make_get_printer(OutputFlags(no_headers=False), lambda: NOW)
    printer.print(WatchEvent("ADDED", table(WEB)))
    assert printer.flush() == (
        "EVENT      NAME    READY   STATUS    RESTARTS\nADDED      web-1   1/1     Running   0\n"
    )


def test_objects_without_a_table() -> None:
    objects = [
        {"kind": "Thing", "metadata": {"name": "old", "creationTimestamp": "2025-12-30T00:00:00Z", "namespace": "x"}},
        {"kind": "Thing", "metadata": {"name": "timeless", "labels": {"a": "b"}}},
    ]
    assert printed({"kind": "List", "items": objects}) == "NAME       AGE\nold        3d\ntimeless   <unknown>\n"
    assert printed(
        *objects, flags=OutputFlags(show_labels=True, show_kind=True), kind="Thing", with_namespace=True
    ) == (
        "NAMESPACE   NAME             AGE         LABELS\n"
        "x           thing/old        3d          <none>\n"
        "            thing/timeless   <unknown>   a=b\n"
    )


def test_colours_do_not_affect_alignment() -> None:
    shown = printed(table(WEB, DB), colour=True)
    assert "\x1b[32mRunning\x1b[0m" in shown and "\x1b[31mCrashLoopBackOff\x1b[0m" in shown
    assert "\x1b[33m0/1\x1b[0m" in shown and shown.startswith("\x1b[2mNAME\x1b[0m")
    bare = shown
    for code in ("\x1b[0m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"):
        bare = bare.replace(code, "")
    assert bare == printed(table(WEB, DB))


def test_colours_continue_in_a_watch() -> None:
    printer = make_get_printer(OutputFlags(), lambda: NOW, colour=True)
    printer.print(table(WEB))
    printer.flush()
    printer.print(table(DB, columns=[]))
    assert "\x1b[31mCrashLoopBackOff" in printer.flush()


@given(st.lists(st.lists(st.text(alphabet="ab ü", max_size=9), min_size=3, max_size=3), min_size=1, max_size=6))
def test_cells_are_aligned_with_their_column(rows: list[list[str]]) -> None:
    lines = SteadyColumns().align("".join("\t".join(row) + "\n" for row in rows)).splitlines()
    starts = [0]
    for column in range(2):
        starts.append(starts[-1] + max(6, max(len(row[column]) for row in rows) + 3))
    for line, row in zip(lines, rows, strict=True):
        for start, cell in zip(starts, row, strict=True):
            assert line[start : start + len(cell)] == cell


# -- sorting ----------------------------------------------------------------------------------------------------------


def things(**sizes: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "Thing", "apiVersion": "v1", "metadata": {"name": name}, **({} if size is ... else {"size": size})}
        for name, size in sizes.items()
    ]


def order(field: str, objects: list[dict[str, Any]]) -> str:
    listed = printed({"kind": "List", "apiVersion": "v1", "items": objects}, flags=OutputFlags("name", sort_by=field))
    return "".join(line.removeprefix("thing/") for line in listed.split())


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (things(a=3, b=1, c=2), "bca"),
        (things(a=2.5, b=-1.0), "ba"),
        (things(a="10", b="9", c="1k", d="500m"), "dbac"),
        (things(a="x10", b="9", c="x9"), "bac"),
        (things(a="2024-05-01T00:00:00Z", b="2023-01-01T00:00:00Z"), "ba"),
        (things(a=1, b=..., c=0, d=...), "dbca"),  # what lacks the field comes first, the last one foremost
        (things(a=1, b=None), "ba"),
        (things(a=1, b=1, c=1), "abc"),
    ],
)
def test_sorting(objects: list[dict[str, Any]], expected: str) -> None:
    assert order(".size", objects) == expected
    assert order("size", objects) == order("{.size}", objects) == expected


def test_rows_are_sorted_by_their_objects() -> None:
    assert printed(table(WEB, DB), flags=OutputFlags(sort_by=".metadata.name")) == printed(table(DB, WEB))


@pytest.mark.parametrize(
    ("field", "objects", "complaint"),
    [
        (".weight", things(a=1, b=2), 'couldn\'t find any field with path "{.weight}" in the list of objects'),
        (".size", things(a=True, b=False), "unsortable type: bool"),
        (".size", things(a=1, b="x"), "unsortable interface: interface"),
        ("{.a}{.b}", things(a=1, b=2), "unexpected path string"),
    ],
)
def test_values_that_cannot_be_sorted(field: str, objects: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(PrintProblem) as caught:
        order(field, objects)
    assert complaint in str(caught.value)


def test_equal_objects_are_ordered_as_go_does() -> None:
    """Recorded from kubectl: sixteen objects, every other one equal."""
    from setpoint.cli.printing.go_sort import sort

    values = [at % 2 for at in range(16)]
    assert sort(16, lambda a, b: values[a] < values[b]) == [8, 10, 2, 14, 4, 12, 6, 0, 9, 7, 1, 11, 5, 13, 3, 15]


@given(st.lists(st.integers(0, 50), max_size=300))
def test_sorting_sorts(values: list[int]) -> None:
    from setpoint.cli.printing.go_sort import sort

    found = sort(len(values), lambda a, b: values[a] < values[b])
    assert [values[at] for at in found] == sorted(values)
    assert sorted(found) == list(range(len(values)))
