"""The interface of printers, and the one that prints names and operations: `pod/web created`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from setpoint.meta.objects import Obj


class PrintProblem(Exception):
    """An object cannot be printed in this format; the message is kubectl's.

    `output` is written to stdout before it: the text of a template that failed midway, and data for debugging. `hint`
    is our additional explanation, in separate lines.
    """

    def __init__(self, message: str, output: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.output = output
        self.hint = hint


class WatchEvent(NamedTuple):
    """An object with its watch event type, for `--output-watch-events`."""

    type: str
    object: Obj


Printable = Obj | WatchEvent


class Printer(Protocol):
    """Converts objects to text without I/O. Bytes that are not valid UTF-8 (from decoded secrets) are surrogates: write
    them with `surrogateescape`."""

    def print(self, obj: Printable) -> str:
        """Return the text that can be written now. Tables hold back their rows until `flush`, to align them."""

    def flush(self) -> str:
        """Return the text that was held back."""


def list_items(obj: Obj) -> list[Obj] | None:
    """Return the objects of a list; None if it is not a list."""
    items = obj.get("items")
    return items if isinstance(items, list) else None


def as_list(items: list[Obj]) -> Obj:
    """Return objects as the one List document that `get` prints.

    kubectl encodes and decodes it once more, which converts integral floats to integers.
    """
    from setpoint.meta.gojson import go_round_trip  # tables are made of no lists

    return {"apiVersion": "v1", "items": go_round_trip(items), "kind": "List", "metadata": {"resourceVersion": ""}}


def as_document(obj: Printable) -> Obj:
    """Return the object that templates and paths are evaluated on."""
    return {"type": obj.type, "object": obj.object} if isinstance(obj, WatchEvent) else obj


DRY_RUN = {"none": "%s", "client": "%s (dry run)", "server": "%s (server dry run)"}
"""The format of a success line by the value of `--dry-run`."""


def qualified_name(obj: Obj) -> str:
    """Return `pod/web` or `deployment.apps/web`."""
    kind = obj.get("kind") or ""
    if not kind or not obj.get("apiVersion"):
        raise PrintProblem("missing apiVersion or kind; try GetObjectKind().SetGroupVersionKind() if you know the type")
    group = obj["apiVersion"].rpartition("/")[0]
    name = (obj.get("metadata") or {}).get("name") or "<unknown>"
    return f"{kind.lower()}.{group}/{name}" if group else f"{kind.lower()}/{name}"


class NamePrinter:
    """Prints a line for each object with its name and the operation, if any."""

    def __init__(self, operation: str = "") -> None:
        self._ending = f" {operation}\n" if operation else "\n"

    def print(self, obj: Printable) -> str:
        if isinstance(obj, WatchEvent):
            obj = obj.object
        items = list_items(obj)
        if items is not None:
            return "".join(map(self.print, items))
        return qualified_name(obj) + self._ending

    def flush(self) -> str:
        return ""
