"""What printers take and give."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

Obj = dict[str, Any]


class PrintProblem(Exception):
    """What cannot be printed, or not in this way; the message is kubectl's.

    `output` is what goes to stdout before: templates that fail midway leave what they had, and what may help to see
    why. `hint` is what we can say besides, in lines of its own.
    """

    def __init__(self, message: str, output: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.output = output
        self.hint = hint


class WatchEvent(NamedTuple):
    """For `--output-watch-events`: the object together with what happened to it."""

    type: str
    object: Obj


Printable = Obj | WatchEvent


class Printer(Protocol):
    """Texts come without knowing where they go. Bytes that are no UTF-8 (from decoded secrets) come as surrogates:
    write with `surrogateescape`.
    """

    def print(self, obj: Printable) -> str:
        """What can be written now. Tables hold their rows back until `flush`, to align them all."""

    def flush(self) -> str:
        """What was held back."""


def list_items(obj: Obj) -> list[Obj] | None:
    """The objects of a list, None if it is no list."""
    items = obj.get("items")
    return items if isinstance(items, list) else None


def as_list(items: list[Obj]) -> Obj:
    """Many objects as the one document that `get` prints. kubectl writes and reads it once more on the way, which makes
    integers of floats that are some.
    """
    from setpoint.meta.gojson import go_round_trip  # tables are made of no lists

    return {"apiVersion": "v1", "items": go_round_trip(items), "kind": "List", "metadata": {"resourceVersion": ""}}


def as_document(obj: Printable) -> Obj:
    """What templates and paths look at."""
    return {"type": obj.type, "object": obj.object} if isinstance(obj, WatchEvent) else obj
