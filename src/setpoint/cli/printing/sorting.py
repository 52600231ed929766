"""`--sort-by`: sort objects and rows by a field."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from setpoint.cli.printing.go_sort import sort
from setpoint.cli.printing.interface import Printable, Printer, PrintProblem, WatchEvent, list_items
from setpoint.cli.printing.table import is_table
from setpoint.meta.goformat import quote, type_name
from setpoint.meta.jsonpath import JsonPath, JsonPathError, relaxed
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import QuantityError, parse


class SortingPrinter:
    """Sorts the rows of a table and the items of a list before they are passed to another printer."""

    def __init__(self, field: str, printer: Printer) -> None:
        self._field = field
        self._printer = printer

    def print(self, obj: Printable) -> str:
        if not isinstance(obj, WatchEvent):
            if is_table(obj):
                if len(obj.get("rows") or ()) > 1:
                    obj = {**obj, "rows": sorted_rows(obj["rows"], self._field)}
            elif items := list_items(obj):
                obj = {**obj, "items": sorted_objects(items, self._field)}
        return self._printer.print(obj)

    def flush(self) -> str:
        return self._printer.flush()


def sorted_objects(objects: Sequence[Obj], field: str) -> list[Obj]:
    """Sort objects by a field, which at least one of them must have."""
    try:
        path = JsonPath.parse(relaxed(field), allow_missing_keys=True)
    except JsonPathError as problem:
        raise PrintProblem(str(problem)) from None
    return _sorted(objects, objects, path, "*unstructured.Unstructured")


def sorted_rows(rows: Sequence[Obj], field: str) -> list[Obj]:
    """Sort the rows of a table by a field of their objects."""
    with suppress(JsonPathError):  # otherwise it is taken as it is
        field = relaxed(field)
    try:
        path = JsonPath.parse(field, allow_missing_keys=True)
    except JsonPathError as problem:
        raise PrintProblem(f"sorting error: {problem}") from None
    return _sorted(rows, [row.get("object") or {} for row in rows], path, "[][][]reflect.Value")


def _sorted(things: Sequence[Obj], objects: Sequence[Obj], path: JsonPath, type_: str) -> list[Obj]:
    try:
        found = [path.groups(obj) for obj in objects]
    except JsonPathError as problem:
        raise PrintProblem(str(problem)) from None
    if not any(groups and groups[0] for groups in found):
        raise PrintProblem(f"couldn't find any field with path {quote(path.text)} in the list of objects")

    def less(left: int, right: int) -> bool:
        for groups, verdict in ((found[left], True), (found[right], False)):
            if not groups or not groups[0]:
                return verdict  # objects without the field come first
        try:
            return _less(found[left][0][0], found[right][0][0])
        except TypeError as error:
            raise PrintProblem(f"Field {path.text} in {type_} is an unsortable type: interface, err: {error}") from None

    return [things[at] for at in sort(len(things), less)]


def _less(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is None and right is not None
    if isinstance(left, bool) or not isinstance(left, int | float | str):
        raise TypeError(f"unsortable type: {type_name(left)}")
    if type_name(left) != type_name(right):
        raise TypeError("unsortable interface: interface")
    if isinstance(left, str):
        try:
            return parse(left).nano < parse(right).nano
        except QuantityError:
            pass  # texts, then
    return bool(left < right)
